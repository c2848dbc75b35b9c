"""The stories of event queues: what takes several steps, told as in `redisq.flows`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from redisq.calls import Call, Commands, Flow, broadcast, deliveries as calls, subscribing as builders, upkeep
from redisq.calls.consume import MAX_BATCH, Look, Poison, Taken, check_batch
from redisq.calls.core import EventCore
from redisq.calls.deliveries import LEASE, Settlement
from redisq.calls.events import own
from redisq.errors import InvalidInput
from redisq.flows import (
    counting,
    in_chunks,
    process,
    seconds_of,
    settle_terms,
    slices,
    take_after_exchange,
    use,
    wait_and_take,
)
from redisq.model import (
    Ack,
    DamagedRecord,
    Event,
    EventDelivery,
    Failure,
    Maintenance,
    NewEvent,
    Renewal,
    Subscription,
    SubscriptionInfo,
)
from redisq.values import Duration, duration_ms, integer

T = TypeVar("T")
_log = logging.getLogger("redisq")


class EventClaims:
    """Claims of one subscription; see `redisq.flows.Claims`. retry_ms: None is the policy's back-off."""

    def __init__(
        self, core: EventCore, subscription: Subscription, lease_ms: int, retry_delay: Duration | None = None
    ) -> None:
        self.core = core
        self.subscription = own(core, subscription)
        self.bell = f"{core.root}:bell:{subscription.generation}"
        self._lease_ms = lease_ms
        self._retry_delay = retry_delay

    def take(self, limit: int, look: Look) -> Call[Taken]:
        return calls.take(self.core, self.subscription, limit, self._lease_ms, look)

    def set_aside(self, undecodable: Sequence[Poison]) -> Call[Any]:
        for each in undecodable:
            _log.error("event %s does not decode, its obligation is dead: %s", each.id, each.reason)
        return calls.set_aside(self.core, self.subscription, undecodable)

    def hand_back(self, deliveries: Sequence[EventDelivery]) -> Call[Any]:
        return calls.hand_back(self.core, deliveries)

    def renew(self, delivery: EventDelivery) -> Call[Any]:
        return calls.renew_ms(self.core, delivery, self._lease_ms)

    def fail(self, delivery: EventDelivery, error: Exception, *, final: bool = False) -> Call[Any]:
        return calls.fail(self.core, delivery, error, retry_in=self._retry_delay, final=final)

    def ack(self, delivery: EventDelivery, result: Any) -> Call[Any]:  # noqa: ARG002 - an event keeps no result
        return calls.ack(self.core, delivery)


def unsubscribe(core: EventCore, subscription: Subscription) -> Flow[bool]:
    """Remove a subscription: True when this generation was the active one. What it owes is waived as of now.

    Nothing more is delivered to it, its takers that wait get SubscriptionGone, and its tokens are refused. The name can
    be subscribed again, as a fresh generation. Of a big backlog a sweep waives the rest; nobody can see the difference.
    """
    while True:
        removed: bool | None = yield from use(core, lambda: builders.unsubscribe(core, subscription))
        if removed is not None:
            return removed


def subscriptions(core: EventCore) -> Flow[list[SubscriptionInfo | DamagedRecord]]:
    """Every active subscription, by name: how far it is. One whose keys are damaged stands as a `DamagedRecord`.

    With more than 1,000 events in hand of one subscription, or as many expired ones that no sweep has seen, the figures
    are near.
    """
    yield from settle_terms(core, writes=False)
    (found,) = yield Commands(("HGETALL", f"{core.root}:subs"))
    flat = [part for pair in found.items() for part in pair] if isinstance(found, dict) else found
    named = sorted(zip(flat[::2], flat[1::2], strict=True))
    infos: list[SubscriptionInfo | DamagedRecord] = []
    for at in range(0, len(named), builders.AT_ONCE):
        chunk = [generation for _, generation in named[at : at + builders.AT_ONCE]]
        infos += yield builders.progress(core, chunk)
    return infos


def emit(
    core: EventCore, value: Any, *, ttl: Duration | None | UnsetType = UNSET, id: str | None = None
) -> Flow[Event]:
    """Broadcast an event to the subscriptions that are active at this instant; without any it is completed at once.

    ttl: how long it may take until it expires; None for ever, 0 expires at once, the queue's by default. id: the same
    id again returns the first event with `duplicate=True`, also for the policy's `dedup` after it settled. Without one
    the client makes an id, and a retried request is still one event. The recipients returned all are pending.

    Raises InvalidInput before anything is sent, OutOfMemory when the server is full, IndeterminateWrite when the reply
    was lost for good.
    """
    events = yield from emit_many(core, [NewEvent(value, ttl, id)])
    return events[0]


def emit_many(core: EventCore, items: Iterable[Any]) -> Flow[list[Event]]:
    """Broadcast many events: values, or `NewEvent` for those with options. The order is kept.

    All are checked first. They go in chunks of at most 1,000 events or 4 MiB, one script call each, each whole or not
    at all. When a chunk stays uncertain, IndeterminateWrite tells in `done` the events before it.
    """
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise InvalidInput(f"items must be an iterable of values or NewEvent, not {type(items).__name__}")
    events = [item if isinstance(item, NewEvent) else NewEvent(item) for item in items]
    return (
        yield from in_chunks(
            core,
            "emit_many",
            events,
            broadcast.checked_id,
            partial(broadcast.encode, core),
            lambda chunk: _emit_chunk(core, chunk),
        )
    )


def _emit_chunk(core: EventCore, chunk: Sequence[broadcast.Encoded]) -> Flow[list[Event]]:
    while True:
        emitted = yield from use(core, lambda: broadcast.emit(core, chunk))
        if not emitted.unswept:
            break
        yield from _bring_up(core, emitted.unswept)
    first: dict[str, Event | None] = {}
    with counting("emit", emitted.events):
        for id in emitted.present:
            if id not in first:
                first[id] = yield broadcast.get(core, id)
    return [_with_record(event, first.get(event.id)) for event in emitted.events]


def _with_record(event: Event, found: Event | None) -> Event:
    """A duplicate with the record that was there; one that settled and went since then keeps what is remembered."""
    if found is None or not event.duplicate:
        return event
    return msgspec.structs.replace(found, duplicate=True)


def _bring_up(core: EventCore, ids: Sequence[str]) -> Flow[None]:
    """Removes events that are past and in the way of an emission with their ids."""
    while ids:
        came_to = yield upkeep.bring_up(core, ids)
        ids = ids[came_to:]


def take(
    core: EventCore, subscription: Subscription, *, lease: Duration = LEASE, wait: Duration | None = 0
) -> Flow[EventDelivery | None]:
    """Claim the next event of a subscription, or None when nothing is takeable. See `take_many`."""
    found = yield from take_many(core, subscription, 1, lease=lease, wait=wait)
    return found[0] if found else None


def take_many(
    core: EventCore, subscription: Subscription, limit: int, *, lease: Duration = LEASE, wait: Duration | None = 0
) -> Flow[list[EventDelivery]]:
    """Claim up to `limit` (1…1,000) events of a subscription, each under a lease of its own token.

    Lapsed leases are recovered first. Fewer than `limit` means that nothing more is takeable, or that the batch reached
    8 MiB. lease: how long; it never outlives the event's deadline. wait: block up to that long for the first event,
    None for ever. A payload that does not decode makes its obligation dead, and the take goes on. Raises
    SubscriptionGone for a removed generation, also out of a wait.
    """
    integer("limit", limit, 1, MAX_BATCH)
    claims = EventClaims(core, subscription, _lease_ms(lease))
    found, _ = yield from wait_and_take(claims, limit, seconds_of(wait))
    return found


def exchange(
    core: EventCore,
    subscription: Subscription,
    settlements: Sequence[Settlement],
    limit: int,
    *,
    lease: Duration = LEASE,
    wait: Duration | None = 0,
) -> Flow[tuple[list[Ack | Failure], list[EventDelivery]]]:
    """Settle a batch and take the next one, in one script call: the normal step of a consumer's loop.

    settlements: at most 1,000 deliveries of this queue (ack) or `Done`, `Failed`, `Released`; each answers for itself.
    limit: 0…1,000 events to take. lease, wait: as in `take_many`. For a removed generation the settlements are made,
    and then SubscriptionGone is raised.
    """
    lease_ms, seconds = _lease_ms(lease), seconds_of(wait)
    claims = EventClaims(core, subscription, lease_ms)
    first = yield from use(core, lambda: calls.exchange(core, subscription, settlements, limit, lease_ms))
    return (yield from take_after_exchange(claims, first, limit, seconds))


def ack_many(core: EventCore, deliveries: Sequence[EventDelivery]) -> Flow[list[Ack]]:
    """Ack many deliveries, up to 1,000 in one script call. Each answers for itself: a stale token with `lease-lost`,
    one whose event settled first with `not-active`.
    """
    check_batch("deliveries", deliveries)
    answers: list[Ack] = []
    for chunk in slices(deliveries):
        answers += yield from use(core, lambda chunk=chunk: calls.settle_many(core, "ack_many", chunk))  # type: ignore[misc]
    return answers


def renew_many(
    core: EventCore, deliveries: Sequence[EventDelivery], lease: Duration = LEASE
) -> Flow[list[Renewal | Ack]]:
    """Extend many leases, up to 1,000 in one script call; a lost one answers `lease-lost`, a removed event `gone`."""
    check_batch("deliveries", deliveries)
    lease_ms = _lease_ms(lease)
    answers: list[Renewal | Ack] = []
    for chunk in slices(deliveries):
        answers += yield from use(core, lambda chunk=chunk: calls.renew_many(core, chunk, lease_ms))  # type: ignore[misc]
    return answers


def process_one(
    core: EventCore,
    subscription: Subscription,
    handler: Callable[[EventDelivery], Any],
    *,
    lease: Duration = LEASE,
    renew_every: Duration | None = None,
    retry_delay: Duration | None = None,
) -> Flow[bool]:
    """Take one event, run `handler(delivery)` while renewing its lease, and ack it; False when there was none.

    The handler's exception is recorded as a failed attempt and raised again; the next attempt waits `retry_delay`, else
    the policy's back-off. KeyboardInterrupt, SystemExit, GeneratorExit and cancellation hand the event back, no attempt
    counted. renew_every: more than 0, less than the lease; a third of it by default. A lost lease cancels an async
    handler, sets `delivery.lost` for a sync one, records nothing and raises LeaseLost.
    """
    lease_ms = _lease_ms(lease)
    if retry_delay is not None:
        duration_ms("retry_delay", retry_delay)
    claims = EventClaims(core, subscription, lease_ms, retry_delay)
    return (yield from process(claims, handler, lease_ms, renew_every, 0))


def maintain(core: EventCore, limit: int = 100) -> Flow[Maintenance]:
    """One bounded sweep: at most `limit` (1…1,000) expired events, lapsed leases, archived events past their retention,
    obligations of removed subscriptions, dead obligations past theirs, and obligations to be dropped.

    Each category has a budget of its own, and a script call of its own.
    """
    return (yield from sweep(core, limit, 0))


def sweep(core: EventCore, limit: int, gap_ms: int) -> Flow[Maintenance]:
    """As `maintain`, unless somebody swept the queue less than `gap_ms` ago."""
    integer("limit", limit, 1, 1000)
    counts = dict.fromkeys(upkeep.CATEGORIES, 0)
    pending = False
    categories = yield from use(core, lambda: upkeep.due(core, gap_ms))
    for category in categories:
        count, more = yield upkeep.sweep(core, category, limit)
        pending = pending or more
        if category in counts:
            counts[category] = count
    return Maintenance(processed=sum(counts.values()), pending=pending, by_category=counts)


def _lease_ms(lease: Duration) -> int:
    return duration_ms("lease", lease, least=1)
