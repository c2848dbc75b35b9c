"""Builders of what the takers of a subscription call: take, ack, fail, release, renew, exchange."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from redisq import detail
from redisq.calls import Argument, Call, Kind
from redisq.calls.consume import MAX_BATCH, Look, Poison, Taken, check_batch, delivery_of, seconds
from redisq.calls.core import EventCore
from redisq.calls.events import header, own
from redisq.codec import Undecodable
from redisq.errors import CorruptRecord, EventNotActive, InvalidInput, LeaseLost
from redisq.ids import nonce
from redisq.model import (
    Ack,
    Done,
    ErrorDetail,
    Event,
    EventDelivery,
    Failed,
    Failure,
    ObligationStatus,
    Released,
    Renewal,
    Subscription,
)
from redisq.scripts import script
from redisq.values import Duration, boolean, duration_ms, integer, text

T = TypeVar("T")
Settlement = EventDelivery | Done | Failed | Released
LEASE = 30
"""Seconds that a lease lasts unless told otherwise."""

NOTHING: Taken = Taken([], [], False, None, 0.0)
_LOOKS = {Look.ONCE: "", Look.BEFORE_WAIT: "w", Look.AFTER_WAIT: "k"}
_ACKS = {
    "A": Ack.ACKNOWLEDGED, "B": Ack.ALREADY_ACKNOWLEDGED, "G": Ack.GONE, "L": Ack.LEASE_LOST, "N": Ack.NOT_ACTIVE,
    "!": Ack.GONE,
}  # fmt: skip
_FAILURES = {"p": ObligationStatus.PENDING, "d": ObligationStatus.DEAD}
_FINAL = "!"


def take(core: EventCore, subscription: Subscription, limit: int, lease_ms: int, look: Look = Look.ONCE) -> Call[Taken]:
    """One bounded pass: recover what lapsed, claim up to `limit`."""
    fresh = nonce()
    return Call(
        "take",
        script("events/take"),
        core.root,
        _claim(core, subscription, fresh, limit, lease_ms, look),
        lambda reply: _taken(core, subscription, fresh, lease_ms, reply),
        kind=Kind.TAKE,
        missing=lambda: NOTHING,
        undo=give_back(core, subscription, fresh),
    )


def exchange(
    core: EventCore,
    subscription: Subscription,
    settlements: Sequence[Settlement],
    limit: int,
    lease_ms: int,
    look: Look = Look.ONCE,
) -> Call[tuple[list[Ack | Failure], Taken]]:
    """Settles a batch, then takes the next one: one script."""
    check_batch("settlements", settlements)
    if len(settlements) > MAX_BATCH:
        raise InvalidInput(f"settlements must be at most {MAX_BATCH:,}, not {len(settlements):,}")
    integer("limit", limit, 0, MAX_BATCH)
    fresh = nonce()
    args = _claim(core, subscription, fresh, limit, lease_ms, look) + _settlements(core, settlements)

    def decode(reply: list[Any]) -> tuple[list[Ack | Failure], Taken]:
        return _answers(reply[0], len(settlements)), _taken(core, subscription, fresh, lease_ms, reply[1])

    return Call(
        "exchange",
        script("events/exchange"),
        core.root,
        args,
        decode,
        kind=Kind.TAKE if limit else Kind.WRITE,
        missing=lambda: ([Ack.GONE for _ in settlements], NOTHING),
        ids=[delivery_of(each).id for each in settlements],
        undo=give_back(core, subscription, fresh) if limit else None,
    )


def give_back(core: EventCore, subscription: Subscription, nonce: str) -> Call[int]:
    """Undoes a take under the same request number, whether or not it arrived."""
    return Call("give_back", script("events/give_back"), core.root,
                [subscription.name, subscription.generation, nonce], int, kind=Kind.WRITE,
                missing=lambda: 0)  # fmt: skip


def settle_many(core: EventCore, operation: str, items: Sequence[Settlement]) -> Call[list[Any]]:
    """Settles up to 1,000 deliveries in one call, each answering for itself."""
    return _settle(core, operation, items, lambda reply: _answers(reply, len(items)),
                   lambda: [Ack.GONE for _ in items])  # fmt: skip


def hand_back(core: EventCore, deliveries: Sequence[EventDelivery]) -> Call[list[Any]]:
    """Releases several deliveries."""
    return settle_many(core, "release", [Released(each) for each in deliveries])


def set_aside(core: EventCore, subscription: Subscription, undecodable: Sequence[Poison]) -> Call[list[Any]]:
    """Ends obligations whose payload does not decode: dead, each with the reason."""
    args: list[Argument] = [1, subscription.name, subscription.generation]
    for each in undecodable:
        args += ["f", 1, each.id, each.token, _FINAL, detail.to_wire(ErrorDetail("Undecodable", each.reason))]
    return Call("fail", script("events/settle"), core.root, args, lambda reply: _answers(reply, len(undecodable)),
                kind=Kind.WRITE, missing=list, ids=[each.id for each in undecodable])  # fmt: skip


def ack(core: EventCore, delivery: EventDelivery) -> Call[Ack]:
    """Resolve what the subscription owes of an event.

    Returns `acknowledged`, `already-acknowledged` (the same token again, also on an archived event and after the
    subscription was removed) or `gone` (no such event now, which is no proof that this attempt resolved it). Raises
    LeaseLost for a stale token, EventNotActive when the event settled first.
    """
    return _settle_one(core, "ack", delivery, lambda word: _ACKS[_good(core, delivery, word, gone=False)],
                       lambda: Ack.GONE)  # fmt: skip


def fail(
    core: EventCore, delivery: EventDelivery, error: Any, *, retry_in: Duration | None = None, final: bool = False
) -> Call[Failure]:
    """Record a failed attempt: `error` is an exception, a str or an `ErrorDetail` (8 KiB are kept once it is dead).

    The event can be taken again after the policy's back-off, or after `retry_in`; on the last attempt that the policy
    allows, or with `final`, the obligation is dead. Raises LeaseLost for a stale token or an event that is gone,
    EventNotActive when the event settled first.
    """
    item = Failed(delivery, error, retry_in, final)
    return _settle_one(core, "fail", item, lambda word: _failure(_good(core, delivery, word)), None)


def release(core: EventCore, delivery: EventDelivery, *, delay: Duration = 0) -> Call[None]:
    """Hand an event back without counting the attempt; it can be taken again at once, or after `delay`.

    Raises LeaseLost for a stale token or an event that is gone, EventNotActive when the event settled first.
    """

    def decode(word: str) -> None:
        _good(core, delivery, word)

    return _settle_one(core, "release", Released(delivery, delay), decode, None)


def renew(core: EventCore, delivery: EventDelivery, lease: Duration = LEASE) -> Call[Renewal]:
    """Extend a lease to `lease` from now, never past the event's deadline; never shortens it.

    Raises LeaseLost for a stale token or an event that is gone, EventNotActive when the event settled first.
    """
    return renew_ms(core, delivery, duration_ms("lease", lease, least=1))


def renew_ms(core: EventCore, delivery: EventDelivery, lease_ms: int) -> Call[Renewal]:
    def decode(words: list[str]) -> Renewal:
        return Renewal(int(_good(core, delivery, words[0])))

    return _renew(core, "renew", [delivery], lease_ms, decode)


def renew_many(core: EventCore, deliveries: Sequence[EventDelivery], lease_ms: int) -> Call[list[Renewal | Ack]]:
    """Renews up to 1,000 leases in one call."""

    def decode(words: list[str]) -> list[Renewal | Ack]:
        return [_ACKS[word] if word in _ACKS else Renewal(int(word)) for word in words]

    return _renew(core, "renew_many", deliveries, lease_ms, decode)


def _renew(
    core: EventCore,
    operation: str,
    deliveries: Sequence[EventDelivery],
    lease_ms: int,
    decode: Callable[[list[str]], T],
) -> Call[T]:
    subscriptions, numbers = _numbered(core, deliveries)
    args: list[Argument] = [lease_ms, *subscriptions]
    for each, number in zip(deliveries, numbers, strict=True):
        args += [number, each.id, each.token]
    return Call(operation, script("events/renew"), core.root, args,
                lambda reply: decode(reply.decode().split(",") if reply else []), kind=Kind.WRITE,
                missing=lambda: decode(["G"] * len(deliveries)), ids=[each.id for each in deliveries])  # fmt: skip


def _claim(
    core: EventCore, subscription: Subscription, nonce: str, limit: int, lease_ms: int, look: Look
) -> list[Argument]:
    subscription = own(core, subscription)
    return [subscription.name, subscription.generation, nonce, core.fence, limit, lease_ms, _LOOKS[look]]


def _taken(core: EventCore, subscription: Subscription, nonce: str, lease_ms: int, reply: list[Any]) -> Taken:
    now, first, most, more, soonest, ids, headers, bodies, attempts, stops = reply
    deliveries: list[EventDelivery] = []
    undecodable: list[Poison] = []
    stamp, max_attempts = int(first), int(most) if most else None
    for i, raw in enumerate(headers):
        if raw is None:
            continue
        fence, id = stamp + i, ids[i].decode()
        token = f"{fence}-{nonce}"
        try:
            fixed, value = header(raw), core.codec.decode(bodies[i])
        except (Undecodable, ValueError) as error:
            undecodable.append(Poison(id, token, str(error)))
            continue
        deliveries.append(
            EventDelivery(
                id=id,
                value=value,
                attempt=int(attempts[i]),
                max_attempts=max_attempts,
                token=token,
                fence=fence,
                expires_ms=int(stops[i]),
                created_ms=fixed.created_ms,
                queue=core.name,
                subscription=subscription,
                event=Event(
                    id=id,
                    queue=core.name,
                    value=value,
                    status=fixed.status,
                    created_ms=fixed.created_ms,
                    expires_ms=fixed.expires_ms,
                    settled_ms=fixed.settled_ms,
                ),
            )
        )
    if headers:
        core.fence = max(core.fence, stamp + len(headers) - 1)
    next_in = seconds(int(soonest) - int(now)) if soonest else None
    return Taken(deliveries, undecodable, more == b"1", next_in, lease_ms / 1000)


def _settle_one(
    core: EventCore,
    operation: str,
    item: Settlement,
    decode: Callable[[str], T],
    missing: Callable[[], T] | None,
) -> Call[T]:
    return _settle(core, operation, [item], lambda reply: decode(reply.decode()), missing or (lambda: decode("G")))


def _settle(
    core: EventCore,
    operation: str,
    items: Sequence[Settlement],
    decode: Callable[[Any], T],
    missing: Callable[[], T],
) -> Call[T]:
    return Call(operation, script("events/settle"), core.root, _settlements(core, items), decode, kind=Kind.WRITE,
                missing=missing, ids=[delivery_of(each).id for each in items])  # fmt: skip


def _good(core: EventCore, delivery: EventDelivery, word: str, *, gone: bool = True) -> str:
    """`word` when the settlement was applied, else the error that it stands for."""
    where = f"event {delivery.id} of queue {core.name}, subscription {delivery.subscription.name}"
    if word == "L" or (gone and word == "G"):
        raise LeaseLost(f"the token holds no lease on {where}: it ran out, was settled, or the event is gone")
    if word == "N":
        raise EventNotActive(f"{where}: the event settled before this delivery did")
    if word == "!":
        raise CorruptRecord(f"{where} is damaged: see what is left with check")
    return word


def _answers(reply: bytes, count: int) -> list[Ack | Failure]:
    words = reply.decode().split(",") if reply else []
    return [_ACKS[word] if word in _ACKS else _failure(word) for _, word in zip(range(count), words, strict=True)]


def _failure(word: str) -> Failure:
    return Failure(_FAILURES[word[0]], int(word[1:]) if word[1:] else None)


def _settlements(core: EventCore, items: Sequence[Settlement]) -> list[Argument]:
    """The arguments of settlements (see lua/lib/events/verdict.lua)."""
    args, numbers = _numbered(core, [delivery_of(item) for item in items])
    for item, number in zip(items, numbers, strict=True):
        verb, extra, data = _verb(item)
        delivery = delivery_of(item)
        args += [verb, number, delivery.id, delivery.token, extra, data]
    return args


def _verb(item: Settlement) -> tuple[str, Argument, Argument]:
    if isinstance(item, Failed):
        wait = "" if item.retry_in is None else str(duration_ms("retry_in", item.retry_in))
        return "f", _FINAL if boolean("final", item.final) else wait, detail.to_wire(item.error)
    if isinstance(item, Released):
        return "r", duration_ms("delay", item.delay), ""
    return "a", "", ""  # the result of a `Done` is not kept


def _numbered(core: EventCore, deliveries: Sequence[EventDelivery]) -> tuple[list[Argument], list[int]]:
    """The subscriptions of deliveries as arguments, and each delivery's number among them, from 1 on."""
    numbers: dict[tuple[str, str], int] = {}
    of_each = [numbers.setdefault(_subscription_of(core, each), len(numbers) + 1) for each in deliveries]
    return [len(numbers), *(part for pair in numbers for part in pair)], of_each


def _subscription_of(core: EventCore, delivery: Any) -> tuple[str, str]:
    if not isinstance(delivery, EventDelivery):
        raise InvalidInput(f"delivery must be an EventDelivery of this queue, not {type(delivery).__name__}")
    if delivery.queue != core.name:
        raise InvalidInput(f"delivery {delivery.id} is of queue {delivery.queue}; it can't be settled on {core.name}")
    text("delivery.token", delivery.token)
    subscription = own(core, delivery.subscription)
    return subscription.name, subscription.generation
