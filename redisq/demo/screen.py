"""What a person sees: a progress bar while it runs, a table at the end."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection
from typing import TextIO

import click

from redisq.demo.proof import Section

BAR_WIDTH = 20
PLAIN_STEPS = 10


class Progress:
    """A bar on a terminal; elsewhere a plain line now and then. Both go to `bar`, and what is said goes to `out`."""

    def __init__(self, total: int, out: TextIO = sys.stdout, bar: TextIO = sys.stderr) -> None:
        self._total = total
        self._out = out
        self._bar = bar
        self._live = bar.isatty()
        self._shown = ""
        self._step = 0

    def update(self, done: int, note: str) -> None:
        """Show that `done` of the total are finished; `note` says what else there is."""
        if self._live:
            filled = BAR_WIDTH * done // self._total
            self._draw(f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {done:,} of {self._total:,}  {note}")
        elif (step := PLAIN_STEPS * done // self._total) > self._step:
            self._step = step
            click.echo(f"  {done:,} of {self._total:,}  {note}", file=self._bar)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        shown = self._shown
        self._draw("")
        click.echo(text, file=self._out)
        self._draw(shown)

    def end(self) -> None:
        """Leave the bar as it stands and go on below it."""
        if self._shown:
            click.echo(file=self._bar)
            self._shown = ""

    def _draw(self, text: str) -> None:
        text = text[: shutil.get_terminal_size().columns - 1]
        if text != self._shown:
            blank = " " * (len(self._shown) - len(text))
            click.echo(f"\r{text}{blank}" + ("" if text else "\r"), file=self._bar, nl=False)
            self._shown = text


def table(sections: list[Section]) -> str:
    """The checks as text, each with its two numbers and a mark."""
    width = max(len(check.title) for section in sections for check in section.checks)
    lines = []
    for section in sections:
        left, right = section.columns
        lines += ["", f"{section.title:<{width + 7}}{left:>12}{right:>12}"]
        for check in section.checks:
            mark = "[ok]" if check.holds else "[NO]"
            lines.append(f"  {mark} {check.title:<{width}}{_count(check.expected):>12}{_count(check.counted):>12}")
    return "\n".join(lines[1:])


def _count(value: Collection[str] | int) -> str:
    return f"{value if isinstance(value, int) else len(value):,}"
