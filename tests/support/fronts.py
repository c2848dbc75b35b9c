"""Both front ends behind one plain synchronous face, so that a test body is written once.

The sync face is an `Engine` itself. The async face stands for an `AsyncEngine` on an event loop of its own thread: each
call runs there until its result, or its exception, is back.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any, Protocol, Self, TypeVar, cast

from redisq import AsyncEngine, Engine
from redisq.testing import ManualClock

T = TypeVar("T")


class OpenEngine(Protocol):
    """The fixture `open_engine`: an engine on the test's server, closed after the test."""

    def __call__(self, namespace: str | None = None, clock: ManualClock | None = None, **options: Any) -> Engine: ...


class LoopThread:
    """An event loop in a thread of its own, for calls from any other thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="test loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing:
            try:
                self.loop.run_forever()
            except (KeyboardInterrupt, SystemExit):
                # asyncio lets these out of the loop when a task ends with one; whoever awaits the task gets it too
                continue

    def call(self, function: Callable[[], Any]) -> Any:
        """What `function()` returns, awaited if need be, on the loop; exceptions pass unchanged."""

        async def outcome() -> tuple[Any, BaseException | None]:
            try:
                result = function()
                return (await result if inspect.isawaitable(result) else result), None
            except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
                return None, error

        result, error = asyncio.run_coroutine_threadsafe(outcome(), self.loop).result()
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """Stop the loop. Tasks that are still there are an error: the front end left them running."""

        async def others() -> list[str]:
            return [repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]

        left = self.call(others)
        self._closing = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        assert not left, f"tasks left running: {left}"


class Face:
    """The synchronous face of an asynchronous object, and of the queues that it returns."""

    def __init__(self, thread: LoopThread, target: Any) -> None:
        self._thread = thread
        self._target = target

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._target, {"close": "aclose"}.get(name, name))
        if not callable(attribute):
            return attribute

        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "process_one":
                args = tuple(_off_the_loop(arg) if callable(arg) else arg for arg in args)
            result = self._thread.call(lambda: attribute(*args, **kwargs))
            return Face(self._thread, result) if type(result).__module__ == AsyncEngine.__module__ else result

        return call

    def __enter__(self) -> Self:
        self._thread.call(self._target.__aenter__)
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.call(lambda: self._target.__aexit__(*error))


def sync_face_of(thread: LoopThread, make: Callable[[], AsyncEngine]) -> Engine:
    """An `AsyncEngine` made and used on the loop, typed as the `Engine` whose calls it takes."""
    return cast(Engine, Face(thread, thread.call(make)))


def _off_the_loop(handler: Callable[..., T]) -> Callable[..., Any]:
    """A plain handler as a coroutine function that runs it in a thread, where it may call the engine's face."""
    if inspect.iscoroutinefunction(handler):
        return handler

    async def handle(*args: Any) -> T:
        return await asyncio.to_thread(handler, *args)

    return handle
