"""The bounded removal of a generation that owes a lot, and the limit of subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from redisq import CapacityExceeded, Engine, EventPolicy, EventQueue, ObligationStatus
from redisq.testing import ManualClock
from tests.events.conftest import OpenEvents
from tests.support.fronts import OpenEngine

Sweep = Callable[[EventQueue[Any]], dict[str, int]]
MANY = 9_000


@pytest.mark.timeout(120)
def test_a_removal_of_9000_unsettled_events_goes_in_bounded_steps(
    open_events: OpenEvents, clock: ManualClock, keys: Callable[..., list[str]]
) -> None:
    queue = open_events(max_attempts=5)
    slow, other = queue.subscribe("slow"), queue.subscribe("other")
    for _ in range(9):
        queue.emit_many([None] * 1000)
    held = queue.take_many(slow, 1000)
    for delivery in held[:10]:
        queue.release(delivery, delay=60)
    seen = 0
    while deliveries := queue.take_many(other, 1000):
        seen += len(deliveries)
        queue.ack_many(deliveries)
    assert seen == MANY
    clock.advance(1)
    assert queue.unsubscribe(slow)
    steps = 0
    while True:
        done = queue.maintain(limit=100)
        assert done.by_category["removals"] <= 100
        steps += 1
        if not done.pending:
            break
    assert steps >= (MANY - 100) / 100
    assert queue.get(held[0].id) is None
    assert queue.info().oldest_ms is None
    assert [key for key in keys() if slow.generation in key] == []


def test_what_a_removal_waives_reads_so_at_once(events: EventQueue[Any], clock: ManualClock) -> None:
    slow, other = events.subscribe("slow"), events.subscribe("other")
    emitted = events.emit_many([None] * 300)
    events.ack_many(events.take_many(other, 1000))
    clock.advance(1)
    removed_ms = clock.now_ms
    assert events.unsubscribe(slow)
    clock.advance(1)
    for event in emitted:
        found = events.get(event.id)
        assert found is not None
        assert (found.status, found.settled_ms) == ("completed", removed_ms)
        assert [each.status for each in found.recipients] == [
            ObligationStatus.WAIVED, ObligationStatus.ACKNOWLEDGED,
        ]  # fmt: skip


@pytest.mark.timeout(120)
def test_subscriptions_come_and_go_faster_than_they_are_swept(events: EventQueue[Any], swept: Sweep) -> None:
    """More removed generations than may wait at once: unsubscribe itself makes room."""
    keeper = events.subscribe("keeper")
    for n in range(40):
        passing = events.subscribe("passing")
        events.emit_many([n] * 60)
        assert events.unsubscribe(passing)
    swept(events)
    assert len(events.take_many(keeper, 1000)) == 1000
    assert [getattr(each, "name", "") for each in events.subscriptions()] == ["keeper"]


@pytest.mark.timeout(120)
def test_the_1001st_subscription_is_refused_and_an_existing_one_accepted(
    engine: Engine, raw: redis.Redis, namespace: str
) -> None:
    queue = engine.events("crowd", policy=EventPolicy(on_completion="archive"))
    first, *_ = [queue.subscribe(f"s{n}") for n in range(1000)]
    with pytest.raises(CapacityExceeded, match="1000"):
        queue.subscribe("one more")
    assert queue.subscribe("s0") == first
    assert raw.hlen(f"{{{namespace}:events:crowd}}:subs") == 1000
    event = queue.emit("all")
    assert len(event.recipients) == 1000
    found = queue.get(event.id)
    assert found is not None
    assert {each.generation for each in found.recipients} == {each.generation for each in event.recipients}
    assert queue.unsubscribe(first)
    assert queue.subscribe("one more").name == "one more"


def test_a_dead_obligation_of_a_removed_generation_holds_once(
    open_engine: OpenEngine, clock: ManualClock, keys: Callable[..., list[str]]
) -> None:
    """Counted twice, its end would take the event away from under the listing of another one. The order of the two is
    that of their names, so there are several queues."""
    policy = EventPolicy(dead_retention=300)
    queues = [open_engine(clock=clock).events(f"news {n}", policy=policy) for n in range(8)]
    for queue in queues:
        stays, goes = queue.subscribe("stays"), queue.subscribe("goes")
        queue.emit(1, id="x")
        for subscription in (stays, goes):
            delivery = queue.take(subscription)
            assert delivery is not None
            queue.fail(delivery, "no", final=True)
    clock.advance(700)
    for queue in queues:
        assert queue.unsubscribe(queue.subscribe("goes"))
        assert not queue.emit(2, id="x").duplicate
    assert [key for key in keys() if ":dead:" in key] == []
