"""The handler's work, and the second way to the same answer that the proof compares it with."""

from __future__ import annotations

import math

import pytest

from redisq.demo.expected import expect, nearest_by_latitude, per_country
from redisq.demo.rows import Row, iata, read, whole
from redisq.demo.work import EARTH_RADIUS_M, OutOfLuck, flaky, handle, metres, nearest, place, places

ROWS = {row.iata: row for row in whole(read())}


def test_known_distances() -> None:
    # great-circle distances as timetables give them; a sphere is good for half a percent
    assert metres(place(ROWS["LHR"]), place(ROWS["JFK"])) == pytest.approx(5_540_000, rel=0.005)
    assert metres(place(ROWS["LHR"]), place(ROWS["SYD"])) == pytest.approx(17_020_000, rel=0.005)


def test_a_quarter_of_the_equator_and_the_date_line() -> None:
    at = {east: place(Row(f"E{east}", "", "", "0", str(east))) for east in (0, 90, 179, -179)}
    assert metres(at[0], at[90]) == round(EARTH_RADIUS_M * math.pi / 2)
    assert metres(at[179], at[-179]) == metres(at[0], place(Row("", "", "", "0", "2")))


def test_the_nearest_is_another_airport_also_when_it_stands_on_the_same_spot() -> None:
    here, twin = place(Row("AAA", "", "", "10", "10")), place(Row("AAB", "", "", "10", "10"))
    far = place(Row("AAC", "", "", "11", "10"))
    assert nearest(here, [here, far, twin]) == twin
    assert nearest(here, [here, far]) == far


def test_both_ways_to_the_nearest_agree_over_poles_and_date_line() -> None:
    poles = [("90", "0"), ("89.9", "170"), ("89.8", "-10"), ("-90", "0"), ("-89", "179")]
    date_line = [("0", "179.9"), ("0.3", "-179.9")]
    corners = [Row(str(number), "", "", *corner) for number, corner in enumerate(poles + date_line)]
    found = places(corners + list(ROWS.values())[:300])
    assert nearest_by_latitude(found) == {here.iata: metres(here, nearest(here, found)) for here in found}


def test_a_flaky_row_fails_once_and_only_once() -> None:
    raws = read(200)
    others = places(whole(raws))
    code = min(expect(raws).flaky)
    with pytest.raises(OutOfLuck, match=code):
        handle(ROWS[code], 1, others)
    assert handle(ROWS[code], 2, others) == expect(raws).metres[code]
    steady = next(row for row in whole(raws) if not flaky(row.iata))
    assert handle(steady, 1, others) == handle(steady, 2, others)


def test_every_row_is_expected_to_end_in_exactly_one_way() -> None:
    raws = read()
    expected = expect(raws)
    assert sorted([*expected.good, *expected.broken, *expected.cut_off]) == [iata(raw) for raw in raws]
    assert (len(expected.good), len(expected.broken), len(expected.cut_off)) == (7_871, 12, 1)
    assert expected.flaky < expected.good
    assert sum(per_country(expected.metres, expected.country).values()) == sum(expected.metres.values())
