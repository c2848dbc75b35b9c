"""Field case of who gets an event, and of which life of a subscription."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import redis

from redisq import Engine, EventQueue, LeaseLost, SubscriptionGone, SubscriptionInfo
from redisq.testing import ManualClock
from tests.support.fronts import OpenEngine

pytestmark = pytest.mark.every_server


def values(events: EventQueue[Any], subscription: Any) -> list[Any]:
    return [each.value for each in events.take_many(subscription, 100)]


def test_c36_a_subscription_is_durable_and_starts_with_itself(engine: Engine, clock: ManualClock) -> None:
    events = engine.events("events")
    first = events.subscribe("a")
    events.emit_many([1, 2, 3])
    later = events.subscribe("b")
    events.emit(4)
    assert values(events, later) == [4]
    found = events.take_many(first, 3)
    assert [each.value for each in found] == [1, 2, 3]
    events.ack_many(found)
    held = events.take(first)
    assert held is not None
    assert held.value == 4
    assert events.unsubscribe(first)
    again = events.subscribe("a")
    assert again.generation != first.generation
    events.emit(5)
    for late in (events.renew, events.release, lambda delivery: events.fail(delivery, "no"), events.ack):
        with pytest.raises(LeaseLost):
            late(held)
    clock.advance(60)
    events.maintain()
    assert values(events, again) == [5]
    with pytest.raises(SubscriptionGone):
        events.take(first)


def test_c36_an_emission_is_all_or_none_over_those_who_are_there(open_engine: OpenEngine) -> None:
    """Emitters and subscribers at once: each event reaches exactly the recipients that it named."""
    emitting, changing = open_engine().events("events"), open_engine().events("events")
    lasting = changing.subscribe("lasting")
    stop = threading.Event()
    lives: list[Any] = []

    def change() -> None:
        while not stop.is_set():
            lives.append(changing.subscribe("passing"))
            if len(lives) % 2:
                changing.unsubscribe(lives[-1])

    thread = threading.Thread(target=change)
    thread.start()
    try:
        sent = [emitting.emit(number) for number in range(60)]
    finally:
        stop.set()
        thread.join()
    for event in sent:
        named = [each.generation for each in event.recipients]
        assert lasting.generation in named
        assert len(named) == len(set(named)) <= 2
    assert values(emitting, lasting) == list(range(60))
    active = {each.name: each for each in emitting.subscriptions() if isinstance(each, SubscriptionInfo)}
    if "passing" in active:
        passing = active["passing"]
        named = [each.generation for event in sent for each in event.recipients]
        assert passing.lag == named.count(passing.generation)


@pytest.mark.leaves_damage
def test_c36_a_reader_whose_keys_are_gone_is_told(engine: Engine, raw: redis.Redis) -> None:
    events = engine.events("events")
    reader = events.subscribe("a")
    events.emit(1)
    raw.hdel(f"{events._core.root}:subs", "a")
    raw.hdel(f"{events._core.root}:gens", reader.generation)
    raw.hdel(f"{events._core.root}:cursor", reader.generation)
    with pytest.raises(SubscriptionGone):
        events.take(reader, wait=5)
