"""Coroutines that share a task until they wait.

A task costs more than many a handler does. So a task may run coroutines in turn, each in a context of its own, as long
as they end without waiting; with the first one that waits it stays, and another task takes over the rest. What a
coroutine sees of asyncio (`current_task`, `timeout`, context variables) is as if it had the task to itself.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Turn(Generic[T]):
    """Awaits `story` in a context of its own; `on_wait` is called when it waits for the first time."""

    __slots__ = ("_on_wait", "_story")

    def __init__(self, story: Coroutine[Any, Any, T], on_wait: Callable[[], None]) -> None:
        self._story = story
        self._on_wait = on_wait

    def __await__(self) -> Generator[Any, Any, T]:
        story, run = self._story, contextvars.copy_context().run
        try:
            waits_for = run(story.send, None)
            self._on_wait()
            while True:
                try:
                    answer = yield waits_for
                except BaseException as error:  # noqa: BLE001 - the story's own matter, cancellation above all
                    waits_for = run(story.throw, error)
                else:
                    waits_for = run(story.send, answer)
        except StopIteration as end:
            result: T = end.value
            return result
