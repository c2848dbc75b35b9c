"""Taskiq, on the stream broker of taskiq-redis."""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator"
from __future__ import annotations

from typing import Any

from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from benchmarks.peers.contract import Peer, ahandle


class Adapter(Peer):
    name = "taskiq"
    packages = ("taskiq", "taskiq-redis", "redis")
    asynchronous = True
    set_up = (
        "RedisStreamBroker, acked after the handler, 100 async tasks, as much prefetched; no result backend "
        "(the default); the stream is never trimmed (the default); no bulk call; no sync client"
    )

    async def start(self) -> None:
        self._broker = RedisStreamBroker(self.url, queue_name=self.queue, unacknowledged_lock_timeout=10)
        self._task = self._broker.register_task(ahandle, task_name="job")
        await self._broker.startup()

    async def offer(self, value: str) -> None:
        await self._task.kiq(value)

    async def work(self, concurrency: int) -> None:
        await run_receiver_task(self._broker, max_async_tasks=concurrency, max_prefetch=concurrency)

    def left(self, client: Any) -> int:
        group = client.xinfo_groups(self.queue)[0]
        return int(group["pending"]) + int(group["lag"] or 0)
