"""What must come out, from the file alone: no queue, no workers, and the nearest airport is found another way."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from redisq.demo.rows import RawRow, iata, whole
from redisq.demo.work import EARTH_RADIUS_M, Place, flaky, metres, places

METRES_PER_DEGREE = EARTH_RADIUS_M * 3.14159 / 180
"""Along a meridian, rounded down: two places are at least this far apart per degree of latitude between them."""


@dataclass(frozen=True)
class Expected:
    """The truth about some rows of the file; all sets hold ids."""

    all: frozenset[str]
    broken: frozenset[str]
    cut_off: frozenset[str]
    flaky: frozenset[str]
    country: dict[str, str]
    metres: dict[str, int]

    @property
    def good(self) -> frozenset[str]:
        """The rows that a handler can finish."""
        return frozenset(self.metres)


def expect(raws: list[RawRow]) -> Expected:
    rows = whole(raws)
    found = nearest_by_latitude(places(rows))
    every, complete = frozenset(map(iata, raws)), frozenset(row.iata for row in rows)
    return Expected(
        all=every,
        broken=complete - found.keys(),
        cut_off=every - complete,
        flaky=frozenset(code for code in found if flaky(code)),
        country={row.iata: row.country for row in rows if row.iata in found},
        metres=found,
    )


def per_country(distances: dict[str, int], country: dict[str, str]) -> dict[str, int]:
    """The sum of the distances of each country's rows."""
    sums: dict[str, int] = {}
    for code, distance in distances.items():
        sums[country[code]] = sums.get(country[code], 0) + distance
    return sums


def nearest_by_latitude(found: list[Place]) -> dict[str, int]:
    """Metres to the nearest other place, by code: walks away from each place, north and south, while that can help."""
    by_latitude = sorted(found, key=lambda place: place.latitude)
    latitudes = [place.latitude for place in by_latitude]
    result = {}
    for here in found:
        best = 4 * EARTH_RADIUS_M  # more than half way round
        start = bisect_left(latitudes, here.latitude)
        for way in (range(start, len(by_latitude)), range(start - 1, -1, -1)):
            for index in way:
                if abs(latitudes[index] - here.latitude) * METRES_PER_DEGREE > best:
                    break
                if by_latitude[index].iata != here.iata:
                    best = min(best, metres(here, by_latitude[index]))
        result[here.iata] = best
    return result
