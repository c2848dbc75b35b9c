"""RQ."""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator"
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis
import rq
from rq.registry import StartedJobRegistry
from rq.worker import SimpleWorker

from benchmarks.peers.contract import Peer, handle


class Adapter(Peer):
    name = "rq"
    packages = ("rq", "redis")
    waiting_concurrency = 1
    set_up = (
        "SimpleWorker, which does not fork for each job; one job at a time; Retry(1), without which a job "
        "whose worker died is failed; no async handlers"
    )

    def start(self) -> None:
        self._client = redis.Redis.from_url(self.url)
        self._queue = rq.Queue(self.queue, connection=self._client)

    def offer(self, value: str) -> None:
        self._queue.enqueue(handle, value, retry=rq.Retry(max=1))

    def offer_many(self, values: Sequence[str]) -> None:
        self._queue.enqueue_many([rq.Queue.prepare_data(handle, (value,), retry=rq.Retry(max=1)) for value in values])

    def work(self, concurrency: int) -> None:
        SimpleWorker([self._queue], connection=self._client).work(logging_level="CRITICAL")

    def left(self, client: Any) -> int:
        queue = rq.Queue(self.queue, connection=client)
        return int(queue.count + StartedJobRegistry(queue=queue).get_job_count(cleanup=False))
