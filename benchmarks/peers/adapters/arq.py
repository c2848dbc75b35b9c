"""arq."""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator"
from __future__ import annotations

from typing import Any

import arq
from arq.connections import RedisSettings
from arq.worker import Worker, func

from benchmarks.peers.contract import Peer, ahandle


async def _job(context: dict[str, Any], value: str) -> None:
    await ahandle(value)


class Adapter(Peer):
    name = "arq"
    packages = ("arq", "redis")
    asynchronous = True
    set_up = (
        "100 jobs at once; kept on the server until the handler ended; looks every 0.5 s (the default); "
        "results kept for an hour (the default); no bulk call; no sync client"
    )

    async def start(self) -> None:
        self._pool = await arq.create_pool(RedisSettings.from_dsn(self.url), default_queue_name=self.queue)

    async def offer(self, value: str) -> None:
        await self._pool.enqueue_job("job", value)

    async def work(self, concurrency: int) -> None:
        await Worker([func(_job, name="job")], queue_name=self.queue, redis_pool=self._pool, max_jobs=concurrency,
                     handle_signals=False, log_results=False).async_run()  # fmt: skip

    def left(self, client: Any) -> int:
        return int(client.zcard(self.queue))
