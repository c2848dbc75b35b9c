"""Field cases of records that are kept: cleaning without traffic, and subscriptions that nobody reads."""

from __future__ import annotations

import pytest
import redis

from redisq import Engine, EventPolicy, Keep, QueuePolicy, SubscriptionInfo
from redisq.testing import ManualClock
from tests.jobs.steps import root_of, taken

MANY = 10_000


@pytest.mark.timeout(300)
def test_c34_old_records_go_without_traffic_by_bounded_steps(
    engine: Engine, raw: redis.Redis, clock: ManualClock
) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(completed=Keep(age=60), dead=Keep(age=600))))
    queue.offer_many(range(MANY))
    while found := queue.take_many(1000):
        queue.ack_many(found)
    queue.offer("dead", id="dead")
    queue.fail(taken(queue), "no", final=True)
    clock.advance(60)
    gone = 0
    while True:
        swept = queue.maintain(100)
        assert swept.by_category["retention"] <= 100
        gone += swept.by_category["retention"]
        if not swept.pending:
            break
    assert gone == MANY
    # failed jobs follow their own rule, and of the others nothing is left
    assert sum(queue.counts().values()) == 1
    clock.advance(600)
    while queue.maintain().pending:
        pass
    clock.advance(40 * 86_400)
    while queue.maintain().pending:
        pass
    left = {key.decode().removeprefix(root_of(queue)) for key in raw.scan_iter(match=f"{root_of(queue)}*", count=1000)}
    assert left <= {"", ":bell"}


@pytest.mark.every_server
def test_c34_what_is_not_kept_leaves_the_number_of_keys_as_it_was(engine: Engine, raw: redis.Redis) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(count=0), dedup=0))
    queue.pause()
    queue.resume()
    before = set(raw.scan_iter(match=f"{root_of(queue)}*", count=1000))
    queue.offer_many(range(1000))
    while found := queue.take_many(100):
        queue.ack_many(found)
    queue.maintain()
    assert set(raw.scan_iter(match=f"{root_of(queue)}*", count=1000)) == before


@pytest.mark.timeout(300)
def test_c35_a_subscription_that_nobody_reads_is_bounded(engine: Engine, raw: redis.Redis, clock: ManualClock) -> None:
    events = engine.events("events", policy=EventPolicy(max_backlog=100))
    live, idle = events.subscribe("live"), events.subscribe("idle")
    for _ in range(10):
        events.emit_many(range(200))
        while found := events.take_many(live, 1000):
            assert len(found) == 200
            events.ack_many(found)
        while events.maintain(1000).pending:
            pass
    shown = {each.name: each for each in events.subscriptions() if isinstance(each, SubscriptionInfo)}
    assert (shown["live"].lag, shown["live"].dropped) == (0, 0)
    assert (shown["idle"].lag, shown["idle"].dropped) == (100, 1900)
    assert shown["idle"].oldest_pending_ms == clock.now_ms
    # a removal frees all that it held
    assert events.unsubscribe(idle)
    while events.maintain(100).pending:
        pass
    root = events._core.root
    assert [key for key in raw.scan_iter(match=f"{root}*", count=1000) if idle.generation.encode() in key] == []
    assert events.info().counts["active"] == 0  # type: ignore[index]
