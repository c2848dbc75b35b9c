"""Settle a batch and take the next one in one call (SPEC 3.3, 3.7)."""

from __future__ import annotations

from typing import Any

import pytest

from redisq import Ack, Done, Engine, Failed, Failure, InvalidInput, JobState, Keep, Queue, QueuePolicy, Released
from redisq.testing import ManualClock
from tests.jobs.steps import state_of, taken, values
from tests.support.fronts import OpenEngine


@pytest.mark.every_server
def test_each_settlement_answers_for_itself_and_the_next_batch_is_taken(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer_many(range(12))
    a, b, c, d, e, f, g = queue.take_many(7)
    queue.ack(f)
    queue.ack(g)
    queue.remove(g.id)
    answers, found = queue.exchange(
        [
            a, Done(b, {"r": 1}), Failed(c, ValueError("x")), Failed(d, "x", retry_in=9), Failed(e, "x", final=True),
            f, g,
        ],
        3,
    )  # fmt: skip
    assert answers == [
        Ack.ACKNOWLEDGED, Ack.ACKNOWLEDGED, Failure(JobState.SCHEDULED, clock.now_ms + 1000),
        Failure(JobState.SCHEDULED, clock.now_ms + 9000), Failure(JobState.DEAD), Ack.ALREADY_ACKNOWLEDGED, Ack.GONE,
    ]  # fmt: skip
    assert values(found) == [7, 8, 9]
    job = queue.get(b.id)
    assert job is not None
    assert job.result == {"r": 1}


@pytest.mark.every_server
def test_a_released_job_may_come_straight_back(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer_many(["a", "b", "c"])
    a, b = queue.take_many(2)
    answers, found = queue.exchange([Released(a), Released(b, delay=5)], 1)
    assert answers == [Failure(JobState.READY), Failure(JobState.SCHEDULED, clock.now_ms + 5000)]
    assert [(each.value, each.attempt) for each in found] == [("a", 1)]
    assert found[0].token != a.token


@pytest.mark.every_server
def test_a_limit_of_nothing_only_settles(queue: Queue[Any]) -> None:
    queue.offer_many(range(3))
    delivery = taken(queue)
    assert queue.exchange([delivery], 0) == ([Ack.ACKNOWLEDGED], [])
    assert queue.counts()[JobState.READY] == 2


def test_no_settlements_only_take(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer_many(range(3))
    answers, found = queue.exchange([], 2, lease=7)
    assert (answers, values(found)) == ([], [0, 1])
    assert {each.expires_ms for each in found} == {clock.now_ms + 7000}
    assert queue.exchange([], 0) == ([], [])


@pytest.mark.every_server
def test_the_same_job_settled_twice_in_one_call_is_settled_once(queue: Queue[Any]) -> None:
    queue.offer_many(range(3))
    a, b, c = queue.take_many(3)
    answers, _ = queue.exchange(
        [a, a, Failed(a, "x"), Failed(b, "x", final=True), b, Failed(b, "x"), Released(c), c], 0
    )
    assert answers == [
        Ack.ACKNOWLEDGED, Ack.ALREADY_ACKNOWLEDGED, Ack.LEASE_LOST, Failure(JobState.DEAD), Ack.LEASE_LOST,
        Failure(JobState.DEAD), Failure(JobState.READY), Ack.LEASE_LOST,
    ]  # fmt: skip


@pytest.mark.every_server
def test_a_job_that_is_not_kept_is_gone_for_the_second_settlement_of_the_call(engine: Engine) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(count=0)))
    queue.offer("x")
    delivery = taken(queue)
    assert queue.exchange([Done(delivery, "r"), delivery, Failed(delivery, "x")], 0)[0] == [
        Ack.ACKNOWLEDGED, Ack.GONE, Ack.GONE,
    ]  # fmt: skip
    assert queue.get(delivery.id) is None


@pytest.mark.every_server
def test_the_leases_that_an_exchange_grants_are_started(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer("x")
    _, found = queue.exchange([], 1, lease=1)
    clock.advance(1)
    queue.maintain()
    job = queue.get(found[0].id)
    assert job is not None
    assert (job.state, job.attempts) == ("scheduled", 1)


@pytest.mark.every_server
def test_stale_settlements_are_told_and_the_take_goes_on(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer_many(range(5))
    stale = queue.take_many(2, lease=1)
    clock.advance(1)
    answers, found = queue.exchange([stale[0], Failed(stale[1], "x")], 2)
    assert answers == [Ack.LEASE_LOST, Ack.LEASE_LOST]
    assert values(found) == [2, 3]


def test_poison_in_an_exchange_is_set_aside(open_engine: OpenEngine, clock: ManualClock) -> None:
    loose, strict = open_engine(clock=clock).queue("jobs"), open_engine(clock=clock).queue("jobs", int)
    poison = loose.offer("poison").id
    loose.offer_many([1, 2])
    assert values(strict.exchange([], 2)[1]) == [1, 2]
    assert state_of(strict, poison) is JobState.QUARANTINED


def test_a_thousand_settlements_at_most(queue: Queue[Any]) -> None:
    queue.offer("x")
    delivery = taken(queue)
    with pytest.raises(InvalidInput, match="settlements"):
        queue.exchange([delivery] * 1001, 0)
    answers, _ = queue.exchange([delivery] * 1000, 0)
    assert answers == [Ack.ACKNOWLEDGED] + [Ack.ALREADY_ACKNOWLEDGED] * 999


@pytest.mark.parametrize("thing", [None, 5, "token", Ack.GONE])
def test_a_settlement_is_a_delivery_or_what_wraps_one(queue: Queue[Any], thing: Any) -> None:
    queue.offer("x")
    good = taken(queue)
    for item in (thing, Done(thing), Failed(thing, "x"), Released(thing)):
        with pytest.raises(InvalidInput, match="delivery"):
            queue.exchange([good, item], 1)
    assert state_of(queue, good.id) is JobState.LEASED


def test_bad_options_inside_a_settlement_apply_nothing(queue: Queue[Any]) -> None:
    queue.offer_many(["a", "b"])
    good, other = queue.take_many(2)
    wrong: Any = 1
    bad: list[tuple[Any, str]] = [
        (Done(other, object()), "result"), (Failed(other, 5), "error"), (Failed(other, "x", retry_in=-1), "retry_in"),
        (Failed(other, "x", final=wrong), "final"), (Released(other, delay=-1), "delay"),
    ]  # fmt: skip
    for item, name in bad:
        with pytest.raises(InvalidInput, match=name):
            queue.exchange([good, item], 1)
    assert queue.counts()[JobState.LEASED] == 2
