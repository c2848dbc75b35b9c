"""Deadlines, waivers and the archive: what holds at which instant, whether or not a sweep came by (SPEC 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redisq import Ack, Event, EventDelivery, EventNotActive, EventQueue, EventStatus, LeaseLost, NewEvent
from redisq.testing import ManualClock
from tests.events.conftest import OpenEvents

pytestmark = [pytest.mark.every_server, pytest.mark.parametrize("sweeps", [True, False])]
Sweep = Callable[[EventQueue[Any]], dict[str, int]]


@pytest.fixture
def passed(clock: ManualClock, sweeps: bool, swept: Sweep) -> Callable[[EventQueue[Any], float], None]:
    """Lets time pass; then a sweep comes by, or none."""

    def advance(queue: EventQueue[Any], seconds: float) -> None:
        clock.advance(seconds)
        if sweeps:
            swept(queue)

    return advance


def there(queue: EventQueue[Any], id: str) -> Event:
    event = queue.get(id)
    assert event is not None
    return event


def test_a_removal_before_the_deadline_waives_and_one_at_it_does_not(
    events: EventQueue[Any], clock: ManualClock, passed: Callable[..., None]
) -> None:
    early, late = events.subscribe("early"), events.subscribe("late")
    event = events.emit("x", ttl=2)
    clock.advance(1.999)
    assert events.unsubscribe(early)
    clock.advance(0.001)
    assert events.unsubscribe(late)
    passed(events, 5)
    found = there(events, event.id)
    assert (found.status, found.settled_ms) == (EventStatus.EXPIRED, event.expires_ms)
    assert [(each.status, each.resolved_ms) for each in found.recipients] == [
        ("waived", event.created_ms + 1999),
        ("pending", None),
    ]


def test_a_removal_completes_what_expired_meanwhile(
    events: EventQueue[Any], clock: ManualClock, passed: Callable[..., None]
) -> None:
    only = events.subscribe("only")
    emitted = events.emit_many([NewEvent(n, ttl=2) for n in range(120)])
    clock.advance(1)
    assert events.unsubscribe(only)
    removed_ms = clock.now_ms
    passed(events, 5)
    for event in emitted:
        assert (there(events, event.id).status, there(events, event.id).settled_ms) == ("completed", removed_ms)
    assert sorted(events.list_archived(limit=200)) == sorted(event.id for event in emitted)


def test_a_removal_at_the_deadline_leaves_what_expired_as_it_was(
    events: EventQueue[Any], clock: ManualClock, passed: Callable[..., None]
) -> None:
    """More than the removal itself goes through: the rest is told from the times alone."""
    only = events.subscribe("only")
    emitted = events.emit_many([NewEvent(n, ttl=2) for n in range(120)])
    clock.advance(2)
    assert events.unsubscribe(only)
    passed(events, 1)
    for event in emitted:
        found = there(events, event.id)
        assert (found.status, found.settled_ms) == ("expired", event.expires_ms)
        assert [each.status for each in found.recipients] == ["pending"]


def test_only_a_token_live_at_the_deadline_is_told_that_the_event_settled(
    events: EventQueue[Any], clock: ManualClock, passed: Callable[..., None]
) -> None:
    live, lapsed, released, failed = (events.subscribe(name) for name in ("live", "lapsed", "released", "failed"))
    event = events.emit("x", ttl=10)
    tokens: dict[str, EventDelivery] = {}
    for each, lease in ((live, 30), (lapsed, 5), (released, 30), (failed, 30)):
        (tokens[each.name],) = events.take_many(each, 1, lease=lease)
    events.release(tokens["released"], delay=60)
    events.fail(tokens["failed"], "no", retry_in=60)
    passed(events, 10)
    # a take sees the lapse of a lease that ended before the deadline, and of one that ended with it
    assert [events.take(each) for each in (live, lapsed)] == [None, None]
    for name, token in tokens.items():
        for verb in (events.ack, events.renew):
            with pytest.raises(EventNotActive if name == "live" else LeaseLost):
                verb(token)
    assert [each.status for each in there(events, event.id).recipients] == ["pending"] * 4
    # a removed generation has no token that could still be live
    events.unsubscribe(live)
    with pytest.raises(LeaseLost):
        events.ack(tokens["live"])


def test_an_acknowledgement_is_remembered_in_the_archive(
    events: EventQueue[Any], clock: ManualClock, passed: Callable[..., None]
) -> None:
    one, two = events.subscribe("one"), events.subscribe("two")
    event = events.emit("x", ttl=10)
    delivery = events.take(one)
    assert delivery is not None
    assert events.ack(delivery) == Ack.ACKNOWLEDGED
    passed(events, 10)
    assert events.ack(delivery) == Ack.ALREADY_ACKNOWLEDGED
    assert events.unsubscribe(one)
    passed(events, 1)
    assert events.ack(delivery) == Ack.ALREADY_ACKNOWLEDGED
    assert events.take(two) is None
    assert [each.status for each in there(events, event.id).recipients] == ["acknowledged", "pending"]


def test_retention_counts_from_settlement_and_ends_at_its_instant(
    open_events: OpenEvents, clock: ManualClock, passed: Callable[..., None]
) -> None:
    queue = open_events(on_completion="archive", archive_retention=10)
    queue.subscribe("nobody takes")
    event = queue.emit("x", ttl=5)
    passed(queue, 14.999)
    assert there(queue, event.id).status == "expired"
    assert queue.list_archived() == [event.id]
    passed(queue, 0.001)
    assert queue.get(event.id) is None
    assert queue.list_archived() == []


def test_under_delete_a_settled_event_is_gone_at_that_instant(
    open_events: OpenEvents, clock: ManualClock, passed: Callable[..., None]
) -> None:
    queue = open_events(on_completion="delete")
    billing = queue.subscribe("billing")
    event = queue.emit("x", ttl=5)
    delivery = queue.take(billing)
    assert delivery is not None
    passed(queue, 4.999)
    assert there(queue, event.id).status == "active"
    passed(queue, 0.001)
    assert queue.get(event.id) is None
    assert queue.ack(delivery) == Ack.GONE
    with pytest.raises(LeaseLost):
        queue.release(delivery)


def test_a_held_event_past_its_retention_is_hidden_and_there(
    open_events: OpenEvents, clock: ManualClock, passed: Callable[..., None]
) -> None:
    queue = open_events(on_completion="archive", archive_retention=10)
    billing = queue.subscribe("billing")
    event = queue.emit("x")
    delivery = queue.take(billing)
    assert delivery is not None
    queue.fail(delivery, "no", final=True)
    passed(queue, 10)
    assert queue.list_archived() == []
    assert there(queue, event.id).status == "completed"
    assert queue.discard(billing, event.id)
    assert queue.get(event.id) is None


@pytest.mark.parametrize("many", [7])
def test_a_sweep_expires_in_bounded_steps_and_leaves_only_configuration(
    open_events: OpenEvents,
    clock: ManualClock,
    swept: Sweep,
    keys: Callable[..., list[str]],
    sweeps: bool,
    many: int,
) -> None:
    queue = open_events(on_completion="delete", dedup=20)
    billing = queue.subscribe("billing")
    queue.emit_many([NewEvent(n, ttl=1) for n in range(many)])
    queue.take_many(billing, 3)
    clock.advance(1)
    if sweeps:
        step = queue.maintain(limit=2)
        assert (step.by_category["deadlines"], step.pending) == (2, True)
    swept(queue)
    clock.advance(20)
    swept(queue)
    # the memory goes with its time alone; what is left is configuration and subscriptions
    assert {key.rpartition("}:")[2] for key in keys() if "}:" in key} <= {"subs", "gens", "cursor", "roster"}
