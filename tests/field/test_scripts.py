"""Field cases of scripts: more things at once than Lua unpacks, and payloads that a server would rewrite."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from redisq import Engine, InvalidInput, JobState, Queue
from redisq.testing import ManualClock
from tests.jobs.steps import drained, root_of, taken, values

MANY = 9000
"""More than Lua unpacks: 7,999."""


@pytest.mark.timeout(300)
def test_c41_more_than_lua_unpacks(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer_many(range(MANY))
    found = drained(queue)
    assert values(found) == list(range(MANY))
    clock.advance(30)
    lapsed = 0
    while (swept := queue.maintain(1000)).by_category["lapsed"]:
        lapsed += swept.by_category["lapsed"]
    assert lapsed == MANY
    clock.advance(60)
    again = drained(queue)
    assert len(again) == MANY
    clock.advance(30)
    while queue.maintain(1000).by_category["lapsed"]:
        pass
    assert queue.purge("scheduled").done == MANY
    for limit in (1001, 20_000):
        with pytest.raises(InvalidInput, match="limit"):
            queue.take_many(limit)


@pytest.mark.timeout(300)
def test_c41_an_event_queue_of_more_than_lua_unpacks(engine: Engine) -> None:
    events = engine.events("events")
    reader = events.subscribe("a")
    events.emit_many(range(MANY))
    assert events.unsubscribe(reader)
    while events.maintain(1000).pending:
        pass
    assert events.info().counts["active"] == 0  # type: ignore[index]


TELLING = (
    b'{"a":[],"m":{},"n":9223372036854775808,"k":9007199254740993,"i":130775545883395173,'
    b'"f":1.0,"z":null,"b":"\\u0000\\r\\n"}'
)


@pytest.mark.every_server
def test_c43_a_payload_stays_byte_for_byte(queue: Queue[Any], raw: redis.Redis, clock: ManualClock) -> None:
    queue.offer(1, id="a")
    body = f"{root_of(queue)}:body"
    raw.hset(body, "a", TELLING)
    delivery = taken(queue, lease=5)
    queue.release(delivery)
    clock.advance(0)
    delivery = taken(queue, lease=5)
    clock.advance(5)
    queue.maintain()
    clock.advance(60)
    queue.fail(taken(queue), "no", final=True)
    assert queue.retry("a")
    delivery = taken(queue)
    assert raw.hget(body, "a") == TELLING
    assert (delivery.value["a"], delivery.value["m"], delivery.value["k"]) == ([], {}, 2**53 + 1)
    assert (delivery.value["n"], delivery.value["i"]) == (2**63, 130775545883395173)
    queue.ack(delivery, delivery.value)
    job = queue.get("a")
    assert job is not None
    assert job.state is JobState.COMPLETED
    assert job.result == delivery.value
    with pytest.raises(InvalidInput, match="1,048,576"):
        queue.offer("x" * 5_000_000)
