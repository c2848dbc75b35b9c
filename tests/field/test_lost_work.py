"""Field cases of lost work: records that expire too early, and jobs that kill their workers."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from redisq import Backoff, Engine, JobState, Keep, Outcome, Queue, QueuePolicy
from redisq.testing import ManualClock
from tests.jobs.steps import ids, root_of, state_of, taken
from tests.support.servers import Server

pytestmark = pytest.mark.every_server
DAY = 86_400


def times_to_live(raw: redis.Redis, queue: Queue[Any]) -> dict[bytes, int]:
    """The keys of a queue that would go by themselves."""
    found = {key: raw.pttl(key) for key in raw.scan_iter(match=f"{root_of(queue)}*", count=1000)}
    return {key: ms for key, ms in found.items() if ms != -1}


def test_c02_an_interrupted_take_frees_its_caller_once(server: Server, namespace: str) -> None:
    """Two callers of one slot would answer each other's repeats."""
    with Engine(server.url, namespace=namespace) as engine:
        engine.queue("jobs").offer("x")
        sender = engine._sender
        talk = sender._wire.talk

        def interrupted(*args: Any) -> Any:
            talk(*args)
            sender._wire.talk = talk  # type: ignore[method-assign]
            raise KeyboardInterrupt

        sender._wire.talk = interrupted  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            engine.queue("jobs").take()
        free = list(sender._callers._free)
        assert len(free) == len({id(caller) for caller in free})


def test_c03_no_key_of_live_work_ever_has_a_time_to_live(engine: Engine, raw: redis.Redis, clock: ManualClock) -> None:
    policy = QueuePolicy(keep=Keep(age=1), history_ttl=1, dedup=1, backoff=Backoff.fixed(3), max_attempts=1000)
    queue = engine.queue("jobs", policy=policy)
    queue.offer("far", id="far", delay=400 * DAY)
    queue.offer("waits", id="waits", priority=-5)
    queue.offer("retries", id="retries")
    for _ in range(20):
        clock.advance(5 * DAY)
        queue.maintain()
        delivery = taken(queue)
        assert delivery.id == "retries"
        assert times_to_live(raw, queue) == {}
        queue.fail(delivery, "not yet")
        assert times_to_live(raw, queue) == {}
    assert [state_of(queue, id) for id in ("far", "waits", "retries")] == ["scheduled", "ready", "scheduled"]
    clock.advance(400 * DAY)
    assert set(ids(queue.take_many(9))) == {"far", "waits", "retries"}


def test_c06_each_lapse_costs_an_attempt_and_the_last_one_buries(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer("poison", id="poison", max_attempts=3)
    queue.offer_many(["healthy"] * 3)
    healthy = 0
    for attempt in (1, 2, 3):
        found = queue.take_many(2, lease=10)
        (poison,) = [each for each in found if each.id == "poison"]
        assert poison.attempt == attempt
        for each in found:
            if each.id != "poison":
                queue.ack(each)
                healthy += 1
        clock.advance(10)
        assert queue.maintain().by_category["lapsed"] == 1
        # its back-off counts from the lease's end, and others run meanwhile
        assert "poison" not in ids(queue.take_many(9)) or attempt == 3
        clock.advance(2**attempt)
    assert healthy >= 1
    job = queue.get("poison")
    assert job is not None
    assert job.state is JobState.DEAD
    assert job.error is not None
    assert "lapsed" in f"{job.error.type} {job.error.message}".lower()
    assert [(each.number, each.outcome) for each in queue.attempts("poison")] == [
        (1, Outcome.LAPSED), (2, Outcome.LAPSED), (3, Outcome.LAPSED),
    ]  # fmt: skip
