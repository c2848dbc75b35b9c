"""The shipped file: its size, its rows, and that the NOTICE tells the truth about the broken ones."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from redisq.demo.rows import TOTAL, Row, iata, read, whole
from redisq.demo.work import BrokenRow, place


def test_the_file_has_its_rows_once_each() -> None:
    codes = [iata(raw) for raw in read()]
    assert len(codes) == TOTAL >= 5_000
    assert codes == sorted(set(codes))


def test_the_smallest_run_has_rows_of_every_kind() -> None:
    raws = read(100)
    assert raws == read()[:100]
    assert len(whole(raws)) == 99
    assert any(_fault(row) for row in whole(raws))


def test_the_notice_names_every_broken_row_and_no_other() -> None:
    notice = (resources.files("redisq.demo") / "NOTICE").read_text(encoding="utf-8")
    named = {kind: codes.split() for kind, codes in re.findall(r"^([\w ]+): +((?:[A-Z]{3} ?)+)$", notice, re.MULTILINE)}
    raws = read()
    found: dict[str, list[str]] = {kind: [] for kind in named}
    found["Line cut off"] = [iata(raw) for raw in raws if None in raw.values()]
    for row in whole(raws):
        if fault := _fault(row):
            found[fault].append(row.iata)
    assert found == named


@pytest.mark.parametrize(
    ("latitude", "longitude", "message"),
    [
        ("", "0", "latitude is not a number: ''"),
        ("0", "n/a", "longitude is not a number: 'n/a'"),
        ("90.5", "0", "latitude must be -90 to 90, not 90.5"),
        ("0", "-181", "longitude must be -180 to 180, not -181.0"),
        ("nan", "0", "latitude must be -90 to 90, not nan"),
    ],
)
def test_a_row_without_a_usable_position_is_broken(latitude: str, longitude: str, message: str) -> None:
    with pytest.raises(BrokenRow, match=f"^{message}$"):
        place(Row("XXX", "Nowhere", "ZZ", latitude, longitude))


def _fault(row: Row) -> str:
    """What the NOTICE calls this row's fault; empty for a good row."""
    try:
        place(row)
    except BrokenRow as error:
        column = str(error).split()[0]
        if not getattr(row, column):
            return f"No {column}"
        return f"{column.capitalize()} {'not a number' if 'number' in str(error) else 'out of range'}"
    return ""
