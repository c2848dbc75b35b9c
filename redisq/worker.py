"""Runs handlers for the jobs of one or several queues: what a user starts, and how it stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, TypeAlias, cast

from redisq.aio import AsyncEngine, AsyncQueue
from redisq.errors import InvalidInput
from redisq.handlers import Subscribers
from redisq.lanes import Lane
from redisq.serving import Service
from redisq.sources import EventSource, JobSource, Source
from redisq.sweeper import Sweeper, admitted, borrowed
from redisq.sync import Engine, Queue
from redisq.values import Duration, boolean, duration_ms, integer

Served: TypeAlias = Queue[Any] | AsyncQueue[Any] | Subscribers
"""What a worker serves: job queues, and event queues with subscribers."""
EXIT_DONE, EXIT_FORCED, EXIT_AT_ONCE = 0, 1, 130


class Worker:
    """Serves the queues of an engine with the handlers that are registered on them.

    queues: names or queue objects; an event queue serves its subscribers. concurrency: jobs at once, 1…10,000.
    dispatch: "strict" asks the queues in the given order, a mapping of weights (1…1,000) shares by smooth weighted
    round robin; either way no slot idles while any queue has work. unknown: what becomes of a job without a handler,
    "quarantine" or "release" (for 5 s). grace: seconds to drain after a stop. sweep: also run the maintenance of these
    queues. allow_eviction: start in spite of an `allkeys-*` eviction policy.

    When it stops, it takes nothing more and lets handlers run on for the grace. Then async handlers are cancelled and
    plain ones can see it in their context; what ends within two more seconds is handed back without costing an attempt.
    A worker that was stopped can't be started again: make another one.
    """

    def __init__(
        self,
        engine: Engine | AsyncEngine,
        queues: Sequence[str | Served] | str | Served,
        *,
        concurrency: int = 16,
        dispatch: str | Mapping[str, int] = "strict",
        unknown: str = "quarantine",
        grace: Duration = 25,
        sweep: bool = True,
        allow_eviction: bool = False,
    ) -> None:
        if not isinstance(engine, Engine | AsyncEngine):
            raise InvalidInput(f"engine must be an Engine or an AsyncEngine, not {type(engine).__name__}")
        if unknown not in ("quarantine", "release"):
            raise InvalidInput(f'unknown must be "quarantine" or "release", not {unknown!r}')
        self._given = engine
        self._queues = _queues(engine, queues)
        self._weights = _weights(dispatch, self.queues)
        self._strict = dispatch == "strict"
        self.concurrency = integer("concurrency", concurrency, 1, 10_000)
        self._unknown = unknown
        self._grace = duration_ms("grace", grace) / 1000
        self._sweep = boolean("sweep", sweep)
        self._allow_eviction = boolean("allow_eviction", allow_eviction)
        self.on_tick: Callable[[], None] | None = None
        """Called at every tick, twice a second or more often, for a health file and the like."""
        self.burst = False
        """End when nothing is takeable any more."""
        self._stop_asked = threading.Event()
        self._running: tuple[asyncio.AbstractEventLoop, Service] | None = None

    @property
    def queues(self) -> list[str]:
        return [queue._core.name for queue in self._queues]

    def only(self, names: Sequence[str]) -> Worker:
        """Serve these of its queues alone, in this order; returns itself."""
        known = {queue._core.name: queue for queue in self._queues}
        for name in names:
            if name not in known:
                raise InvalidInput(f"this worker does not serve queue {name!r}; it serves {', '.join(known)}")
        self._queues = [known[name] for name in dict.fromkeys(names)]
        return self

    def stop(self) -> None:
        """Stop taking, drain for the grace, hand back the rest. From any thread or signal handler; again: nothing."""
        self._stop_asked.set()
        if self._running is not None:
            loop, service = self._running
            with contextlib.suppress(RuntimeError):  # the loop has closed meanwhile
                loop.call_soon_threadsafe(service.stop)

    def run(self) -> int:
        """Serve until `stop`, SIGTERM or SIGINT; returns the exit code 0. An AsyncEngine is closed then: its loop ends.

        In the main thread the signals are handled: the first one stops, a second one ends the process at once with exit
        code 130. When a handler still runs two seconds after the grace, a job whose thread runs is handed back as the
        last act, one whose coroutine runs keeps its lease until that runs out, and the process ends with exit code 1.

        In any other thread signals are left alone: use `stop()`. The process goes on there, so a job whose handler
        still runs is not handed back: its lease runs out, and the answer is 1. A coroutine that never ends holds this
        call.
        """
        in_main = threading.current_thread() is threading.main_thread()
        with _signals(self) if in_main else contextlib.nullcontext():
            return asyncio.run(self._run(in_main))

    async def arun(self) -> None:
        """Serve until `stop()` or cancellation, which is a stop without grace. Signals are the caller's business.

        A job whose handler still runs after the grace is not handed back: its lease runs out.
        """
        await self._serve(loop_ends=False, last=False)

    async def _run(self, last: bool) -> int:
        left = await self._serve(loop_ends=True, last=last)
        if left and last:
            # here, since neither the loop nor the interpreter would end before those handlers do
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            logging.shutdown()
            os._exit(EXIT_FORCED)
        return EXIT_FORCED if left else EXIT_DONE

    async def _serve(self, *, loop_ends: bool, last: bool) -> list[str]:
        """Serves until stopped; returns the ids of jobs whose handlers are still running."""
        async with borrowed(self._given, loop_ends=loop_ends) as engine:
            lanes = [
                Lane(source, self._weights[queue._core.name]) for queue in self._queues for source in _sources(queue)
            ]
            service = Service(
                engine._sender,
                lanes,
                concurrency=self.concurrency,
                strict=self._strict,
                release_unknown=self._unknown == "release",
                burst=self.burst,
                on_tick=self._tick,
            )
            self._running = asyncio.get_running_loop(), service
            if self._stop_asked.is_set():
                service.stop()
            try:
                return await service.run(
                    lambda: admitted(engine, self._allow_eviction),
                    lambda: self._maintain(engine),
                    self._grace,
                    last=last,
                )
            finally:
                self._running = None

    async def _maintain(self, engine: AsyncEngine) -> None:
        if self._sweep:
            await Sweeper(engine, self.queues, allow_eviction=True).arun()

    def _tick(self) -> None:
        if self.on_tick is not None:
            self.on_tick()


@contextlib.contextmanager
def _signals(worker: Worker) -> Iterator[None]:
    """The first SIGTERM or SIGINT stops the worker, the second one ends the process, also while the loop is blocked."""
    signalled = False

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal signalled
        if signalled:
            os._exit(EXIT_AT_ONCE)
        signalled = True
        worker.stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _queues(engine: Engine | AsyncEngine, queues: Any) -> list[Served]:
    given = [queues] if isinstance(queues, str | Queue | AsyncQueue | Subscribers) else list(queues)
    found: list[Served] = []
    for each in given:
        queue = _named(engine, each) if isinstance(each, str) else each
        if not isinstance(queue, Queue | AsyncQueue | Subscribers):
            raise InvalidInput(f"queues must be names or queue objects, not {type(each).__name__}")
        if not queue._handlers:
            raise InvalidInput(
                f"queue {queue._core.name} has no handler: register one with @queue.handler() or @queue.task(), of an "
                "event queue with @events.subscriber(name)"
            )
        if queue not in found:
            found.append(queue)
    if not found:
        raise InvalidInput("queues must name at least one queue")
    return found


def _named(engine: Engine | AsyncEngine, name: str) -> Served:
    """The job queue of that name or, when only that has handlers, the event queue."""
    jobs, events = engine.queue(name), cast(Any, engine.events(name))
    if isinstance(events, Subscribers) and events._handlers and not jobs._handlers:
        return events
    return jobs


def _sources(queue: Served) -> list[Source]:
    if isinstance(queue, Subscribers):
        return [EventSource(queue._core, name or "", handler) for name, handler in queue._handlers.items()]
    return [JobSource(queue._core, queue._handlers)]


def _weights(dispatch: Any, names: list[str]) -> dict[str, int]:
    if dispatch == "strict":
        return dict.fromkeys(names, 1)
    if not isinstance(dispatch, Mapping):
        raise InvalidInput(f'dispatch must be "strict" or a mapping of queue names to weights, not {dispatch!r}')
    for name in set(dispatch) ^ set(names):
        raise InvalidInput(f"dispatch must give a weight to exactly the queues of this worker; see {name}")
    return {name: integer(f"dispatch[{name}]", weight, 1, 1000) for name, weight in dispatch.items()}
