"""Builders of what concerns one subscription: its life, how far it is, and what it gave up."""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Sequence
from typing import Any

from redisq import detail
from redisq.calls import Argument, Call, Kind
from redisq.calls.core import EventCore
from redisq.calls.events import optional, own
from redisq.codec import Undecodable
from redisq.errors import InvalidInput
from redisq.ids import nonce
from redisq.model import DamagedRecord, DeadObligation, Page, Subscription, SubscriptionInfo
from redisq.scripts import script
from redisq.values import integer, text

AT_ONCE = 10
"""Subscriptions that one script call looks at."""


def subscribe(core: EventCore, name: str) -> Call[Subscription]:
    """Register a name for the events emitted from now on; the same name again returns the same generation.

    Durable: it outlives its takers, and owes every event until `unsubscribe`. Raises CapacityExceeded when the queue
    has 1,000 other active names.
    """
    args: list[Argument] = [text("name", name), nonce(), core.fence]
    return Call("subscribe", script("events/subscribe"), core.root, args,
                lambda reply: Subscription(queue=core.name, name=name, generation=reply.decode()),
                kind=Kind.WRITE)  # fmt: skip


def unsubscribe(core: EventCore, subscription: Subscription) -> Call[bool | None]:
    """One step of an unsubscription; None asks for another one."""
    subscription = own(core, subscription)
    return Call("unsubscribe", script("events/unsubscribe"), core.root, [subscription.name, subscription.generation],
                lambda reply: None if reply == b"2" else reply == b"1", kind=Kind.WRITE,
                missing=lambda: False)  # fmt: skip


def progress(core: EventCore, generations: Sequence[bytes]) -> Call[list[SubscriptionInfo | DamagedRecord]]:
    """How far these generations are; one that was removed meanwhile is left out."""

    def decode(reply: list[Any]) -> list[SubscriptionInfo | DamagedRecord]:
        rows = zip(generations, reply, strict=True)
        return [_info(core, generation.decode(), row) for generation, row in rows if row is not None]

    return Call("subscriptions", script("events/subscriptions"), core.root, list(generations), decode, kind=Kind.READ,
                missing=list)  # fmt: skip


def _info(core: EventCore, generation: str, row: list[bytes]) -> SubscriptionInfo | DamagedRecord:
    name = row[0].decode()
    if len(row) == 2:
        return DamagedRecord(id=name, queue=core.name, reason=row[1].decode(errors="replace"))
    lag, in_flight, oldest, dead, dropped = row[1:]
    return SubscriptionInfo(
        name=name,
        generation=generation,
        lag=int(lag),
        in_flight=int(in_flight),
        oldest_pending_ms=optional(oldest),
        dead=int(dead),
        dropped=int(dropped),
    )


def dead(core: EventCore, subscription: Subscription, *, limit: int = 50, cursor: str | None = None) -> Call[Page]:
    """A page of the obligations that a subscription gave up, `limit` 1…1,000 of them, the latest first.

    Empty for a removed generation. A damaged event stands as a `DamagedRecord`.
    """
    subscription = own(core, subscription)
    args: list[Argument] = [
        subscription.name,
        subscription.generation,
        integer("limit", limit, 1, 1000),
        _from_cursor(cursor),
    ]

    def decode(reply: list[Any]) -> Page:
        following, *columns = reply
        items = [_dead(core, subscription, *row) for row in zip(*columns, strict=True)]
        return Page(items=items, cursor=base64.urlsafe_b64encode(following).decode() if following else None)

    return Call("dead", script("events/dead"), core.root, args, decode, kind=Kind.READ,
                missing=lambda: Page(items=[]))  # fmt: skip


def _dead(
    core: EventCore,
    subscription: Subscription,
    id: bytes,
    died: bytes,
    outcome: bytes | None,
    error: bytes | None,
    body: bytes | None,
    broken: bytes | None,
) -> DeadObligation | DamagedRecord:
    event_id = id.decode(errors="replace")
    if broken is not None or body is None or outcome is None:
        reason = "what is left of it is incomplete" if broken is None else broken.decode(errors="replace")
        return DamagedRecord(id=event_id, queue=core.name, reason=reason, raw=body or b"")
    value: Any = body  # its raw bytes, unless they decode
    with contextlib.suppress(Undecodable):
        value = core.codec.decode(body)
    return DeadObligation(
        event_id=event_id,
        name=subscription.name,
        generation=subscription.generation,
        attempts=int(outcome.split(b",")[2]),
        error=None if error is None else detail.from_wire(error),
        dead_ms=int(died),
        value=value,
    )


def retry(core: EventCore, subscription: Subscription, id: str) -> Call[bool]:
    """Let a subscription take a dead obligation again, with all its attempts; its event's status does not change.

    The deadline no longer counts for it. False when it is not listed as dead, or the generation is removed.
    """
    return _verb(core, "retry", subscription, id)


def discard(core: EventCore, subscription: Subscription, id: str) -> Call[bool]:
    """Give up a dead obligation, retried or not, for good: its event's record no longer stays for it.

    False when it is neither dead nor retried, or the generation is removed.
    """
    return _verb(core, "discard", subscription, id)


def _verb(core: EventCore, operation: str, subscription: Subscription, id: str) -> Call[bool]:
    subscription = own(core, subscription)
    scripts = {"retry": script("events/retry"), "discard": script("events/discard")}
    return Call(operation, scripts[operation], core.root,
                [subscription.name, subscription.generation, text("id", id)], lambda reply: reply == b"1",
                kind=Kind.WRITE, missing=lambda: False, ids=[id])  # fmt: skip


def _from_cursor(cursor: str | None) -> bytes:
    if cursor is None:
        return b""
    try:
        place = base64.b64decode(cursor, b"-_", validate=True)
        float(place.partition(b"|")[0])
    except (binascii.Error, ValueError, TypeError):
        raise InvalidInput("cursor is not one that a page of this listing gave") from None
    return place
