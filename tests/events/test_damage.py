"""Damage is reported and set aside; it holds up neither the other events, nor the other subscribers, nor the sweep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from redisq import (
    CorruptRecord,
    DamagedRecord,
    DeadObligation,
    Engine,
    EventPolicy,
    EventQueue,
    SchemaMismatch,
    Subscription,
    SubscriptionInfo,
)
from redisq.testing import ManualClock

pytestmark = [pytest.mark.every_server, pytest.mark.leaves_damage]
Sweep = Callable[[EventQueue[Any]], dict[str, int]]


@pytest.fixture
def root(namespace: str) -> str:
    return f"{{{namespace}:events:orders}}"


@pytest.fixture
def pair(events: EventQueue[Any]) -> tuple[Subscription, Subscription]:
    return events.subscribe("billing"), events.subscribe("email")


def values(queue: EventQueue[Any], subscription: Subscription) -> list[Any]:
    return [delivery.value for delivery in queue.take_many(subscription, 100)]


def lose_header(raw: redis.Redis, root: str, id: str) -> None:
    raw.hset(f"{root}:ev", id, "garbage")


def lose_body(raw: redis.Redis, root: str, id: str) -> None:
    raw.hdel(f"{root}:body", id)


def foreign_outcomes(raw: redis.Redis, root: str, id: str) -> None:
    raw.set(f"{root}:ob:{id}", "something else")


DAMAGES = [lose_header, lose_body, foreign_outcomes]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_event_ends_dead_for_each_and_the_others_go_on(
    damage: Callable[..., None],
    events: EventQueue[Any],
    pair: tuple[Subscription, Subscription],
    raw: redis.Redis,
    root: str,
    swept: Sweep,
) -> None:
    first, bad, last = events.emit_many(["first", "bad", "last"])
    damage(raw, root, bad.id)
    with pytest.raises(CorruptRecord, match=bad.id):
        events.get(bad.id)
    for subscription in pair:
        deliveries = events.take_many(subscription, 100)
        assert [each.value for each in deliveries] == ["first", "last"]
        events.ack_many(deliveries)
        (row,) = events.dead(subscription).items
        assert isinstance(row, DamagedRecord)
        assert row.id == bad.id
    with pytest.raises(CorruptRecord, match=bad.id):
        events.get(bad.id)
    swept(events)
    assert events.list_archived() == [bad.id, first.id, last.id] or set(events.list_archived()) >= {first.id, last.id}
    assert [each.lag for each in events.subscriptions() if isinstance(each, SubscriptionInfo)] == [0, 0]
    for subscription in pair:
        assert events.discard(subscription, bad.id)
        assert events.dead(subscription).items == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_sweep_goes_past_a_damaged_event(
    damage: Callable[..., None],
    events: EventQueue[Any],
    pair: tuple[Subscription, Subscription],
    raw: redis.Redis,
    root: str,
    clock: ManualClock,
    swept: Sweep,
) -> None:
    bad = events.emit("bad", ttl=1)
    good = events.emit("good", ttl=2)
    damage(raw, root, bad.id)
    clock.advance(5)
    swept(events)
    assert good.id in events.list_archived()
    assert values(events, pair[0]) == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_removal_goes_past_a_damaged_event(
    damage: Callable[..., None],
    events: EventQueue[Any],
    pair: tuple[Subscription, Subscription],
    raw: redis.Redis,
    root: str,
    swept: Sweep,
) -> None:
    bad, good = events.emit_many(["bad", "good"])
    held = events.take(pair[0])
    assert held is not None
    damage(raw, root, bad.id)
    assert events.unsubscribe(pair[0])
    swept(events)
    assert values(events, pair[1])[-1] == "good"
    found = events.get(good.id)
    assert found is not None
    assert [each.status for each in found.recipients] == ["waived", "pending"]


@pytest.mark.parametrize("column", ["leased", "parked", "lease", "dead", "error"])
def test_a_foreign_key_of_one_subscription_concerns_nobody_else(
    column: str,
    events: EventQueue[Any],
    pair: tuple[Subscription, Subscription],
    raw: redis.Redis,
    root: str,
    clock: ManualClock,
    swept: Sweep,
) -> None:
    broken, sound = pair
    before = events.emit("before", ttl=60)
    held = events.take(broken)
    assert held is not None
    events.release(held)
    raw.delete(f"{root}:{column}:{broken.generation}")
    raw.set(f"{root}:{column}:{broken.generation}", "something else")
    events.emit("after", ttl=30)
    with pytest.raises(CorruptRecord, match=column):
        events.take(broken)
    assert values(events, sound) == ["before", "after"]
    names = {each.name: each for each in events.subscriptions() if isinstance(each, SubscriptionInfo)}
    assert "email" in names
    clock.advance(30)
    swept(events)
    # the way out: remove the subscription
    assert events.unsubscribe(broken)
    swept(events)
    found = events.get(before.id)
    assert found is not None
    assert {each.name: each.status for each in found.recipients} == {"billing": "waived", "email": "pending"}
    assert events.subscribe("billing") != broken


def test_an_undecodable_payload_ends_dead_with_its_raw_bytes(engine: Engine, raw: redis.Redis, root: str) -> None:
    queue = engine.events("orders", dict[str, int], policy=EventPolicy(on_completion="archive"))
    billing = queue.subscribe("billing")
    bad, good = queue.emit_many([{"a": 1}, {"b": 2}])
    raw.hset(f"{root}:body", bad.id, b'"text"')
    assert values(queue, billing) == [{"b": 2}]
    (row,) = queue.dead(billing).items
    assert isinstance(row, DeadObligation)
    assert (row.value, row.attempts) == (b'"text"', 1)
    assert row.error is not None
    assert row.error.type == "Undecodable"
    with pytest.raises(SchemaMismatch, match=bad.id):
        queue.get(bad.id)
    assert queue.get(good.id) is not None


def test_a_name_in_the_log_without_an_event_is_set_aside(
    events: EventQueue[Any], pair: tuple[Subscription, Subscription], raw: redis.Redis, root: str, swept: Sweep
) -> None:
    lost, good = events.emit_many(["lost", "good"])
    raw.hdel(f"{root}:ev", lost.id)
    assert values(events, pair[0]) == ["good"]
    assert values(events, pair[1]) == ["good"]
    assert raw.hkeys(f"{root}:broken") == [lost.id.encode()]
    assert good.id != lost.id
