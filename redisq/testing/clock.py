"""A clock that stands still until a test moves it."""

from __future__ import annotations

import time
from datetime import datetime
from threading import Lock

from redisq.values import MAX_DURATION_MS, Duration, duration_ms, integer, time_ms


class ManualClock:
    """Time for tests: given to an engine as `clock=`, it drives every script, on real servers too.

    `start` is an aware `datetime` or Unix milliseconds; None starts at the present. Time then passes only by `advance`.
    Blocking waits still take real time. Several engines and threads may share one clock.
    """

    __slots__ = ("_lock", "_now_ms")

    def __init__(self, start: datetime | int | None = None) -> None:
        self._lock = Lock()
        if start is None:
            self._now_ms = time.time_ns() // 1_000_000
        elif isinstance(start, datetime):
            self._now_ms = time_ms("start", start)
        else:
            self._now_ms = integer("start", start, 0, 2 * MAX_DURATION_MS)

    @property
    def now_ms(self) -> int:
        """The present in Unix milliseconds."""
        with self._lock:
            return self._now_ms

    def advance(self, seconds: Duration) -> None:
        """Let `seconds` (a number or a `timedelta`, at least 0, rounded up to whole milliseconds) pass."""
        step = duration_ms("seconds", seconds)
        with self._lock:
            self._now_ms += step

    def __repr__(self) -> str:
        return f"ManualClock({self.now_ms})"
