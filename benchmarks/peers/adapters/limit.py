"""The least that is possible: the hand-written scripts of benchmarks/limit.py, and a bare BLPOP for the wake-up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import redis

from benchmarks.limit import Limit, sent_by
from benchmarks.peers.contract import Peer, handle
from redisq import Engine


class Adapter(Peer):
    name = "limit"
    packages = ("redis", "hiredis")
    plain_concurrency, waiting_concurrency = 1, 0
    set_up = (
        "a hash and a push per job; a loop that deletes the last 128 and pops the next; no history, no fence,"
        " nothing looks for a lapsed lease; the wake-up is a bare BLPOP of a pushed value"
    )

    def start(self) -> None:
        self._client: Any = redis.Redis.from_url(self.url)
        self._limit = Limit(self._client)
        self._sent: list[Any] = []

    def offer(self, value: str) -> None:
        self._limit.offer([value])

    def offer_many(self, values: Sequence[str]) -> None:
        self._limit.offer(values)

    def bare(self, value: str) -> None:
        """A script that does nothing, with the arguments that an offer of redisq has."""
        if not self._sent:
            with Engine(self.url) as engine:
                queue = engine.queue("bare", str)
                self._sent = sent_by(engine, lambda: queue.offer(value))
        self._limit.bare(self._sent)

    def send(self, value: str) -> None:
        self._client.rpush("bare", value)

    def work(self, concurrency: int) -> None:
        self._limit.drain(lambda body: handle(json.loads(body)))
        while True:
            found = self._client.blpop(["bare"], 10)
            if found:
                handle(found[1].decode())

    def left(self, client: Any) -> int:
        return int(client.llen("{limit}:ready")) + int(client.zcard("{limit}:leased"))
