"""Helpers for tests: a clock that is moved by hand, and a model of job queues that needs no server."""

from __future__ import annotations

from redisq.testing.clock import ManualClock
from redisq.testing.reference import ReferenceQueue

__all__ = ["ManualClock", "ReferenceQueue"]
