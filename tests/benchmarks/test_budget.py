"""The guard of command counts says which verb grew, from what, to what."""

from __future__ import annotations

from benchmarks.budget import compared, counts
from benchmarks.meter import Reading


def test_a_budget_that_is_kept_is_no_finding() -> None:
    assert compared({"take": {"evalsha": 1, "hget": 5}}, {"take": {"evalsha": 1, "hget": 4}}) == []


def test_one_command_more_is_a_finding() -> None:
    (finding,) = compared({"take": {"evalsha": 1, "hget": 5}}, {"take": {"evalsha": 1, "hget": 6}})
    assert finding == "take is over its budget: 6 commands stored, 7 measured in 20 calls (hget 5 → 6)"


def test_commands_may_change_places_within_the_budget() -> None:
    assert compared({"take": {"evalsha": 1, "hget": 5}}, {"take": {"evalsha": 1, "hmget": 1}}) == []


def test_a_verb_without_a_budget_is_a_finding() -> None:
    assert compared({}, {"take": {"evalsha": 1}}) == ["take has no budget; it ran 1 commands in 20 calls"]


def test_the_call_of_the_script_counts() -> None:
    assert counts(Reading(calls=3, commands={"hget": (6, 12)})) == {"evalsha": 3, "hget": 6}
