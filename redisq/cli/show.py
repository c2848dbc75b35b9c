"""Output: JSON documents, tables that fit the terminal, and the escaping of text that comes from stored data."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import click
import msgspec

from redisq.model import ErrorDetail
from redisq.values import at_from_ms

Cell: TypeAlias = "str | tuple[str, str]"
"""A text, or a text and its colour."""

WIDEST = 100_000
"""Columns of a pipe: nothing is cut there."""
NARROWEST = 4
AT_ONCE = 100
"""Lines of one write."""
FIELD = 30
"""Columns of the name of a field, at most."""

COLOURS = {
    "ready": "cyan", "scheduled": "blue", "leased": "yellow", "completed": "green", "dead": "red",
    "quarantined": "magenta", "damaged": "red", "expired": "red", "active": "cyan", "acknowledged": "green",
    "ok": "green", "warning": "yellow", "problem": "red", "paused": "yellow",
}  # fmt: skip

# what JSON allows inside a string and a terminal may act on: DEL, C1 controls, and marks that reorder or hide text
_UNSAFE = re.compile(
    "[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"))


def escaped(text: str) -> str:
    """`text` with everything that is not printable (controls, line ends, marks that reorder) written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def document(value: Any) -> None:
    """Prints one JSON document: a record or an array, on one line in a pipe. Bytes are base64."""
    data = encoded(value)
    click.echo(msgspec.json.format(data, indent=2) if sys.stdout.isatty() else data)


def encoded(value: Any) -> str:
    """JSON without anything that a terminal may act on."""
    return _UNSAFE.sub(_json_escape, msgspec.json.encode(value, enc_hook=repr).decode())


def _json_escape(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def value_text(value: Any) -> str:
    """A stored value on one line: JSON, or an undecodable one as Python writes bytes."""
    return ascii(value) if isinstance(value, bytes) else encoded(value)


def error_text(error: ErrorDetail | None) -> str:
    if error is None:
        return ""
    return f"{error.type}: {error.message}" if error.message else error.type


def coloured(word: str) -> Cell:
    return (word, COLOURS[word]) if word in COLOURS else word


def table(headers: Sequence[str], rows: Iterable[Sequence[Cell]], *, right: Sequence[str] = ()) -> None:
    """Prints rows under headers. The last column is cut first when it does not fit, then the widest ones.

    right: the headers of columns that are aligned at the right, numbers.
    """
    lines = table_lines(headers, rows, right=right)
    for at in range(0, len(lines), AT_ONCE):  # a reader that goes away in the middle is noticed by the next write
        click.echo("\n".join(lines[at : at + AT_ONCE]))


def table_lines(headers: Sequence[str], rows: Iterable[Sequence[Cell]], *, right: Sequence[str] = ()) -> list[str]:
    cells = [[_split(cell) for cell in row] for row in rows]
    widths = [max([width(head), *(width(row[i][0]) for row in cells)]) for i, head in enumerate(headers)]
    widths = _fit(widths, terminal_width() - 2 * (len(headers) - 1))
    shown = [[(head, "bold") for head in headers], *cells]
    return [_line(row, widths, [head in right for head in headers]) for row in shown]


def fields(pairs: Iterable[tuple[str, Cell]]) -> None:
    """Prints one thing, a field a line."""
    listed = [(_cut(escaped(name), FIELD), _split(cell)) for name, cell in pairs]
    room = max((width(name) for name, _ in listed), default=0)
    for name, (text, colour) in listed:
        cut = _cut(text, max(terminal_width() - room - 2, NARROWEST))
        click.echo(f"{name}{' ' * (room - width(name))}  {click.style(cut, fg=colour) if colour else cut}")


def block(title: str, text: str) -> None:
    """Prints a text of several lines, such as a traceback, indented."""
    click.echo(title)
    for line in text.splitlines():
        click.echo(f"  {escaped(line)}")


def note(text: str) -> None:
    """A remark for people, on stderr, so that stdout holds data alone."""
    click.echo(escaped(text), err=True)


def terminal_width() -> int:
    """Columns to fill. A pipe has no end of the line, unless $COLUMNS says so."""
    return shutil.get_terminal_size((80 if sys.stdout.isatty() else WIDEST, 24)).columns


def width(text: str) -> int:
    """Columns of a terminal that a printable text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def span(ms: float) -> str:
    """A duration as people read it: 340ms, 12s, 5m, 3h, 12d."""
    if ms < 1000:
        return f"{max(ms, 0):.0f}ms"
    return next(f"{ms // size:.0f}{unit}" for size, unit in _UNITS if ms >= size)


def ago(ms: int | None) -> str:
    """A moment seen from now: "5m ago", "in 3s"; empty for none."""
    if ms is None:
        return ""
    passed = time.time() * 1000 - ms
    return f"{span(passed)} ago" if passed >= 0 else f"in {span(-passed)}"


def moment(ms: int | None) -> str:
    """A moment in full: the time in UTC and how far off it is."""
    at = at_from_ms(ms)
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d}Z ({ago(ms)})"


def on_terminal() -> bool:
    """Whether stderr is a terminal: only then progress is drawn there."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _split(cell: Cell) -> tuple[str, str]:
    text, colour = (cell, "") if isinstance(cell, str) else cell
    return escaped(text), colour


def _fit(widths: list[int], room: int) -> list[int]:
    """Narrower columns until they fit: the last one down to 20, then always the widest."""
    fitted = list(widths)
    over = sum(fitted) - room
    if over > 0:
        least = min(fitted[-1], 20)
        fitted[-1] = max(least, fitted[-1] - over)
    while sum(fitted) > room and max(fitted) > NARROWEST:
        fitted[fitted.index(max(fitted))] -= 1
    return fitted


def _line(row: Sequence[tuple[str, str]], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = []
    for (text, colour), room, at_right in zip(row, widths, right, strict=True):
        cut = _cut(text, room)
        pad = " " * (room - width(cut))
        style = {"bold": True} if colour == "bold" else {"fg": colour or None}
        styled = click.style(cut, **style) if cut and colour else cut
        parts.append(pad + styled if at_right else styled + pad)
    return "  ".join(parts).rstrip()


def _cut(text: str, room: int) -> str:
    if width(text) <= room:
        return text
    kept = 0
    for at, c in enumerate(text):
        kept += width(c)
        if kept > room - 1:
            return text[:at] + "…"
    return text
