"""redisq itself, with default settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.peers.contract import Peer, ahandle
from redisq import Engine, JobState, Worker

OPEN = (JobState.READY, JobState.LEASED, JobState.SCHEDULED)


class Adapter(Peer):
    name = "redisq"
    packages = ("redis", "hiredis", "msgspec")
    plain_concurrency = 256
    set_up = (
        "concurrency 256 for handlers that do nothing (see the README), 100 for those that wait; defaults: fences, "
        "history of transitions, the last 10,000 finished jobs kept for a day; asyncio's own loop"
    )

    def start(self) -> None:
        self._engine = Engine(self.url)
        self._queue = self._engine.queue(self.queue, str)

    def offer(self, value: str) -> None:
        self._queue.offer(value)

    def offer_many(self, values: Sequence[str]) -> None:
        self._queue.offer_many(values)

    def work(self, concurrency: int) -> None:
        self._queue.handler()(ahandle)
        Worker(self._engine, [self._queue], concurrency=concurrency).run()

    def left(self, client: Any) -> int:
        counts = self._queue.counts()
        return sum(counts[state] for state in OPEN)
