"""What a worker knows of each queue that it serves, and how its free slots are shared out. Does no I/O."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from redisq.calls.consume import MAX_BATCH
from redisq.handlers import Arguments, Context, Handler
from redisq.sources import Item, Source

UNDER_WAY = 2
"""Exchanges of one queue at once: so that handlers run while the server works."""
MAX_ITEM_BYTES = 1024 * 1024
"""Results and failure details that go into one exchange, after which the rest waits for the next one."""


class Held:
    """A leased job in this worker, from its arrival until the server has answered its settlement."""

    __slots__ = (
        "arguments", "behind_since", "cancelled", "context", "deadline", "delivery", "ends", "handler", "lane", "lost",
        "seconds", "stopped", "task",
    )  # fmt: skip

    def __init__(self, lane: Lane, delivery: Any, handler: Handler, arguments: Arguments, ends: float) -> None:
        self.lane = lane
        self.delivery = delivery
        self.handler = handler
        self.arguments = arguments
        self.ends = ends  # of the lease, as far as this process knows
        self.seconds = lane.source.seconds(delivery)  # that its handler may take
        self.deadline = math.inf  # when these are over
        self.behind_since = 0.0
        self.task: asyncio.Task[None] | None = None
        self.context: Context | None = None
        self.cancelled = self.stopped = self.lost = False

    @property
    def called_off(self) -> bool:
        """Whether it was told to end, for whatever reason."""
        return self.cancelled or self.stopped or self.lost

    def tell_cancelled(self) -> None:
        """Somebody asked for the job's cancel; its outcome still counts."""
        if not self.cancelled:
            self.cancelled = True
            if self.context is not None:
                self.context.cancelled = True
            self._interrupt()

    def tell_stopped(self) -> None:
        """The worker's grace is over."""
        self.stopped = True
        self._mark()

    def tell_lost(self) -> None:
        """The lease is gone, or will be: whatever comes of the handler is dropped."""
        self.lost = True
        self._mark()

    def _mark(self) -> None:
        msgspec.structs.force_setattr(self.delivery, "lost", True)
        self._interrupt()

    def _interrupt(self) -> None:
        if self.handler.is_async and self.task is not None:
            cancel_soon(self.task)


class Lane:
    """One queue, or one subscription, being served."""

    def __init__(self, source: Source, weight: int) -> None:
        self.source = source
        self.weight = weight
        self.passed = 0.0  # slots given so far, by weight: the lane with the least is next
        self.items: list[Item] = []  # settlements to send
        self.behind: deque[Held] = deque()  # leased, but not started for want of a slot
        self.held: dict[str, Held] = {}  # by token
        self.lease = 0.0  # seconds
        self.under_way = 0
        self.dry = False  # the last look found less than it asked for
        self.waiter: asyncio.Task[None] | None = None
        self.renewing = False
        self.resume_at = 0.0
        self.failures = 0
        self.poison = 0  # jobs in a row that nobody here could run
        self.closed = ""  # why nothing more is taken

    @property
    def callable(self) -> bool:
        """Whether an exchange may start now."""
        return self.under_way < UNDER_WAY and self.rested

    @property
    def rested(self) -> bool:
        return self.resume_at <= time.monotonic()

    @property
    def takes(self) -> bool:
        """Whether there may be more to take."""
        return not (self.closed or self.dry)

    def next_items(self) -> list[Item]:
        """The settlements that go into one exchange."""
        size = count = 0
        for item in self.items[:MAX_BATCH]:
            size += len(item[3]) if len(item) > 3 and isinstance(item[3], str | bytes) else 0
            if size > MAX_ITEM_BYTES and count:
                break
            count += 1
        chosen, self.items = self.items[:count], self.items[count:]
        return chosen

    def learn_lease(self, seconds: float, elapsed: float) -> None:
        """Notes how long leases last. A call that was repeated for `elapsed` seconds tells what was left of them."""
        if not seconds <= self.lease <= seconds + elapsed:
            self.lease = seconds

    def wants_renewal(self, now: float) -> bool:
        """Whether any lease has a third of its time behind it."""
        return any(each.ends - now < self.lease * 2 / 3 for each in self.held.values())

    def hand_back_behind(self, before: float = math.inf) -> None:
        """Releases what has not been started, and came before that time."""
        for each in [each for each in self.behind if each.behind_since < before]:
            self.behind.remove(each)
            self.held.pop(each.delivery.token, None)
            self.items.append(self.source.released(each.delivery))
            self.dry = False


def shares(lanes: Sequence[Lane], free: int, *, strict: bool) -> dict[Lane, int]:
    """How many of the free slots each lane may use.

    Strict: all of them for the first lane that may have more; the next one gets them when that turns out to be dry. By
    weight: each slot for the lane that had the least so far in proportion to its weight, a smooth weighted round robin.
    """
    granted: dict[Lane, int] = {}
    passed = {lane: lane.passed for lane in lanes if lane.rested and (lane.takes or lane.behind)}
    if strict:
        for lane in passed:
            granted[lane] = free if lane.takes else min(free, len(lane.behind))
            free -= granted[lane]
        return granted
    passed = {lane: before for lane, before in passed.items() if lane.callable}
    while free and passed:
        lane = min(passed, key=passed.__getitem__)
        granted[lane] = granted.get(lane, 0) + 1
        passed[lane] += 1 / lane.weight
        free -= 1
        if not lane.takes and granted[lane] == len(lane.behind):
            del passed[lane]
    return granted


def cancel_soon(task: asyncio.Task[None]) -> None:
    """Cancels a task after its first step: one that is cancelled before never runs at all, its end included."""
    asyncio.get_running_loop().call_soon(task.cancel)
