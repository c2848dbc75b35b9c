"""What a worker takes from: a job queue, or a subscription, as the calls and items that serve it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from redisq import flows
from redisq.calls import Call, Flow, consume, deliveries, subscribing
from redisq.calls.consume import Look, Poison, Taken
from redisq.calls.core import Core, EventCore, QueueCore
from redisq.errors import InvalidInput
from redisq.handlers import Handler, Handlers
from redisq.model import (
    Ack,
    Delivery,
    Done,
    ErrorDetail,
    Event,
    EventDelivery,
    EventStatus,
    Failed,
    Failure,
    Released,
    Renewal,
    Subscription,
)

Item: TypeAlias = list[Any]
"""One settlement to send: its second part is the id, its third the token, its fourth, if any, the data."""
Answers: TypeAlias = list[Ack | Failure]


class Source(Protocol):
    """Where leased work comes from, and how it is settled."""

    core: Core
    name: str

    @property
    def bell(self) -> str: ...
    def ready(self) -> Flow[bool]:
        """Does what has to come before the first call; False when there is no queue yet."""

    def handler(self, delivery: Any) -> Handler | None: ...
    def seconds(self, delivery: Any) -> float | None:
        """How long its handler may run."""

    def exchange(
        self, items: Sequence[Item], limit: int, starts: int, look: Look = Look.ONCE
    ) -> Call[tuple[Answers, Taken]]:
        """Settles, and takes up to `limit`, of which the first `starts` are started."""

    def renew(self, held: Sequence[Any], lease_ms: int) -> Call[list[Renewal | Ack]]: ...
    def progress(self, delivery: Any, data: bytes) -> Call[None]: ...
    def done(self, delivery: Any, result: Any) -> Item:
        """Raises InvalidInput when the result can't be stored."""

    def failed(self, delivery: Any, error: Any, *, retry_in: Any = None, final: bool = False) -> Item: ...
    def released(self, delivery: Any, delay: float = 0) -> Item:
        """Hands back a delivery, or what was taken and can't be decoded."""

    def quarantined(self, delivery: Any, kind: str, reason: str) -> Item:
        """Sets aside for good what nobody here can run."""

    def begun(self, delivery: Any) -> Item | None:
        """Marks a lease as started, where leases carry that mark."""


class JobSource:
    """A job queue and its handlers."""

    def __init__(self, core: QueueCore, handlers: Handlers) -> None:
        self.core: Core = core
        self.name = core.name
        self.bell = f"{core.root}:bell"
        self._core = core
        self._handlers = handlers

    def ready(self) -> Flow[bool]:
        return (yield from flows.settle_terms(self._core, writes=True))

    def handler(self, delivery: Delivery) -> Handler | None:
        return self._handlers.find(delivery.name)

    def seconds(self, delivery: Delivery) -> float | None:
        return None if delivery.timeout_ms is None else delivery.timeout_ms / 1000

    def exchange(
        self,
        items: Sequence[Item],
        limit: int,
        starts: int,
        look: Look = Look.ONCE,  # noqa: ARG002 - all are alike here
    ) -> Call[tuple[Answers, Taken]]:
        return consume.exchange_items(self._core, items, limit, None, starts=starts)

    def renew(self, held: Sequence[Delivery], lease_ms: int) -> Call[list[Renewal | Ack]]:
        return consume.renew_many(self._core, held, lease_ms)

    def progress(self, delivery: Delivery, data: bytes) -> Call[None]:
        return consume.progress(self._core, delivery, data)

    def done(self, delivery: Delivery, result: Any) -> Item:
        if result is None:
            return consume.success(delivery)
        return consume.settlement(self._core, Done(delivery, result))

    def failed(self, delivery: Delivery, error: Any, *, retry_in: Any = None, final: bool = False) -> Item:
        return consume.settlement(self._core, Failed(delivery, error, retry_in, final))

    def released(self, delivery: Delivery | Poison, delay: float = 0) -> Item:
        return consume.released(delivery.id, delivery.token, delay)

    def quarantined(self, delivery: Delivery | Poison, kind: str, reason: str) -> Item:
        return consume.quarantined(delivery.id, delivery.token, kind, reason)

    def begun(self, delivery: Delivery) -> Item:
        return consume.begin(delivery)


class EventSource:
    """One subscription of an event queue and its handler. The worker subscribes; nobody else unsubscribes."""

    def __init__(self, core: EventCore, subscriber: str, handler: Handler) -> None:
        self.core: Core = core
        self.name = f"{core.name} ({subscriber})"
        self._core = core
        self._subscriber = subscriber
        self._handler = handler
        self._subscription: Subscription | None = None

    @property
    def _own(self) -> Subscription:
        assert self._subscription is not None, "ready comes first"
        return self._subscription

    @property
    def bell(self) -> str:
        return f"{self._core.root}:bell:{self._own.generation}"

    def ready(self) -> Flow[bool]:
        if self._subscription is None:
            self._subscription = yield from flows.use(
                self._core, lambda: subscribing.subscribe(self._core, self._subscriber)
            )
        return True

    def handler(self, delivery: EventDelivery) -> Handler:  # noqa: ARG002
        return self._handler

    def seconds(self, delivery: EventDelivery) -> None:  # noqa: ARG002
        return None

    def exchange(
        self,
        items: Sequence[Item],
        limit: int,
        starts: int,  # noqa: ARG002 - leases on events carry no such mark
        look: Look = Look.ONCE,
    ) -> Call[tuple[Answers, Taken]]:
        settlements = [item[3] for item in items]
        return deliveries.exchange(self._core, self._own, settlements, limit, deliveries.LEASE * 1000, look)

    def renew(self, held: Sequence[EventDelivery], lease_ms: int) -> Call[list[Renewal | Ack]]:
        return deliveries.renew_many(self._core, held, lease_ms)

    def progress(self, delivery: EventDelivery, data: bytes) -> Call[None]:  # noqa: ARG002
        raise InvalidInput("events keep no progress")

    def done(self, delivery: EventDelivery, result: Any) -> Item:  # noqa: ARG002 - an event keeps no result
        return _item(delivery, delivery)

    def failed(self, delivery: EventDelivery, error: Any, *, retry_in: Any = None, final: bool = False) -> Item:
        return _item(delivery, Failed(delivery, error, retry_in, final))

    def released(self, delivery: EventDelivery | Poison, delay: float = 0) -> Item:
        return _item(delivery, Released(self._delivery(delivery), delay))

    def quarantined(self, delivery: EventDelivery | Poison, kind: str, reason: str) -> Item:
        return _item(delivery, Failed(self._delivery(delivery), ErrorDetail(kind, reason), None, True))

    def begun(self, delivery: EventDelivery) -> None:  # noqa: ARG002
        return None

    def _delivery(self, each: EventDelivery | Poison) -> EventDelivery:
        """What settles the lease of an event whose payload does not decode: only its id and token count."""
        if isinstance(each, EventDelivery):
            return each
        event = Event(each.id, self._core.name, None, EventStatus.ACTIVE, 0)
        return EventDelivery(
            id=each.id, value=None, attempt=0, max_attempts=None, token=each.token, fence=0, expires_ms=0, created_ms=0,
            queue=self._core.name, subscription=self._own, event=event,
        )  # fmt: skip


def _item(delivery: EventDelivery | Poison, settlement: Any) -> Item:
    return ["", delivery.id, delivery.token, settlement]
