"""Large numbers and large payloads: bounded batches, the order kept (SPEC 3.2, 3.3)."""

from __future__ import annotations

from typing import Any

import pytest

from redisq import Ack, Backoff, Engine, JobState, NewJob, Queue, QueuePolicy
from redisq.testing import ManualClock
from tests.jobs.steps import drained, taken, values

MIB = 1024 * 1024
MANY = 20_000


def test_20_000_due_jobs_come_in_due_order_by_bounded_passes(queue: Queue[Any], clock: ManualClock) -> None:
    """persistedqueue 34: more are due than one pass moves; all are delivered in the end."""
    queue.offer_many([NewJob(number, delay=1 + number % 7) for number in range(MANY)])
    clock.advance(10)
    assert queue.take() is not None
    counts = queue.counts()
    assert (counts[JobState.LEASED], counts[JobState.READY], counts[JobState.SCHEDULED]) == (1, 99, MANY - 100)
    assert len(queue.take_many(500)) == 500
    assert queue.counts()[JobState.SCHEDULED] == MANY - 600
    done = queue.maintain(1000)
    assert (done.by_category["due"], done.pending) == (1000, True)
    found = values(drained(queue))
    expected = [number for step in range(7) for number in range(MANY) if number % 7 == step]
    assert found == expected[501:]


def test_20_000_lapsed_leases_are_recovered_by_bounded_passes(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(backoff=Backoff.fixed(0)))
    queue.offer_many(range(MANY))
    for _ in range(MANY // 1000):
        assert len(queue.take_many(1000, lease=5)) == 1000
        clock.advance(0.001)
    clock.advance(5)
    done = queue.maintain(1000)
    assert (done.by_category["lapsed"], done.pending) == (1000, True)
    assert values(queue.take_many(1)) == [0]
    assert queue.counts()[JobState.LEASED] == MANY - 1000 - 100 + 1
    again = drained(queue)
    assert values(again) == list(range(1, MANY))
    assert {each.attempt for each in again} == {2}


def test_20_000_final_lapses_end_dead(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(max_attempts=1))
    queue.offer_many(range(MANY))
    for _ in range(MANY // 1000):
        queue.take_many(1000, lease=5)
    clock.advance(5)
    assert queue.take() is None  # the client repeats the bounded pass by itself
    counts = queue.counts()
    assert (counts[JobState.DEAD], counts[JobState.LEASED]) == (MANY, 0)


@pytest.mark.timeout(120)
def test_an_offer_of_50_000_keeps_its_order(queue: Queue[Any]) -> None:
    offers = queue.offer_many(range(50_000))
    assert len({offer.id for offer in offers}) == 50_000
    assert not any(offer.duplicate for offer in offers)
    assert queue.counts()[JobState.READY] == 50_000
    claims = drained(queue)
    assert values(claims) == list(range(50_000))
    assert [each.id for each in claims] == [offer.id for offer in offers]
    assert len({each.token for each in claims}) == 50_000
    fences = [each.fence for each in claims]
    assert fences == sorted(set(fences))


def test_a_batch_of_acks_and_failures_of_1_000_each(queue: Queue[Any]) -> None:
    queue.offer_many(range(3000))
    batches = [queue.take_many(1000) for _ in range(3)]
    assert set(queue.ack_many(batches[0])) == {Ack.ACKNOWLEDGED}
    assert len(queue.renew_many(batches[1], 60)) == 1000
    answers, found = queue.exchange(batches[1], 1000)
    assert (set(answers), found) == ({Ack.ACKNOWLEDGED}, [])
    assert queue.counts()[JobState.COMPLETED] == 2000


@pytest.mark.every_server
@pytest.mark.real_server
def test_payloads_of_one_mebibyte_come_whole_in_batches_of_8_mib(queue: Queue[Any]) -> None:
    payloads = [chr(97 + number) * (MIB - 2) for number in range(20)]
    offers = queue.offer_many(payloads)
    assert len(offers) == 20
    found: list[str] = []
    sizes = []
    while batch := queue.take_many(1000):
        sizes.append(len(batch))
        found += values(batch)
        queue.ack_many(batch)
    assert found == payloads
    assert sizes == [8, 8, 4]


def test_a_limit_reached_before_8_mib_is_filled(queue: Queue[Any]) -> None:
    queue.offer_many(["x" * 100_000] * 30)
    assert [len(queue.take_many(10)) for _ in range(4)] == [10, 10, 10, 0]


def test_small_jobs_after_large_ones_are_not_lost(queue: Queue[Any]) -> None:
    queue.offer_many([("x" * (MIB - 2)) if number % 3 else number for number in range(30)])
    found = []
    while batch := queue.take_many(100):
        found += batch
        queue.ack_many(batch)
    assert [len(str(value)) > 10 for value in values(found)] == [bool(number % 3) for number in range(30)]


def test_a_large_batch_in_an_exchange(queue: Queue[Any]) -> None:
    queue.offer_many(["x" * (MIB - 2)] * 12)
    first = queue.take_many(100)
    answers, second = queue.exchange(first, 100)
    assert (len(first), len(second), set(answers)) == (8, 4, {Ack.ACKNOWLEDGED})


def test_large_ranked_and_scheduled_payloads_are_bounded_too(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer_many([NewJob("x" * (MIB - 2), priority=5, delay=1) for _ in range(10)])
    clock.advance(1)
    assert [len(queue.take_many(100)) for _ in range(3)] == [8, 2, 0]


def test_more_removed_jobs_than_one_call_steps_over_hide_nobody(queue: Queue[Any]) -> None:
    offers = queue.offer_many(range(2500))
    for offer in offers[:-1]:
        queue.remove(offer.id)
    assert queue.counts()[JobState.READY] == 1
    assert taken(queue).value == 2499
    assert queue.take() is None
