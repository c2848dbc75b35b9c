"""What an adapter is, and what its handlers do with a job. Runs in the peers' environments: standard library alone.

A job's payload is 100 bytes of text that start with a number: which job it is or, in a wake-up, when it was sent.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

DIGITS = 20
PAYLOAD = 98  # 100 bytes as JSON


def payload(number: int) -> str:
    return f"{number:0{DIGITS}}".ljust(PAYLOAD, "x")


class Peer:
    """One queue of one library. Its methods are plain or, with `asynchronous`, coroutine functions."""

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    """Whose versions a figure depends on."""
    asynchronous: ClassVar[bool] = False
    plain_concurrency: ClassVar[int] = 100
    """Jobs at once for handlers that do nothing."""
    waiting_concurrency: ClassVar[int] = 100
    """Jobs at once for handlers that wait; 0: not asked for."""
    set_up: ClassVar[str]
    """The settings, and what the library can't do, for the reader of the table."""

    def __init__(self, url: str, queue: str) -> None:
        self.url = url
        self.queue = queue

    def start(self) -> Any:
        """Connects and prepares the queue."""

    def offer(self, value: str) -> Any:
        raise NotImplementedError

    def send(self, value: str) -> Any:
        """The offer of a wake-up."""
        return self.offer(value)

    offer_many: Callable[[Sequence[str]], Any] | None = None
    bare: Callable[[str], Any] | None = None
    """The least that an offer could cost: the same bytes to a script that does nothing."""

    def work(self, concurrency: int) -> Any:
        """Runs jobs with `handle` or `ahandle`, in this process, until it is killed."""
        raise NotImplementedError

    def left(self, client: Any) -> int:
        """Jobs that the server holds and that are not finished; `client` is a redis-py client."""
        raise NotImplementedError


class Tally:
    """The jobs that this process has run."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.numbers: list[int] = []
        self.started = self.ended = 0.0
        self.done = threading.Event()

    def add(self, value: str) -> None:
        if not self.numbers:
            self.started = time.perf_counter()
        self.numbers.append(int(value[:DIGITS]))
        if len(self.numbers) >= self.expected:
            self.ended = time.perf_counter()
            self.done.set()


class Job:
    """What handlers do now: set by the stage before a worker starts."""

    seen: Callable[[str], object] = staticmethod(lambda value: None)
    nap = 0.0


def handle(value: str) -> None:
    """The handler of libraries with plain ones."""
    if Job.nap:
        time.sleep(Job.nap)
    Job.seen(value)


async def ahandle(value: str) -> None:
    """The handler of libraries with async ones."""
    if Job.nap:
        await asyncio.sleep(Job.nap)
    Job.seen(value)
