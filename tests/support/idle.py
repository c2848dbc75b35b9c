"""Callers that block until something happens: takers, and those who wait for a result."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import redis

from redisq import Engine
from tests.support.fronts import OpenEngine

BOUND = 10.0
"""Seconds within which whoever blocks has to wake up."""


class Idle:
    """Starts callers of the queue "jobs", each with an engine of its own, and returns once they block."""

    def __init__(
        self, open_engine: OpenEngine, pool: ThreadPoolExecutor, raw: redis.Redis, url: str, mark: str
    ) -> None:
        self._open_engine = open_engine
        self._pool = pool
        self._raw = raw
        self._url = f"{url}{'&' if '?' in url else '?'}client_name={mark}"
        self._mark = mark

    def __call__(self, verb: str = "take", *args: Any, **options: Any) -> Future[Any]:
        queue = self.engine().queue("jobs")
        return self.start(lambda: getattr(queue, verb)(*args, **{"wait": 50, **options}))

    def start(self, call: Callable[[], Any]) -> Future[Any]:
        """Runs a call that blocks. Its engine must come from `engine`."""
        waiting = len(self.blocked())
        future = self._pool.submit(call)
        self.until_blocked(waiting + 1)
        return future

    def engine(self, **options: Any) -> Engine:
        """An engine whose connections `blocked` knows."""
        return self._open_engine(url=self._url, **options)

    def until_blocked(self, count: int) -> None:
        limit = time.monotonic() + BOUND
        while len(self.blocked()) < count:
            assert time.monotonic() < limit, "nobody waits"
            time.sleep(0.005)

    def blocked(self) -> list[Any]:
        """The connections that wait, of this test alone: its engines give them its name."""
        return [each for each in self._raw.client_list() if each["name"] == self._mark and "b" in each["flags"]]
