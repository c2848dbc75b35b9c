"""Runs the bounded maintenance of queues, again and again."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence

from redisq import aio, flows
from redisq.aio import AsyncEngine
from redisq.calls import operate
from redisq.errors import RedisqError
from redisq.sync import Engine
from redisq.values import Duration, duration_ms, integer

_log = logging.getLogger("redisq.sweeper")


class Sweeper:
    """Sweeps queues: what is due, what lapsed, what is past its retention, ids that need not be remembered any more.

    queues: names, None for all of the namespace, found anew at every round. interval: seconds between two rounds, at
    least 1 ms; a queue that still has work is swept again at once, one that another sweeper did less than `interval` ago
    is left out. limit: 1…1,000 records per category and call. Several sweepers at once are harmless, and so is one that
    dies in the middle. An error in one queue does not stop the others.
    """

    def __init__(
        self,
        engine: Engine | AsyncEngine,
        queues: Sequence[str] | None = None,
        *,
        interval: Duration = 1.0,
        limit: int = 100,
        allow_eviction: bool = False,
    ) -> None:
        self._given = engine
        self._names = None if queues is None else list(queues)
        self._interval = duration_ms("interval", interval, least=1) / 1000
        self._limit = integer("limit", limit, 1, 1000)
        self._allow_eviction = allow_eviction
        self._stopped = threading.Event()
        self._wake: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self) -> None:
        """Sweep until `stop`."""
        asyncio.run(self.arun())

    def stop(self) -> None:
        """End after the round that is under way. From any thread."""
        self._stopped.set()
        if self._loop is not None and self._wake is not None:
            self._loop.call_soon_threadsafe(self._wake.set)

    async def arun(self) -> None:
        """Sweep until `stop` or cancellation."""
        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        engine, own = aio.twin(self._given)
        try:
            if not self._allow_eviction:
                await aio.refuse_eviction(engine)
            while not self._stopped.is_set():
                started = time.monotonic()
                await self._round(engine)
                left = self._interval - (time.monotonic() - started)
                try:
                    async with asyncio.timeout(max(left, 0)):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        finally:
            self._loop = None
            if own:
                await engine.aclose()

    async def _round(self, engine: AsyncEngine) -> None:
        try:
            names = self._names if self._names is not None else [info.name for info in await engine.queues()]
        except RedisqError as error:
            _log.error("can't list the queues: %s", error)
            return
        for name in names:
            try:
                await self._sweep(engine, name)
            except RedisqError as error:
                _log.error("can't sweep queue %s: %s", name, error)

    async def _sweep(self, engine: AsyncEngine, name: str) -> None:
        """One queue, until nothing is pending. Only the first call may be left out for another sweeper's sake."""
        core = engine._registry.core(name)
        gap = round(self._interval * 1000)
        while not self._stopped.is_set():
            swept = await aio.drive(
                engine._sender, flows.use(core, lambda gap=gap: operate.sweep(core, self._limit, gap))  # type: ignore[misc]
            )
            if not swept.pending:
                return
            gap = 0
