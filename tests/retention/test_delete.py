"""The end of a queue (SPEC 3.4): refused while anything is live, and then nothing is left of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from redisq import (
    Ack,
    Cancel,
    Engine,
    Failed,
    JobState,
    Keep,
    LeaseLost,
    NewJob,
    Queue,
    QueueNotEmpty,
    QueuePolicy,
    flows,
)
from redisq.errors import CorruptRecord, InvalidInput
from redisq.testing import ManualClock
from tests.faults.proxy import Proxy, calls
from tests.jobs.steps import ENDINGS, drained, end, finished, root_of, state_of, taken, values
from tests.retention.conftest import Interrupted
from tests.scripts.direct import contents
from tests.support.fronts import OpenEngine
from tests.support.servers import Server


def furnished(queue: Queue[Any], clock: ManualClock) -> None:
    """A queue that only looks back: every column that history fills, groups, dead list entries, a memory."""
    for number, state in enumerate(ENDINGS):
        end(queue, state, id=f"{state}", name=f"n{number}", keep=Keep(age=1000), metadata={"a": "b"})
        queue.offer("x", id=f"gone {state}", priority=number)
        queue.remove(f"gone {state}")
    id = queue.offer("x", max_attempts=2).id
    queue.fail(taken(queue), "one", retry_in=0)
    queue.fail(taken(queue), "two")
    assert state_of(queue, id) is JobState.DEAD
    queue.offer("x", id="forgotten", keep=Keep(count=0))
    queue.ack(taken(queue), {"a": 1})
    clock.advance(1)


LIVE: dict[str, Callable[[Queue[Any]], object]] = {
    "ready": lambda queue: queue.offer("x"),
    "ranked": lambda queue: queue.offer("x", priority=3),
    "scheduled": lambda queue: queue.offer("x", delay=1000),
    "leased": lambda queue: (queue.offer("x"), taken(queue, lease=1000)),
}


@pytest.mark.every_server
@pytest.mark.parametrize("state", LIVE)
def test_a_queue_with_a_live_job_is_not_deleted(
    queue: Queue[Any], clock: ManualClock, raw: redis.Redis, namespace: str, state: str
) -> None:
    furnished(queue, clock)
    LIVE[state](queue)
    before = contents(raw, namespace)
    with pytest.raises(QueueNotEmpty, match="1 live job"):
        queue.delete()
    assert contents(raw, namespace) == before


@pytest.mark.every_server
def test_an_idle_queue_goes_with_all_its_keys_and_its_policy(
    engine: Engine, clock: ManualClock, keys: Callable[..., list[str]]
) -> None:
    """Dead list entries of removed jobs are no live ones."""
    queue = engine.queue("jobs", policy=QueuePolicy(lease=77))
    other = engine.queue("other")
    other.offer("stays")
    furnished(queue, clock)
    queue.pause()
    assert len([key for key in keys() if ":jobs}" in key]) > 10
    assert queue.delete() is None
    assert [key for key in keys() if ":jobs}" in key] == []
    assert [info.name for info in engine.queues()] == ["other"]
    assert values(drained(other)) == ["stays"]


@pytest.mark.every_server
def test_what_a_deleted_queue_answers(queue: Queue[Any], keys: Callable[..., list[str]]) -> None:
    finished(queue, id="x")
    queue.delete()
    assert queue.get("x") is None
    assert (queue.take(), queue.take_many(3)) == (None, [])
    assert set(queue.counts().values()) == {0}
    assert (queue.cancel("x"), queue.retry("x"), queue.remove("x")) == (Cancel.UNKNOWN, False, False)
    assert (queue.attempts("x"), queue.history("x").entries) == ([], [])
    assert queue.maintain().processed == 0
    queue.delete()
    queue.delete(force=True)
    assert keys() == []


@pytest.mark.every_server
def test_force_deletes_live_jobs_and_their_tokens_are_gone(queue: Queue[Any], keys: Callable[..., list[str]]) -> None:
    queue.offer_many(range(8))
    held = queue.take_many(6)
    queue.offer("later", delay=60)
    queue.delete(force=True)
    assert keys() == []
    assert queue.ack(held[0]) is Ack.GONE
    assert queue.ack_many(held[1:3]) == [Ack.GONE, Ack.GONE]
    assert queue.renew_many(held[1:3]) == [Ack.GONE, Ack.GONE]
    for verb in (queue.renew, queue.release):
        with pytest.raises(LeaseLost):
            verb(held[3])
    for verdict in (queue.fail, queue.quarantine):
        with pytest.raises(LeaseLost):
            verdict(held[3], "too late")
    answers, taken_then = queue.exchange([held[4], Failed(held[5], "x")], 5)
    assert answers[0] is Ack.GONE
    assert taken_then == []
    assert [key for key in keys() if ":jobs}:" in key] == []


@pytest.mark.every_server
def test_the_next_offer_makes_the_queue_anew(open_engine: OpenEngine, clock: ManualClock) -> None:
    """Its policy, its pause and its memory of ids are gone; old tokens are nobody's."""
    first = open_engine(clock=clock).queue("jobs", policy=QueuePolicy(lease=77, keep=Keep(count=0)))
    bystander = open_engine(clock=clock).queue("jobs")
    finished(first, id="seen")
    first.offer("x", id="x")
    old = taken(first)
    assert old.expires_ms - clock.now_ms == 77_000
    bystander.pause()
    first.delete(force=True)
    second = open_engine(clock=clock).queue("jobs", policy=QueuePolicy(lease=5))
    assert not second.offer("new", id="x").duplicate
    assert not second.offer("new", id="seen").duplicate
    new = taken(bystander)
    assert (new.id, new.expires_ms - clock.now_ms) == ("x", 5000)
    with pytest.raises(LeaseLost):
        second.renew(old)
    assert second.ack(new) is Ack.ACKNOWLEDGED
    assert state_of(bystander, "x") is JobState.COMPLETED


def test_whoever_deleted_it_makes_it_anew_with_what_it_declares(
    engine: Engine, clock: ManualClock, keys: Callable[..., list[str]]
) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(lease=77))
    queue.offer("x")
    queue.alter(QueuePolicy(lease=5))
    queue.delete(force=True)
    queue.offer("y")
    assert taken(queue).expires_ms - clock.now_ms == 77_000
    assert [info.name for info in engine.queues()] == ["jobs"]
    assert len(keys()) > 1


@pytest.mark.timeout(120)
def test_more_than_a_thousand_names_go_in_steps(queue: Queue[Any], keys: Callable[..., list[str]]) -> None:
    queue.offer_many([NewJob(number, name=f"n{number}", keep=None) for number in range(1200)])
    queue.ack_many(drained(queue))
    queue.offer("live")
    with pytest.raises(QueueNotEmpty):
        queue.delete()
    assert queue.counts()[JobState.COMPLETED] == 1200
    queue.delete(force=True)
    assert keys() == []


@pytest.mark.leaves_damage
def test_more_than_a_thousand_damaged_names_are_no_endless_loop(queue: Queue[Any], raw: redis.Redis) -> None:
    queue.offer("x")
    raw.hset(f"{root_of(queue)}:groups", mapping={f"dead:{number}": "" for number in range(1001)})
    with pytest.raises(CorruptRecord, match="check"):
        queue.delete(force=True)


def test_a_queue_that_is_made_anew_meanwhile_stays_listed(
    alone: Engine, server: Server, namespace: str, clock: ManualClock, interrupted: Interrupted
) -> None:
    """The offer comes between the end of the keys and the end of the entry in the directory."""
    queue: Queue[Any] = alone.queue("jobs")
    finished(queue)
    with Engine(server.url, namespace=namespace, clock=clock) as engine:
        other = engine.queue("jobs", policy=QueuePolicy(lease=3))
        interrupted(queue, flows.delete(queue._core), lambda step: other.offer("new") if step == 1 else None)
        assert [info.name for info in engine.queues()] == ["jobs"]
        assert values(drained(queue)) == ["new"]


@pytest.mark.real_server
def test_a_delete_whose_reply_was_lost_is_done(
    open_engine: OpenEngine, server: Server, keys: Callable[..., list[str]]
) -> None:
    with Proxy(server.url) as proxy:
        queue = open_engine(url=proxy.url).queue("jobs")
        finished(queue)
        proxy.eat_replies(1, calls("jobs/delete"))
        queue.delete()
        assert len(proxy.eaten) == 1
    assert keys() == []


@pytest.mark.parametrize("force", [1, 0, "yes", None])
def test_force_is_true_or_false(queue: Queue[Any], force: Any) -> None:
    with pytest.raises(InvalidInput, match="force"):
        queue.delete(force=force)
