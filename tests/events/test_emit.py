"""Emission: who owes an event, deadlines of emission, and ids that are used again (SPEC 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redisq import Engine, EventPolicy, EventQueue, EventStatus, InvalidInput, NewEvent, ObligationStatus
from redisq.testing import ManualClock
from tests.events.conftest import OpenEvents
from tests.support.fronts import OpenEngine

pytestmark = [pytest.mark.every_server]
Sweep = Callable[[EventQueue[Any]], dict[str, int]]


def test_an_event_is_owed_to_those_who_are_subscribed(events: EventQueue[Any], clock: ManualClock) -> None:
    billing, email = events.subscribe("billing"), events.subscribe("email")
    event = events.emit({"orderId": "order-123"})
    late = events.subscribe("late")
    assert event.status is EventStatus.ACTIVE
    assert [(each.name, each.generation) for each in event.recipients] == [
        ("billing", billing.generation), ("email", email.generation),
    ]  # fmt: skip
    assert events.get(event.id) == event
    assert events.take(late) is None
    taken = events.take(billing)
    assert taken is not None
    assert (taken.value, taken.attempt, taken.event.recipients) == ({"orderId": "order-123"}, 1, ())


def test_without_subscriptions_it_is_completed_at_once(open_events: OpenEvents, clock: ManualClock) -> None:
    queue = open_events(on_completion="delete")
    event = queue.emit("x", ttl=5)
    assert (event.status, event.settled_ms, event.expires_ms) == (EventStatus.COMPLETED, clock.now_ms, None)
    assert queue.get(event.id) is None


def test_a_ttl_of_nothing_expires_at_once_unless_nobody_is_owed(events: EventQueue[Any], clock: ManualClock) -> None:
    assert events.emit("x", ttl=0).status is EventStatus.COMPLETED
    billing = events.subscribe("billing")
    event = events.emit("x", ttl=0)
    assert (event.status, event.settled_ms, event.expires_ms) == (EventStatus.EXPIRED, clock.now_ms, clock.now_ms)
    found = events.get(event.id)
    assert found == event
    assert [each.status for each in event.recipients] == [ObligationStatus.PENDING]
    assert events.take(billing) is None


def test_the_queues_deadline_holds_unless_none_is_given(open_events: OpenEvents, clock: ManualClock) -> None:
    queue = open_events(ttl=5)
    queue.subscribe("billing")
    plain, never, own = queue.emit_many(["a", NewEvent("b", ttl=None), NewEvent("c", ttl=1)])
    assert [plain.expires_ms, never.expires_ms, own.expires_ms] == [clock.now_ms + 5000, None, clock.now_ms + 1000]
    clock.advance(10)
    assert queue.get(plain.id) is None
    assert queue.get(never.id) == never


def test_an_id_that_is_there_returns_the_first_event(events: EventQueue[Any]) -> None:
    billing = events.subscribe("billing")
    first = events.emit("first", id="order-1")
    again = events.emit("second", id="order-1")
    assert (first.duplicate, again.duplicate, again.value) == (False, True, "first")
    delivery = events.take(billing)
    assert delivery is not None
    events.ack(delivery)
    settled = events.emit("third", id="order-1")
    assert (settled.status, settled.value) == (EventStatus.COMPLETED, "first")
    assert [each.status for each in settled.recipients] == [ObligationStatus.ACKNOWLEDGED]


@pytest.mark.parametrize("sweeps", [True, False])
def test_a_settled_id_stays_taken_for_a_while(
    open_events: OpenEvents, clock: ManualClock, swept: Sweep, sweeps: bool
) -> None:
    """Whether or not a sweep came by: exclusive at its end."""
    queue = open_events(on_completion="delete", ttl=5, dedup=10)
    queue.subscribe("billing")
    first = queue.emit("first", id="order-1")
    clock.advance(5)
    if sweeps:
        swept(queue)
    clock.advance(9.999)
    again = queue.emit("second", id="order-1")
    assert (again.duplicate, again.value, again.recipients) == (True, None, ())
    assert (again.status, again.created_ms) == (EventStatus.EXPIRED, first.created_ms)
    assert (again.settled_ms, again.expires_ms) == (first.expires_ms, first.expires_ms)
    clock.advance(0.001)
    fresh = queue.emit("third", id="order-1")
    assert (fresh.duplicate, fresh.status) == (False, EventStatus.ACTIVE)


def test_one_batch_may_hold_an_id_twice(events: EventQueue[Any]) -> None:
    events.subscribe("billing")
    first, second = events.emit_many([NewEvent("a", id="same"), NewEvent("b", id="same")])
    assert (first.duplicate, second.duplicate, second.value) == (False, True, "a")


def test_a_used_id_forgets_its_old_tokens(open_events: OpenEvents, clock: ManualClock) -> None:
    queue = open_events(on_completion="delete", dedup=0)
    billing = queue.subscribe("billing")
    queue.emit("a", id="same")
    old = queue.take(billing)
    assert old is not None
    assert queue.ack(old) == "acknowledged"
    assert queue.ack(old) == "gone"
    queue.emit("b", id="same")
    assert queue.ack_many([old]) == ["lease-lost"]


def test_every_client_sees_the_roster_as_it_is(
    open_engine: OpenEngine, events: EventQueue[Any], clock: ManualClock
) -> None:
    """A client that emits knows the subscriptions from its last emission, and is told of each change since."""
    other = open_engine(clock=clock).events("orders")
    names: list[str] = []
    subscriptions = []
    for n in range(80):
        subscriptions.append(other.subscribe(f"s{n}"))
        names.append(f"s{n}")
        if n % 3 == 2:
            other.unsubscribe(subscriptions[n - 1])
            names.remove(f"s{n - 1}")
        event = events.emit(n)
        assert [each.name for each in event.recipients] == names
        found = other.get(event.id)
        assert found is not None
        assert [each.name for each in found.recipients] == names


def test_what_is_wrong_is_named_before_anything_is_sent(engine: Engine) -> None:
    queue = engine.events("typed", int)
    for call in (
        lambda: queue.emit("text"),
        lambda: queue.emit(1, ttl=-1),
        lambda: queue.emit(1, id=""),
        lambda: queue.emit(1, id="x" * 257),
        lambda: queue.emit_many("text"),
        lambda: queue.emit_many([1, 2, "three"]),
        lambda: queue.subscribe(""),
        lambda: queue.maintain(0),
        lambda: queue.list_archived(offset=-1),
        lambda: queue.list_archived(limit=1001),
    ):
        with pytest.raises(InvalidInput):
            call()
    assert engine.queues() == []


def test_a_client_that_declares_another_policy_is_told(open_engine: OpenEngine, clock: ManualClock) -> None:
    from redisq import ConfigurationConflict

    open_engine(clock=clock).events("orders", policy=EventPolicy(ttl=5)).emit(1)
    other = open_engine(clock=clock).events("orders", policy=EventPolicy(ttl=6))
    with pytest.raises(ConfigurationConflict, match="ttl"):
        other.get("x")
    assert open_engine(clock=clock).events("orders").alter(EventPolicy(ttl=6)).ttl == 5
    assert other.get("x") is None
