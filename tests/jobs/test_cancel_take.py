"""A take whose caller is gone leaves nothing behind (SPEC 3.3, field case C02)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import redis

from redisq import Ack, AsyncEngine, AsyncQueue, Delivery, Engine, JobState, QueuePolicy, Unavailable
from redisq.calls import consume
from tests.faults.damage import freeze
from tests.faults.proxy import Proxy, calls
from tests.support.servers import OwnServer, own_server

BOUND = 10.0
Verb = Callable[[AsyncQueue[Any]], Coroutine[Any, Any, Any]]


async def handler(delivery: Delivery) -> None:
    """Never ends by itself."""
    await asyncio.Event().wait()


TAKES: dict[str, Verb] = {
    "take": lambda queue: queue.take(),
    "take_many": lambda queue: queue.take_many(3),
    "exchange": lambda queue: queue.exchange([], 3),
    "process_one": lambda queue: queue.process_one(handler),
}
WAITS: dict[str, Verb] = {
    "take": lambda queue: queue.take(wait=50),
    "take_many": lambda queue: queue.take_many(3, wait=None),
    "exchange": lambda queue: queue.exchange([], 3, wait=50),
    "process_one": lambda queue: queue.process_one(handler, wait=50),
}


@pytest.fixture(scope="module")
def private() -> Iterator[OwnServer]:
    """A server of this file alone, which may be frozen."""
    server = own_server()
    yield server
    server.stop()


@pytest.fixture
def raw(private: OwnServer) -> Iterator[redis.Redis]:
    with private.client() as client:
        yield client


@pytest.fixture
def look(private: OwnServer, namespace: str) -> Iterator[Any]:
    """The queue "jobs" as another client sees it."""
    with Engine(private.url, namespace=namespace) as engine:
        yield engine.queue("jobs")


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def until(reached: Callable[[], object]) -> None:
    async with asyncio.timeout(BOUND):
        while not reached():
            await asyncio.sleep(0.005)


def blocks(raw: redis.Redis, mark: str) -> bool:
    return any(each["name"] == mark and "b" in each["flags"] for each in raw.client_list())


def deliveries(result: Any) -> list[Delivery]:
    """Those in the result of any of the takes above."""
    if isinstance(result, tuple):
        return list(result[1])
    return result if isinstance(result, list) else [result]


def nothing_is_held(look: Any, jobs: int) -> None:
    """All jobs are ready again, in their order, at their first attempt."""
    counts = look.counts()
    assert (counts[JobState.READY], counts[JobState.LEASED]) == (jobs, 0)
    assert [(each.value, each.attempt) for each in look.take_many(1000)] == [(n, 1) for n in range(jobs)]


@pytest.mark.asyncio
@pytest.mark.parametrize("verb", [TAKES["take"], TAKES["exchange"]], ids=["take", "exchange"])
async def test_a_take_that_is_cancelled_on_its_way_leaves_nothing(
    verb: Verb, private: OwnServer, raw: redis.Redis, look: Any, namespace: str
) -> None:
    """The request is out and will run: it is undone as soon as the server answers again."""
    async with AsyncEngine(private.url, namespace=namespace) as engine:
        queue = engine.queue("jobs")
        await queue.offer_many(range(5))
        with freeze(raw, 0.6):
            task = asyncio.create_task(verb(queue))
            await asyncio.sleep(0.1)
            await cancelled(task)
        # the next call gets its own reply
        offer = await queue.offer(5, id="mine")
        assert (offer.id, offer.duplicate) == ("mine", False)
    nothing_is_held(look, 6)


@pytest.mark.asyncio
@pytest.mark.parametrize("verb", TAKES.values(), ids=TAKES)
async def test_a_take_whose_answer_never_came_leaves_nothing(
    verb: Verb, private: OwnServer, look: Any, namespace: str
) -> None:
    """It ran, the reply is stuck on its way, and then the caller goes."""
    with Proxy(private.url) as proxy:
        async with AsyncEngine(proxy.url, namespace=namespace) as engine:
            queue = engine.queue("jobs")
            await queue.offer_many(range(5))
            proxy.stall()
            task = asyncio.create_task(verb(queue))
            await asyncio.sleep(0.05)
            task.cancel()
            proxy.resume()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await queue.counts())[JobState.LEASED] == 0
    nothing_is_held(look, 5)


@pytest.mark.asyncio
@pytest.mark.parametrize("verb", WAITS.values(), ids=WAITS)
async def test_a_wait_that_is_cancelled_takes_no_ring_and_no_job(
    verb: Verb, private: OwnServer, raw: redis.Redis, look: Any, namespace: str
) -> None:
    url = f"{private.url}?client_name={namespace}"
    async with AsyncEngine(url, namespace=namespace) as engine:
        queue = engine.queue("jobs")
        await queue.pause()
        await queue.resume()
        task = asyncio.create_task(verb(queue))
        await until(lambda: blocks(raw, namespace))
        await cancelled(task)
        assert not blocks(raw, namespace)
        await queue.offer(0)
    nothing_is_held(look, 1)


@pytest.mark.asyncio
@pytest.mark.parametrize("verb", WAITS.values(), ids=WAITS)
async def test_a_wait_that_is_cancelled_as_work_arrives(
    verb: Verb, private: OwnServer, raw: redis.Redis, look: Any, namespace: str
) -> None:
    """The race itself, over and over: the job is with the caller, or back in its place."""
    url = f"{private.url}?client_name={namespace}"
    async with AsyncEngine(url, namespace=namespace) as engine, AsyncEngine(private.url, namespace=namespace) as other:
        queue = engine.queue("jobs")
        await queue.pause()
        await queue.resume()
        for attempt in range(10):
            task = asyncio.create_task(verb(queue))
            await until(lambda: blocks(raw, namespace))
            offer = asyncio.create_task(other.queue("jobs").offer(attempt, id=str(attempt)))
            for _ in range(attempt):
                await asyncio.sleep(0)
            task.cancel()
            await offer
            with contextlib.suppress(asyncio.CancelledError):
                await task
            held = [] if task.cancelled() else deliveries(task.result())
            assert (await queue.counts())[JobState.LEASED] == len(held)
            held += look.take_many(9)
            assert [(each.id, each.attempt) for each in held] == [(str(attempt), 1)]
            assert look.ack(held[0]) is Ack.ACKNOWLEDGED


@pytest.mark.asyncio
async def test_a_handler_that_is_cancelled_hands_its_job_back(private: OwnServer, look: Any, namespace: str) -> None:
    started = asyncio.Event()

    async def work(delivery: Delivery) -> None:
        started.set()
        await asyncio.Event().wait()

    async with AsyncEngine(private.url, namespace=namespace) as engine:
        queue = engine.queue("jobs")
        await queue.offer_many(range(3))
        task = asyncio.create_task(queue.process_one(work))
        await started.wait()
        assert look.counts()[JobState.LEASED] == 1
        await cancelled(task)
    nothing_is_held(look, 3)


class Interrupted(BaseException):
    """What cancels between two passes."""


def fewer(monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[int], None]) -> None:
    """Makes every pass of a take find one job and say that there is more; `interrupt` is told of each."""
    take = consume.take
    passes = [0]

    def one_each(core: Any, limit: int, lease_ms: int | None, **options: Any) -> Any:
        passes[0] += 1
        interrupt(passes[0])
        call = take(core, 1, lease_ms, **options)
        decode = call.decode
        call.decode = lambda reply: decode(reply)._replace(more=True)
        return call

    monkeypatch.setattr(consume, "take", one_each)


@pytest.mark.asyncio
async def test_a_take_that_is_cancelled_between_its_passes(
    private: OwnServer, look: Any, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncEngine(private.url, namespace=namespace) as engine:
        queue = engine.queue("jobs")
        await queue.offer_many(range(5))
        tasks: list[asyncio.Task[Any]] = []

        def interrupt(number: int) -> None:
            if number == 3:
                tasks[0].cancel()

        with monkeypatch.context() as patched:
            fewer(patched, interrupt)
            tasks.append(asyncio.create_task(queue.take_many(5)))
            with pytest.raises(asyncio.CancelledError):
                await tasks[0]
        assert look.counts()[JobState.LEASED] == 0
    nothing_is_held(look, 5)


def test_a_take_that_is_interrupted_between_its_passes(
    private: OwnServer, look: Any, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(number: int) -> None:
        if number == 3:
            raise Interrupted

    with Engine(private.url, namespace=namespace) as engine:
        queue = engine.queue("jobs")
        queue.offer_many(range(5))
        with monkeypatch.context() as patched:
            fewer(patched, interrupt)
            with pytest.raises(Interrupted):
                queue.take_many(5)
    nothing_is_held(look, 5)


def test_an_interruption_is_not_replaced_by_what_hinders_the_hand_back(
    private: OwnServer, look: Any, namespace: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server is gone: the leases run out by themselves, and the caller still learns what interrupted it."""
    with Proxy(private.url) as proxy, Engine(proxy.url, namespace=namespace, retry_for=0.1) as engine:

        def interrupt(number: int) -> None:
            if number == 3:
                proxy.close()
                raise KeyboardInterrupt

        queue = engine.queue("jobs")
        queue.offer_many(range(5))
        with monkeypatch.context() as patched:
            fewer(patched, interrupt)
            with pytest.raises(KeyboardInterrupt):
                queue.take_many(5, lease=1)
    assert "not handed back" in caplog.text
    assert look.counts()[JobState.LEASED] == 2
    # then the leases end, at the cost of an attempt
    assert len(look.take_many(5)) == 3
    assert len(look.take_many(5, wait=8)) >= 1


@contextlib.contextmanager
def interrupted_once(reached: Callable[[], object], then: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Ctrl-C for this thread, as soon as something is reached."""

    def press() -> None:
        limit = time.monotonic() + BOUND
        while not reached() and time.monotonic() < limit:
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)
        then()

    presser = threading.Thread(target=press)
    presser.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        presser.join()


SYNC_WAITS: dict[str, Callable[[Any], Any]] = {
    "take": lambda queue: queue.take(wait=50),
    "take_many": lambda queue: queue.take_many(3, wait=None),
    "exchange": lambda queue: queue.exchange([], 3, wait=50),
    "process_one": lambda queue: queue.process_one(lambda delivery: None, wait=50),
}


@pytest.mark.parametrize("verb", SYNC_WAITS.values(), ids=SYNC_WAITS)
def test_a_wait_that_is_interrupted_takes_no_ring_and_no_job(
    verb: Callable[[Any], Any], private: OwnServer, raw: redis.Redis, look: Any, namespace: str
) -> None:
    with Engine(f"{private.url}?client_name={namespace}", namespace=namespace) as engine:
        queue = engine.queue("jobs")
        queue.pause()
        queue.resume()
        with interrupted_once(lambda: blocks(raw, namespace)):
            verb(queue)
        assert not blocks(raw, namespace)
        assert queue.offer(0).duplicate is False
    nothing_is_held(look, 1)


def test_a_take_that_is_interrupted_on_its_way_leaves_nothing(private: OwnServer, look: Any, namespace: str) -> None:
    with Proxy(private.url) as proxy, Engine(proxy.url, namespace=namespace) as engine:
        queue = engine.queue("jobs")
        queue.offer_many(range(5))
        sent = threading.Event()

        def seen(words: Any) -> bool:
            if calls("jobs/take")(words) and not sent.is_set():
                # the request goes on, and its reply gets stuck
                proxy.stall()
                sent.set()
            return False

        proxy.eat_replies(1, seen)
        with interrupted_once(lambda: look.counts()[JobState.LEASED] == 3, then=proxy.resume):
            queue.take_many(3)
        assert queue.counts()[JobState.LEASED] == 0
    nothing_is_held(look, 5)


def test_an_interrupted_handler_hands_its_job_back(private: OwnServer, look: Any, namespace: str) -> None:
    def interrupt(error: type[BaseException]) -> Callable[[Delivery], None]:
        def work(delivery: Delivery) -> None:
            raise error

        return work

    with Engine(private.url, namespace=namespace) as engine:
        queue = engine.queue("jobs")
        queue.offer_many(range(3))
        for error in (KeyboardInterrupt, SystemExit, GeneratorExit, Interrupted):
            with pytest.raises(error):
                queue.process_one(interrupt(error))
    nothing_is_held(look, 3)


@pytest.mark.asyncio
@pytest.mark.parametrize("verb", TAKES.values(), ids=TAKES)
async def test_without_a_server_the_leases_end_by_themselves(
    verb: Verb, private: OwnServer, look: Any, namespace: str
) -> None:
    """The take ran, its caller and the way back are gone: nothing is held for longer than the lease."""
    look._core.policy = QueuePolicy(lease=1)
    look.offer_many(range(5))
    with Proxy(private.url) as proxy:
        engine = AsyncEngine(proxy.url, namespace=namespace, retry_for=0.2)
        queue = engine.queue("jobs")
        assert (await queue.counts())[JobState.READY] == 5
        ran = asyncio.Event()
        loop = asyncio.get_running_loop()

        def gone(words: Any) -> bool:
            if not (calls("jobs/take")(words) or calls("jobs/exchange")(words)):
                return False
            loop.call_soon_threadsafe(ran.set)
            return True

        proxy.eat_replies(10**6, gone)
        task = asyncio.create_task(verb(queue))
        await ran.wait()
        proxy.stall()
        task.cancel()
        proxy.close()
        with contextlib.suppress(asyncio.CancelledError, Unavailable):
            await task
        await engine.aclose()
    found: set[int] = set()
    while len(found) < 5:
        batch = look.take_many(5, wait=8)
        assert batch
        for each in batch:
            found.add(each.value)
            look.ack(each)


@pytest.mark.asyncio
async def test_many_cancelled_takes_at_once(private: OwnServer, look: Any, namespace: str) -> None:
    with Proxy(private.url) as proxy:
        async with AsyncEngine(proxy.url, namespace=namespace) as engine:
            queue = engine.queue("jobs")
            await queue.offer_many(range(40))
            proxy.stall()
            tasks = [asyncio.create_task(queue.take_many(2)) for _ in range(20)]
            await asyncio.sleep(0.05)
            for task in tasks[:10]:
                task.cancel()
            proxy.resume()
            results = await asyncio.gather(*tasks, return_exceptions=True)
    kept = [each for result in results if isinstance(result, list) for each in result]
    assert len(kept) == len({each.id for each in kept}) == 20
    counts = look.counts()
    assert (counts[JobState.LEASED], counts[JobState.READY]) == (20, 20)
    assert {each.attempt for each in look.take_many(40)} == {1}
