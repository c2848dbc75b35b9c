"""BullMQ, its package for Python."""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator"
from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import bullmq

from benchmarks.peers.contract import Peer, ahandle


async def _process(job: Any, token: str) -> None:
    await ahandle(job.data["value"])


class Adapter(Peer):
    name = "bullmq"
    packages = ("bullmq", "redis")
    asynchronous = True
    set_up = (
        "concurrency 100; locked while it runs, stalled jobs run again; finished jobs are kept for ever (the "
        "default); no sync client"
    )

    async def start(self) -> None:
        self._queue = bullmq.Queue(self.queue, {"connection": self.url})

    async def offer(self, value: str) -> None:
        await self._queue.add("job", {"value": value})

    async def offer_many(self, values: Sequence[str]) -> None:
        await self._queue.addBulk([{"name": "job", "data": {"value": value}} for value in values])

    async def work(self, concurrency: int) -> None:
        worker = bullmq.Worker(self.queue, _process, {"connection": self.url, "concurrency": concurrency})
        await asyncio.Event().wait()
        await worker.close()

    def left(self, client: Any) -> int:
        return int(client.llen(f"bull:{self.queue}:wait")) + int(client.llen(f"bull:{self.queue}:active"))
