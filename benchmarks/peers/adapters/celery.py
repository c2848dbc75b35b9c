"""Celery, on its Redis transport."""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator"
from __future__ import annotations

from typing import Any

import celery

from benchmarks.peers.contract import Peer, handle


class Adapter(Peer):
    name = "celery"
    packages = ("celery", "kombu", "redis")
    plain_concurrency = 1
    set_up = (
        "acks_late; solo pool for no-ops, 100 threads for handlers that wait, prefetch multiplier 4 (the "
        "default) and 64 for solo; no gossip, mingle or heartbeat; no bulk call; no async handlers"
    )

    def start(self) -> None:
        self._app = celery.Celery("peers", broker=self.url)
        self._app.conf.update(
            task_acks_late=True, task_default_queue=self.queue, worker_hijack_root_logger=False,
            broker_connection_retry_on_startup=True,
        )  # fmt: skip
        self._task = self._app.task(name="job")(handle)

    def offer(self, value: str) -> None:
        self._task.delay(value)

    def work(self, concurrency: int) -> None:
        solo = concurrency == 1
        self._app.conf.worker_prefetch_multiplier = 64 if solo else 4
        self._app.Worker(
            pool="solo" if solo else "threads", concurrency=concurrency, loglevel="CRITICAL", quiet=True,
            without_gossip=True, without_mingle=True, without_heartbeat=True,
        ).start()  # fmt: skip

    def left(self, client: Any) -> int:
        return int(client.llen(self.queue)) + int(client.hlen("unacked"))
