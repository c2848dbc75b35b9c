"""What a worker takes from: a job queue, as the calls and items that serve it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redisq.calls import Call, consume
from redisq.calls.consume import Item, Taken
from redisq.calls.core import QueueCore
from redisq.detail import to_wire
from redisq.handlers import Handler, Handlers
from redisq.model import Ack, Delivery, Done, ErrorDetail, Failed, Failure, Released, Renewal


class JobSource:
    """A job queue and its handlers."""

    def __init__(self, core: QueueCore, handlers: Handlers) -> None:
        self.core = core
        self.name = core.name
        self.bell = f"{core.root}:bell"
        self._handlers = handlers

    def handler(self, delivery: Delivery) -> Handler | None:
        return self._handlers.find(delivery.name)

    def exchange(self, items: Sequence[Item], limit: int, starts: int) -> Call[tuple[list[Ack | Failure], Taken]]:
        return consume.exchange_items(self.core, items, limit, None, starts=starts)

    def renew(self, deliveries: Sequence[Delivery], lease_ms: int | None) -> Call[list[Renewal | Ack]]:
        return consume.renew_many(self.core, deliveries, lease_ms)

    def progress(self, delivery: Delivery, data: bytes) -> Call[None]:
        return consume.progress(self.core, delivery, data)

    def done(self, delivery: Delivery, result: Any) -> Item:
        """Raises InvalidInput when the result can't be stored."""
        return consume.settlement(self.core, Done(delivery, result))

    def failed(self, delivery: Delivery, error: Any, *, retry_in: Any = None, final: bool = False) -> Item:
        return consume.settlement(self.core, Failed(delivery, error, retry_in, final))

    def released(self, delivery: Delivery, delay: float = 0) -> Item:
        return consume.settlement(self.core, Released(delivery, delay))

    def quarantined(self, id: str, token: str, kind: str, reason: str) -> Item:
        return ["q", id, token, "", to_wire(ErrorDetail(kind, reason))]

    def begun(self, delivery: Delivery) -> Item:
        return consume.begin(self.core, delivery)
