"""SAQ."""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator"
from __future__ import annotations

from typing import Any

import saq

from benchmarks.peers.contract import Peer, ahandle


async def _job(context: dict[str, Any], *, value: str) -> None:
    await ahandle(value)


class Adapter(Peer):
    name = "saq"
    packages = ("saq", "redis")
    asynchronous = True
    set_up = (
        "concurrency 100; retries=2, so that a swept job runs again; results kept for 10 minutes (the "
        "default); no bulk call; no sync client"
    )

    async def start(self) -> None:
        self._queue = saq.Queue.from_url(self.url, name=self.queue)
        await self._queue.connect()

    async def offer(self, value: str) -> None:
        await self._queue.enqueue("job", value=value, retries=2)

    async def work(self, concurrency: int) -> None:
        await saq.Worker(self._queue, [("job", _job)], concurrency=concurrency).start()

    def left(self, client: Any) -> int:
        return int(client.zcard(f"saq:{self.queue}:incomplete"))
