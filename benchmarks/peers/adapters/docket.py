"""Docket, the package pydocket."""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator"
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import docket

from benchmarks.peers.contract import Peer, ahandle


class Adapter(Peer):
    name = "docket"
    packages = ("pydocket", "redis")
    asynchronous = True
    set_up = (
        "concurrency 100; acked after the handler, redelivered after 5 minutes; records kept for 15 minutes "
        "(the default); no sync client"
    )

    async def start(self) -> None:
        self._docket = docket.Docket(name=self.queue, url=f"{self.url}?max_connections=300")
        await self._docket.__aenter__()
        self._docket.register(ahandle)

    async def offer(self, value: str) -> None:
        await self._docket.add(ahandle)(value)

    async def offer_many(self, values: Sequence[str]) -> None:
        await self._docket.add_many([self._docket.call(ahandle)(value) for value in values])

    async def work(self, concurrency: int) -> None:
        async with docket.Worker(self._docket, concurrency=concurrency) as worker:
            await worker.run_forever()

    def left(self, client: Any) -> int:
        return int(client.xlen(self._docket.stream_key))
