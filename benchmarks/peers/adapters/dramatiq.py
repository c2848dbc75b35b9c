"""Dramatiq, on its Redis broker."""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator"
from __future__ import annotations

import threading
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers.contract import Peer, handle


class Adapter(Peer):
    name = "dramatiq"
    packages = ("dramatiq", "redis")
    plain_concurrency = 8
    set_up = (
        "8 threads for no-ops (the default), 100 for handlers that wait; acked after the handler; no bulk "
        "call; sync handlers"
    )

    def start(self) -> None:
        self._broker = RedisBroker(url=self.url)
        dramatiq.set_broker(self._broker)
        self._actor = dramatiq.actor(handle, queue_name=self.queue, broker=self._broker)

    def offer(self, value: str) -> None:
        self._actor.send(value)

    def work(self, concurrency: int) -> None:
        dramatiq.Worker(self._broker, worker_threads=concurrency).start()
        threading.Event().wait()

    def left(self, client: Any) -> int:
        return int(client.hlen(f"dramatiq:{self.queue}.msgs"))
