"""The table of field cases names tests that exist, and every numbered test here stands in it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("| ").split(" | ")]
    for line in (Path(__file__).parent / "README.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| (C\d\d|memory full) ", line)
]
NUMBERED = {f"C{number:02}" for number in range(1, 54)}
UNUSED = {
    "C05",
    "C08",
    "C10",
    "C15",
    "C17",
    "C19",
    "C21",
    "C24",
    "C29",
    "C33",
    "C37",
    "C42",
    "C45",
    "C47",
    "C49",
    "C51",
}


def names_in(file: Path) -> set[str]:
    return set(re.findall(r"^(?:async )?def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE))


def test_every_case_has_a_row() -> None:
    cases = [row[0] for row in ROWS]
    assert len(cases) == len(set(cases))
    assert set(cases) == NUMBERED - UNUSED | {"memory full"}


def test_every_row_names_tests_that_exist_or_says_why_not() -> None:
    for case, _, tests in ROWS:
        if tests.startswith("does not apply: "):
            continue
        assert tests.split(), case
        for each in tests.split():
            file, _, name = each.partition("::")
            assert (ROOT / file).is_file(), (case, each)
            assert not name or name in names_in(ROOT / file), (case, each)


def test_every_numbered_test_stands_in_its_row() -> None:
    rows = {row[0]: row[2] for row in ROWS}
    numbered = 0
    for file in Path(__file__).parent.glob("test_*.py"):
        for name in names_in(file):
            case = re.match(r"test_(c\d\d)_", name)
            if case is not None:
                numbered += 1
                assert f"tests/field/{file.name}::{name}" in rows[case[1].upper()].split()
    assert numbered > 20
