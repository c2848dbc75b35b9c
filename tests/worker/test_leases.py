"""Leases in a worker: renewal, loss, cancel and time limits (SPEC 7; field cases C07, C09, C11)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from redisq import Backoff, Cancel, Context, Engine, JobState, Queue, QueuePolicy
from redisq.calls import consume
from redisq.transport.sender import AsyncSender
from tests.faults.proxy import Proxy, calls
from tests.jobs.steps import state_of
from tests.support.servers import Server
from tests.worker.conftest import WAIT, Serve

SHORT = QueuePolicy(lease=2, backoff=Backoff.fixed(0.02), max_attempts=5)


@pytest.fixture
def short(engine: Engine) -> Queue[Any]:
    """A queue whose leases last 2 s."""
    return engine.queue("short", policy=SHORT)


@pytest.fixture
def renewals(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[int]]:
    """How many leases each renewal call of workers had so far."""
    seen: list[int] = []
    run = AsyncSender.run

    async def counted(self: AsyncSender, call: Any) -> Any:
        if call.operation == "renew_many":
            seen.append(len(call.ids))
        return await run(self, call)

    monkeypatch.setattr(AsyncSender, "run", counted)
    return lambda: list(seen)


@pytest.mark.parametrize("kind", ["async", "def"])
def test_a_job_longer_than_its_lease_runs_once(kind: str, short: Queue[Any], serve: Serve) -> None:
    runs: list[Any] = []
    if kind == "async":

        @short.handler()
        async def handle(value: Any, context: Context) -> str:
            runs.append(context.attempt)
            await asyncio.sleep(4.5)
            return "done"

    else:

        @short.handler()
        def handle_plainly(value: Any, context: Context) -> str:
            runs.append(context.attempt)
            time.sleep(4.5)
            return "done"

    id = short.offer("x").id
    serve(short)
    serve(short)
    assert short.wait_result(id, WAIT) == "done"
    assert runs == [1]


def test_one_renewal_call_for_all_that_is_held(
    short: Queue[Any], serve: Serve, renewals: Callable[[], list[int]]
) -> None:
    leave, started = threading.Event(), threading.Semaphore(0)

    @short.handler()
    async def handle(value: Any) -> None:
        started.release()
        while not leave.is_set():
            await asyncio.sleep(0.01)

    offers = short.offer_many(range(50))
    serving = serve(short, concurrency=50)
    for _ in offers:
        assert started.acquire(timeout=WAIT)
    before = len(renewals())
    ticks = threading.Semaphore(0)
    serving.worker.on_tick = ticks.release
    for _ in range(5):
        assert ticks.acquire(timeout=WAIT)
    counted = renewals()[before:]
    leave.set()
    assert set(counted) == {50}
    assert len(counted) <= 6


def test_what_waits_behind_a_slot_is_renewed_too_and_started_once(engine: Engine, serve: Serve) -> None:
    """C07: leases of 2 s, each job runs for 0.7 s, one slot, two queues, two workers."""
    queues = [engine.queue(name, policy=SHORT) for name in ("a", "b")]
    runs: list[Any] = []

    async def handle(value: Any) -> None:
        runs.append(value)
        await asyncio.sleep(0.7)

    for queue in queues:
        queue.handler()(handle)
    offers = [(queue, queue.offer(f"{queue.name}{at}").id) for at in range(4) for queue in queues]
    serve(queues, concurrency=1)
    serve(queues, concurrency=1)
    for queue, id in offers:
        queue.wait_result(id, WAIT)
    assert sorted(runs) == sorted(f"{name}{at}" for name in "ab" for at in range(4))
    assert [len(queue.attempts(id)) for queue, id in offers] == [1] * 8


def test_settling_others_does_not_disturb_a_renewal(short: Queue[Any], serve: Serve) -> None:
    runs: list[Any] = []

    @short.handler()
    async def handle(value: Any, context: Context) -> Any:
        runs.append(value)
        await asyncio.sleep(4.5 if value == "long" else 0.05)
        return value

    id = short.offer("long").id
    serve(short, concurrency=4)
    for at in range(10):
        short.wait_result(short.offer(at).id, WAIT)
    assert short.wait_result(id, WAIT) == "long"
    assert runs.count("long") == 1


def test_an_altered_lease_does_not_strand_what_runs(short: Queue[Any], serve: Serve) -> None:
    """Leases go on being renewed for as long as they were taken, whatever the policy says by now."""
    runs: list[Any] = []
    started = threading.Event()

    @short.handler()
    async def handle(value: Any, context: Context) -> str:
        runs.append(context.attempt)
        started.set()
        await asyncio.sleep(5)
        return "done"

    id = short.offer("x").id
    serve(short)
    assert started.wait(WAIT)
    short.alter(QueuePolicy(lease=0.1))
    assert short.wait_result(id, WAIT) == "done"
    assert runs == [1]


def test_a_failed_renewal_is_made_up_for(server: Server, namespace: str, engine: Engine, serve: Serve) -> None:
    """C11 a: the reply of one renewal is lost; the job runs once."""
    with Proxy(server.url) as proxy, Engine(proxy.url, namespace=namespace) as given:
        queue = given.queue("jobs", policy=SHORT)
        runs: list[int] = []

        @queue.handler()
        async def handle(value: Any, context: Context) -> str:
            runs.append(context.attempt)
            proxy.eat_replies(1, calls("jobs/renew"))
            await asyncio.sleep(4.5)
            return "done"

        id = engine.queue("jobs", policy=SHORT).offer("x").id
        serving = serve(queue, engine=given)
        assert engine.queue("jobs").wait_result(id, WAIT) == "done"
        serving.stop()
        assert (len(proxy.eaten), runs) == (1, [1])


@pytest.mark.parametrize("kind", ["async", "def"])
def test_a_lost_lease_is_told_and_its_outcome_dropped(
    kind: str, server: Server, namespace: str, engine: Engine, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """C11 b: no renewal gets through for longer than the lease. C09: the late first holder changes nothing."""
    other = engine.queue("jobs", policy=SHORT)
    told = threading.Event()
    with Proxy(server.url) as proxy, Engine(proxy.url, namespace=namespace, retry_for=0.2) as given:
        queue = given.queue("jobs", policy=SHORT)

        def look(context: Context) -> None:
            if context.lost:
                told.set()

        if kind == "async":

            @queue.handler()
            async def handle(value: Any, context: Context) -> str:
                proxy.stall()
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    look(context)
                    raise
                return "late"

        else:

            @queue.handler()
            def handle_plainly(value: Any, context: Context) -> str:
                proxy.stall()
                while not told.is_set():
                    look(context)
                return "late"

        id = other.offer("x").id
        serving = serve(queue, engine=given)
        assert told.wait(WAIT)
        delivery = other.take(wait=WAIT)
        assert delivery is not None
        assert (delivery.id, delivery.attempt) == (id, 2)
        serving.worker.stop()
        proxy.resume()
        serving.join()
        other.ack(delivery, "second")
    assert other.wait_result(id, WAIT) == "second"
    assert [row.outcome for row in other.attempts(id)] == ["lapsed", "completed"]
    assert any(id in record.getMessage() and "lost" in record.getMessage() for record in caplog.records)
    assert not any("too late" in record.getMessage() for record in caplog.records), "its outcome was sent"


def test_a_stolen_lease_is_told(short: Queue[Any], serve: Serve) -> None:
    """C11 c: the server refuses the renewal, long before this side would have given up."""
    lost = threading.Event()

    @short.handler()
    async def handle(value: Any, context: Context) -> str:
        if context.attempt == 1 and value == "x":
            consume_and_fail(short, context)
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                assert context.lost
                lost.set()
                raise
        return "second"

    id = short.offer("x").id
    serve(short)
    assert lost.wait(WAIT)
    assert short.wait_result(id, WAIT) == "second"
    assert [row.outcome for row in short.attempts(id)] == ["retried", "completed"]


def consume_and_fail(queue: Queue[Any], context: Context) -> None:
    """Ends the lease of a running handler behind its worker's back."""
    queue._sender.run(consume.fail(queue._core, context.job, "stolen"))


def test_a_handler_that_blocks_the_loop_does_not_ack_with_a_stale_token(
    short: Queue[Any], serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """C11 e."""
    blocked: list[int] = []

    @short.handler()
    async def handle(value: Any, context: Context) -> int:
        if not blocked:
            blocked.append(1)
            time.sleep(4)  # noqa: ASYNC251 - what this handler is for
        return context.attempt

    id = short.offer("x").id
    serve(short)
    serve(short)
    assert short.wait_result(id, WAIT) == 2
    assert [row.outcome for row in short.attempts(id)] == ["lapsed", "completed"]


@pytest.mark.parametrize("kind", ["async", "def"])
def test_cancel_reaches_the_handler(kind: str, queue: Queue[Any], serve: Serve) -> None:
    started, told = threading.Event(), threading.Event()
    if kind == "async":

        @queue.handler()
        async def handle(value: Any, context: Context) -> None:
            started.set()
            try:
                await asyncio.sleep(3600)
            finally:
                assert context.cancelled
                assert not context.lost
                told.set()

    else:

        @queue.handler()
        def handle_plainly(value: Any, context: Context) -> None:
            started.set()
            while not context.cancelled:
                time.sleep(0.001)
            told.set()
            raise RuntimeError("as I was told")

    id = queue.offer("x").id
    serve(queue)
    assert started.wait(WAIT)
    assert queue.cancel(id) is Cancel.REQUESTED
    assert told.wait(WAIT)
    ended = threading.Event()
    serve(queue).worker.on_tick = lambda: ended.set() if state_of(queue, id) is JobState.CANCELLED else None
    assert ended.wait(WAIT)


def test_a_handler_that_finishes_all_the_same_wins_over_cancel(queue: Queue[Any], serve: Serve) -> None:
    started = threading.Event()

    @queue.handler()
    async def handle(value: Any) -> str:
        started.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "finished"
        return ""

    id = queue.offer("x").id
    serve(queue)
    assert started.wait(WAIT)
    queue.cancel(id)
    assert queue.wait_result(id, WAIT) == "finished"


def test_a_handler_that_cancels_itself_has_failed(queue: Queue[Any], serve: Serve) -> None:
    @queue.handler()
    async def handle(value: Any, context: Context) -> str:
        if context.attempt == 1:
            raise asyncio.CancelledError
        return "second"

    id = queue.offer("x").id
    serve(queue)
    assert queue.wait_result(id, WAIT) == "second"
    assert [row.outcome for row in queue.attempts(id)] == ["retried", "completed"]


@pytest.mark.parametrize("swallows", [False, True])
def test_an_async_handler_over_its_time_is_cancelled_and_failed(
    swallows: bool, queue: Queue[Any], serve: Serve
) -> None:
    @queue.handler()
    async def handle(value: Any, context: Context) -> str:
        if context.attempt > 1:
            return "second"
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            if not swallows:
                raise
        return "late"

    id = queue.offer("x", timeout=0.1).id
    serve(queue)
    assert queue.wait_result(id, WAIT) == "second"
    first, second = queue.attempts(id)
    assert (first.outcome, second.outcome) == ("retried", "completed")
    assert first.error is not None
    assert (first.error.type, first.error.message) == ("TimeoutError", "the handler ran over its time limit of 0.1 s")


def test_a_timeout_error_of_the_handler_itself_stays_what_it_is(queue: Queue[Any], serve: Serve) -> None:
    @queue.handler()
    async def handle(value: Any) -> None:
        raise TimeoutError("of the handler")

    id = queue.offer("x", timeout=60, max_attempts=1).id
    ended = threading.Event()
    serve(queue).worker.on_tick = lambda: ended.set() if state_of(queue, id) is JobState.DEAD else None
    assert ended.wait(WAIT)
    (row,) = queue.attempts(id)
    assert row.error is not None
    assert row.error.message == "of the handler"


@pytest.mark.parametrize("kind", ["async", "def"])
def test_a_handler_that_does_not_end_loses_its_lease_and_its_slot(
    kind: str, short: Queue[Any], serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """Renewal stops, the lease lapses, another worker runs it; the stuck slot is reported and its outcome dropped."""
    leave, ended = threading.Event(), threading.Event()
    if kind == "async":

        @short.handler()
        async def handle(value: Any, context: Context) -> int:
            while context.attempt == 1 and value == "x" and not leave.is_set():
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    continue
            if context.attempt == 1 and value == "x":
                assert context.lost
                ended.set()
            return context.attempt

    else:

        @short.handler()
        def handle_plainly(value: Any, context: Context) -> int:
            if context.attempt == 1 and value == "x":
                leave.wait(3 * WAIT)
                assert context.lost
                ended.set()
            return context.attempt

    id = short.offer("x", timeout=0.1).id
    serve(short, concurrency=2)
    assert short.wait_result(id, 2 * WAIT) == 2
    leave.set()
    assert ended.wait(WAIT)
    assert [row.outcome for row in short.attempts(id)] == ["lapsed", "completed"]
    assert any("stuck" in record.getMessage() and id in record.getMessage() for record in caplog.records)
    assert short.wait_result(short.offer("y").id, WAIT) == 1
