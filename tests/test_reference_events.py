"""The model of event queues on its own: one test per sentence of the contract that is easily got wrong."""

from __future__ import annotations

from typing import Any

import pytest

from redisq.errors import EventNotActive, InvalidInput, LeaseLost, SchemaMismatch, SubscriptionGone
from redisq.model import Ack, Event, EventDelivery, EventStatus, Failure, NewEvent, ObligationStatus, Subscription
from redisq.policy import Backoff, EventPolicy
from redisq.testing import ManualClock, ReferenceEventQueue

START = 1_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


def queue_with(clock: ManualClock, **policy: Any) -> ReferenceEventQueue:
    return ReferenceEventQueue("events", clock, EventPolicy(backoff=Backoff.fixed(0), **policy))


def claim(queue: ReferenceEventQueue, subscription: Subscription, **options: Any) -> EventDelivery:
    delivery = queue.take(subscription, **options)
    assert delivery is not None
    return delivery


def event(queue: ReferenceEventQueue, id: str) -> Event:
    found = queue.get(id)
    assert found is not None
    return found


def statuses(queue: ReferenceEventQueue, id: str) -> list[ObligationStatus]:
    return [each.status for each in event(queue, id).recipients]


def test_an_event_that_nobody_is_owed_is_completed_at_once_and_has_no_deadline(clock: ManualClock) -> None:
    queue = queue_with(clock, on_completion="archive")
    emitted = queue.emit(1, id="a", ttl=0)
    assert (emitted.status, emitted.expires_ms, emitted.settled_ms) == (EventStatus.COMPLETED, None, START)


def test_a_new_generation_gets_only_what_comes_after_it(clock: ManualClock) -> None:
    queue = queue_with(clock)
    old = queue.subscribe("s")
    queue.emit(1)
    assert queue.unsubscribe(old)
    assert not queue.unsubscribe(old)
    new = queue.subscribe("s")
    assert queue.take(new) is None
    with pytest.raises(SubscriptionGone):
        queue.take(old)


def test_a_removal_before_the_deadline_waives_and_at_the_deadline_comes_too_late(clock: ManualClock) -> None:
    queue = queue_with(clock, on_completion="archive")
    early, late = queue.subscribe("early"), queue.subscribe("late")
    queue.emit(1, id="a", ttl=5)
    clock.advance(4)
    queue.unsubscribe(early)
    clock.advance(1)
    queue.unsubscribe(late)
    assert statuses(queue, "a") == [ObligationStatus.WAIVED, ObligationStatus.PENDING]
    assert (event(queue, "a").status, event(queue, "a").settled_ms) == (EventStatus.EXPIRED, START + 5000)


def test_a_token_that_was_live_at_the_deadline_is_not_active_and_a_lapsed_one_is_lost(clock: ManualClock) -> None:
    queue = queue_with(clock, on_completion="archive")
    subscription = queue.subscribe("s")
    queue.emit_many([NewEvent(1, 5, "a"), NewEvent(2, 5, "b")])
    lapsing, living = claim(queue, subscription, lease=4), claim(queue, subscription)
    assert living.expires_ms == START + 5000
    clock.advance(5)
    with pytest.raises(LeaseLost):
        queue.ack(lapsing)
    with pytest.raises(EventNotActive):
        queue.ack(living)
    assert queue.ack_many([lapsing, living]) == [Ack.LEASE_LOST, Ack.NOT_ACTIVE]


def test_a_deleted_event_is_gone_at_the_instant_of_its_settlement(clock: ManualClock) -> None:
    queue = queue_with(clock)
    subscription = queue.subscribe("s")
    queue.emit(1, id="a", ttl=5)
    delivery = claim(queue, subscription)
    clock.advance(5)
    assert queue.get("a") is None
    assert queue.ack(delivery) is Ack.GONE
    with pytest.raises(LeaseLost):
        queue.renew(delivery)


def test_an_ack_is_remembered_after_unsubscribe_and_in_the_archive(clock: ManualClock) -> None:
    queue = queue_with(clock, on_completion="archive")
    subscription = queue.subscribe("s")
    queue.emit(1)
    delivery = claim(queue, subscription)
    assert queue.ack(delivery) is Ack.ACKNOWLEDGED
    queue.unsubscribe(subscription)
    assert queue.ack(delivery) is Ack.ALREADY_ACKNOWLEDGED


def test_a_lapse_counts_and_the_last_one_is_dead_since_its_end_once_it_is_seen(clock: ManualClock) -> None:
    queue = queue_with(clock, max_attempts=2)
    subscription = queue.subscribe("s")
    queue.emit(1, id="a")
    claim(queue, subscription, lease=1)
    clock.advance(1)
    assert claim(queue, subscription, lease=1).attempt == 2
    clock.advance(9)
    assert statuses(queue, "a") == [ObligationStatus.PENDING]
    assert queue.take(subscription) is None
    assert event(queue, "a").settled_ms == START + 2000
    assert [each.dead_ms for each in queue.dead(subscription).items] == [START + 2000]


def test_a_dead_obligation_holds_its_event_until_it_is_discarded(clock: ManualClock) -> None:
    queue = queue_with(clock)
    subscription = queue.subscribe("s")
    queue.emit(1, id="a")
    assert queue.fail(claim(queue, subscription), "no", final=True) == Failure(ObligationStatus.DEAD)
    assert event(queue, "a").status is EventStatus.COMPLETED
    assert queue.discard(subscription, "a")
    assert queue.get("a") is None
    assert not queue.discard(subscription, "a")


def test_dead_retention_ends_the_hold_at_once(clock: ManualClock) -> None:
    queue = queue_with(clock, dead_retention=5)
    subscription = queue.subscribe("s")
    queue.emit(1, id="a")
    queue.fail(claim(queue, subscription), "no", final=True)
    clock.advance(5)
    assert queue.get("a") is None
    assert queue.dead(subscription).items == []


def test_a_retried_obligation_ignores_the_deadline_and_changes_nothing_of_the_event(clock: ManualClock) -> None:
    queue = queue_with(clock, max_attempts=1)
    subscription = queue.subscribe("s")
    queue.emit(1, id="a", ttl=5)
    queue.fail(claim(queue, subscription), "no")
    assert queue.retry(subscription, "a")
    assert not queue.retry(subscription, "a")
    clock.advance(100)
    delivery = claim(queue, subscription)
    assert (delivery.attempt, delivery.expires_ms) == (1, START + 130_000)
    assert (event(queue, "a").settled_ms, statuses(queue, "a")) == (START, [ObligationStatus.PENDING])
    assert queue.ack(delivery) is Ack.ACKNOWLEDGED
    assert queue.get("a") is None


def test_a_duplicate_finds_the_record_then_the_memory_then_nothing(clock: ManualClock) -> None:
    queue = queue_with(clock, dedup=10)
    subscription = queue.subscribe("s")
    queue.emit(1, id="a")
    again = queue.emit(2, id="a")
    assert (again.value, again.duplicate, len(again.recipients)) == (1, True, 1)
    old = claim(queue, subscription)
    queue.ack(old)
    clock.advance(9.999)
    again = queue.emit(2, id="a")
    assert (again.value, again.duplicate, again.recipients) == (None, True, ())
    clock.advance(0.001)
    assert not queue.emit(2, id="a").duplicate
    with pytest.raises(LeaseLost):
        queue.ack(old)


def test_archived_ids_come_in_settlement_order_and_hide_at_their_age(clock: ManualClock) -> None:
    queue = queue_with(clock, on_completion="archive", archive_retention=10)
    queue.subscribe("s")
    queue.emit_many([NewEvent(1, 5, "late"), NewEvent(1, 3, "early")])
    clock.advance(5)
    assert queue.list_archived() == ["early", "late"]
    assert queue.list_archived(offset=1) == ["late"]
    clock.advance(8)
    assert queue.list_archived() == ["late"]


def test_maintain_alone_drops_the_oldest_of_a_backlog_and_no_leased_one(clock: ManualClock) -> None:
    queue = queue_with(clock, max_backlog=1, on_completion="archive")
    subscription = queue.subscribe("s")
    queue.emit_many([NewEvent(1, id=id) for id in "abcd"])
    held = claim(queue, subscription)
    first = queue.maintain(1)
    assert (first.by_category["dropped"], first.pending) == (1, True)
    assert queue.maintain().by_category["dropped"] == 1
    pending = [id for id in "abcd" if statuses(queue, id) == [ObligationStatus.PENDING]]
    assert pending == [held.id, "d"]
    assert queue.subscriptions()[0].dropped == 2


def test_idle_counts_from_the_last_take_and_the_emission(clock: ManualClock) -> None:
    queue = queue_with(clock, idle_after=5)
    subscription = queue.subscribe("s")
    queue.emit_many([1, 2])
    clock.advance(3)
    claim(queue, subscription)
    clock.advance(4.999)
    assert queue.maintain().by_category["dropped"] == 0
    clock.advance(0.001)
    assert queue.maintain().by_category["dropped"] == 1


def test_an_undecodable_payload_is_dead_and_the_take_goes_on(clock: ManualClock) -> None:
    any_client = queue_with(clock)
    reader = any_client.client(type=int)
    subscription = any_client.subscribe("s")
    any_client.emit_many([NewEvent("poison", id="a"), NewEvent(7, id="b")])
    assert claim(reader, subscription).id == "b"
    assert [each.value for each in reader.dead(subscription).items] == [b'"poison"']
    with pytest.raises(SchemaMismatch):
        reader.get("a")


def test_an_exchange_of_a_removed_generation_settles_then_says_so(clock: ManualClock) -> None:
    queue = queue_with(clock, on_completion="archive")
    kept, removed = queue.subscribe("kept"), queue.subscribe("removed")
    queue.emit(1, id="a")
    delivery = claim(queue, kept)
    queue.unsubscribe(removed)
    with pytest.raises(SubscriptionGone):
        queue.exchange(removed, [delivery], 1)
    assert event(queue, "a").status is EventStatus.COMPLETED


def test_another_queues_handle_is_refused(clock: ManualClock) -> None:
    other = ReferenceEventQueue("other", clock).subscribe("s")
    with pytest.raises(InvalidInput):
        queue_with(clock).take(other)
