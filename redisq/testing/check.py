"""`check(queue)`: the broken invariants of a queue, for the end of a test."""

from __future__ import annotations

from redisq.check import walk
from redisq.sync import Queue, drive


def check(queue: Queue) -> list[str]:
    """One sentence per broken invariant of a job queue; empty when all is well. The queue must be at rest."""
    return drive(queue._sender, walk(queue._core))
