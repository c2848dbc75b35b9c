"""Leases, attempts and the dead: what one subscription does with its events (SPEC 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redisq import (
    Ack,
    Backoff,
    DeadObligation,
    Done,
    EventDelivery,
    EventNotActive,
    EventQueue,
    EventStatus,
    Failed,
    Failure,
    InvalidInput,
    LeaseLost,
    ObligationStatus,
    Released,
    Subscription,
    SubscriptionGone,
)
from redisq.testing import ManualClock
from tests.events.conftest import OpenEvents

pytestmark = [pytest.mark.every_server]
Sweep = Callable[[EventQueue[Any]], dict[str, int]]
PENDING, DEAD = ObligationStatus.PENDING, ObligationStatus.DEAD


def taken(queue: EventQueue[Any], subscription: Subscription, lease: float = 30) -> EventDelivery:
    delivery = queue.take(subscription, lease=lease)
    assert delivery is not None
    return delivery


def test_a_lease_is_lost_at_its_end_and_the_event_is_takeable(events: EventQueue[Any], clock: ManualClock) -> None:
    billing = events.subscribe("billing")
    events.emit("x")
    first = taken(events, billing, lease=1)
    clock.advance(1)
    for call in (lambda: events.ack(first), lambda: events.renew(first), lambda: events.release(first),
                 lambda: events.fail(first, "no")):  # fmt: skip
        with pytest.raises(LeaseLost):
            call()
    second = taken(events, billing)
    assert (second.attempt, second.fence > first.fence) == (2, True)
    assert events.ack(second) == Ack.ACKNOWLEDGED
    assert events.ack(second) == Ack.ALREADY_ACKNOWLEDGED
    with pytest.raises(LeaseLost):
        events.ack(first)


def test_a_renewal_lengthens_up_to_the_deadline_and_never_shortens(events: EventQueue[Any], clock: ManualClock) -> None:
    billing = events.subscribe("billing")
    event = events.emit("x", ttl=10)
    delivery = taken(events, billing, lease=5)
    assert delivery.expires_ms == clock.now_ms + 5000
    assert events.renew(delivery, 1).expires_ms == delivery.expires_ms
    assert events.renew(delivery, 60).expires_ms == event.expires_ms
    clock.advance(10)
    for call in (lambda: events.renew(delivery), lambda: events.ack(delivery), lambda: events.release(delivery)):
        with pytest.raises(EventNotActive):
            call()
    events.maintain()
    with pytest.raises(EventNotActive):
        events.ack(delivery)
    found = events.get(event.id)
    assert found is not None
    assert (found.status, found.settled_ms) == (EventStatus.EXPIRED, event.expires_ms)


def test_a_release_does_not_count_and_kills_its_token(events: EventQueue[Any], clock: ManualClock) -> None:
    billing = events.subscribe("billing")
    events.emit("x")
    first = taken(events, billing)
    events.release(first, delay=3)
    events.release(first)
    with pytest.raises(LeaseLost):
        events.ack(first)
    assert events.take(billing) is None
    clock.advance(3)
    assert taken(events, billing).attempt == 1
    events.release(first)  # still its first answer: a newer claim settled nothing


def test_failures_back_off_and_end_dead(open_events: OpenEvents, clock: ManualClock) -> None:
    queue = open_events(max_attempts=2, backoff=Backoff.delays(2, 5))
    billing = queue.subscribe("billing")
    event = queue.emit("x")
    first = taken(queue, billing)
    assert first.max_attempts == 2
    answer = Failure(PENDING, clock.now_ms + 2000)
    assert queue.fail(first, "no") == answer
    assert queue.fail(first, "again") == answer
    clock.advance(2)
    second = taken(queue, billing)
    assert queue.fail(second, ValueError("broken"), retry_in=1) == Failure(DEAD)
    assert queue.fail(second, "again") == Failure(DEAD)
    with pytest.raises(LeaseLost):
        queue.ack(second)
    (row,) = queue.dead(billing).items
    assert isinstance(row, DeadObligation)
    assert (row.event_id, row.name, row.attempts, row.dead_ms, row.value) == (event.id, "billing", 2, clock.now_ms, "x")
    assert row.error is not None
    assert (row.error.type, row.error.message) == ("ValueError", "broken")
    # the event is completed, and stays for its dead obligation although this queue deletes
    found = queue.get(event.id)
    assert found is not None
    assert (found.status, found.settled_ms, found.recipients[0].status) == ("completed", clock.now_ms, "dead")


def test_the_last_attempt_that_lapsed_is_dead_as_of_its_end(open_events: OpenEvents, clock: ManualClock) -> None:
    queue = open_events(max_attempts=1)
    billing = queue.subscribe("billing")
    event = queue.emit("x")
    delivery = taken(queue, billing, lease=2)
    clock.advance(60)
    assert queue.maintain().by_category["lapsed"] == 1
    found = queue.get(event.id)
    assert found is not None
    assert (found.settled_ms, found.recipients[0].resolved_ms) == (delivery.expires_ms, delivery.expires_ms)


def test_a_dead_obligation_is_retried_on_the_settled_event(open_events: OpenEvents, clock: ManualClock) -> None:
    queue = open_events(max_attempts=1, ttl=10)
    billing = queue.subscribe("billing")
    event = queue.emit("x")
    queue.fail(taken(queue, billing), "no")
    settled_ms = clock.now_ms
    clock.advance(20)
    assert queue.retry(billing, event.id)
    assert not queue.retry(billing, event.id)
    found = queue.get(event.id)
    assert found is not None
    assert (found.status, found.settled_ms, found.recipients[0].status) == ("completed", settled_ms, "pending")
    assert queue.dead(billing).items == []
    again = taken(queue, billing)
    assert (again.attempt, again.expires_ms, again.event.status) == (1, clock.now_ms + 30_000, "completed")
    assert queue.renew(again, 60).expires_ms == clock.now_ms + 60_000
    assert queue.ack(again) == Ack.ACKNOWLEDGED
    assert queue.get(event.id) is None


def test_discard_lets_the_event_go(open_events: OpenEvents) -> None:
    queue = open_events()
    billing = queue.subscribe("billing")
    event = queue.emit("x")
    queue.fail(taken(queue, billing), "no", final=True)
    assert queue.discard(billing, event.id)
    assert not queue.discard(billing, event.id)
    assert queue.get(event.id) is None


def test_dead_retention_ends_the_hold_at_once(open_events: OpenEvents, clock: ManualClock, swept: Sweep) -> None:
    queue = open_events(dead_retention=5)
    billing = queue.subscribe("billing")
    event = queue.emit("x")
    queue.fail(taken(queue, billing), "no", final=True)
    clock.advance(4.999)
    assert queue.get(event.id) is not None
    clock.advance(0.001)
    assert queue.get(event.id) is None
    assert queue.dead(billing).items == []
    assert not queue.retry(billing, event.id)
    assert swept(queue)["dead"] == 1


def test_dead_pages_go_from_the_latest_to_the_first(open_events: OpenEvents, clock: ManualClock) -> None:
    queue = open_events()
    billing = queue.subscribe("billing")
    queue.emit_many(range(5))
    for delivery in queue.take_many(billing, 5):
        queue.fail(delivery, "no", final=True)
        clock.advance(1)
    page = queue.dead(billing, limit=3)
    rest = queue.dead(billing, limit=3, cursor=page.cursor)
    assert [each.value for each in page.items + rest.items] == [4, 3, 2, 1, 0]
    assert rest.cursor is None
    queue.unsubscribe(billing)
    assert queue.dead(billing).items == []


def test_an_exchange_settles_each_for_itself_and_takes(open_events: OpenEvents, clock: ManualClock) -> None:
    queue = open_events(backoff=Backoff.fixed(4))
    billing, email = queue.subscribe("billing"), queue.subscribe("email")
    queue.emit_many(range(4))
    one, two, three, four = queue.take_many(billing, 4)
    other = taken(queue, email)
    queue.emit("next")
    answers, fresh = queue.exchange(billing, [one, Done(two, "kept nowhere"), Failed(three, "no"), Released(four, 2),
                                              other, one], 10)  # fmt: skip
    assert answers == [
        Ack.ACKNOWLEDGED, Ack.ACKNOWLEDGED,
        Failure(PENDING, clock.now_ms + 4000), Failure(PENDING, clock.now_ms + 2000),
        Ack.ACKNOWLEDGED, Ack.GONE,
    ]  # fmt: skip
    assert [each.value for each in fresh] == ["next"]
    queue.unsubscribe(billing)
    with pytest.raises(SubscriptionGone):
        queue.exchange(billing, [fresh[0]], 1)


def test_a_delivery_of_another_queue_is_refused(
    events: EventQueue[Any], open_events: OpenEvents, engine: object
) -> None:
    billing = events.subscribe("billing")
    events.emit("x")
    delivery = taken(events, billing)
    other = engine.events("others")  # type: ignore[attr-defined]
    for call in (lambda: other.ack(delivery), lambda: other.take(billing), lambda: other.exchange(billing, [], 1),
                 lambda: other.ack_many([delivery]), lambda: events.ack("text"), lambda: events.take("text")):  # type: ignore[arg-type]  # fmt: skip
        with pytest.raises(InvalidInput):
            call()


def test_process_one_acks_or_fails(open_events: OpenEvents, clock: ManualClock) -> None:
    queue = open_events(backoff=Backoff.fixed(5))
    billing = queue.subscribe("billing")
    assert not queue.process_one(billing, lambda delivery: None)
    event = queue.emit("x")

    def broken(delivery: EventDelivery) -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        queue.process_one(billing, broken, retry_delay=1)
    clock.advance(1)
    with pytest.raises(ValueError, match="broken"):
        queue.process_one(billing, broken)
    clock.advance(4.999)
    assert not queue.process_one(billing, broken)
    clock.advance(0.001)
    seen: list[object] = []
    assert queue.process_one(billing, lambda delivery: seen.append(delivery.attempt))
    assert seen == [3]
    assert queue.get(event.id) is None


def test_a_discarded_retry_leaves_the_other_dead_to_the_sweep(
    open_events: OpenEvents, clock: ManualClock, swept: Sweep
) -> None:
    queue = open_events(dead_retention=10)
    billing = queue.subscribe("billing")
    first, second = queue.emit("a"), queue.emit("b")
    for _ in range(2):
        queue.fail(taken(queue, billing), "no", final=True)
    assert queue.retry(billing, first.id)
    assert queue.discard(billing, first.id)
    clock.advance(10)
    swept(queue)
    assert queue.get(second.id) is None
    assert queue.dead(billing).items == []
