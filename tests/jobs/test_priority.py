"""Priorities: higher first, and first-in-first-out inside each, on every way back to ready (SPEC 3.2)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from redisq import Backoff, Engine, NewJob, Queue, QueuePolicy
from redisq.testing import ManualClock
from tests.jobs.steps import drained, ids, taken, values


@pytest.mark.every_server
def test_the_higher_priority_goes_first_then_the_order_of_the_offers(queue: Queue[Any]) -> None:
    """effect-mq 1: priorities 0, 0, 5: 5 first, then in order."""
    queue.offer("a")
    queue.offer("b")
    queue.offer("urgent", priority=5)
    assert values(drained(queue)) == ["urgent", "a", "b"]


@pytest.mark.every_server
def test_every_priority_has_its_place_and_its_order(queue: Queue[Any]) -> None:
    jobs = [NewJob((-priority, number), priority=priority) for number, priority in enumerate(
        [0, -1000, 1000, 5, 0, -1, 1, 5, -1000, 1000, 0, -1, 999, -999]
    )]  # fmt: skip
    queue.offer_many(jobs)
    found = [tuple(value) for value in values(drained(queue, 3))]
    assert found == sorted(found)
    assert len(found) == 14


def test_the_order_inside_a_priority_does_not_follow_the_ids(queue: Queue[Any]) -> None:
    chosen = [f"{number:03}" for number in range(100)]
    random.Random(3).shuffle(chosen)
    queue.offer_many([NewJob("", id=id, priority=7) for id in chosen[:50]])
    for id in chosen[50:]:
        queue.offer("", id=id, priority=7)
    assert ids(drained(queue, 9)) == chosen


def by_release(queue: Queue[Any], clock: ManualClock, deliveries: list[Any]) -> None:
    for each in deliveries:
        queue.release(each, delay=1)
    clock.advance(1)


def by_failure(queue: Queue[Any], clock: ManualClock, deliveries: list[Any]) -> None:
    for each in deliveries:
        queue.fail(each, "broken", retry_in=0)


def by_back_off(queue: Queue[Any], clock: ManualClock, deliveries: list[Any]) -> None:
    for number, each in enumerate(deliveries):
        queue.fail(each, "broken", retry_in=1 + number)
    clock.advance(20)


def by_lapse(queue: Queue[Any], clock: ManualClock, deliveries: list[Any]) -> None:
    for number, each in enumerate(deliveries):
        queue.renew(each, 40 + number)
    clock.advance(60)


def by_promotion(queue: Queue[Any], clock: ManualClock, deliveries: list[Any]) -> None:
    for each in deliveries:
        queue.release(each, delay=3600)
    for each in deliveries:
        assert queue.promote(each.id)


def by_retry(queue: Queue[Any], clock: ManualClock, deliveries: list[Any]) -> None:
    for each in deliveries:
        queue.fail(each, "broken", final=True)
    for each in deliveries:
        assert queue.retry(each.id)


@pytest.mark.every_server
@pytest.mark.parametrize("way", [by_failure, by_back_off, by_lapse, by_promotion, by_retry])
def test_the_priority_is_kept_on_every_way_back_to_the_tail(
    engine: Engine, clock: ManualClock, way: Callable[..., None]
) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(backoff=Backoff.fixed(0)))
    queue.offer_many([NewJob(f"{priority}{letter}", priority=priority) for letter in "ab" for priority in (-2, 0, 3)])
    deliveries = queue.take_many(6)
    assert values(deliveries) == ["3a", "3b", "0a", "0b", "-2a", "-2b"]
    queue.offer_many([NewJob(f"{priority} waited", priority=priority) for priority in (-2, 0, 3)])
    way(queue, clock, deliveries)
    assert values(queue.take_many(20)) == [
        "3 waited", "3a", "3b", "0 waited", "0a", "0b", "-2 waited", "-2a", "-2b",
    ]  # fmt: skip


def test_the_priority_is_kept_by_a_delayed_release(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer_many([NewJob("low", priority=-1), NewJob("high", priority=1), "plain"])
    by_release(queue, clock, queue.take_many(3))
    assert values(queue.take_many(3)) == ["high", "plain", "low"]


@pytest.mark.every_server
def test_a_released_job_is_the_first_of_its_own_priority(queue: Queue[Any]) -> None:
    queue.offer_many([NewJob(f"{priority}{letter}", priority=priority) for letter in "ab" for priority in (-2, 0, 3)])
    for each in queue.take_many(6):
        queue.release(each)
    # one after the other to the head: the last one released is the first one there
    assert values(drained(queue)) == ["3b", "3a", "0b", "0a", "-2b", "-2a"]


def test_a_higher_priority_overtakes_what_was_released_to_the_head(queue: Queue[Any]) -> None:
    queue.offer("plain")
    queue.release(taken(queue))
    queue.offer("high", priority=1)
    assert values(drained(queue)) == ["high", "plain"]


def test_many_heads_and_tails_of_one_priority_keep_their_order(queue: Queue[Any]) -> None:
    expected: list[int] = []
    rng = random.Random(11)
    for number in range(120):
        if expected and rng.random() < 0.4:
            queue.release(taken(queue))
        elif expected and rng.random() < 0.3:
            delivery = taken(queue)
            assert delivery.value == expected.pop(0)
            queue.ack(delivery)
        else:
            queue.offer(number, priority=4)
            expected.append(number)
    assert values(drained(queue)) == expected
