"""Runs the bounded maintenance of queues, again and again."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import random
import threading
import time
from collections.abc import AsyncIterator, Sequence

from redisq import aio, eventflows
from redisq.aio import AsyncEngine
from redisq.calls import operate
from redisq.calls.core import EventCore, QueueCore, directory
from redisq.errors import InvalidInput, RedisqError, UnsupportedServer
from redisq.sync import Engine
from redisq.values import Duration, boolean, duration_ms, integer, text

_log = logging.getLogger("redisq.sweeper")

SPREAD = 0.25
"""By how much of its interval a sweep may come later, so that neither queues nor sweepers march in step."""
_HOPELESS = (InvalidInput, UnsupportedServer)
"""What no later try can mend."""
CLOSING = 2.0
"""Seconds that an engine made for this gets to hand back what was taken for nobody."""


class Sweeper:
    """Sweeps queues: what is due, what lapsed, what is past its retention, ids that need not be remembered any more.

    queues: names, of job or event queues; None for all of the namespace, found anew every interval. interval: seconds
    between two sweeps of a queue, at least 1 ms, up to a quarter longer by chance; a queue that still has work is swept
    again as soon as the others had their turn, one that another sweeper did less than `interval` ago is left out.
    limit: 1…1,000 records per category and call. Several sweepers at once are harmless, and so is one that dies in the
    middle. An error in one queue does not stop the others.
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
        if not isinstance(engine, Engine | AsyncEngine):
            raise InvalidInput(f"engine must be an Engine or an AsyncEngine, not {type(engine).__name__}")
        self._given = engine
        self._names = None if queues is None else [text("queues", name) for name in queues]
        self._interval = duration_ms("interval", interval, least=1) / 1000
        self._limit = integer("limit", limit, 1, 1000)
        self._allow_eviction = boolean("allow_eviction", allow_eviction)
        self._stopped = threading.Event()
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def run(self) -> None:
        """Sweep until `stop`. An AsyncEngine is closed then, since its event loop ends."""
        asyncio.run(self._run(loop_ends=True))

    def stop(self) -> None:
        """End now: a call that is under way is cut, which is harmless. From any thread, or a signal handler."""
        self._stopped.set()
        if self._running is not None:
            loop, stopped = self._running
            with contextlib.suppress(RuntimeError):  # the loop has closed meanwhile
                loop.call_soon_threadsafe(stopped.set)

    async def arun(self) -> None:
        """Sweep until `stop` or cancellation."""
        await self._run(loop_ends=False)

    async def _run(self, *, loop_ends: bool) -> None:
        stopped = asyncio.Event()
        self._running = asyncio.get_running_loop(), stopped
        if self._stopped.is_set():
            return
        async with borrowed(self._given, loop_ends=loop_ends) as engine:
            tasks = {asyncio.create_task(self._sweep_for_ever(engine)), asyncio.create_task(stopped.wait())}
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            for task in done:
                task.result()

    async def _sweep_for_ever(self, engine: AsyncEngine) -> None:
        await admitted(engine, self._allow_eviction)
        cores: dict[str, QueueCore | EventCore] = {}
        turns: list[tuple[float, str]] = []  # a heap: when each entry of the directory is due
        pending: set[str] = set()
        listing = 0.0
        while True:
            now = time.monotonic()
            if now >= listing:
                listing = now + self._pause()
                cores = await self._listed(engine, cores)
                known = {entry for _, entry in turns}
                turns = [(due, entry) for due, entry in turns if entry in cores]
                turns += [(now, entry) for entry in cores if entry not in known]
                heapq.heapify(turns)
            elif not turns or turns[0][0] > now:
                await asyncio.sleep(min(listing, turns[0][0] if turns else listing) - now)
            else:
                _, entry = turns[0]
                more = await self._sweep(engine, cores[entry], again=entry in pending)
                (pending.add if more else pending.discard)(entry)
                heapq.heapreplace(turns, (time.monotonic() + (0 if more else self._pause()), entry))

    def _pause(self) -> float:
        return self._interval * random.uniform(1, 1 + SPREAD)

    async def _listed(
        self, engine: AsyncEngine, known: dict[str, QueueCore | EventCore]
    ) -> dict[str, QueueCore | EventCore]:
        """The queues that there are, by their entries in the directory."""
        registry = engine._registry
        where = directory(registry.namespace)
        try:
            if self._names is None:
                (entries,) = await engine._sender.run_commands([("HKEYS", where)])
            else:
                asked = [f"{kind}:{name}" for name in self._names for kind in ("jobs", "events")]
                (there,) = await engine._sender.run_commands([("HMGET", where, *asked)])
                entries = [entry.encode() for entry, value in zip(asked, there, strict=True) if value is not None]
        except _HOPELESS:
            raise
        except RedisqError as error:
            _log.error("can't list the queues: %s", error)
            return known
        found: dict[str, QueueCore | EventCore] = {}
        for entry in (raw.decode() for raw in entries):
            kind, _, name = entry.partition(":")
            found[entry] = known.get(entry) or (registry.core(name) if kind == "jobs" else registry.event_core(name))
        return found

    async def _sweep(self, engine: AsyncEngine, core: QueueCore | EventCore, *, again: bool) -> bool:
        """One bounded sweep of one queue; returns whether more is due now. The first may be left out for another's."""
        gap_ms = 0 if again else round(self._interval * 1000)
        try:
            if isinstance(core, QueueCore):
                swept = await engine._sender.run(operate.sweep(core, self._limit, gap_ms))
            else:
                swept = await aio.drive(engine._sender, eventflows.sweep(core, self._limit, gap_ms))
        except InvalidInput:
            raise
        except RedisqError as error:
            _log.error("can't sweep queue %s: %s", core.name, error)
            return False
        if swept.processed:
            done = ", ".join(f"{count} {category}" for category, count in swept.by_category.items() if count)
            _log.info("queue %s: swept %s", core.name, done)
        return swept.pending


async def admitted(engine: AsyncEngine, allow_eviction: bool) -> None:
    """Waits for a server, and raises UnsupportedServer for one that is too old, or that may evict jobs."""
    while True:
        try:
            await engine._sender.run_commands([("PING",)])
            break
        except _HOPELESS:
            raise
        except RedisqError as error:
            _log.error("can't start yet: %s; trying again", error)
            await asyncio.sleep(random.uniform(0.5, 1))
    if not allow_eviction:
        await aio.refuse_eviction(engine)


@contextlib.asynccontextmanager
async def borrowed(given: Engine | AsyncEngine, *, loop_ends: bool) -> AsyncIterator[AsyncEngine]:
    """An engine for asyncio on the same server and namespace.

    One that was made for this is closed at the end, and so is the given one when its event loop ends with this.
    """
    if isinstance(given, Engine) and given.url == "memory://":
        raise InvalidInput("a private memory:// store can't be served: give it a name, as in memory://tests")
    engine, own = aio.twin(given)
    try:
        yield engine
    finally:
        if own or loop_ends:
            await _close(engine)


async def _close(engine: AsyncEngine) -> None:
    """Closes an engine. What it still has to hand back gets a moment: without a server it would hold us for long."""
    returns = engine._sender._returns
    if returns:
        await asyncio.wait(returns, timeout=CLOSING)
    for task in list(returns):
        task.cancel()
    await engine.aclose()
