"""The synchronous face of the asynchronous front end hides the loop and nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redisq import AsyncEngine, Engine, InvalidInput, Queue
from tests.support.fronts import LoopThread, OpenEngine


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


def test_a_call_returns_what_the_coroutine_returns_and_raises_what_it_raises(thread: LoopThread) -> None:
    error = KeyError("the very same")

    async def fail() -> None:
        raise error

    async def where() -> threading.Thread:
        await asyncio.sleep(0)
        return threading.current_thread()

    assert thread.call(where) is not threading.current_thread()
    assert thread.call(threading.current_thread) is thread.call(where)
    with pytest.raises(KeyError) as caught:
        thread.call(fail)
    assert caught.value is error


def test_a_task_that_exits_does_not_stop_the_loop(thread: LoopThread) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    async def in_a_task() -> None:
        await asyncio.create_task(leave())

    with pytest.raises(SystemExit):
        thread.call(in_a_task)
    assert thread.call(lambda: "still here") == "still here"


def test_a_task_left_running_is_an_error() -> None:
    thread = LoopThread()
    kept: list[asyncio.Task[None]] = []

    async def start() -> None:
        kept.append(asyncio.create_task(asyncio.sleep(60)))

    thread.call(start)
    with pytest.raises(AssertionError, match="left running"):
        thread.close()


def test_the_front_end_is_the_one_that_was_asked_for(open_engine: OpenEngine, front: str) -> None:
    engine = open_engine()
    assert (type(engine) is Engine) == (front == "sync")
    with pytest.raises(InvalidInput):
        engine.queue("")


def test_engines_of_a_test_share_its_namespace(
    open_engine: OpenEngine, namespace: str, keys: Callable[..., list[str]]
) -> None:
    first, second, apart = open_engine(), open_engine(), open_engine(f"{namespace}-apart")
    first.queue("jobs").offer("work")
    delivery = second.queue("jobs").take()
    assert delivery is not None
    assert delivery.value == "work"
    assert apart.queue("jobs").take() is None
    assert keys(first) != []
    assert keys(apart) == []


def test_a_handler_may_call_the_engine(queue: Queue[Any]) -> None:
    queue.offer("work")
    seen = []
    assert queue.process_one(lambda delivery: seen.append((delivery.value, queue.get(delivery.id))))
    assert seen[0][0] == "work"


@pytest.mark.asyncio
async def test_an_async_engine_as_it_is(open_async_engine: Callable[..., AsyncEngine]) -> None:
    queue = open_async_engine().queue("jobs")
    await queue.offer("work")
    delivery = await queue.take()
    assert delivery is not None
    assert delivery.value == "work"
