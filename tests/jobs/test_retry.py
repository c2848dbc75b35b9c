"""Attempts and back-off between them, and a manual retry (SPEC 3.1, 3.4, 3.5)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from redisq import Backoff, Engine, JobState, NewJob, Queue, QueuePolicy
from redisq.testing import ManualClock
from tests.jobs.steps import drained, killed, state_of, taken, values
from tests.support.fronts import OpenEngine


def failures_in_ms(queue: Queue[Any], clock: ManualClock, count: int) -> list[int]:
    """Fails the next job `count` times; how long each wait was."""
    waits = []
    for number in range(1, count + 1):
        delivery = taken(queue)
        assert delivery.attempt == number
        failure = queue.fail(delivery, "broken")
        assert failure.due_ms is not None
        waits.append(failure.due_ms - clock.now_ms)
        clock.advance((failure.due_ms - clock.now_ms - 1) / 1000)
        assert queue.take() is None
        clock.advance(0.001)
    return waits


@pytest.mark.every_server
def test_the_curve_is_replayed_from_the_attempt_and_never_restarts(engine: Engine, clock: ManualClock) -> None:
    """persistedqueue 14 and effect-mq 20: after 1 s, then 2 s; attempts seen [1, 2, 3]."""
    queue = engine.queue("jobs", policy=QueuePolicy(backoff=Backoff.exponential(base=1, factor=2)))
    queue.offer("x")
    assert failures_in_ms(queue, clock, 2) == [1000, 2000]
    assert taken(queue).attempt == 3


def test_the_default_delays_are_1_2_4_to_256_then_300_seconds(queue: Queue[Any], clock: ManualClock) -> None:
    """persistedqueue 16."""
    queue.offer("x", max_attempts=13)
    waits = failures_in_ms(queue, clock, 12)
    assert waits == [1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000, 256_000, 300_000, 300_000, 300_000]


@pytest.mark.every_server
def test_a_curve_that_ends_repeats_its_last_delay_and_the_last_attempt_is_dead(
    engine: Engine, clock: ManualClock
) -> None:
    """persistedqueue 17: a curve of 2 steps, 5 attempts: later ones reuse the last delay, the 5th failure is final."""
    queue = engine.queue("jobs", policy=QueuePolicy(backoff=Backoff.delays(1, 5), max_attempts=5))
    id = queue.offer("x").id
    assert failures_in_ms(queue, clock, 4) == [1000, 5000, 5000, 5000]
    assert queue.fail(taken(queue), "broken").state is JobState.DEAD
    clock.advance(1000)
    assert queue.take() is None
    job = queue.get(id)
    assert job is not None
    assert (job.attempts, job.value) == (5, "x")


@pytest.mark.every_server
def test_a_failure_of_the_only_attempt_is_not_delivered_again(queue: Queue[Any], clock: ManualClock) -> None:
    """persistedqueue 15: one record with the same id, the element and 1 attempt; nothing stays pending."""
    id = queue.offer({"e": 1}, max_attempts=1).id
    assert queue.fail(taken(queue), "broken", retry_in=5).state is JobState.DEAD
    clock.advance(86_400)
    assert queue.take() is None
    job = queue.get(id)
    assert job is not None
    assert (job.state, job.value, job.attempts) == ("dead", {"e": 1}, 1)
    assert queue.counts()[JobState.LEASED] == 0


def test_two_workers_of_one_policy_compute_the_same_delay(open_engine: OpenEngine, clock: ManualClock) -> None:
    """persistedqueue 19: whoever fails the nth attempt, the wait is the same, jitter included."""
    curve = Backoff.exponential(base=1, factor=3, jitter=0.5)
    first = open_engine(clock=clock).queue("jobs", policy=QueuePolicy(backoff=curve))
    second = open_engine(clock=clock).queue("jobs")
    first.offer("x", id="one")
    waits = []
    for queue in (first, second, first, second):
        failure = queue.fail(taken(queue), "broken")
        assert failure.due_ms is not None
        waits.append((failure.due_ms - clock.now_ms) / 1000)
        clock.advance(waits[-1])
    assert waits == [curve.delay(number, "one") for number in range(1, 5)]


@pytest.mark.every_server
def test_a_third_of_the_work_fails_once_and_all_of_it_succeeds(open_engine: OpenEngine, clock: ManualClock) -> None:
    """persistedqueue 26: 24 elements, 3 workers, every third fails once: exactly 2 deliveries there, 1 elsewhere."""
    queues = [open_engine(clock=clock).queue("jobs") for _ in range(3)]
    queues[0].offer_many(range(24))
    seen: Counter[int] = Counter()
    while queues[0].counts()[JobState.COMPLETED] < 24:
        for queue in queues:
            delivery = queue.take()
            if delivery is None:
                clock.advance(0.5)
                continue
            seen[delivery.value] += 1
            if delivery.value % 3 == 0 and delivery.attempt == 1:
                queue.fail(delivery, "once")
            else:
                queue.ack(delivery)
    assert seen == {number: 2 if number % 3 == 0 else 1 for number in range(24)}


def test_a_policy_of_fewer_attempts_holds_for_jobs_that_wait_already(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs")
    queue.offer("policy's")
    queue.offer("own", max_attempts=3)
    queue.alter(QueuePolicy(max_attempts=1))
    for delivery in queue.take_many(2):
        queue.fail(delivery, "broken", retry_in=0)
    assert [(each.value, each.attempt, each.max_attempts) for each in drained(queue)] == [("own", 2, 3)]


@pytest.mark.every_server
def test_a_manual_retry_starts_the_attempts_again_and_continues_the_ledger(queue: Queue[Any]) -> None:
    """effect-mq 18: only from failed; the ledger goes on numbering (1 failed, 2 completed); attempts start again."""
    id = killed(queue, max_attempts=2)
    assert queue.retry(id) is True
    job = queue.get(id)
    assert job is not None
    assert (job.state, job.attempts, job.finished_ms, job.error) == ("ready", 0, None, None)
    delivery = taken(queue)
    assert (delivery.attempt, delivery.max_attempts) == (1, 2)
    queue.ack(delivery)
    assert [(row.number, row.outcome) for row in queue.attempts(id)] == [(1, "dead"), (2, "completed")]


@pytest.mark.every_server
def test_only_dead_and_quarantined_jobs_can_be_retried(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer("leased", id="leased")
    taken(queue)
    queue.offer("completed", id="completed")
    queue.ack(taken(queue))
    queue.offer("quarantined", id="quarantined")
    queue.quarantine(taken(queue), "poison")
    queue.offer("ready", id="ready")
    queue.offer("scheduled", id="scheduled", delay=5)
    queue.offer("cancelled", id="cancelled")
    queue.cancel("cancelled")
    for id in ("leased", "completed", "ready", "scheduled", "cancelled", "unknown"):
        before = queue.get(id)
        assert queue.retry(id) is False
        assert queue.get(id) == before
    assert queue.retry("quarantined") is True
    assert queue.retry("quarantined") is False
    assert state_of(queue, "quarantined") is JobState.READY
    assert values(drained(queue)) == ["ready", "quarantined"]


def test_a_retried_job_goes_to_the_tail_of_its_priority(queue: Queue[Any]) -> None:
    high = killed(queue, "high", priority=1)
    plain = killed(queue, "plain")
    queue.offer_many(["a", NewJob("b", priority=1)])
    queue.retry(plain)
    queue.retry(high)
    assert values(drained(queue)) == ["b", "high", "a", "plain"]


def test_a_retried_job_can_die_and_be_retried_for_ever(queue: Queue[Any]) -> None:
    id = killed(queue)
    for number in range(2, 6):
        assert queue.retry(id)
        queue.fail(taken(queue), "again", final=True)
        assert [row.number for row in queue.attempts(id)] == list(range(1, number + 1))
    assert queue.counts()[JobState.DEAD] == 1
