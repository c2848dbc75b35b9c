"""The state diagram of lua/README.md, made from the MOVES lines of the job scripts. Run it to print the diagram."""

from __future__ import annotations

from tests.contract.heads import LUA, head, scripts

BEGIN, END = "<!-- moves: begin", "<!-- moves: end -->"


def diagram() -> str:
    """A Mermaid diagram: every move, with the scripts that make it."""
    makers: dict[tuple[str, str], list[str]] = {}
    for name in scripts():
        kind, _, script = name.partition("/")
        if kind == "jobs":
            for move in head(name).moves():
                makers.setdefault(move, []).append(script)
    lines = [
        f"    {_node(start)} --> {_node(end)}: {', '.join(sorted(names))}"
        for (start, end), names in sorted(makers.items())
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def shown() -> str:
    """The diagram that the README shows."""
    text = (LUA / "README.md").read_text(encoding="utf-8")
    return text.partition(BEGIN)[2].partition("-->\n")[2].partition(END)[0].strip()


def _node(state: str) -> str:
    return "[*]" if state in ("(new)", "removed") else state


if __name__ == "__main__":
    print(diagram())  # noqa: T201 - it is what this module is for
