"""Runs handlers for the jobs of one or several queues.

One loop decides (`_dispatch`): it starts *exchanges*, each of which settles what finished and takes what the free slots
can run, in one script call; at most two per queue are under way, so that handlers run while the server works. A queue
that had less than was asked for gets a *waiter*, which blocks on its bell. A *tick* renews all leases in one call per
queue and learns of cancel requests.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from redisq import flows
from redisq.aio import AsyncEngine, AsyncQueue, drive, refuse_eviction, twin
from redisq.calls import Flow, Wait
from redisq.calls.consume import MAX_BATCH, Item, Taken
from redisq.errors import InvalidInput, RedisqError
from redisq.handlers import Context, Handler, Reject, RetryIn
from redisq.model import Ack, Delivery, Failure, Renewal
from redisq.sources import JobSource
from redisq.sweeper import Sweeper
from redisq.sync import Engine, Queue
from redisq.values import Duration, boolean, duration_ms, integer

_log = logging.getLogger("redisq.worker")

UNKNOWN_DELAY = 5.0
"""Seconds after which a job of an unknown name comes back under `unknown="release"`."""
MAX_POISON = 20
"""Undecodable or unknown jobs in a row after which a queue is no longer taken: a bad deploy must not empty it."""
TICK = 1.0
"""Seconds between two ticks at most: so a cancel request reaches its handler within that time."""
UNDER_WAY = 2
MARGIN = 2.0
"""Seconds that handlers get to end after they were cancelled at the end of the grace."""

EXIT_DONE, EXIT_FORCED, EXIT_AT_ONCE = 0, 1, 130


class _Lane:
    """One queue being served."""

    def __init__(self, source: JobSource, weight: int) -> None:
        self.source = source
        self.weight = weight
        self.turn = 0  # of the smooth weighted round robin
        self.items: list[Item] = []  # settlements to send
        self.behind: deque[Delivery] = deque()  # leased but not started, for want of a slot
        self.held: dict[str, _Run | None] = {}  # by token; None while not started
        self.deliveries: dict[str, Delivery] = {}
        self.ends: dict[str, float] = {}
        self.lease = 0.0
        self.under_way = 0
        self.dry = False  # the last look found less than it asked for
        self.waiter: asyncio.Task[None] | None = None
        self.resume_at = 0.0
        self.failures = 0
        self.poison = 0
        self.closed = ""  # why it is no longer taken

    def hold(self, delivery: Delivery, run: _Run | None) -> None:
        self.held[delivery.token] = run
        self.deliveries[delivery.token] = delivery
        self.ends.setdefault(delivery.token, time.monotonic() + self.lease)

    def drop(self, delivery: Delivery) -> None:
        for mapping in (self.held, self.deliveries, self.ends):
            mapping.pop(delivery.token, None)


class _Run:
    """One job in a handler. `dropped` says why its outcome no longer counts."""

    def __init__(self, lane: _Lane, delivery: Delivery, handler: Handler) -> None:
        self.lane = lane
        self.delivery = delivery
        self.handler = handler
        self.context: Context | None = None
        self.task: asyncio.Task[None] | None = None
        self.dropped = ""

    def drop(self, why: str) -> None:
        """Tells the handler to stop: an async one is cancelled, a plain one can see it in its context."""
        if self.dropped:
            return
        self.dropped = why
        if why == "cancelled":
            if self.context is not None:
                self.context.cancelled = True
        else:
            msgspec.structs.force_setattr(self.delivery, "lost", True)
        if self.handler.is_async and self.task is not None:
            self.task.cancel()


class Worker:
    """Serves the queues of an engine with the handlers that are registered on them.

    queues: names or queue objects. concurrency: jobs at once, 1…10,000. dispatch: "strict" asks the queues in the given
    order, a mapping of weights (1…1,000) shares by smooth weighted round robin; either way no slot idles while any queue
    has work. unknown: what becomes of a job without a handler, "quarantine" or "release" (for 5 s). grace: seconds to
    drain after a stop. sweep: also run the maintenance of these queues. allow_eviction: start in spite of an `allkeys-*`
    eviction policy.
    """

    def __init__(
        self,
        engine: Engine | AsyncEngine,
        queues: Sequence[str | Queue | AsyncQueue] | str | Queue | AsyncQueue,
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
        self._engine: AsyncEngine | None = None
        self._queues = _queues(engine, queues)
        self._weights = _weights(dispatch, [queue.name for queue in self._queues])
        self._strict = dispatch == "strict"
        self.concurrency = integer("concurrency", concurrency, 1, 10_000)
        self._unknown = unknown
        self._grace = duration_ms("grace", grace) / 1000
        self._sweep = boolean("sweep", sweep)
        self._allow_eviction = boolean("allow_eviction", allow_eviction)
        self.on_tick: Callable[[], None] | None = None
        """Called at every tick, for a health file and the like."""
        self._stop_asked = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def queues(self) -> list[str]:
        return [queue.name for queue in self._queues]

    def stop(self) -> None:
        """Stop taking, drain for the grace, hand the rest back. From any thread, or a signal handler; again does nothing."""
        self._stop_asked.set()
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._notice_stop)

    def run(self) -> int:
        """Serve until `stop`, SIGTERM or SIGINT; returns the exit code 0.

        In the main thread the signals are handled: the first one stops, a second one ends the process at once with 130.
        When a handler's thread is still running at the end of the grace, its job is handed back as the last act, and the
        process is ended with exit code 1. In another thread use `stop()`.
        """
        in_main = threading.current_thread() is threading.main_thread()
        stuck = asyncio.run(self._run_with_signals() if in_main else self._serve_all())
        if stuck:
            logging.shutdown()
            os._exit(EXIT_FORCED)
        return EXIT_DONE

    async def arun(self) -> None:
        """Serve until `stop()` or cancellation. Signals are the caller's business."""
        await self._serve_all()

    async def _run_with_signals(self) -> list[str]:
        loop = asyncio.get_running_loop()

        def signalled() -> None:
            if self._stop_asked.is_set():
                os._exit(EXIT_AT_ONCE)
            self.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, signalled)
        try:
            return await self._serve_all()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def _serve_all(self) -> list[str]:
        """Serves until stopped; returns the ids of jobs whose threads are still running."""
        self._loop = asyncio.get_running_loop()
        self._engine, own = twin(self._given)
        self._sender = self._engine._sender
        self._lanes = [
            _Lane(JobSource(queue._core, queue._handlers), self._weights[queue.name]) for queue in self._queues
        ]
        self._runs: set[_Run] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._free = self.concurrency
        self._wake = asyncio.Event()
        self._pool = ThreadPoolExecutor(self.concurrency, thread_name_prefix="redisq-handler")
        if self._stop_asked.is_set():
            self._notice_stop()
        try:
            if not self._allow_eviction:
                await refuse_eviction(self._engine)
            return await self._serve()
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)
            if own:
                await self._engine.aclose()
            self._loop = None

    async def _serve(self) -> list[str]:
        ticker = asyncio.create_task(self._tick_for_ever())
        sweeper = asyncio.create_task(self._sweep_for_ever()) if self._sweep else None
        try:
            while not self._stop_asked.is_set():
                self._wake.clear()
                self._dispatch()
                await self._wake.wait()
            await self._drain()
        finally:
            for task in (ticker, sweeper, *(lane.waiter for lane in self._lanes), *self._tasks):
                if task is not None:
                    task.cancel()
            await asyncio.gather(*(t for t in (ticker, sweeper, *self._tasks) if t is not None), return_exceptions=True)
        return [run.delivery.id for run in self._runs]

    def _notice_stop(self) -> None:
        self._wake.set()

    # --- deciding -----------------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Starts every exchange and every waiter that is useful now."""
        for lane in self._in_turn():
            if lane.under_way < UNDER_WAY and self._ready_at(lane):
                self._start_exchange(lane)
        if not self._stop_asked.is_set():
            for lane in self._lanes:
                self._start_waiter(lane)

    def _in_turn(self) -> list[_Lane]:
        """The lanes in the order in which they are asked."""
        if self._strict:
            return self._lanes
        for lane in self._lanes:
            lane.turn += lane.weight
        order = sorted(self._lanes, key=lambda lane: -lane.turn)
        order[0].turn -= sum(lane.weight for lane in self._lanes)
        return order

    def _ready_at(self, lane: _Lane) -> bool:
        left = lane.resume_at - time.monotonic()
        if left > 0:
            asyncio.get_running_loop().call_later(left, self._wake.set)
        return left <= 0

    def _start_exchange(self, lane: _Lane) -> None:
        begins = [lane.behind.popleft() for _ in range(min(self._free, len(lane.behind)))]
        self._free -= len(begins)
        wants = not (self._stop_asked.is_set() or lane.closed or lane.dry or lane.behind)
        limit = min(self._free, max(1, self.concurrency // UNDER_WAY), MAX_BATCH) if wants else 0
        if not (lane.items or begins or limit):
            return
        self._free -= limit
        items, lane.items = lane.items[:MAX_BATCH], lane.items[MAX_BATCH:]
        lane.under_way += 1
        self._spawn(self._exchange(lane, items, begins, limit))

    def _start_waiter(self, lane: _Lane) -> None:
        """A dry queue's waiter takes one job, into a slot kept for it if there is one, or else behind the others."""
        if not lane.dry or lane.waiter is not None or lane.closed or lane.behind or not self._ready_at(lane):
            return
        alone = len(self._lanes) == 1
        if alone and self._free == 0:
            return
        kept = self._free if alone else min(1, self._free)
        self._free -= kept
        lane.waiter = asyncio.create_task(self._wait(lane, kept))

    def _spawn(self, story: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(story)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- exchanging ---------------------------------------------------------------------------------------------------

    async def _exchange(self, lane: _Lane, items: list[Item], begins: list[Delivery], limit: int) -> None:
        """Settles, begins and takes; runs what it got."""
        slots = limit
        sent = [*items, *(lane.source.begun(each) for each in begins)]
        try:
            answers, taken = await self._run_flow(
                flows.use(lane.source.core, lambda: lane.source.exchange(sent, limit, limit))
            )
            self._tell_lost(lane, sent, answers)
            lane.failures = 0
            if limit:
                lane.dry = len(taken.deliveries) + len(taken.undecodable) < limit and not taken.more
            for delivery, answer in zip(begins, answers[len(items) :], strict=True):
                if isinstance(answer, Failure):
                    self._start(lane, delivery)
                else:
                    lane.drop(delivery)
                    self._free += 1
            slots -= self._receive(lane, taken, limit)
        except RedisqError as error:
            # settling again is safe: a token's own verb repeats its answer
            lane.items = items + lane.items
            lane.behind.extendleft(reversed(begins))
            self._free += len(begins)
            self._back_off(lane, error)
        finally:
            self._free += slots
            lane.under_way -= 1
            self._wake.set()

    async def _wait(self, lane: _Lane, kept: int) -> None:
        """Blocks on the bell and takes: into the kept slots, or behind the others when there is none."""
        slots, limit = kept, max(kept, 1)
        try:
            taken = await self._run_flow(self._watch(lane, limit, kept))
            lane.failures = 0
            lane.dry = taken is None
            if taken is not None:
                slots -= self._receive(lane, taken, kept)
        except RedisqError as error:
            self._back_off(lane, error)
        finally:
            self._free += slots
            lane.waiter = None
            self._wake.set()

    def _watch(self, lane: _Lane, limit: int, starts: int) -> Flow[Taken | None]:
        """Looks when the bell rings, something comes due, or two seconds pass; None when there was nothing."""
        source = lane.source
        _, taken = yield from flows.use(source.core, lambda: source.exchange([], limit, starts))
        while not (taken.deliveries or taken.undecodable):
            block = min(flows.LOOK_EVERY, flows.LOOK_EVERY if taken.next_in is None else max(taken.next_in, 0.001))
            nudge = taken.next_in is not None and block < flows.LOOK_EVERY
            _, taken = yield Wait(source.bell, block, source.exchange([], limit, starts), nudge=nudge)
        return taken

    def _receive(self, lane: _Lane, taken: Taken, slots: int) -> int:
        """Starts what was taken, or puts it behind; returns how many of the slots are in use now."""
        lane.lease = taken.lease or lane.lease
        used = 0
        known = []
        for delivery in taken.deliveries:
            if self._stop_asked.is_set():
                lane.items.append(lane.source.released(delivery))
            elif lane.source.handler(delivery) is None and self._unknown == "release":
                lane.items.append(lane.source.released(delivery, UNKNOWN_DELAY))
            elif lane.source.handler(delivery) is None:
                self._poisoned(lane, delivery.id, delivery.token, "Unknown", f"no handler for the name {delivery.name!r}")
            else:
                known.append(delivery)
        for poison in taken.undecodable:
            self._poisoned(lane, poison.id, poison.token, "Undecodable", poison.reason)
        for delivery in known:
            lane.poison = 0
            if used < slots:
                used += 1
                self._start(lane, delivery)
            else:
                lane.behind.append(delivery)
                lane.hold(delivery, None)
        return used

    def _poisoned(self, lane: _Lane, id: str, token: str, kind: str, reason: str) -> None:
        """Quarantines a job that nobody here can run; after too many in a row the queue is left alone."""
        lane.poison += 1
        if lane.poison > MAX_POISON:
            lane.items.append(["r", id, token, "", ""])
        else:
            lane.items.append(lane.source.quarantined(id, token, kind, reason))
            _log.warning("job %s of queue %s is quarantined: %s", id, lane.source.name, reason)
        if lane.poison == MAX_POISON:
            lane.closed = f"{MAX_POISON} jobs in a row could not be run: is this worker's code of the right version?"
            _log.error("queue %s is no longer taken: %s", lane.source.name, lane.closed)

    def _tell_lost(self, lane: _Lane, items: list[Item], answers: list[Ack | Failure]) -> None:
        for item, answer in zip(items, answers, strict=True):
            if answer in (Ack.LEASE_LOST, Ack.GONE):
                _log.warning("the outcome of job %s of queue %s came too late: %s", item[1], lane.source.name, answer)

    def _back_off(self, lane: _Lane, error: RedisqError) -> None:
        """Leaves a queue alone for a while: 0.2 s, doubling to 30 s, half of it by chance. The other queues go on."""
        lane.failures += 1
        pause = min(30.0, 0.2 * 2 ** min(lane.failures, 10)) * random.uniform(0.5, 1)
        lane.resume_at = time.monotonic() + pause
        lane.dry = False
        _log.error("queue %s: %s; trying again in %.1f s", lane.source.name, error, pause)

    async def _run_flow(self, story: Flow[Any]) -> Any:
        return await drive(self._sender, story)

    # --- running ------------------------------------------------------------------------------------------------------

    def _start(self, lane: _Lane, delivery: Delivery) -> None:
        handler = lane.source.handler(delivery)
        assert handler is not None
        run = _Run(lane, delivery, handler)
        self._runs.add(run)
        lane.hold(delivery, run)
        run.task = _task(self._work(run))

    async def _work(self, run: _Run) -> None:
        """Runs one handler and notes the item that settles its job."""
        lane = run.lane
        try:
            item = await self._outcome(run)
            if item is not None:
                lane.items.append(item)
        finally:
            lane.drop(run.delivery)
            self._runs.discard(run)
            self._free += 1
            self._wake.set()

    async def _outcome(self, run: _Run) -> Item | None:
        source, delivery = run.lane.source, run.delivery

        def store(data: bytes) -> Coroutine[Any, Any, None]:
            return self._sender.run(source.progress(delivery, data))

        run.context = Context(delivery, store)
        try:
            result = await self._call(run)
            if run.dropped in ("lost", "stuck"):
                return None
            try:
                return source.done(delivery, result)
            except InvalidInput as error:
                return source.failed(delivery, error, final=True)
        except asyncio.CancelledError:
            # dropped by us: cancelled ends as such on the server, stopped costs no attempt; else it cancelled itself
            if run.dropped == "lost":
                return None
            if run.dropped:
                return source.released(delivery)
            return source.failed(delivery, asyncio.CancelledError("the handler cancelled itself"))
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is its job's failure
            return None if run.dropped in ("lost", "stuck") else self._failure(run, error)

    def _failure(self, run: _Run, error: Exception) -> Item:
        source, delivery = run.lane.source, run.delivery
        if isinstance(error, Reject):
            return source.failed(delivery, error, final=True)
        if isinstance(error, RetryIn):
            return source.failed(delivery, error, retry_in=error.seconds)
        if isinstance(error, msgspec.ValidationError) and run.handler.decode is not None:
            return source.quarantined(delivery.id, delivery.token, "Undecodable", str(error))
        _log.warning("job %s of queue %s failed: %r", delivery.id, source.name, error)
        return source.failed(delivery, error)

    async def _call(self, run: _Run) -> Any:
        delivery, context = run.delivery, run.context
        assert context is not None
        limit = None if delivery.timeout_ms is None else delivery.timeout_ms / 1000
        if run.handler.is_async:
            async with asyncio.timeout(limit):
                return await run.handler.call(delivery.value, context)
        work = asyncio.get_running_loop().run_in_executor(self._pool, run.handler.call, delivery.value, context)
        done, _ = await asyncio.wait({work}, timeout=limit)
        if not done:
            # a thread can't be stopped: the lease is left to lapse, and the slot is lost until the thread ends
            run.dropped = "stuck"
            run.lane.drop(delivery)
            msgspec.structs.force_setattr(delivery, "lost", True)
            _log.error("job %s of queue %s is over its time limit: its slot is stuck", delivery.id, run.lane.source.name)
        return await work

    # --- keeping ------------------------------------------------------------------------------------------------------

    async def _tick_for_ever(self) -> None:
        while True:
            lease = min((lane.lease for lane in self._lanes if lane.held and lane.lease), default=TICK)
            await asyncio.sleep(min(TICK, lease / 3))
            if self.on_tick is not None:
                self.on_tick()
            await asyncio.gather(*(self._renew(lane) for lane in self._lanes if lane.held))

    async def _renew(self, lane: _Lane) -> None:
        """One call for all leases of a queue: tells of cancel requests, and extends once a third has passed."""
        now = time.monotonic()
        deliveries = [lane.deliveries[token] for token in lane.held]
        extend = any(lane.ends[each.token] - now < lane.lease * 2 / 3 for each in deliveries)
        for at in range(0, len(deliveries), MAX_BATCH):
            part = deliveries[at : at + MAX_BATCH]
            try:
                answers = await self._sender.run(lane.source.renew(part, None if extend else 0))
            except RedisqError as error:
                _log.warning("queue %s: can't renew %d leases yet: %s", lane.source.name, len(part), error)
                answers = []
            for delivery, answer in zip(part, answers, strict=False):
                self._renewed(lane, delivery, answer, now + lane.lease if extend else None)
        for token, ends in list(lane.ends.items()):
            if ends <= time.monotonic():
                self._lose(lane, lane.deliveries[token])

    def _renewed(self, lane: _Lane, delivery: Delivery, answer: Renewal | Ack, ends: float | None) -> None:
        if delivery.token not in lane.held:
            return
        run = lane.held[delivery.token]
        if not isinstance(answer, Renewal):
            self._lose(lane, delivery)
            return
        if ends is not None:
            lane.ends[delivery.token] = ends
        if answer.cancel_requested and run is not None:
            run.drop("cancelled")

    def _lose(self, lane: _Lane, delivery: Delivery) -> None:
        run = lane.held.get(delivery.token)
        lane.drop(delivery)
        if delivery in lane.behind:
            lane.behind.remove(delivery)
        if run is not None:
            _log.warning("the lease of job %s of queue %s is lost", delivery.id, lane.source.name)
            run.drop("lost")

    async def _sweep_for_ever(self) -> None:
        assert self._engine is not None
        await Sweeper(self._engine, [lane.source.name for lane in self._lanes], allow_eviction=True).arun()

    # --- stopping -----------------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Lets handlers end within the grace, then cancels them; hands back what is left, and sends what was settled."""
        for lane in self._lanes:
            if lane.waiter is not None:
                lane.waiter.cancel()
            lane.closed = lane.closed or "stopping"
        await asyncio.gather(*(lane.waiter for lane in self._lanes if lane.waiter), return_exceptions=True)
        for lane in self._lanes:
            lane.items += [lane.source.released(each) for each in lane.behind]
            for each in lane.behind:
                lane.drop(each)
            lane.behind.clear()
        await self._settle_until(time.monotonic() + self._grace)
        for run in list(self._runs):
            if run.handler.is_async:
                run.drop("stopped")
        await self._settle_until(time.monotonic() + MARGIN)
        for run in list(self._runs):
            run.dropped = "stuck"
            if not run.handler.is_async:
                _log.error("job %s is handed back while its thread still runs", run.delivery.id)
                run.lane.items.append(run.lane.source.released(run.delivery))
        await self._settle_until(time.monotonic() + MARGIN, runs=False)

    async def _settle_until(self, stop: float, *, runs: bool = True) -> None:
        """Goes on settling until nothing runs or is to be sent, or the time is up."""
        while any(lane.items or lane.under_way for lane in self._lanes) or (runs and self._runs):
            self._wake.clear()
            self._dispatch()
            left = stop - time.monotonic()
            if left <= 0:
                return
            try:
                async with asyncio.timeout(left):
                    await self._wake.wait()
            except TimeoutError:
                return


def _task(story: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task that, where Python can, runs up to its first real wait at once: a short handler never meets the loop."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(story, loop=asyncio.get_running_loop(), eager_start=True)
    return asyncio.create_task(story)


def _queues(engine: Engine | AsyncEngine, queues: Any) -> list[Queue | AsyncQueue]:
    given = [queues] if isinstance(queues, str | Queue | AsyncQueue) else list(queues)
    found: list[Queue | AsyncQueue] = []
    for each in given:
        queue = engine.queue(each) if isinstance(each, str) else each
        if not isinstance(queue, Queue | AsyncQueue):
            raise InvalidInput(f"queues must be names or queue objects, not {type(each).__name__}")
        if not queue._handlers:
            raise InvalidInput(f"queue {queue.name} has no handler: register one with @queue.handler() or @queue.task()")
        found.append(queue)
    if not found:
        raise InvalidInput("queues must name at least one queue")
    return found


def _weights(dispatch: Any, names: list[str]) -> dict[str, int]:
    if dispatch == "strict":
        return dict.fromkeys(names, 1)
    if not isinstance(dispatch, Mapping):
        raise InvalidInput(f'dispatch must be "strict" or a mapping of queue names to weights, not {dispatch!r}')
    for name in set(dispatch) ^ set(names):
        raise InvalidInput(f"dispatch must give a weight to exactly the queues of this worker; see {name}")
    return {name: integer(f"dispatch[{name}]", weight, 1, 1000) for name, weight in dispatch.items()}
