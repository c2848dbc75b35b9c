"""Reads the contract that stands in the head of every script."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

LUA = Path(__file__).resolve().parents[2] / "lua"
FIELDS = ("FLAGS", "KEYS", "ARGV", "REPLY", "REFUSES", "MOVES")
_FIRST = re.compile(r"-- (\S+): (\S.*)")
_FIELD = re.compile(r"-- ([A-Z]+) +(\S.*)")
_MORE = re.compile(r"--        +(\S.*)")


@dataclass(frozen=True)
class Head:
    """The first lines of a script: its name, what it does, and the text of each field."""

    name: str
    what: str
    fields: dict[str, str]

    def words(self, field: str) -> list[str]:
        """The words of a field; "-" stands for none."""
        return [] if self.fields[field] == "-" else self.fields[field].split()

    def columns(self) -> list[str]:
        """The columns of the KEYS field, which reads `root` or `root: column …`."""
        root, _, columns = self.fields["KEYS"].partition(":")
        if root != "root":
            raise ValueError(f"{self.name}: KEYS starts with `root`, not {root!r}")
        return columns.split()

    def moves(self) -> list[tuple[str, str]]:
        """The transitions of the MOVES field, which reads `from -> to; …`."""
        if self.fields["MOVES"] == "-":
            return []
        return [_move(self.name, move) for move in self.fields["MOVES"].split(";")]


def parse(source: str) -> Head:
    """The head of a script; ValueError says what is wrong with it."""
    lines = source.splitlines()
    first = _FIRST.fullmatch(lines[0]) if lines else None
    if first is None:
        raise ValueError("the first line reads `-- name: what it does`")
    name, what = first.groups()
    fields: dict[str, str] = {}
    latest = ""
    for line in lines[1:]:
        if field := _FIELD.fullmatch(line):
            latest = field.group(1)
            if latest in fields:
                raise ValueError(f"{name}: {latest} stands twice")
            fields[latest] = field.group(2)
        elif latest and (more := _MORE.fullmatch(line)):
            fields[latest] += " " + more.group(1)
        else:
            break
    if tuple(fields) != FIELDS:
        raise ValueError(f"{name}: the head has the fields {' '.join(FIELDS)}, not {' '.join(fields) or 'none'}")
    return Head(name, what, fields)


def scripts() -> list[str]:
    """The names of all scripts, such as "jobs/take"; the modules in lib/ are no scripts."""
    names = (path.relative_to(LUA).with_suffix("").as_posix() for path in LUA.rglob("*.lua"))
    return sorted(name for name in names if not name.startswith("lib/"))


def modules() -> list[str]:
    """The paths of the modules that scripts require."""
    return sorted(path.relative_to(LUA).as_posix() for path in (LUA / "lib").rglob("*.lua"))


def head(name: str) -> Head:
    return parse((LUA / f"{name}.lua").read_text(encoding="utf-8"))


def code(path: str) -> str:
    """The text of a file without comments, and with every string literal empty."""
    text = (LUA / path).read_text(encoding="utf-8")
    text = re.sub(r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", '""', text)
    return re.sub(r"--\[\[.*?\]\]|--[^\n]*", "", text, flags=re.DOTALL)


def _move(name: str, text: str) -> tuple[str, str]:
    before, arrow, after = text.partition("->")
    if not arrow:
        raise ValueError(f"{name}: MOVES reads `from -> to; …`, not {text.strip()!r}")
    return before.strip(), after.strip()
