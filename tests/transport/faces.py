"""Senders of both worlds behind one blocking face, so that a test body is written once."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

import redis
import redis.asyncio

from redisq.calls import Call, Wait
from redisq.transport import (
    AsyncSender,
    SyncSender,
    async_from_client,
    connect_async,
    connect_sync,
    sync_from_client,
)
from redisq.transport.wire import Command


class Face:
    """A `SyncSender`, or an `AsyncSender` on an event loop in a thread of its own."""

    def __init__(self, world: str, make: Callable[[], SyncSender | AsyncSender]) -> None:
        self.world = world
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="test loop", daemon=True)
        self._thread.start()
        try:
            self.sender = make()
        except BaseException:
            self._end()
            raise

    def run(self, call: Call[Any]) -> Any:
        return self._finish(self.sender.run(call))

    def run_wait(self, wait: Wait) -> Any:
        return self._finish(self.sender.run_wait(wait))

    def run_commands(self, *commands: Command) -> list[Any]:
        replies: list[Any] = self._finish(self.sender.run_commands(commands))
        return replies

    def finish(self, function: Callable[[], Any]) -> Any:
        """What `function()` returns, awaited if need be, where the sender lives."""

        async def outcome() -> Any:
            result = function()
            return await result if inspect.isawaitable(result) else result

        return asyncio.run_coroutine_threadsafe(outcome(), self._loop).result(60)

    def close(self) -> None:
        if isinstance(self.sender, AsyncSender):
            self._finish(self.sender.aclose())
        else:
            self.sender.close()
        if self._thread.is_alive():
            self._end()

    def _finish(self, result: Any) -> Any:
        if isinstance(self.sender, SyncSender):
            return result
        return asyncio.run_coroutine_threadsafe(result, self._loop).result(60)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def connect(world: str, url: str, **options: Any) -> Face:
    connector: Any = connect_sync if world == "sync" else connect_async
    return Face(world, lambda: connector(url, **options))


def from_client(world: str, client: Any, **options: Any) -> Face:
    connector: Any = sync_from_client if world == "sync" else async_from_client
    return Face(world, lambda: connector(client, **options))


@contextlib.contextmanager
def users_client(world: str, url: str, **options: Any) -> Iterator[Any]:
    """A client as a user of redis-py would make it."""
    if world == "sync":
        with redis.Redis.from_url(url, **options) as client:
            yield client
    else:
        other = redis.asyncio.Redis.from_url(url, **options)
        yield other
        asyncio.run(other.aclose())
