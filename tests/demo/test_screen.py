from __future__ import annotations

import io

import pytest

from redisq.demo.proof import Check, Section
from redisq.demo.screen import Progress, table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_a_plain_line_for_every_tenth() -> None:
    out, bar = io.StringIO(), io.StringIO()
    progress = Progress(2_000, out, bar)
    for done in (0, 100, 200, 210, 399, 1_000, 2_000):
        progress.update(done, "going")
    progress.say("by the way")
    progress.end()
    assert bar.getvalue() == "".join(f"  {done} of 2,000  going\n" for done in ("200", "1,000", "2,000"))
    assert out.getvalue() == "by the way\n"


def test_a_terminal_gets_one_line_drawn_over_and_over() -> None:
    out, bar = io.StringIO(), Terminal()
    progress = Progress(100, out, bar)
    progress.update(0, "a long note")
    progress.update(50, "short")
    progress.say("by the way")
    progress.update(100, "end")
    progress.end()
    drawn = bar.getvalue()
    assert drawn.count("\n") == 1
    assert drawn.endswith("\n")
    assert _on_screen(drawn).rstrip() == f"[{'#' * 20}] 100 of 100  end"
    assert out.getvalue() == "by the way\n"


def test_a_line_never_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    bar = Terminal()
    Progress(100, io.StringIO(), bar).update(50, "a note that does not fit into these columns")
    assert len(_on_screen(bar.getvalue())) == 39


def test_what_is_said_finds_an_empty_line() -> None:
    bar = Terminal()
    progress = Progress(100, io.StringIO(), bar)
    progress.update(50, "half")
    before = len(bar.getvalue())
    progress.say("by the way")
    wiped = bar.getvalue()[before:]
    assert _on_screen(bar.getvalue()[:before] + wiped[: wiped.rindex("\r[")]).strip() == ""
    assert "50 of 100  half" in wiped


def test_the_table_marks_what_does_not_hold() -> None:
    checks = [Check("the same", 1_000, 1_000), Check("ids", {"A", "B"}, {"A", "C"})]
    text = table([Section("Counts", ("file", "queue"), checks)])
    title, same, ids = text.splitlines()
    assert title.split() == ["Counts", "file", "queue"]
    assert same.split() == ["[ok]", "the", "same", "1,000", "1,000"]
    assert ids.split() == ["[NO]", "ids", "2", "2"]


def _on_screen(drawn: str) -> str:
    """What a line of a terminal shows after these characters."""
    line: list[str] = []
    column = 0
    for character in drawn.rstrip("\n"):
        if character == "\r":
            column = 0
            continue
        line[column : column + 1] = [character]
        column += 1
    return "".join(line)
