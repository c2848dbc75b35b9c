"""Field case of writes that a failover took back."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from redisq import Engine, LeaseLost, Queue
from redisq.testing import ManualClock, check
from tests.faults.damage import Rollback
from tests.jobs.steps import taken

pytestmark = [pytest.mark.every_server, pytest.mark.real_server]


def test_c38_tokens_and_ids_do_not_repeat(
    queue: Queue[Any], raw: redis.Redis, namespace: str, server: Any, clock: ManualClock
) -> None:
    queue.offer("x", id="a")
    before = Rollback(raw, f"{{{namespace}")
    first = taken(queue)
    made = queue.offer("made")
    before.back()
    second = taken(queue)
    assert second.token != first.token
    assert second.fence > first.fence
    for late in (queue.renew, queue.release, lambda delivery: queue.fail(delivery, "no"), queue.ack):
        with pytest.raises(LeaseLost):
            late(first)
    assert queue.get(made.id) is None
    assert queue.offer("other").id != made.id
    # a lost ack means that it runs again, and nothing is broken
    held = Rollback(raw, f"{{{namespace}")
    queue.ack(second)
    held.back()
    clock.advance(30)
    queue.maintain()
    with Engine(server.url, namespace=namespace, clock=clock) as plain:
        assert check(plain.queue("jobs")) == []


def test_c38_generations_do_not_repeat(engine: Engine, raw: redis.Redis, namespace: str) -> None:
    events = engine.events("events")
    events.subscribe("other")
    before = Rollback(raw, f"{{{namespace}")
    first = events.subscribe("a")
    events.emit("lost")
    before.back()
    second = events.subscribe("a")
    assert second.generation != first.generation
    assert events.take(second) is None
    assert events.unsubscribe(first) is False
