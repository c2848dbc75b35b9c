"""A full server refuses what is new, cleanly, and lets everything else go on until it is empty (SPEC 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from redisq import (
    Ack,
    Backoff,
    Cancel,
    ConfigurationConflict,
    Done,
    JobState,
    Keep,
    OutOfMemory,
    Queue,
    QueuePolicy,
    Released,
)
from redisq.testing import ManualClock
from tests.faults.damage import full_memory, script_flush
from tests.jobs.steps import ids, killed, root_of, state_of, taken, walked
from tests.scripts.direct import contents
from tests.support.fronts import OpenEngine
from tests.support.servers import OwnServer

POLICY = QueuePolicy(backoff=Backoff.fixed(1), max_attempts=3)


@pytest.fixture(scope="module")
def private() -> Iterator[OwnServer]:
    """A server of this file alone, with nothing that it could evict."""
    from tests.support.servers import own_server

    server = own_server("--maxmemory-policy", "noeviction")
    yield server
    server.stop()


@pytest.fixture
def raw(private: OwnServer) -> Iterator[redis.Redis]:
    with private.client() as client:
        yield client


@pytest.fixture
def open_here(open_engine: OpenEngine, private: OwnServer) -> Callable[..., Queue[Any]]:
    """The queue "jobs" of an engine that nobody has used yet, on the private server."""

    def open_one(policy: QueuePolicy | None = None, **options: Any) -> Queue[Any]:
        return open_engine(url=private.url, **options).queue("jobs", policy=policy)

    return open_one


@pytest.fixture
def queue(open_here: Callable[..., Queue[Any]], clock: ManualClock) -> Queue[Any]:
    """Jobs in every state, on a server that still has room."""
    queue = open_here(POLICY, clock=clock)
    killed(queue, id="dead")
    queue.offer_many([f"work {number}" for number in range(12)])
    queue.offer("ranked", id="ranked", priority=3)
    queue.offer("later", id="later", delay=5)
    queue.offer("much later", id="much later", delay=500)
    return queue


def test_what_is_new_is_refused_and_leaves_nothing(
    queue: Queue[Any], raw: redis.Redis, namespace: str, open_engine: OpenEngine, private: OwnServer
) -> None:
    engine = open_engine(url=private.url)
    with full_memory(raw):
        before = contents(raw, namespace)
        for offer in (
            lambda: queue.offer("new"),
            lambda: queue.offer("new", id="new", delay=5),
            lambda: queue.offer_many(["new"] * 2500),
            lambda: engine.queue("other").offer("new"),
            lambda: engine.queue("other").pause(),
            lambda: engine.queue("third", policy=QueuePolicy(lease=3)).offer("new"),
        ):
            with pytest.raises(OutOfMemory):
                offer()
            assert contents(raw, namespace) == before
    assert queue.offer("new", id="new").duplicate is False
    assert [info.name for info in engine.queues()] == ["jobs"]
    assert engine.queue("other").offer("new").state is JobState.READY


def test_a_batch_is_stored_chunk_by_chunk_as_far_as_there_is_room(queue: Queue[Any], raw: redis.Redis) -> None:
    before = queue.counts()[JobState.READY]
    with full_memory(raw, room=4_000_000), pytest.raises(OutOfMemory):
        queue.offer_many(["x" * 1000] * 20_000)
    # each chunk whole, or not at all
    assert (queue.counts()[JobState.READY] - before) % 1000 == 0


def test_everything_else_goes_on(queue: Queue[Any], raw: redis.Redis, clock: ManualClock) -> None:
    with full_memory(raw):
        first, second, third, fourth, fifth = queue.take_many(5)
        assert queue.renew(first, 60).expires_ms == clock.now_ms + 60_000
        assert len(queue.renew_many([first, second])) == 2
        assert queue.ack(first, {"some": "result"}) is Ack.ACKNOWLEDGED
        assert queue.fail(second, "broken").state is JobState.SCHEDULED
        queue.release(third)
        assert queue.quarantine(fourth, "odd").state is JobState.QUARANTINED
        assert queue.ack_many([fifth]) == [Ack.ACKNOWLEDGED]
        answers, more = queue.exchange([], 2)
        assert (answers, len(more)) == ([], 2)
        assert len(queue.exchange([Done(more[0], 1), Released(more[1])], 1)[1]) == 1
        assert queue.process_one(lambda delivery: "result") is True
        assert queue.cancel("ranked") is Cancel.TOO_LATE
        assert queue.cancel("much later") is Cancel.CANCELLED
        assert queue.promote("later")
        assert queue.retry("dead")
        assert queue.remove("much later")
        queue.pause()
        queue.resume()
        assert queue.alter(QueuePolicy(max_attempts=4)).max_attempts == 3
        clock.advance(40)
        assert queue.maintain().by_category["lapsed"] == 1
        # reads
        assert state_of(queue, second.id) is JobState.READY
        assert len(queue.attempts(second.id)) == 1
        assert queue.history(second.id).entries
        assert len(walked(queue)) == sum(queue.counts().values())
        assert queue.info().oldest_ms is not None
        assert queue.get(fourth.id).error is not None  # type: ignore[union-attr]


@pytest.mark.parametrize("policy", [None, POLICY], ids=["plain", "declaring"])
def test_a_client_that_starts_on_a_full_server_drains_it(
    policy: QueuePolicy | None,
    queue: Queue[Any],
    open_here: Callable[..., Queue[Any]],
    raw: redis.Redis,
    clock: ManualClock,
    namespace: str,
) -> None:
    total = sum(queue.counts().values())
    with full_memory(raw):
        # not even the scripts are there
        script_flush(raw)
        fresh = open_here(policy, clock=clock)
        assert fresh.retry("dead")
        done: list[str] = []
        handed: list[Any] = []
        clock.advance(500)
        while True:
            _, handed = fresh.exchange(handed, 3)
            done += ids(handed)
            if not handed:
                break
        assert len({*done}) == total
        assert fresh.counts()[JobState.COMPLETED] == total
        for id in done:
            assert fresh.remove(id)
        assert not any(fresh.counts().values())
        # what is left is the root and the callers' answers
        clock.advance(120)
        fresh.maintain()
        left = set(contents(raw, root_of(queue)))
        assert left <= {root_of(queue), f"{root_of(queue)}:bell", f"{namespace}:queues"}
        with pytest.raises(OutOfMemory):
            fresh.offer("new")
    fresh.offer("new", id="new")
    assert taken(fresh).value == "new"


def test_a_client_that_declares_on_a_full_server_goes_by_what_is_stored(
    open_here: Callable[..., Queue[Any]], raw: redis.Redis, clock: ManualClock
) -> None:
    """Nothing was declared before: its policy is stored with its first write that finds room."""
    plain = open_here(clock=clock)
    plain.offer_many(["one", "two", "three"])
    with full_memory(raw):
        declaring = open_here(QueuePolicy(lease=7), clock=clock)
        assert taken(declaring).expires_ms == clock.now_ms + 30_000
        with pytest.raises(OutOfMemory):
            declaring.offer("new")
    assert taken(declaring).expires_ms == clock.now_ms + 7_000
    with pytest.raises(ConfigurationConflict):
        open_here(QueuePolicy(lease=8), clock=clock).take()


def test_a_client_of_another_policy_is_refused_on_a_full_server_too(
    queue: Queue[Any], open_here: Callable[..., Queue[Any]], raw: redis.Redis, namespace: str
) -> None:
    with full_memory(raw):
        before = contents(raw, namespace)
        with pytest.raises(ConfigurationConflict, match="max_attempts"):
            open_here(QueuePolicy(max_attempts=7)).take()
        assert contents(raw, namespace) == before


def test_lapsed_and_dead_work_is_recovered_on_a_full_server(
    queue: Queue[Any], raw: redis.Redis, clock: ManualClock
) -> None:
    with full_memory(raw):
        for _ in range(3):
            assert len(queue.take_many(100)) >= 13
            clock.advance(30)
            assert queue.maintain().by_category["lapsed"] >= 13
            clock.advance(1)
        assert queue.counts()[JobState.DEAD] >= 13
        for job in walked(queue, state=JobState.DEAD):
            assert queue.remove(job.id)
        assert queue.counts()[JobState.DEAD] == 0


def test_a_full_server_keeps_nothing_by_a_rule_that_keeps_nothing(
    open_here: Callable[..., Queue[Any]], raw: redis.Redis, clock: ManualClock
) -> None:
    queue = open_here(QueuePolicy(keep=Keep(count=0)), clock=clock)
    queue.offer_many(range(50))
    with full_memory(raw):
        handed: list[Any] = []
        for _ in range(12):
            _, handed = queue.exchange(handed, 5)
        assert not any(queue.counts().values())


def test_an_idle_taker_waits_on_a_full_server(queue: Queue[Any], raw: redis.Redis) -> None:
    queue.take_many(1000)
    with full_memory(raw):
        assert queue.take(wait=0.2) is None
