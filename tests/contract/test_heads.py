"""Every script's head says what the script does; here the two are compared."""

from __future__ import annotations

import re

import pytest

from redisq.scripts import script
from tests.contract.heads import LUA, head, parse, scripts
from tests.contract.opened import opened_columns, used_columns
from tests.contract.states import EVENT_MOVES, JOB_MOVES

SCRIPTS = scripts()
# they bring new data in, so a full server refuses them; all others run there, so that it can drain
REFUSED_WHEN_FULL = {"queue/create", "jobs/offer", "events/emit", "events/subscribe"}
ERROR_WORDS = {
    "CAPACITY", "CONFLICT", "CORRUPT", "LEASELOST", "NOQUEUE", "NOTACTIVE", "NOTEMPTY", "STALE", "SUBGONE",
}  # fmt: skip


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) > 10


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_name_is_the_path(name: str) -> None:
    assert head(name).name == name


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_flags_are_known_and_let_a_full_server_drain(name: str) -> None:
    assert head(name).words("FLAGS") == ([] if name in REFUSED_WHEN_FULL else ["allow-oom"])


@pytest.mark.parametrize("name", SCRIPTS)
def test_argv_starts_with_what_every_call_sends(name: str) -> None:
    assert re.match(r"now slot number(,|$)", head(name).fields["ARGV"])


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_refuses_with_the_words_that_it_names(name: str) -> None:
    used = set(re.findall(r'\b(?:refuse|M)\.word\("(\w+)"', script(name).plain_source))
    named = head(name).words("REFUSES")
    assert len(named) == len(set(named))
    assert set(named) == used
    assert used <= ERROR_WORDS


@pytest.mark.parametrize("name", SCRIPTS)
def test_refusals_are_made_in_one_place(name: str) -> None:
    own = (LUA / f"{name}.lua").read_text(encoding="utf-8")
    assert "error_reply" not in own
    assert not re.search(r"\berror\(", own)


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_opens_the_columns_that_it_names(name: str) -> None:
    named = head(name).columns()
    assert len(named) == len(set(named))
    # a column with a star is one of many, opened once its name is known
    plain = {column for column in named if not column.endswith("*")}
    opened = opened_columns(name)
    if opened:
        assert plain == opened
    else:
        # it runs for every job, and proves a column as it comes to it
        assert used_columns(name) <= plain


@pytest.mark.parametrize("name", SCRIPTS)
def test_its_moves_are_legal(name: str) -> None:
    legal = JOB_MOVES if name.startswith("jobs/") else EVENT_MOVES
    assert [move for move in head(name).moves() if move not in legal] == []


@pytest.mark.parametrize(("kind", "legal"), [("jobs/", JOB_MOVES), ("events/", EVENT_MOVES)])
def test_every_legal_move_has_a_script(kind: str, legal: set[tuple[str, str]]) -> None:
    made = {move for name in SCRIPTS if name.startswith(kind) for move in head(name).moves()}
    assert legal - made == set()


GOOD = """-- jobs/x: does it
-- FLAGS  allow-oom
-- KEYS   root: a b
--        c
-- ARGV   now slot number
-- REPLY  1
-- REFUSES A B
-- MOVES  ready -> leased; (new) -> ready
local x = 1
"""


def test_a_head_is_read_with_its_continuation_lines() -> None:
    read = parse(GOOD)
    assert (read.name, read.what) == ("jobs/x", "does it")
    assert read.columns() == ["a", "b", "c"]
    assert read.words("REFUSES") == ["A", "B"]
    assert read.moves() == [("ready", "leased"), ("(new)", "ready")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("-- jobs/x: does it\n", ""),
        ("-- REPLY  1\n", ""),
        ("-- REPLY  1\n", "-- REPLY  1\n-- REPLY  2\n"),
        ("-- FLAGS  allow-oom\n", "-- FLAGS\n"),
        ("-- ARGV   now slot number\n-- REPLY  1\n", "-- REPLY  1\n-- ARGV   now slot number\n"),
        ("-- REPLY  1\n", "-- REPLY  1\n-- stray text\n"),
    ],
)
def test_an_incomplete_head_is_refused(before: str, after: str) -> None:
    assert before in GOOD
    with pytest.raises(ValueError, match=r"the head has|first line|stands twice"):
        parse(GOOD.replace(before, after))
