"""Huey."""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator"
from __future__ import annotations

from typing import Any

import huey

from benchmarks.peers.contract import Peer, handle


class Adapter(Peer):
    name = "huey"
    packages = ("huey", "redis")
    plain_concurrency = 1
    set_up = (
        "thread workers: 1 for no-ops (the default), 100 for handlers that wait; at most once: a job is gone "
        "from the server when it is popped; no bulk call; no async handlers"
    )

    def start(self) -> None:
        self._huey = huey.RedisHuey(self.queue, url=self.url)
        self._task = self._huey.task()(handle)

    def offer(self, value: str) -> None:
        self._task(value)

    def work(self, concurrency: int) -> None:
        self._huey.create_consumer(workers=concurrency, worker_type="thread", periodic=False).run()

    def left(self, client: Any) -> int:
        return int(client.llen(self._huey.storage.queue_key))
