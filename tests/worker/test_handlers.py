"""Handlers: how they are registered and called, how they steer, and what becomes of their results (SPEC 7, issue 5)."""

from __future__ import annotations

import functools
import logging
import threading
from typing import Any

import pytest

from redisq import (
    AsyncEngine,
    Context,
    Engine,
    InvalidInput,
    JobFailed,
    JobState,
    LeaseLost,
    Queue,
    Reject,
    RetryIn,
    Worker,
)
from redisq.handlers import Handler
from tests.support.servers import Server
from tests.worker.conftest import WAIT, Serve


@pytest.mark.every_server
def test_async_and_plain_handlers_get_the_value_and_return_the_result(server: Server, namespace: str) -> None:
    url = server.url if server.url != "memory://" else f"memory://{namespace}"
    with Engine(url, namespace=namespace) as engine:
        queue = engine.queue("jobs")

        @queue.handler("double")
        async def double(value: int) -> int:
            return value * 2

        @queue.handler("thread")
        def name_thread(value: str) -> str:
            return f"{value} in {threading.current_thread().name.partition('_')[0]}"

        ids = [queue.offer(21, name="double").id, queue.offer("ran", name="thread").id]
        worker = Worker(engine, queue)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            assert [queue.wait_result(id, WAIT) for id in ids] == [42, "ran in redisq-handler"]
        finally:
            worker.stop()
            thread.join(WAIT)


def test_an_async_engine_has_workers_too(server: Server, namespace: str, engine: Engine, serve: Serve) -> None:
    given = AsyncEngine(server.url, namespace=namespace)
    worked = threading.Event()

    @given.queue("jobs").handler()
    async def handle(value: Any) -> None:
        worked.set()

    engine.queue("jobs").offer("x")
    serve("jobs", engine=given)
    assert worked.wait(WAIT)


def test_a_name_finds_its_handler_and_none_catches_the_others(queue: Queue[Any], serve: Serve) -> None:
    @queue.handler("a")
    async def for_a(value: Any) -> str:
        return "a"

    @queue.handler("")
    async def for_the_empty_name(value: Any) -> str:
        return "empty"

    @queue.handler()
    async def others(value: Any) -> str:
        return "others"

    ids = [queue.offer(0, name=name).id for name in ("a", "", "b")]
    serve(queue)
    assert [queue.wait_result(id, WAIT) for id in ids] == ["a", "empty", "others"]


def test_a_second_handler_for_a_name_is_refused(queue: Queue[Any]) -> None:
    queue.handler("a")(print)
    with pytest.raises(InvalidInput, match="'a'"):
        queue.handler("a")(print)


def test_a_handler_stays_the_function_that_it_was(queue: Queue[Any]) -> None:
    def handle(value: int) -> int:
        return value + 1

    assert queue.handler()(handle) is handle


def test_a_handler_that_can_not_be_called_with_a_value_is_refused_at_once(queue: Queue[Any]) -> None:
    with pytest.raises(InvalidInput, match="Context"):

        @queue.handler()
        def no_parameter() -> None: ...

    with pytest.raises(InvalidInput, match="Context"):

        @queue.handler()
        def unannotated(value: Any, context) -> None: ...  # type: ignore[no-untyped-def]


class Callable:
    async def __call__(self, value: Any, context: Context) -> None: ...


def optional(value: Any, *, context: Context | None = None) -> None: ...


def quoted(value: Any, context: redisq.Context) -> None: ...  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize(
    ("function", "is_async", "context"),
    [(Callable(), True, "context"), (optional, False, "context"), (quoted, False, "context"), (len, False, None),
     (functools.partial(optional, context=None), False, None)],
)  # fmt: skip
def test_what_a_handler_asks_for_is_seen(function: Any, is_async: bool, context: str | None) -> None:
    handler = Handler(function)
    assert (handler.is_async, handler.context) == (is_async, context)


@pytest.mark.parametrize("kind", ["async", "def"])
def test_the_context_knows_the_run(
    kind: str, queue: Queue[Any], serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []

    def look(value: Any, context: Context) -> None:
        seen.append((context.job.id, context.attempt, context.fence, context.cancelled, context.lost))
        context.log.warning("looked at %s", value)

    if kind == "async":

        @queue.handler()
        async def handle(value: Any, context: Context) -> None:
            look(value, context)

    else:
        queue.handler()(look)
    id = queue.offer("x").id
    with caplog.at_level(logging.WARNING, "redisq"):
        serve(queue)
        queue.wait_result(id, WAIT)
    assert seen == [(id, 1, seen[0][2], False, False)]
    assert seen[0][2] > 0
    (record,) = [record for record in caplog.records if record.getMessage() == "looked at x"]
    assert (record.__dict__["job"], record.__dict__["queue"]) == (id, "jobs")


@pytest.mark.parametrize("kind", ["async", "def"])
def test_progress_is_stored_with_the_job(kind: str, queue: Queue[Any], serve: Serve) -> None:
    stored, go_on = threading.Event(), threading.Event()
    if kind == "async":

        @queue.handler()
        async def handle(value: Any, context: Context) -> None:
            await context.progress({"done": 1, "of": 2})
            stored.set()
            while not go_on.is_set():
                await context.progress({"done": 1, "of": 2})

    else:

        @queue.handler()
        def handle_plainly(value: Any, context: Context) -> None:
            context.progress({"done": 1, "of": 2})  # type: ignore[unused-awaitable] # a plain handler need not wait
            stored.set()
            go_on.wait(WAIT)

    id = queue.offer("x").id
    serve(queue)
    assert stored.wait(WAIT)
    job = queue.get(id)
    go_on.set()
    assert job is not None
    assert job.progress == {"done": 1, "of": 2}
    queue.wait_result(id, WAIT)


@pytest.mark.parametrize("value", ["p" * 4095, {1: object()}], ids=["large", "unencodable"])
def test_progress_has_a_limit_of_4_kib(value: Any, queue: Queue[Any], serve: Serve) -> None:
    @queue.handler()
    async def handle(_: Any, context: Context) -> None:
        await context.progress("p" * 4094)
        with pytest.raises(InvalidInput, match="progress"):
            await context.progress(value)

    id = queue.offer("x").id
    serve(queue)
    queue.wait_result(id, WAIT)


def test_progress_under_a_stale_token_is_refused(queue: Queue[Any], serve: Serve) -> None:
    contexts: list[Context] = []

    @queue.handler()
    async def handle(_: Any, context: Context) -> str:
        contexts.append(context)
        if context.attempt == 1:
            raise RetryIn(0)
        with pytest.raises(LeaseLost):
            await contexts[0].progress("late")
        await context.progress("in time")
        return "good"

    id = queue.offer("x").id
    serve(queue)
    assert queue.wait_result(id, WAIT) == "good"
    assert len(contexts) == 2


def test_reject_fails_for_good(queue: Queue[Any], serve: Serve) -> None:
    @queue.handler()
    async def handle(value: Any) -> None:
        raise Reject("not for us")

    id = queue.offer("x").id
    serve(queue)
    with pytest.raises(JobFailed, match="not for us"):
        queue.wait_result(id, WAIT)
    job = queue.get(id)
    assert job is not None
    assert (job.state, job.attempts) == (JobState.DEAD, 1)


def test_retry_in_waits_as_told_instead_of_the_back_off(queue: Queue[Any], serve: Serve) -> None:
    failed = threading.Event()

    @queue.handler()
    async def handle(value: Any, context: Context) -> str:
        if context.attempt == 1:
            raise RetryIn(3600, "come back later")
        return "done"

    id = queue.offer("x").id
    serve(queue).worker.on_tick = lambda: failed.set() if queue.counts()[JobState.SCHEDULED] else None
    assert failed.wait(WAIT)
    job = queue.get(id)
    assert job is not None
    assert job.due_ms is not None
    assert job.due_ms - job.created_ms > 3_500_000
    assert job.error is not None
    assert (job.error.type, job.error.message) == ("RetryIn", "come back later")
    queue.promote(id)
    assert queue.wait_result(id, WAIT) == "done"


def test_retry_in_takes_only_durations() -> None:
    with pytest.raises(InvalidInput):
        RetryIn(-1)


class Odd(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3), StopIteration(), Odd(), TimeoutError()])
@pytest.mark.parametrize("kind", ["async", "def"])
def test_whatever_a_handler_raises_is_a_failed_attempt(
    kind: str, error: BaseException, queue: Queue[Any], serve: Serve
) -> None:
    def fail_once(context: Context) -> str:
        if context.attempt == 1:
            raise error
        return "second"

    if kind == "async":

        @queue.handler()
        async def handle(value: Any, context: Context) -> str:
            return fail_once(context)

    else:

        @queue.handler()
        def handle_plainly(value: Any, context: Context) -> str:
            return fail_once(context)

    id = queue.offer("x").id
    serve(queue, concurrency=1)
    assert queue.wait_result(id, WAIT) == "second"
    (first, second) = queue.attempts(id)
    assert (first.outcome, second.outcome) == ("retried", "completed")
    assert first.error is not None


def test_the_last_attempt_ends_dead(queue: Queue[Any], serve: Serve) -> None:
    @queue.handler()
    async def handle(value: Any) -> None:
        raise ValueError("broken")

    id = queue.offer("x", max_attempts=3).id
    serve(queue)
    with pytest.raises(JobFailed, match="broken"):
        queue.wait_result(id, WAIT)
    assert [row.outcome for row in queue.attempts(id)] == ["retried", "retried", "dead"]


@pytest.mark.parametrize("result", ["r" * (64 * 1024), object()], ids=["large", "unencodable"])
def test_a_result_that_can_not_be_kept_fails_the_job_finally(result: Any, queue: Queue[Any], serve: Serve) -> None:
    calls: list[int] = []

    @queue.handler()
    async def handle(value: Any) -> Any:
        calls.append(1)
        return result

    id = queue.offer("x").id
    serve(queue)
    with pytest.raises(JobFailed, match="result"):
        queue.wait_result(id, WAIT)
    assert calls == [1]
    (row,) = queue.attempts(id)
    assert row.outcome == "dead"


def test_a_private_memory_store_can_not_be_served() -> None:
    with Engine("memory://") as engine:
        queue = engine.queue("jobs")
        queue.handler()(print)
        with pytest.raises(InvalidInput, match="memory://"):
            Worker(engine, queue).run()


def test_a_worker_refuses_what_it_can_not_serve(engine: Engine, queue: Queue[Any]) -> None:
    with pytest.raises(InvalidInput, match="no handler"):
        Worker(engine, queue)
    with pytest.raises(InvalidInput, match="at least one"):
        Worker(engine, [])
    queue.handler()(print)
    for options, said in [
        ({"concurrency": 0}, "concurrency"), ({"concurrency": 10_001}, "concurrency"), ({"unknown": "drop"}, "unknown"),
        ({"dispatch": "fair"}, "dispatch"), ({"dispatch": {"other": 1}}, "dispatch"),
        ({"dispatch": {"jobs": 0}}, "dispatch"), ({"grace": -1}, "grace"),
    ]:  # fmt: skip
        with pytest.raises(InvalidInput, match=said):
            Worker(engine, queue, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="engine"):
        Worker("redis://", queue)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="queue objects"):
        Worker(engine, [3])  # type: ignore[list-item]
