"""`max_backlog` and `idle_after`: what a subscription that does not keep up is spared (SPEC 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redisq import EventQueue, Subscription, SubscriptionInfo
from redisq.testing import ManualClock
from tests.events.conftest import OpenEvents

pytestmark = [pytest.mark.every_server]
Sweep = Callable[[EventQueue[Any]], dict[str, int]]


def info(queue: EventQueue[Any], subscription: Subscription) -> SubscriptionInfo:
    found = {each.name: each for each in queue.subscriptions() if isinstance(each, SubscriptionInfo)}
    return found[subscription.name]


def values(queue: EventQueue[Any], subscription: Subscription) -> list[Any]:
    return [delivery.value for delivery in queue.take_many(subscription, 100)]


def statuses(queue: EventQueue[Any], id: str) -> dict[str, tuple[str, int | None]]:
    event = queue.get(id)
    assert event is not None
    return {each.name: (each.status, each.resolved_ms) for each in event.recipients}


def test_a_backlog_keeps_its_newest_events(open_events: OpenEvents, clock: ManualClock, swept: Sweep) -> None:
    queue = open_events(on_completion="archive", max_backlog=3)
    slow, fast = queue.subscribe("slow"), queue.subscribe("fast")
    events = queue.emit_many(range(8))
    assert values(queue, fast) == list(range(8))
    clock.advance(5)
    assert swept(queue)["dropped"] == 5
    assert info(queue, slow).dropped == 5
    assert info(queue, fast).dropped == 0
    assert statuses(queue, events[0].id)["slow"] == ("waived", clock.now_ms)
    assert values(queue, slow) == [5, 6, 7]


def test_what_is_leased_does_not_count(open_events: OpenEvents, swept: Sweep) -> None:
    queue = open_events(max_backlog=2)
    slow = queue.subscribe("slow")
    queue.emit_many(range(4))
    held = queue.take_many(slow, 2)
    assert swept(queue)["dropped"] == 0
    queue.release(held[0], delay=60)
    assert swept(queue)["dropped"] == 1
    assert values(queue, slow) == [2, 3]


def test_the_oldest_goes_first_wherever_it_waits(open_events: OpenEvents, clock: ManualClock, swept: Sweep) -> None:
    queue = open_events(max_backlog=3)
    slow = queue.subscribe("slow")
    queue.emit_many(range(4))
    first, second = queue.take_many(slow, 2)
    queue.release(second, delay=1)
    queue.release(first, delay=60)
    assert swept(queue)["dropped"] == 1
    clock.advance(1)
    assert sorted(values(queue, slow)) == [1, 2, 3]


def test_only_a_sweep_drops(open_events: OpenEvents) -> None:
    queue = open_events(max_backlog=1)
    slow = queue.subscribe("slow")
    queue.emit_many(range(3))
    assert values(queue, slow) == [0, 1, 2]


def test_an_idle_subscription_lets_go(open_events: OpenEvents, clock: ManualClock, swept: Sweep) -> None:
    queue = open_events(on_completion="archive", idle_after=10)
    idle = queue.subscribe("idle")
    first = queue.emit("first")
    clock.advance(6)
    queue.emit("second")
    clock.advance(3.999)
    assert swept(queue)["dropped"] == 0
    clock.advance(0.001)
    assert swept(queue)["dropped"] == 1
    assert statuses(queue, first.id) == {"idle": ("waived", clock.now_ms)}
    assert queue.list_archived() == [first.id]
    assert values(queue, idle) == ["second"]


def test_a_take_that_returned_something_starts_the_time_again(
    open_events: OpenEvents, clock: ManualClock, swept: Sweep
) -> None:
    queue = open_events(idle_after=10)
    idle = queue.subscribe("idle")
    queue.emit_many(["first", "second"])
    clock.advance(9)
    taken = queue.take(idle)
    assert taken is not None
    queue.ack(taken)
    clock.advance(9.999)
    assert swept(queue)["dropped"] == 0
    clock.advance(0.001)
    assert swept(queue)["dropped"] == 1
    assert queue.take(idle) is None


def test_a_sweep_drops_in_bounded_steps(open_events: OpenEvents) -> None:
    queue = open_events(max_backlog=1)
    slow = queue.subscribe("slow")
    queue.emit_many(range(12))
    first = queue.maintain(limit=5)
    assert (first.by_category["dropped"], first.pending) == (5, True)
    assert queue.maintain(limit=5).by_category["dropped"] == 5
    assert queue.maintain(limit=5).by_category["dropped"] == 1
    assert info(queue, slow).dropped == 11


def test_a_retried_obligation_is_never_dropped(open_events: OpenEvents, swept: Sweep) -> None:
    queue = open_events(max_backlog=1)
    slow = queue.subscribe("slow")
    event = queue.emit("dead")
    delivery = queue.take(slow)
    assert delivery is not None
    queue.fail(delivery, "no", final=True)
    assert queue.retry(slow, event.id)
    queue.emit_many(range(3))
    swept(queue)
    assert "dead" in values(queue, slow)
