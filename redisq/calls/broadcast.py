"""Builders of what emitters and readers of events call: emit, get, the archive, an overview."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import UNSET

from redisq.calls import Argument, Call, Kind
from redisq.calls.core import EventCore
from redisq.calls.events import STATUS, event, optional, roster
from redisq.codec import MAX_PAYLOAD_BYTES
from redisq.model import Event, EventStatus, NewEvent, QueueInfo
from redisq.scripts import script
from redisq.values import duration_ms, integer, text

_OVERHEAD = 128
_NEW = {"a", "c", "x"}
_UNSWEPT = "U"
_PRESENT = "P"


class Encoded(NamedTuple):
    """One event as the emit script takes it."""

    id: str
    body: bytes
    ttl: str
    value: Any

    @property
    def size(self) -> int:
        return len(self.body) + _OVERHEAD


class Emitted(NamedTuple):
    """What one emission did. `present`: ids whose event is there already; with `unswept` ids nothing was done."""

    events: list[Event]
    present: list[str]
    unswept: list[str]


def encode(core: EventCore, item: NewEvent, id: str) -> Encoded:
    """Checks every option and encodes the value; raises InvalidInput naming the argument."""
    body = core.codec.encode("value", item.value, limit=MAX_PAYLOAD_BYTES, validate=core.validate)
    ttl = "" if item.ttl is UNSET else "-" if item.ttl is None else str(duration_ms("ttl", item.ttl))
    return Encoded(id, body, ttl, item.value)


def checked_id(item: NewEvent) -> str | None:
    return None if item.id is None else text("id", item.id)


def emit(core: EventCore, items: Sequence[Encoded]) -> Call[Emitted]:
    """One script call for up to a chunk of events: each is stored whole, or all are not."""
    args: list[Argument] = [core.fence, core.roster_version]
    for item in items:
        args += item[:3]
    return Call("emit", script("events/emit"), core.root, args, lambda reply: _emitted(core, items, reply),
                kind=Kind.WRITE, ids=[item.id for item in items])  # fmt: skip


def _emitted(core: EventCore, items: Sequence[Encoded], reply: list[Any]) -> Emitted:
    created, queue_ttl, version, letters, texts, members = reply
    if members:
        core.roster, core.roster_version = roster(members), version.decode()
    recipients = core.roster if version and version.decode() == core.roster_version else ()
    created_ms, told = int(created), iter(texts)
    events, present, unswept = [], [], []
    for item, letter in zip(items, letters.decode(), strict=True):
        if letter == _UNSWEPT:
            unswept.append(item.id)
        elif letter in _NEW:
            events.append(_fresh(core, item, STATUS[letter], created_ms, queue_ttl.decode(), recipients))
        else:
            events.append(_earlier(core, item.id, next(told, b"")))
            if letter == _PRESENT:
                present.append(item.id)
    return Emitted(events, present, unswept)


def _fresh(
    core: EventCore, item: Encoded, status: EventStatus, created_ms: int, queue_ttl: str, recipients: Any
) -> Event:
    owed = status is not EventStatus.COMPLETED
    ttl = optional("" if item.ttl == "-" else item.ttl or queue_ttl)
    return Event(
        id=item.id,
        queue=core.name,
        value=item.value,
        status=status,
        created_ms=created_ms,
        expires_ms=created_ms + ttl if ttl is not None and owed else None,
        settled_ms=None if status is EventStatus.ACTIVE else created_ms,
        recipients=recipients if owed else (),
    )


def _earlier(core: EventCore, id: str, told: bytes) -> Event:
    """The first event of an id, as far as the memory of it goes."""
    created, expires, status, settled = told.decode().split(",")
    return Event(
        id=id,
        queue=core.name,
        value=None,
        status=STATUS[status],
        created_ms=int(created),
        expires_ms=optional(expires),
        settled_ms=optional(settled),
        duplicate=True,
    )


def get(core: EventCore, id: str) -> Call[Event | None]:
    """The event as it stands now, active or archived, with the status of each recipient; None when it is gone.

    Waivers of removed subscriptions and the deadline count from their own time, whether or not a sweep has been there.
    Raises CorruptRecord for a damaged one, SchemaMismatch for a value of another type.
    """
    return Call("get", script("events/get"), core.root, [text("id", id)], lambda reply: event(core, id, reply),
                kind=Kind.READ, missing=lambda: None, ids=[id])  # fmt: skip


def list_archived(core: EventCore, *, offset: int = 0, limit: int = 100) -> Call[list[str]]:
    """Ids of archived events in the order of their settlement: `limit` (1…1,000) of them from `offset` on.

    Offsets shift when events are archived or their retention passes meanwhile.
    """
    args: list[Argument] = [integer("offset", offset, 0, 2**53 - 1), integer("limit", limit, 1, 1000)]
    return Call("list_archived", script("events/archived"), core.root, args,
                lambda reply: [id.decode() for id in reply], kind=Kind.READ, missing=list)  # fmt: skip


def info(core: EventCore) -> Call[QueueInfo]:
    """The queue at a glance: `counts` has the active events; `oldest_ms` is when the oldest of them was created."""
    return Call("info", script("events/info"), core.root, [], lambda reply: _info(core, reply), kind=Kind.READ,
                missing=lambda: _info(core, [0, 0, b"", 0]))  # fmt: skip


def info_if_there(core: EventCore) -> Call[QueueInfo | None]:
    """As `info`, but None when there is no queue."""
    return Call("info", script("events/info"), core.root, [], lambda reply: _info(core, reply), kind=Kind.READ,
                missing=lambda: None)  # fmt: skip


def _info(core: EventCore, reply: list[Any]) -> QueueInfo:
    active, _, oldest, dead = reply
    return QueueInfo(
        kind=core.kind,
        name=core.name,
        counts={EventStatus.ACTIVE: active},
        paused=False,
        oldest_ms=optional(oldest),
        dead=dead,
    )
