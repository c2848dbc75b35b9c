"""The work of the handlers: find the nearest other airport of a row. The same row gives the same answer every time."""

from __future__ import annotations

import math
import zlib
from typing import NamedTuple

from redisq.demo.rows import Row

EARTH_RADIUS_M = 6_371_009
FLAKY_SHARE = 40


class BrokenRow(Exception):
    """The row holds no usable position, and no retry will change that."""


class OutOfLuck(Exception):
    """A failure that passes: the next attempt at this row succeeds."""


class Place(NamedTuple):
    """A row's position: its code, degrees, and the same point on a sphere of radius 1."""

    iata: str
    latitude: float
    longitude: float
    x: float
    y: float
    z: float


def place(row: Row) -> Place:
    """Where the row is, or BrokenRow with the reason."""
    latitude = _degrees("latitude", row.latitude, 90)
    longitude = _degrees("longitude", row.longitude, 180)
    north, east = math.radians(latitude), math.radians(longitude)
    ring = math.cos(north)
    return Place(row.iata, latitude, longitude, ring * math.cos(east), ring * math.sin(east), math.sin(north))


def places(rows: list[Row]) -> list[Place]:
    """The positions of the rows that have one."""
    found = []
    for row in rows:
        try:
            found.append(place(row))
        except BrokenRow:
            continue
    return found


def nearest(here: Place, others: list[Place]) -> Place:
    """The other airport with the smallest angle to `here`; looks at every one of them."""
    x, y, z = here.x, here.y, here.z
    best, found = -2.0, here
    for other in others:
        cosine = x * other.x + y * other.y + z * other.z
        if cosine > best and other.iata != here.iata:
            best, found = cosine, other
    return found


def metres(a: Place, b: Place) -> int:
    """The great-circle distance, by the haversine formula, to the metre."""
    south, north = math.radians(a.latitude), math.radians(b.latitude)
    east = math.radians(b.longitude - a.longitude)
    half = math.sin((north - south) / 2) ** 2 + math.cos(south) * math.cos(north) * math.sin(east / 2) ** 2
    return round(2 * EARTH_RADIUS_M * math.asin(math.sqrt(half)))


def flaky(iata: str) -> bool:
    """Whether the first attempt at this row fails: about one row in `FLAKY_SHARE`, always the same ones."""
    return zlib.crc32(iata.encode()) % FLAKY_SHARE == 0


def handle(row: Row, attempt: int, others: list[Place]) -> int:
    """One handler call: the metres to the nearest other airport, or one of the two failures."""
    here = place(row)
    if attempt == 1 and flaky(row.iata):
        raise OutOfLuck(f"the first attempt at {row.iata} fails")
    return metres(here, nearest(here, others))


def _degrees(name: str, text: str, limit: int) -> float:
    try:
        value = float(text)
    except ValueError:
        raise BrokenRow(f"{name} is not a number: {text!r}") from None
    if not -limit <= value <= limit:
        raise BrokenRow(f"{name} must be -{limit} to {limit}, not {value}")
    return value
