"""Field case of bytes that are not trusted: bombs, pickles, and names of code. A worker outlives them all."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from redisq import Engine, JobState
from redisq.worker import Worker
from tests.jobs.steps import root_of
from tests.support.servers import Server

pytestmark = pytest.mark.leaves_damage

PICKLE = b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R."
JSON = {
    "a pickle": PICKLE, "deep": b"[" * 5000, "deep objects": b'{"a":' * 5000, "4,301 digits": b"9" * 4301 + b"x",
    "no text": b'"\xff"', "nothing": b"", "a megabyte of noise": b"\x80" * 1_000_000,
}  # fmt: skip
MSGPACK = {
    "a pickle": PICKLE, "an array of 2^32": b"\xdd\xff\xff\xff\xff", "a map of 2^32": b"\xdf\xff\xff\xff\xff",
    "text of 2^32": b"\xdb\xff\xff\xff\xff", "deep": b"\x91" * 5000,
}  # fmt: skip


@pytest.mark.parametrize(("codec", "bombs"), [("json", JSON), ("msgpack", MSGPACK)], ids=["json", "msgpack"])
def test_c52_bombs_are_set_aside_and_the_worker_lives(
    codec: str, bombs: dict[str, bytes], server: Server, raw: redis.Redis, namespace: str
) -> None:
    with Engine(server.url, namespace=namespace) as engine:
        queue = engine.queue("jobs", codec=codec)
        seen: set[Any] = set()

        def handle(value: Any) -> None:
            seen.add(value)
            if seen >= {*bombs}:
                worker.stop()

        queue.handler()(handle)
        worker = Worker(engine, queue)
        for name in bombs:
            queue.offer("x", id=name, priority=1)
            queue.offer(name)
        for name in ("os.system", "__import__", "builtins.eval", "posix.system"):
            queue.offer("id", id=name, name=name)
        for name, bomb in bombs.items():
            raw.hset(f"{root_of(queue)}:body", name, bomb)
        assert worker.run() == 0
        for name in bombs:
            job = queue.get(name)
            assert job is not None
            assert job.state is JobState.QUARANTINED
            assert job.value == bombs[name]
            assert job.error is not None
            assert job.error.message


def test_c52_a_bomb_for_a_subscriber_is_a_dead_obligation(server: Server, raw: redis.Redis, namespace: str) -> None:
    with Engine(server.url, namespace=namespace) as engine:
        events = engine.events("events")
        reader = events.subscribe("a")
        for name in JSON:
            events.emit("x", id=name)
        last = events.emit("fine")
        for name, bomb in JSON.items():
            raw.hset(f"{events._core.root}:body", name, bomb)
        (delivery,) = events.take_many(reader, 50)
        assert delivery.id == last.id
        dead = {each.event_id: each for each in events.dead(reader).items}
        assert {id: each.value for id, each in dead.items()} == JSON
        assert all(each.error.type == "Undecodable" for each in dead.values())
