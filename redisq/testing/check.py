"""`check(queue)`: the broken invariants of a queue, for the end of a test."""

from __future__ import annotations

from typing import Any

from redisq import check as jobs, check_events as events
from redisq.sync import EventQueue, Queue, drive


def check(queue: Queue[Any] | EventQueue[Any]) -> list[str]:
    """One sentence per broken invariant of a queue; empty when all is well. The queue must be at rest."""
    if isinstance(queue, EventQueue):
        return drive(queue._sender, events.walk(queue._core))
    return drive(queue._sender, jobs.walk(queue._core))
