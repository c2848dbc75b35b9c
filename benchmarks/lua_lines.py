"""What the Lua virtual machine executes, by source line: counted, so it is exact on a busy machine too.

    python -m benchmarks.lua_lines [--batch N] [--lua FOLDER] [--most LINES]

The scripts run in fakeredis, whose Lua is the same 5.1; a hook counts each instruction. The count says where a script
works, not what an instruction costs: a string format or a new table is one instruction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from benchmarks.folders import lua_from
from benchmarks.report import say, table
from benchmarks.verbs import PAYLOAD, fill, queue_on
from redisq import Delivery, Engine, Queue
from redisq.scripts import Script, script
from redisq.transport import memory

STORE = "lua-lines"

HOOK = """
local counts = {}
local getinfo, sethook = debug.getinfo, debug.sethook
local function hook()
  local line = getinfo(2, "l").currentline
  counts[line] = (counts[line] or 0) + 1
end
return { counts = counts, on = function() sethook(hook, "", 1) end, off = function() sethook() end,
  clear = function() for line in pairs(counts) do counts[line] = nil end end }
"""


class LineCounter:
    """Counts the instructions of what runs in fakeredis, by line of the linked script."""

    def __init__(self) -> None:
        client: Any = memory.client(STORE, asynchronous=False)
        self._hook = client.connection_pool.connection_kwargs["server"]._lua_runtime.execute(HOOK)

    def count(self, linked: Script, action: Callable[[], object]) -> Counter[tuple[str, int]]:
        self._hook[b"clear"]()
        self._hook[b"on"]()
        try:
            action()
        finally:
            self._hook[b"off"]()
        counts: Counter[tuple[str, int]] = Counter()
        for line, times in self._hook[b"counts"].items():
            if 1 <= line <= len(linked._origins):
                counts[linked._origins[int(line) - 1]] += int(times)
        return counts


@click.command()
@click.option("--batch", type=click.IntRange(1, 1000), default=100, show_default=True)
@click.option(
    "--lua", "folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Another lua/ folder."
)
@click.option("--most", type=click.IntRange(1), default=15, show_default=True, help="Lines shown of each script.")
def main(batch: int, folder: Path | None, most: int) -> None:
    """Instructions per job of the hot scripts, by file and by line."""
    with lua_from(folder), Engine(f"memory://{STORE}", namespace="lines") as engine:
        queue = queue_on(engine, "q")
        fill(queue, 100)
        root = folder or Path(__file__).parent.parent / "lua"
        counter = LineCounter()
        for verb, name, action in _actions(queue, batch):
            counts = counter.count(script(f"jobs/{name}"), action)
            say(_files(verb, batch, counts))
            say(table(f"{verb}: lines", ["instructions a job", "line", "source"], [
                (f"{times / batch:.1f}", f"lua/{path}:{line}", _source(root / path, line))
                for (path, line), times in counts.most_common(most)
            ]))  # fmt: skip


def _actions(queue: Queue[str], batch: int) -> list[tuple[str, str, Callable[[], object]]]:
    held: list[Delivery] = []

    def take() -> None:
        held[:] = queue.take_many(batch)

    def exchange() -> None:
        _, held[:] = queue.exchange(held, batch)

    return [
        ("offer", "offer", lambda: queue.offer_many([PAYLOAD] * batch)),
        ("take", "take", take),
        ("renew", "renew", lambda: queue.renew_many(held)),
        ("exchange", "exchange", exchange),
        ("ack", "settle", lambda: queue.ack_many(held)),
    ]


def _files(verb: str, batch: int, counts: Counter[tuple[str, int]]) -> str:
    files: Counter[str] = Counter()
    for (path, _), times in counts.items():
        files[path] += times
    parts = ", ".join(f"{path} {times / batch:.0f}" for path, times in files.most_common(12))
    return f"{verb}: {counts.total() / batch:.0f} instructions a job at batch {batch}: {parts}\n"


def _source(path: Path, line: int) -> str:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return lines[line - 1].strip()[:90] if 1 <= line <= len(lines) else ""


if __name__ == "__main__":
    main()
