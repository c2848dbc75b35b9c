"""The rows of airports.csv, as text, and the type that the workers' queue expects of them."""

from __future__ import annotations

import csv
from importlib import resources
from typing import TypeAlias

import msgspec

TOTAL = 7_884
"""The rows of the whole file."""

RawRow: TypeAlias = dict[str, str | None]
"""A line of the file by column; a line that is cut off has None in its missing columns."""


class Row(msgspec.Struct, frozen=True):
    """A whole line. A cut-off one does not decode as this, and so ends in quarantine."""

    iata: str
    name: str
    country: str
    latitude: str
    longitude: str


def read(limit: int | None = None) -> list[RawRow]:
    """The first `limit` rows of the file, broken ones included; all without a limit."""
    with (resources.files("redisq.demo") / "airports.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))[:limit]


def iata(raw: RawRow) -> str:
    """The row's code, which is the id of its job. Every line has one, also the cut-off one."""
    code = raw["iata"]
    assert code is not None
    return code


def whole(raws: list[RawRow]) -> list[Row]:
    """The rows that have all their columns."""
    return [msgspec.convert(raw, Row) for raw in raws if None not in raw.values()]
