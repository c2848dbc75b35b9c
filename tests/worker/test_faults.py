"""A worker and a server that is away, or full, or wrong (SPEC 7, issue 5 item 1)."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from redisq import Backoff, Context, Engine, InvalidInput, JobState, Queue, QueuePolicy, Sweeper, UnsupportedServer
from tests.faults.proxy import Proxy, calls
from tests.jobs.steps import root_of
from tests.support.servers import OwnServer, Server
from tests.worker.conftest import WAIT, Serve


def until(reached: Callable[[], object], seconds: float = WAIT) -> None:
    stop = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < stop, "waited in vain"
        time.sleep(0.01)


def told(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [text for record in caplog.records if words in (text := record.getMessage())]


def echo(queue: Queue[Any]) -> None:
    @queue.handler()
    async def handle(value: Any) -> Any:
        return value


def test_it_goes_on_by_itself_after_the_server_was_away(
    own_server: OwnServer, namespace: str, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """C12 e, twice: once it was there, once it was not there at the start."""
    with Engine(own_server.url, namespace=namespace, retry_for=0.2) as engine:
        queue = engine.queue("jobs")
        echo(queue)
        serving = serve(queue, engine=engine)
        assert queue.wait_result(queue.offer(1).id, WAIT) == 1
        own_server.kill()
        until(lambda: told(caplog, "trying again"))
        own_server.start()
        assert queue.wait_result(queue.offer(2).id, WAIT) == 2
        serving.stop()
        own_server.kill()
        serve(queue, engine=engine)
        until(lambda: len(told(caplog, "trying again")) > 2)
        own_server.start()
        assert queue.wait_result(queue.offer(3).id, WAIT) == 3


def test_an_idle_worker_survives_a_cut_connection(server: Server, namespace: str, engine: Engine, serve: Serve) -> None:
    with Proxy(server.url) as proxy, Engine(proxy.url, namespace=namespace) as given:
        queue = given.queue("jobs")
        echo(queue)
        other = engine.queue("jobs")
        other.offer(0)
        serving = serve(queue, engine=given)
        for value in range(1, 4):
            assert other.wait_result(other.offer(value).id, WAIT) == value
            proxy.cut()
        assert other.wait_result(other.offer(4).id, WAIT) == 4
        serving.stop()


def test_a_look_that_is_not_answered_does_not_hold_up_the_stop(
    server: Server, namespace: str, engine: Engine, serve: Serve
) -> None:
    engine.queue("jobs").offer("x", delay=3600)
    with Proxy(server.url) as proxy, Engine(proxy.url, namespace=namespace, retry_for=60) as given:
        queue = given.queue("jobs")
        echo(queue)
        proxy.eat_replies(1_000_000, calls("jobs/exchange"))
        serving = serve(queue, engine=given, grace=60)
        until(lambda: proxy.eaten)
        assert serving.stop() == 0


@pytest.mark.parametrize("retry_for", [0, 2])
def test_a_settlement_whose_answer_is_lost_is_sent_again(
    retry_for: float, server: Server, namespace: str, engine: Engine, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when the client has given up on the call: the same token again changes nothing."""
    other = engine.queue("jobs", policy=QueuePolicy(lease=1, backoff=Backoff.fixed(0)))
    with Proxy(server.url) as proxy, Engine(proxy.url, namespace=namespace, retry_for=retry_for) as given:
        queue = given.queue("jobs")
        runs: list[int] = []

        @queue.handler()
        async def handle(value: Any) -> Any:
            runs.append(value)
            if value == 0:
                proxy.eat_replies(1, lambda words: calls("jobs/exchange")(words) and b"a+" in words)
            return value

        first = other.offer(0).id
        serving = serve(queue, engine=given, concurrency=1)
        assert other.wait_result(first, WAIT) == 0
        ids = [offer.id for offer in other.offer_many(range(1, 5))]
        assert [other.wait_result(id, WAIT) for id in ids] == [1, 2, 3, 4]
        serving.stop()
        assert len(proxy.eaten) == 1
    assert runs == [0, 1, 2, 3, 4]
    assert [len(other.attempts(id)) for id in [first, *ids]] == [1] * 5
    assert told(caplog, "too late") == []


def test_a_take_whose_answer_is_lost_is_answered_again(
    server: Server, namespace: str, engine: Engine, serve: Serve
) -> None:
    other = engine.queue("jobs")
    with Proxy(server.url) as proxy, Engine(proxy.url, namespace=namespace) as given:
        queue = given.queue("jobs")
        echo(queue)
        ids = [offer.id for offer in other.offer_many(range(100))]
        proxy.eat_replies(5, calls("jobs/exchange"))
        serving = serve(queue, engine=given)
        assert [other.wait_result(id, WAIT) for id in ids] == list(range(100))
        serving.stop()
        assert len(proxy.eaten) == 5
    assert [len(other.attempts(id)) for id in ids] == [1] * 100


def test_a_lease_is_kept_until_its_settlement_is_answered(engine: Engine, serve: Serve, raw: redis.Redis) -> None:
    """Finished work waits for longer than its lease until it can be settled, and is not run again."""
    queue = engine.queue("jobs", policy=QueuePolicy(lease=1))
    key = f"{root_of(queue)}:completed"
    runs: list[int] = []

    @queue.handler()
    async def handle(value: Any, context: Context) -> Any:
        runs.append(context.attempt)
        raw.set(key, "no zset")  # settling is refused, renewing is not
        return value

    id = queue.offer("x").id
    serve(queue, sweep=False)
    until(lambda: runs)
    time.sleep(2.5)
    raw.delete(key)
    assert queue.wait_result(id, WAIT) == "x"
    assert (runs, len(queue.attempts(id))) == ([1], 1)


@pytest.mark.leaves_damage
def test_the_pauses_grow_and_are_never_in_step(
    engine: Engine, serve: Serve, raw: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    queue = engine.queue("jobs")
    echo(queue)
    queue.offer("x")
    raw.delete(f"{root_of(queue)}:ready")
    raw.set(f"{root_of(queue)}:ready", "no list")
    serve(queue, concurrency=1, sweep=False)
    until(lambda: len(told(caplog, "trying again")) >= 4)
    pauses = [float(found[1]) for text in told(caplog, "trying again") if (found := re.search(r"in ([\d.]+) s", text))]
    for number, pause in enumerate(pauses[:4], 1):
        longest = 0.1 * 2**number
        assert longest / 2 - 0.05 <= pause <= longest + 0.05


@pytest.mark.parametrize("what", ["worker", "sweeper"])
def test_an_eviction_policy_that_may_lose_jobs_is_refused(
    what: str, open_server: Callable[..., OwnServer], namespace: str
) -> None:
    server = open_server("--maxmemory-policy", "allkeys-lru")
    with Engine(server.url, namespace=namespace) as engine:
        queue = engine.queue("jobs")
        echo(queue)
        from redisq import Worker

        with pytest.raises(UnsupportedServer, match="allkeys-lru"):
            if what == "worker":
                Worker(engine, queue).run()
            else:
                Sweeper(engine).run()


def test_an_eviction_policy_may_be_allowed(open_server: Callable[..., OwnServer], namespace: str, serve: Serve) -> None:
    server = open_server("--maxmemory-policy", "allkeys-lru")
    with Engine(server.url, namespace=namespace) as engine:
        queue = engine.queue("jobs")
        echo(queue)
        serving = serve(queue, engine=engine, allow_eviction=True)
        assert queue.wait_result(queue.offer(1).id, WAIT) == 1
        serving.stop()


def test_what_no_try_can_mend_ends_the_worker(engine: Engine, queue: Queue[Any], serve: Serve) -> None:
    """A bug in a callback is raised out of run, and what was held is handed back first."""
    started = threading.Event()

    @queue.handler()
    async def handle(value: Any, context: Context) -> None:
        import asyncio

        started.set()
        await asyncio.sleep(3600)

    id = queue.offer("x").id
    serving = serve(queue)
    assert started.wait(WAIT)

    def broken() -> None:
        raise ZeroDivisionError("in a callback")

    serving.worker.on_tick = broken
    with pytest.raises(ZeroDivisionError):
        serving.join()
    delivery = queue.take()
    assert delivery is not None
    assert (delivery.id, delivery.attempt) == (id, 1)
    queue.ack(delivery)
    assert queue.counts()[JobState.LEASED] == 0


def test_a_closed_engine_is_no_outage(server: Server, namespace: str) -> None:
    import asyncio

    from redisq import AsyncEngine, Worker

    async def scenario() -> None:
        engine = AsyncEngine(server.url, namespace=namespace)
        queue = engine.queue("jobs")
        queue.handler()(print)
        await engine.aclose()
        with pytest.raises(InvalidInput, match="closed"):
            await asyncio.wait_for(Worker(engine, queue, allow_eviction=True).arun(), WAIT)

    asyncio.run(scenario())
