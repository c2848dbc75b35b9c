"""Helpers for tests: a clock that is moved by hand, and models of both kinds of queue that need no server."""

from __future__ import annotations

from redisq.testing.check import check
from redisq.testing.clock import ManualClock
from redisq.testing.reference import ReferenceQueue
from redisq.testing.reference_events import ReferenceEventQueue

__all__ = ["ManualClock", "ReferenceEventQueue", "ReferenceQueue", "check"]
