"""streaQ."""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator"
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streaq import Worker

from benchmarks.peers.contract import Peer, ahandle


class Adapter(Peer):
    name = "streaq"
    packages = ("streaq", "coredis")
    asynchronous = True
    set_up = (
        "concurrency 100, as much prefetched; acked after the handler; results kept for 5 minutes (the "
        "default); no sync client"
    )

    async def start(self) -> None:
        self._worker: Any = Worker(self.url, queue_name=self.queue, concurrency=100, handle_signals=False)
        self._task = self._worker.task(name="job", silent=True)(ahandle)
        self._connected = False

    async def _connect(self) -> None:
        if not self._connected:
            await self._worker.__aenter__()
            self._connected = True

    async def offer(self, value: str) -> None:
        await self._connect()
        await self._task.enqueue(value)

    async def offer_many(self, values: Sequence[str]) -> None:
        await self._connect()
        await self._worker.enqueue_many([self._task.enqueue(value) for value in values])

    async def work(self, concurrency: int) -> None:
        await self._worker.run_async()

    def left(self, client: Any) -> int:
        return int(client.xlen(self._worker.stream_key + self._worker.priorities[-1]))
