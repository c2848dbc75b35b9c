"""Reads the texts that the scripts keep of events (see lua/lib/events), and makes the records of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from redisq.calls.core import EventCore
from redisq.codec import Undecodable
from redisq.errors import InvalidInput, SchemaMismatch
from redisq.model import Event, EventStatus, ObligationStatus, Recipient, Subscription
from redisq.values import text

STATUS = {"a": EventStatus.ACTIVE, "c": EventStatus.COMPLETED, "x": EventStatus.EXPIRED}
_OUTCOMES = {
    "a": ObligationStatus.ACKNOWLEDGED, "w": ObligationStatus.WAIVED, "d": ObligationStatus.DEAD,
    "x": ObligationStatus.DEAD,
}  # fmt: skip


class Header(NamedTuple):
    """The header of a stored event; ValueError from `header` says that it is damaged."""

    status: EventStatus
    settled_ms: int | None
    created_ms: int
    expires_ms: int | None


def header(data: bytes) -> Header:
    standing, _, fixed = data.decode().partition(";")
    letter, _, _, _, settled = standing.split(",")
    _, created, expires, _, _ = fixed.split(",")
    status = STATUS.get(letter.lower())
    if status is None:
        raise ValueError("its header is damaged")
    return Header(status, optional(settled), int(created), optional(expires))


def optional(ms: str | bytes) -> int | None:
    return int(ms) if ms else None


def event(core: EventCore, id: str, reply: Sequence[Any]) -> Event | None:
    """The event of a reply of events/get; SchemaMismatch when its value is not of the declared type."""
    if not reply:
        return None
    raw, body, status, settled, parts, rows, waived = reply
    fixed = header(raw)
    try:
        value = core.codec.decode(body)
    except Undecodable as error:
        raise SchemaMismatch(f"event {id} is not of the declared type: {error}") from error
    outcomes = dict(_pairs(rows))
    removals = dict(_pairs(waived))
    return Event(
        id=id,
        queue=core.name,
        value=value,
        status=STATUS[status.decode()],
        created_ms=fixed.created_ms,
        expires_ms=fixed.expires_ms,
        settled_ms=optional(settled),
        recipients=tuple(
            _recipient(name, generation, outcomes.get(generation), removals.get(generation))
            for name, generation in members(parts)
        ),
    )


def roster(pairs: Sequence[bytes]) -> tuple[Recipient, ...]:
    """Recipients that all are pending, from names and generations in turns, in order of subscription."""
    named = sorted(_pairs(pairs), key=lambda pair: pair[1])
    return tuple(
        Recipient(name=name.decode(), generation=generation.decode(), status=ObligationStatus.PENDING)
        for name, generation in named
    )


def own(core: EventCore, subscription: Any) -> Subscription:
    """`subscription` when it is one of this queue, else InvalidInput."""
    if not isinstance(subscription, Subscription):
        raise InvalidInput(f"subscription must be a Subscription of this queue, not {type(subscription).__name__}")
    if subscription.queue != core.name:
        raise InvalidInput(f"subscription {subscription.name} is of queue {subscription.queue}, not of {core.name}")
    text("subscription.name", subscription.name)
    text("subscription.generation", subscription.generation)
    return subscription


def members(parts: Sequence[bytes | None]) -> list[tuple[bytes, bytes]]:
    """Name and generation of each member of a roster, in order of subscription."""
    if not parts or parts[0] is None:
        return []
    generations, _, names = parts[0].partition(b";")
    members = dict(zip(generations.split(b",") if generations else (), _unpacked(names), strict=True))
    for change in parts[1:]:
        if change is None:
            continue
        generation, _, name = change[1:].partition(b",")
        if change.startswith(b"+"):
            members[generation] = name
        else:
            members.pop(generation, None)
    return [(members[generation], generation) for generation in sorted(members)]


def _recipient(name: bytes, generation: bytes, outcome: bytes | None, removed: bytes | None) -> Recipient:
    status, resolved = ObligationStatus.PENDING, None
    if removed is not None:
        status, resolved = ObligationStatus.WAIVED, int(removed)
    elif outcome is not None:
        letter, *fields = outcome.decode().split(",")
        if letter in _OUTCOMES:
            status, resolved = _OUTCOMES[letter], int(fields[0])
    return Recipient(name=name.decode(), generation=generation.decode(), status=status, resolved_ms=resolved)


def _pairs(flat: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _unpacked(data: bytes) -> list[bytes]:
    """The items of lua/lib/pack: each as length ":" bytes."""
    items = []
    while data:
        size, _, rest = data.partition(b":")
        items.append(rest[: int(size)])
        data = rest[int(size) :]
    return items
