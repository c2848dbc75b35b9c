"""One run of a worker: the loop that takes, runs, renews and settles.

`_dispatch` decides: it starts *exchanges*, each of which settles what finished and takes what the free slots can run,
in one script call; at most two per queue are under way, so that handlers run while the server works. A queue that had
less than was asked for gets a *waiter*, which blocks on its bell. A *tick* renews all leases in one call per queue and
learns of cancel requests.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import msgspec

from redisq import flows
from redisq.aio import drive
from redisq.calls import Flow, Wait, operate
from redisq.calls.consume import MAX_BATCH, Look, Poison, Taken
from redisq.errors import InvalidInput, RedisqError, SubscriptionGone
from redisq.handlers import Context, Reject, RetryIn
from redisq.lanes import Held, Lane, cancel_soon, shares
from redisq.model import Ack, Failure, JobState, Renewal
from redisq.sources import Answers, Item
from redisq.transport import AsyncSender
from redisq.turns import Turn

Task: TypeAlias = "asyncio.Task[None]"
_log = logging.getLogger("redisq.worker")

UNKNOWN_DELAY = 5.0
"""Seconds after which a job of an unknown name comes back under `unknown="release"`."""
MAX_POISON = 20
"""Undecodable or unknown jobs in a row after which a queue is no longer taken: a bad deploy must not empty it."""
TICK = 0.5
"""Seconds between two ticks at most: a cancel request has one second to reach its handler."""
MARGIN = 2.0
"""Seconds that handlers get to end after they were cancelled: at the end of the grace, or over their time limit."""
LONGEST_PAUSE = 5.0
"""Seconds after which a queue that failed is tried again at the latest."""
_BEGUN = Failure(JobState.LEASED)


class Service:
    """Serves lanes with `concurrency` slots, on the event loop that it is made in."""

    def __init__(
        self,
        sender: AsyncSender,
        lanes: Sequence[Lane],
        *,
        concurrency: int,
        strict: bool,
        release_unknown: bool,
        burst: bool,
        on_tick: Callable[[], None],
    ) -> None:
        self._sender = sender
        self._lanes = lanes
        self._strict = strict
        self._release_unknown = release_unknown
        self._burst = burst
        self._on_tick = on_tick
        self._free = concurrency
        self._full = self._stuck = False  # no slot was free at the last tick; none came free since the one before
        self._batch = min(max(1, concurrency // 2), MAX_BATCH)
        self._passed = 0.0  # of the lane that was served last
        self._running: set[Held] = set()
        self._tasks: set[Task] = set()
        self._looks: set[Task] = set()  # those that only take: waiters, and exchanges that settle nothing
        self._wake = asyncio.Event()
        self._admitted = self._stopping = False
        self._broken: BaseException | None = None
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="redisq-handler")

    def stop(self) -> None:
        """Take nothing more."""
        self._stopping = True
        self._wake.set()

    async def run(
        self, admit: Callable[[], Awaitable[None]], sweep: Callable[[], Awaitable[None]], grace: float, *, last: bool
    ) -> list[str]:
        """Serves until `stop`, once `admit` has let it, with `sweep` beside. Returns the ids of jobs that still run.

        last: the process is about to end, so jobs whose threads still run are handed back all the same.
        """
        self._spawn(self._tick_for_ever())
        self._spawn(self._begin(admit, sweep))
        try:
            while not self._stopping:
                self._wake.clear()
                if self._admitted:
                    self._dispatch()
                    if self._burst and self._is_done():
                        break
                await self._wake.wait()
                if self._broken is not None:
                    raise self._broken
            await self._drain(grace, last=last)
            if self._broken is not None:
                raise self._broken
        except (Exception, asyncio.CancelledError):
            await self._drain(0, last=False)
            raise
        finally:
            await _end(self._tasks)
            self._pool.shutdown(wait=False, cancel_futures=True)
        return [held.delivery.id for held in self._running]

    async def _begin(self, admit: Callable[[], Awaitable[None]], sweep: Callable[[], Awaitable[None]]) -> None:
        await admit()
        self._admitted = True
        self._wake.set()
        await sweep()

    def _spawn(self, story: Coroutine[Any, Any, None], *kinds: set[Task]) -> None:
        self._track(asyncio.create_task(story), *kinds)

    def _track(self, task: Task, *kinds: set[Task]) -> None:
        for kind in (self._tasks, *kinds):
            kind.add(task)
            task.add_done_callback(kind.discard)
        task.add_done_callback(self._ended)

    def _ended(self, task: Task) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._broken = task.exception()
        self._wake.set()

    # --- deciding -----------------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Starts every exchange and every waiter that is useful now."""
        granted = {} if self._stopping else shares(self._lanes, self._free, strict=self._strict)
        for lane in self._lanes:
            self._start_exchanges(lane, granted.get(lane, 0))
        if not (self._stopping or self._burst):
            for lane in self._lanes:
                if self._strict and lane.takes and lane.rested:
                    break  # those after it are asked when it turns out to be dry
                self._start_waiter(lane)

    def _start_exchanges(self, lane: Lane, slots: int) -> None:
        while lane.callable:
            begins = [lane.behind.popleft() for _ in range(min(slots, len(lane.behind)))]
            limit = min(slots - len(begins), self._batch) if lane.takes else 0
            items = lane.next_items()
            used = limit + len(begins)
            if not (items or used):
                return
            slots -= used
            self._use(lane, used)
            lane.under_way += 1
            self._spawn(self._exchange(lane, items, begins, limit), *([] if items or begins else [self._looks]))

    def _use(self, lane: Lane, slots: int) -> None:
        self._free -= slots
        if slots:
            self._passed = max(self._passed, lane.passed)
        lane.passed += slots / lane.weight

    def _start_waiter(self, lane: Lane) -> None:
        """Lets a dry queue wait: alone it takes into all free slots; among others one job that has to be begun then."""
        alone = len(self._lanes) == 1
        useful = self._free > 0 if alone else not self._stuck
        if useful and lane.dry and lane.waiter is None and lane.rested and not (lane.closed or lane.behind):
            kept = self._free if alone else 0
            self._free -= kept
            lane.waiter = asyncio.create_task(self._wait(lane, kept))
            self._track(lane.waiter, self._looks)

    def _is_done(self) -> bool:
        """Whether a burst is over: every queue was looked at after the last settlement, and had nothing."""
        return not self._running and all(
            (lane.dry or lane.closed) and not (lane.items or lane.behind or lane.under_way) for lane in self._lanes
        )

    # --- exchanging ---------------------------------------------------------------------------------------------------

    async def _exchange(self, lane: Lane, items: list[Item], begins: list[Held], limit: int) -> None:
        """Settles, begins and takes; runs what it got."""
        slots, sent = limit + len(begins), time.monotonic()
        marks = [mark for each in begins if (mark := lane.source.begun(each.delivery)) is not None]
        try:
            answers, taken = await drive(self._sender, _exchange(lane, items + marks, limit))
        except InvalidInput:
            raise  # no later try can mend that
        except SubscriptionGone as error:
            self._settled(lane, items, [])
            self._close(lane, str(error))
        except RedisqError as error:
            # settling and beginning again is safe: a token's own verb repeats its answer
            lane.items[:0] = items
            lane.behind.extendleft(reversed(begins))
            self._back_off(lane, error)
        else:
            lane.failures = 0
            if limit:
                lane.dry = len(taken.deliveries) + len(taken.undecodable) < limit and not taken.more
            if self._burst and (items or begins):
                # what was settled may have put work anywhere; this call's own look came after its settlements
                for each in self._lanes:
                    each.dry = each.dry and each is lane and limit > 0
            self._settled(lane, items, answers[: len(items)])
            slots -= self._begun(lane, begins, answers[len(items) :] if marks else [_BEGUN] * len(begins))
            slots -= self._receive(lane, taken, limit, time.monotonic() - sent)
        finally:
            self._use(lane, -slots)
            lane.under_way -= 1

    async def _wait(self, lane: Lane, kept: int) -> None:
        """Blocks on the bell and takes: into the kept slots, or behind the others when there is none."""
        slots, limit, began = kept, max(kept, 1), time.monotonic()
        try:
            taken = await drive(self._sender, _watch(lane, limit, kept))
        except InvalidInput:
            raise  # no later try can mend that
        except SubscriptionGone as error:
            self._close(lane, str(error))
        except RedisqError as error:
            self._back_off(lane, error)
        else:
            lane.failures = 0
            lane.dry = False
            lane.passed = max(lane.passed, self._passed)  # an idle time gives no claim on later slots
            slots -= self._receive(lane, taken, kept, time.monotonic() - began)
        finally:
            self._free += slots
            lane.waiter = None

    def _settled(self, lane: Lane, items: list[Item], answers: Sequence[Ack | Failure]) -> None:
        for item in items:
            lane.held.pop(item[2], None)
        for item, answer in zip(items, answers, strict=False):
            if answer in (Ack.LEASE_LOST, Ack.GONE, Ack.NOT_ACTIVE):
                _log.warning("the outcome of job %s of queue %s came too late: %s", item[1], lane.source.name, answer)

    def _begun(self, lane: Lane, begins: list[Held], answers: Sequence[Ack | Failure]) -> int:
        """Starts what was begun; returns how many."""
        started: deque[Held] = deque()
        for held, answer in zip(begins, answers, strict=True):
            if not isinstance(answer, Failure):
                lane.held.pop(held.delivery.token, None)
            elif self._stopping or held.delivery.token not in lane.held:
                lane.items.append(lane.source.released(held.delivery))
            else:
                started.append(held)
        self._start(started)
        return len(started)

    def _receive(self, lane: Lane, taken: Taken, slots: int, elapsed: float) -> int:
        """Starts what was taken, or puts it behind; returns how many of the slots are in use now."""
        started: deque[Held] = deque()
        now = time.monotonic()
        if taken.deliveries or taken.undecodable:
            lane.learn_lease(taken.lease, elapsed)
        for each in _in_order(taken):
            if self._stopping:
                lane.items.append(lane.source.released(each))
                continue
            held = self._accept(lane, each, now + taken.lease)
            if held is None:
                continue
            lane.poison = 0
            lane.held[each.token] = held
            if len(started) < slots:
                started.append(held)
            else:
                held.behind_since = now
                lane.behind.append(held)
        self._start(started)
        return len(started)

    def _accept(self, lane: Lane, each: Any, ends: float) -> Held | None:
        """A job that somebody here can run; others are set aside."""
        kind, reason = "Undecodable", ""
        if isinstance(each, Poison):
            reason = each.reason
        elif (handler := lane.source.handler(each)) is not None:
            try:
                return Held(lane, each, handler, handler.arguments(each.value), ends)
            except msgspec.ValidationError as error:
                reason = str(error)
        elif self._release_unknown:
            lane.items.append(lane.source.released(each, UNKNOWN_DELAY))
            return None
        else:
            kind, reason = "Unknown", f"no handler for the name {each.name!r}"
        self._quarantine(lane, each, kind, reason)
        return None

    def _quarantine(self, lane: Lane, each: Any, kind: str, reason: str) -> None:
        """Sets a job aside that nobody here can run; after too many in a row the queue is left alone."""
        lane.poison += 1
        if lane.poison > MAX_POISON:
            lane.items.append(lane.source.released(each))
            return
        lane.items.append(lane.source.quarantined(each, kind, reason))
        _log.warning("job %s of queue %s is quarantined: %s", each.id, lane.source.name, reason)
        if lane.poison == MAX_POISON:
            self._close(lane, f"{MAX_POISON} jobs in a row could not be run: is this worker of the right version?")

    def _close(self, lane: Lane, why: str) -> None:
        if not lane.closed:
            lane.closed = why
            _log.error("queue %s is no longer taken: %s", lane.source.name, why)

    def _back_off(self, lane: Lane, error: RedisqError) -> None:
        """Leaves a queue alone for a while, each time for longer, half of it by chance. The other queues go on."""
        lane.failures += 1
        pause = min(LONGEST_PAUSE, 0.1 * 2 ** min(lane.failures, 10)) * random.uniform(0.5, 1)
        lane.resume_at = time.monotonic() + pause
        lane.dry = False
        asyncio.get_running_loop().call_later(pause, self._wake.set)
        _log.error("queue %s: %s; trying again in %.1f s", lane.source.name, error, pause)

    # --- running ------------------------------------------------------------------------------------------------------

    def _start(self, chosen: deque[Held]) -> None:
        for held in chosen:
            if held.seconds is not None:
                held.deadline = time.monotonic() + held.seconds
        self._running.update(chosen)
        self._run_on(chosen)

    def _run_on(self, chosen: deque[Held]) -> None:
        if chosen:
            # as the first of `_running` says that it runs in it, somebody holds the task
            chosen[0].task = asyncio.create_task(self._run(chosen))

    async def _run(self, chosen: deque[Held]) -> None:
        """Runs handlers in turn. One that waits keeps this task; then another takes over the rest."""
        task = asyncio.current_task()
        try:
            while chosen:  # until it is passed on
                held = chosen.popleft()
                held.task = task
                await Turn(self._work(held), lambda: self._pass_on(chosen))
        finally:
            self._pass_on(chosen)

    def _pass_on(self, chosen: deque[Held]) -> None:
        self._run_on(chosen.copy())
        chosen.clear()

    async def _work(self, held: Held) -> None:
        """Runs one handler and notes the item that settles its job."""
        try:
            item = await self._outcome(held)
            if item is not None:
                held.lane.items.append(item)
        except BaseException as error:
            self._broken = error
            raise
        finally:
            self._running.discard(held)
            self._free += 1
            self._full = self._stuck = False
            self._wake.set()

    async def _outcome(self, held: Held) -> Item | None:
        """None when the lease is lost: then nothing of this run counts."""
        source, delivery = held.lane.source, held.delivery
        try:
            if held.called_off:
                raise asyncio.CancelledError  # before it began
            result = await self._call(held)
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 - all of it is the job's failure
            return None if held.lost else self._failure(held, error)
        if held.lost:
            return None
        try:
            return source.done(delivery, result)
        except InvalidInput as error:
            _log.error("job %s of queue %s is dead: %s", delivery.id, source.name, error)
            return source.failed(delivery, error, final=True)

    def _failure(self, held: Held, error: BaseException) -> Item:
        source, delivery = held.lane.source, held.delivery
        if isinstance(error, Reject):
            return source.failed(delivery, error, final=True)
        if isinstance(error, RetryIn):
            return source.failed(delivery, error, retry_in=error.seconds)
        if held.stopped or (held.cancelled and isinstance(error, asyncio.CancelledError)):
            # stopped: no attempt; cancelled: released, a job whose cancel was asked for ends as cancelled
            return source.released(delivery)
        _log.warning("job %s of queue %s failed: %r", delivery.id, source.name, error)
        return source.failed(delivery, error)

    async def _call(self, held: Held) -> Any:
        handler, delivery = held.handler, held.delivery
        if handler.context is not None:
            held.context = Context(delivery, lambda data: self._sender.run(held.lane.source.progress(delivery, data)))
        if not handler.is_async:
            loop = asyncio.get_running_loop()
            result, error = await loop.run_in_executor(self._pool, handler.outcome, held.arguments, held.context)
            if error is not None:
                raise error
            return result
        if held.seconds is None:
            return await handler.call(held.arguments, held.context)
        try:
            async with asyncio.timeout(held.seconds) as timer:
                return await handler.call(held.arguments, held.context)
        finally:
            if timer.expired():
                raise TimeoutError(f"the handler ran over its time limit of {held.seconds:g} s")

    # --- keeping ------------------------------------------------------------------------------------------------------

    async def _tick_for_ever(self) -> None:
        while True:
            lease = min((lane.lease for lane in self._lanes if lane.held), default=TICK)
            await asyncio.sleep(min(TICK, max(lease / 6, 0.01)))
            self._on_tick()
            now = time.monotonic()
            for lane in self._lanes:
                for held in list(lane.held.values()):
                    self._check(held, now)
                if lane.held and not lane.renewing:
                    lane.renewing = True
                    self._spawn(self._renew(lane))
                lane.hand_back_behind(now - TICK)
            self._look_at_slots()

    def _check(self, held: Held, now: float) -> None:
        """Gives up a lease that has ended, and a handler that does not end."""
        if held.ends <= now:
            self._lose(held, "its lease ran out")
        elif now >= held.deadline + (MARGIN if held.handler.is_async else 0):
            _log.error("job %s of queue %s is over its time limit and does not end: its slot is stuck",
                       held.delivery.id, held.lane.source.name)  # fmt: skip
            self._lose(held, "its time is up, its lease is left to run out")

    def _look_at_slots(self) -> None:
        """Ends the waiting for more when no slot came free for a whole tick: other workers shall have it."""
        self._stuck = self._full and not self._free
        self._full = not self._free
        for lane in self._lanes:
            if self._stuck and lane.waiter is not None and len(self._lanes) > 1:
                cancel_soon(lane.waiter)
        self._wake.set()

    async def _renew(self, lane: Lane) -> None:
        """One call for all leases of a queue: tells of cancel requests, and extends once a third has passed."""
        sent = time.monotonic()
        held = list(lane.held.values())
        extend = lane.wants_renewal(sent)
        lease_ms = round(lane.lease * 1000) if extend else 0
        try:
            for at in range(0, len(held), MAX_BATCH):
                part = held[at : at + MAX_BATCH]
                answers = await self._sender.run(lane.source.renew([each.delivery for each in part], lease_ms))
                for each, answer in zip(part, answers, strict=True):
                    self._renewed(each, answer, sent + lease_ms / 1000)
        except RedisqError as error:
            _log.warning("queue %s: can't renew %d leases yet: %s", lane.source.name, len(held), error)
        finally:
            lane.renewing = False

    def _renewed(self, held: Held, answer: Renewal | Ack, ends: float) -> None:
        if held.delivery.token not in held.lane.held:
            return
        if not isinstance(answer, Renewal):
            self._lose(held, "the server refused to renew it")
            return
        held.ends = max(held.ends, ends)
        if answer.cancel_requested and held in self._running:
            held.tell_cancelled()

    def _lose(self, held: Held, why: str) -> None:
        """Lets a lease go. What has finished is settled all the same: the server knows whether it is too late."""
        lane = held.lane
        lane.held.pop(held.delivery.token, None)
        if held in lane.behind:
            lane.behind.remove(held)
        if held in self._running:
            _log.warning("the lease of job %s of queue %s is lost: %s", held.delivery.id, lane.source.name, why)
            held.tell_lost()

    # --- stopping -----------------------------------------------------------------------------------------------------

    async def _drain(self, grace: float, *, last: bool) -> None:
        """Lets handlers end within the grace, then tells them to; hands back what is left, sends what was settled."""
        self._stopping = True
        await _end(self._looks)
        for lane in self._lanes:
            lane.resume_at = 0.0
            lane.hand_back_behind()
        await self._settle_for(grace)
        for held in self._running:
            held.tell_stopped()
        await self._settle_for(MARGIN)
        for held in list(self._running):
            held.tell_lost()
            held.lane.held.pop(held.delivery.token, None)
            _log.error("job %s of queue %s does not end", held.delivery.id, held.lane.source.name)
            if last and not held.handler.is_async:
                held.lane.items.append(held.lane.source.released(held.delivery))
        await self._settle_for(MARGIN, runs=False)
        for lane in self._lanes:
            if lane.items:
                _log.error("queue %s: %d outcomes could not be sent", lane.source.name, len(lane.items))

    async def _settle_for(self, seconds: float, *, runs: bool = True) -> None:
        """Goes on settling until nothing runs or is to be sent, or the time is up."""
        stop = time.monotonic() + seconds
        while any(lane.items or lane.under_way for lane in self._lanes) or (runs and self._running):
            self._wake.clear()
            for lane in self._lanes:
                lane.hand_back_behind()
            self._dispatch()
            try:
                async with asyncio.timeout(max(0.0, stop - time.monotonic())):
                    await self._wake.wait()
            except TimeoutError:
                return


def _exchange(lane: Lane, items: list[Item], limit: int) -> Flow[tuple[Answers, Taken]]:
    source = lane.source
    yield from source.ready()
    return (yield from flows.use(source.core, lambda: source.exchange(items, limit, limit)))


def _watch(lane: Lane, limit: int, starts: int) -> Flow[Taken]:
    """Looks when the bell rings, something comes due, or two seconds pass, until there is something."""
    source = lane.source
    block, nudge = 0.0, False
    while True:
        while not (yield from source.ready()):
            while (yield Wait(source.bell, flows.LOOK_EVERY, operate.open_queue(source.core))) is None:
                pass
        call = source.exchange([], limit, starts, Look.AFTER_WAIT if block else Look.BEFORE_WAIT)
        taken: Taken = (yield Wait(source.bell, block, call, nudge=nudge) if block else call)[1]
        if taken.deliveries or taken.undecodable:
            return taken
        block = flows.LOOK_EVERY if taken.next_in is None else min(flows.LOOK_EVERY, max(taken.next_in, 0.001))
        nudge = block < flows.LOOK_EVERY


def _in_order(taken: Taken) -> Sequence[Any]:
    """What was taken, in the order of the claims."""
    if not taken.undecodable:
        return taken.deliveries
    return sorted([*taken.deliveries, *taken.undecodable], key=lambda each: int(each.token.partition("-")[0]))


async def _end(tasks: set[Task]) -> None:
    """Cancels tasks and waits until they have ended."""
    for task in tasks:
        cancel_soon(task)
    if tasks:
        await asyncio.wait(set(tasks))
