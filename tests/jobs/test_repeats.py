"""The same verb with its own token again: the first result, and no effect (SPEC 3.3, 3.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from redisq import (
    Ack,
    Backoff,
    Delivery,
    Done,
    Engine,
    Failed,
    Failure,
    JobState,
    LeaseLost,
    Queue,
    QueuePolicy,
    Released,
)
from redisq.testing import ManualClock
from tests.jobs.steps import state_of, taken


class Verb(NamedTuple):
    """How to settle, and with what answer; a release alone answers nothing."""

    settle: Callable[[Any, Delivery], Any]
    again: Callable[[Any, Delivery], Any]


def released(delay: float) -> Verb:
    return Verb(
        lambda queue, delivery: queue.exchange([Released(delivery, delay)], 0)[0][0],
        lambda queue, delivery: queue.exchange([Released(delivery, 77)], 0)[0][0],
    )


FAIL = Verb(
    lambda queue, delivery: queue.fail(delivery, "first"),
    lambda queue, delivery: queue.fail(delivery, "again", retry_in=9),
)
FAIL_NOW = Verb(
    lambda queue, delivery: queue.fail(delivery, "first", retry_in=0),
    lambda queue, delivery: queue.fail(delivery, "again"),
)
FAIL_FINALLY = Verb(
    lambda queue, delivery: queue.fail(delivery, "first", final=True),
    lambda queue, delivery: queue.fail(delivery, "again"),
)
IN_EXCHANGE = Verb(
    lambda queue, delivery: queue.exchange([Failed(delivery, "first")], 0)[0][0],
    lambda queue, delivery: queue.fail(delivery, "again"),
)
QUARANTINE = Verb(
    lambda queue, delivery: queue.quarantine(delivery, "first"),
    lambda queue, delivery: queue.quarantine(delivery, "again"),
)
NAMED = {
    "fail": FAIL, "fail now": FAIL_NOW, "fail finally": FAIL_FINALLY, "fail in an exchange": IN_EXCHANGE,
    "quarantine": QUARANTINE, "release": released(0), "release later": released(5),
}  # fmt: skip
each_verb = pytest.mark.parametrize("verb", NAMED.values(), ids=NAMED.keys())
each_wait = pytest.mark.parametrize(
    "verb", [FAIL, FAIL_NOW, released(0), released(5)], ids=["fail", "fail now", "release", "release later"]
)


def seen(queue: Queue[Any], id: str) -> Any:
    return queue.get(id), queue.attempts(id), queue.history(id), queue.counts()


@pytest.mark.every_server
@each_verb
def test_a_settlement_repeats_its_first_result_and_changes_nothing(
    queue: Queue[Any], clock: ManualClock, verb: Verb
) -> None:
    queue.offer("x")
    delivery = taken(queue)
    first = verb.settle(queue, delivery)
    before = seen(queue, delivery.id)
    clock.advance(0.5)
    assert isinstance(first, Failure)
    assert [verb.again(queue, delivery) for _ in range(3)] == [first] * 3
    assert seen(queue, delivery.id) == before


@pytest.mark.every_server
@pytest.mark.parametrize(
    "again",
    [
        lambda queue, delivery: queue.ack(delivery, "other"),
        lambda queue, delivery: queue.ack_many([delivery])[0],
        lambda queue, delivery: queue.exchange([Done(delivery, "other")], 0)[0][0],
    ],
    ids=["ack", "ack_many", "exchange"],
)
def test_an_ack_says_that_it_was_acknowledged_already(
    queue: Queue[Any], clock: ManualClock, again: Callable[..., Any]
) -> None:
    queue.offer("x")
    delivery = taken(queue)
    assert queue.ack(delivery, "first") is Ack.ACKNOWLEDGED
    before = seen(queue, delivery.id)
    clock.advance(3600)
    assert again(queue, delivery) is Ack.ALREADY_ACKNOWLEDGED
    assert seen(queue, delivery.id) == before


@pytest.mark.every_server
def test_a_release_may_be_said_again(queue: Queue[Any]) -> None:
    queue.offer("x")
    delivery = taken(queue)
    queue.release(delivery)
    before = seen(queue, delivery.id)
    queue.release(delivery)
    queue.release(delivery, delay=5)
    assert seen(queue, delivery.id) == before


@pytest.mark.every_server
@each_wait
def test_a_newer_claim_settles_nothing(engine: Engine, clock: ManualClock, verb: Verb) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(backoff=Backoff.fixed(5)))
    queue.offer("x")
    delivery = taken(queue)
    first = verb.settle(queue, delivery)
    clock.advance(5)
    newer = taken(queue)
    before = seen(queue, delivery.id)
    assert verb.again(queue, delivery) == first
    assert seen(queue, delivery.id) == before
    assert queue.ack(newer) is Ack.ACKNOWLEDGED


@pytest.mark.every_server
@pytest.mark.parametrize("verb", [FAIL_FINALLY, QUARANTINE], ids=["fail finally", "quarantine"])
def test_a_manual_retry_settles_nothing(queue: Queue[Any], verb: Verb) -> None:
    queue.offer("x")
    delivery = taken(queue)
    first = verb.settle(queue, delivery)
    assert queue.retry(delivery.id)
    assert verb.again(queue, delivery) == first
    assert state_of(queue, delivery.id) is JobState.READY
    newer = taken(queue)
    assert verb.again(queue, delivery) == first
    assert newer.attempt == 1
    assert queue.ack(newer) is Ack.ACKNOWLEDGED


@pytest.mark.every_server
@pytest.mark.parametrize("verb", [FAIL, released(5)], ids=["fail", "release later"])
def test_a_promote_settles_nothing(queue: Queue[Any], verb: Verb) -> None:
    queue.offer("x")
    delivery = taken(queue)
    first = verb.settle(queue, delivery)
    assert queue.promote(delivery.id)
    assert verb.again(queue, delivery) == first
    assert state_of(queue, delivery.id) is JobState.READY


@pytest.mark.every_server
@each_wait
@pytest.mark.parametrize("newer", ["ack", "fail", "release", "quarantine"])
def test_after_a_newer_settle_the_older_token_is_lost(
    engine: Engine, clock: ManualClock, verb: Verb, newer: str
) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(backoff=Backoff.fixed(5)))
    queue.offer("x")
    delivery = taken(queue)
    verb.settle(queue, delivery)
    clock.advance(5)
    owner = taken(queue)
    arguments = {"ack": (), "release": (), "fail": ("broken",), "quarantine": ("poison",)}[newer]
    getattr(queue, newer)(owner, *arguments)
    lost(queue, verb, delivery)


def lost(queue: Queue[Any], verb: Verb, delivery: Delivery) -> None:
    before = seen(queue, delivery.id)
    try:
        answer = verb.again(queue, delivery)
    except LeaseLost:
        answer = Ack.LEASE_LOST
    assert answer is Ack.LEASE_LOST
    assert seen(queue, delivery.id) == before


@pytest.mark.every_server
@each_wait
def test_after_a_newer_lapse_was_recovered_the_older_token_is_lost(
    engine: Engine, clock: ManualClock, verb: Verb
) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(backoff=Backoff.fixed(5)))
    queue.offer("x")
    delivery = taken(queue)
    first = verb.settle(queue, delivery)
    clock.advance(5)
    taken(queue, lease=1)
    clock.advance(1)
    assert verb.again(queue, delivery) == first  # lapsed, and not recovered yet
    queue.maintain()
    lost(queue, verb, delivery)


@pytest.mark.every_server
@each_wait
def test_after_a_cancel_of_the_waiting_job_the_older_token_is_lost(queue: Queue[Any], verb: Verb) -> None:
    queue.offer("x")
    delivery = taken(queue)
    verb.settle(queue, delivery)
    assert queue.cancel(delivery.id) == "cancelled"
    lost(queue, verb, delivery)


@pytest.mark.every_server
@each_verb
def test_after_the_removal_the_token_is_lost(queue: Queue[Any], verb: Verb) -> None:
    queue.offer("x")
    delivery = taken(queue)
    verb.settle(queue, delivery)
    assert queue.remove(delivery.id)
    try:
        answer = verb.again(queue, delivery)
    except LeaseLost:
        answer = Ack.GONE
    assert answer is Ack.GONE
    assert queue.get(delivery.id) is None


@pytest.mark.every_server
def test_under_a_pending_cancel_the_repeat_says_cancelled_again(queue: Queue[Any]) -> None:
    queue.offer_many(range(2))
    failed, given = queue.take_many(2)
    for each in (failed, given):
        queue.cancel(each.id)
    assert queue.fail(failed, "x") == queue.fail(failed, "x") == Failure(JobState.CANCELLED)
    twice = [queue.exchange([Released(given)], 0)[0][0] for _ in range(2)]
    assert twice == [Failure(JobState.CANCELLED)] * 2


def test_an_ack_of_the_older_token_after_the_newer_one_s_ack_is_lost(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer("x")
    older = taken(queue)
    queue.release(older)
    newer = taken(queue)
    assert queue.ack(newer) is Ack.ACKNOWLEDGED
    with pytest.raises(LeaseLost):
        queue.ack(older)
    assert queue.ack(newer) is Ack.ALREADY_ACKNOWLEDGED


def test_a_repeated_ack_in_one_batch_counts_once(queue: Queue[Any]) -> None:
    queue.offer("x")
    delivery = taken(queue)
    assert queue.ack_many([delivery] * 3) == ["acknowledged", "already-acknowledged", "already-acknowledged"]
    assert len(queue.attempts(delivery.id)) == 1


def test_cancel_and_pause_and_remove_may_be_said_again(queue: Queue[Any]) -> None:
    id = queue.offer("x").id
    assert [queue.cancel(id), queue.cancel(id)] == ["cancelled", "too-late"]
    assert [queue.remove(id), queue.remove(id)] == [True, False]
    queue.pause()
    queue.pause()
    assert queue.info().paused
    queue.resume()
    queue.resume()
    assert not queue.info().paused
