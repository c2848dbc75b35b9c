"""What a worker did, one line each, in an append-only file: the witness that does not go through the queue.

Each line reaches the operating system before the next step begins, so a kill -9 loses none of them.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Self

import msgspec


class Step(StrEnum):
    """What happened to a delivery."""

    TOOK = "took"
    DONE = "done"
    FAILED = "failed"
    SETTLED = "settled"


class Line(msgspec.Struct, frozen=True):
    """`metres` is the result of a DONE line, `note` the error of a FAILED and the queue's answer of a SETTLED one."""

    step: Step
    id: str
    fence: int
    metres: int = 0
    note: str = ""


class Ledger:
    """One worker's file, open for appending."""

    def __init__(self, path: Path) -> None:
        # unbuffered: a line that only this process holds would die with it
        self._file = path.open("ab", buffering=0)

    def write(self, line: Line) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read(path: Path) -> list[Line]:
    """The lines of a worker's file, oldest first."""
    return [msgspec.json.decode(line, type=Line) for line in path.read_bytes().splitlines()]
