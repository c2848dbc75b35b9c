"""How free slots are shared out among queues: the pure part (SPEC 7, `dispatch`)."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

from hypothesis import given, strategies

from redisq.handlers import Handlers
from redisq.lanes import Lane, shares
from redisq.sources import JobSource


class NoCore:
    name = root = "q"


def lane(weight: int = 1, *, dry: bool = False) -> Lane:
    made = Lane(JobSource(cast(Any, NoCore()), Handlers()), weight)
    made.dry = dry
    return made


def give(lanes: list[Lane], free: int) -> list[int]:
    granted = shares(lanes, free, strict=False)
    for each, slots in granted.items():
        each.passed += slots / each.weight
    return [granted.get(each, 0) for each in lanes]


def test_strict_gives_all_to_the_first_that_may_have_more() -> None:
    first, second, third = lane(dry=True), lane(), lane()
    assert shares([first, second, third], 4, strict=True) == {second: 4, third: 0}


def test_strict_gives_a_dry_queue_what_it_needs_to_begin() -> None:
    first, second = lane(dry=True), lane()
    first.behind.append(cast(Any, "held"))
    assert shares([first, second], 4, strict=True) == {first: 1, second: 3}


def test_weights_are_smooth() -> None:
    """One slot at a time: a heavy queue does not get its share in one run."""
    heavy, light = lane(3), lane(1)
    order = ["h" if give([heavy, light], 1) == [1, 0] else "l" for _ in range(12)]
    assert "hhhh" not in "".join(order)
    assert Counter(order) == {"h": 9, "l": 3}


@given(
    weights=strategies.lists(strategies.integers(1, 20), min_size=2, max_size=5),
    frees=strategies.lists(strategies.integers(1, 30)),
)
def test_shares_follow_the_weights_whatever_comes_free_at_once(weights: list[int], frees: list[int]) -> None:
    lanes = [lane(weight) for weight in weights]
    got = [0] * len(lanes)
    for free in frees:
        given_now = give(lanes, free)
        assert sum(given_now) == free
        got = [a + b for a, b in zip(got, given_now, strict=True)]
        # each is within one slot of what its weight says, as far as its neighbours are
        passed = [n / weight for n, weight in zip(got, weights, strict=True)]
        assert max(passed) - min(passed) <= max(1 / weight for weight in weights) + 1e-9


def test_a_queue_with_both_calls_under_way_gets_nothing_by_weight() -> None:
    busy, other = lane(5), lane(1)
    busy.under_way = 2
    assert give([busy, other], 3) == [0, 3]
