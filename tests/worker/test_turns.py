"""Coroutines in turn on one task: each must see asyncio as if it had the task to itself."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

from redisq.turns import Turn

pytestmark = pytest.mark.asyncio
mark: ContextVar[str] = ContextVar("mark", default="unset")


async def in_turn(stories: deque[Coroutine[Any, Any, Any]], tasks: list[asyncio.Task[None]]) -> None:
    def pass_on() -> None:
        if stories:
            tasks.append(asyncio.create_task(in_turn(stories.copy(), tasks)))
            stories.clear()

    while stories:
        await Turn(stories.popleft(), pass_on)


async def run(*stories: Coroutine[Any, Any, Any]) -> list[asyncio.Task[None]]:
    """Runs them and returns the tasks that it took."""
    tasks: list[asyncio.Task[None]] = []
    tasks.append(asyncio.create_task(in_turn(deque(stories), tasks)))
    while not all(task.done() for task in tasks):
        await asyncio.wait(tasks)
    return tasks


async def test_what_does_not_wait_shares_a_task_and_not_its_context() -> None:
    seen: list[tuple[str, object]] = []

    async def story(name: str) -> None:
        seen.append((mark.get(), asyncio.current_task()))
        mark.set(name)

    (task,) = await run(story("a"), story("b"), story("c"))
    assert seen == [("unset", task)] * 3
    assert mark.get() == "unset"


async def test_one_that_waits_keeps_its_task_and_its_context_and_holds_nobody_up() -> None:
    go, log = asyncio.Event(), []

    async def waits() -> None:
        mark.set("mine")
        before = asyncio.current_task()
        await go.wait()
        log.append(("waited", mark.get(), asyncio.current_task() is before))

    async def goes() -> None:
        log.append(("went", mark.get(), asyncio.current_task() is not None))
        go.set()

    assert len(await run(waits(), goes())) == 2
    assert log == [("went", "unset", True), ("waited", "mine", True)]


async def test_a_cancel_reaches_the_one_that_waits() -> None:
    started, ended = asyncio.Event(), []

    async def waits() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")

    async def after() -> None:
        ended.append("after")

    tasks: list[asyncio.Task[None]] = []
    tasks.append(asyncio.create_task(in_turn(deque([waits(), after()]), tasks)))
    await started.wait()
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.wait(tasks)
    assert ended == ["after", "cancelled"]


async def test_a_time_limit_of_its_own_ends_it_alone() -> None:
    async def limited() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"
        return "never"

    assert await Turn(limited(), lambda: None) == "timed out"


async def test_results_and_errors_come_out() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError("x")

    async def gives() -> int:
        return 3

    assert await Turn(gives(), lambda: pytest.fail("it did not wait")) == 3
    with pytest.raises(KeyError):
        await Turn(fails(), lambda: None)
