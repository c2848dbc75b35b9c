"""The records and enumerations that public calls take and return. Nothing here does I/O."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from redisq.values import Duration, at_from_ms


class JobState(StrEnum):
    """Where a job stands. The last four are terminal."""

    READY = "ready"
    SCHEDULED = "scheduled"
    BLOCKED = "blocked"
    LEASED = "leased"
    COMPLETED = "completed"
    DEAD = "dead"
    CANCELLED = "cancelled"
    QUARANTINED = "quarantined"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL


TERMINAL = (JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED, JobState.QUARANTINED)


class EventStatus(StrEnum):
    ACTIVE = "active"
    COMPLETED = "completed"
    EXPIRED = "expired"


class ObligationStatus(StrEnum):
    PENDING = "pending"
    ACKNOWLEDGED = "acknowledged"
    WAIVED = "waived"
    DEAD = "dead"


class Ack(StrEnum):
    """The answer to an ack. `GONE`: no such record now, which is no proof that this attempt finished it."""

    ACKNOWLEDGED = "acknowledged"
    ALREADY_ACKNOWLEDGED = "already-acknowledged"
    GONE = "gone"
    LEASE_LOST = "lease-lost"
    NOT_ACTIVE = "not-active"


class Cancel(StrEnum):
    CANCELLED = "cancelled"
    REQUESTED = "requested"
    TOO_LATE = "too-late"
    UNKNOWN = "unknown"


class Outcome(StrEnum):
    """How an attempt ended. A last attempt that lapsed is `LAPSED`, too."""

    COMPLETED = "completed"
    RETRIED = "retried"
    DEAD = "dead"
    LAPSED = "lapsed"
    CANCELLED = "cancelled"
    QUARANTINED = "quarantined"


class History(StrEnum):
    """How much of a job's past is recorded; each rung adds to the one before."""

    OFF = "off"
    TRANSITIONS = "transitions"
    FULL = "full"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the records: frozen, compared by value."""


class ErrorDetail(msgspec.Struct, frozen=True):
    """What went wrong: the exception's type, its message, its traceback (8 KiB in all when stored)."""

    type: str
    message: str = ""
    traceback: str = ""


class Offer(msgspec.Struct, frozen=True):
    """The answer to an offer. For a duplicate, `state` is the first job's, or None when only its id is remembered."""

    id: str
    duplicate: bool
    state: JobState | None


class Renewal(msgspec.Struct, frozen=True):
    expires_ms: int
    cancel_requested: bool = False

    @property
    def expires_at(self) -> datetime:
        return _at(self.expires_ms)


class Failure(msgspec.Struct, frozen=True):
    """Where a failed, released or quarantined job went; `due_ms` is None unless it is scheduled."""

    state: JobState | ObligationStatus
    due_ms: int | None = None

    @property
    def due_at(self) -> datetime | None:
        return at_from_ms(self.due_ms)


class Delivery(Record, frozen=True):
    """A leased job. `lost` alone changes: it turns True when the lease is known to be lost.

    `attempt` counts from 1. `fence` grows with every claim of the queue: store it beside what the handler writes, and
    refuse a smaller one there.
    """

    id: str
    name: str
    value: Any
    attempt: int
    max_attempts: int
    priority: int
    token: str
    fence: int
    expires_ms: int
    created_ms: int
    timeout_ms: int | None
    metadata: dict[str, str]
    queue: str
    lost: bool = False

    @property
    def expires_at(self) -> datetime:
        return _at(self.expires_ms)

    @property
    def created_at(self) -> datetime:
        return _at(self.created_ms)


class Job(Record, frozen=True):
    """A job as it stands. What does not apply to its state is None; `value` of an undecodable one is its raw bytes.

    `attempts` counts the running claim too, and starts again after a manual retry.
    """

    id: str
    queue: str
    name: str
    state: JobState
    value: Any
    attempts: int
    max_attempts: int
    priority: int
    created_ms: int
    due_ms: int | None = None
    lease_expires_ms: int | None = None
    finished_ms: int | None = None
    timeout_ms: int | None = None
    result: Any = None
    error: ErrorDetail | None = None
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    progress: Any = None
    cancel_requested: bool = False

    @property
    def created_at(self) -> datetime:
        return _at(self.created_ms)

    @property
    def due_at(self) -> datetime | None:
        return at_from_ms(self.due_ms)

    @property
    def lease_expires_at(self) -> datetime | None:
        return at_from_ms(self.lease_expires_ms)

    @property
    def finished_at(self) -> datetime | None:
        return at_from_ms(self.finished_ms)


class DamagedRecord(Record, frozen=True):
    """A listed item that can't be read: what is wrong with it, and its raw bytes."""

    id: str
    queue: str
    reason: str
    raw: bytes = b""


class Attempt(Record, frozen=True):
    """One row of a job's ledger. Numbers go on rising over manual retries."""

    number: int
    started_ms: int
    finished_ms: int
    outcome: Outcome
    error: ErrorDetail | None = None
    worker: str = ""

    @property
    def started_at(self) -> datetime:
        return _at(self.started_ms)

    @property
    def finished_at(self) -> datetime:
        return _at(self.finished_ms)


class Transition(Record, frozen=True):
    """One step of a job's life. Ordinals count from 1 and keep rising when the oldest rows are dropped."""

    ordinal: int
    at_ms: int
    state: JobState
    attempt: int
    detail: ErrorDetail | None = None

    @property
    def at(self) -> datetime:
        return _at(self.at_ms)


class JobHistory(Record, frozen=True):
    """`recorded` is False when the queue records no history, which is not the same as an empty one. Then it shows none,
    also of what it recorded before."""

    entries: list[Transition]
    recorded: bool
    dropped: int = 0


class Page(Record, frozen=True):
    """A slice of a listing. `cursor` goes into the next call; None at the end."""

    items: list[Any]
    cursor: str | None = None


class QueueInfo(Record, frozen=True):
    """A queue at a glance. `oldest_ms` is the creation time of the job that a take would hand out next."""

    kind: str
    name: str
    counts: dict[JobState, int] | dict[EventStatus, int]
    paused: bool
    oldest_ms: int | None
    dead: int

    @property
    def oldest_at(self) -> datetime | None:
        return at_from_ms(self.oldest_ms)


class Maintenance(Record, frozen=True):
    """What one bounded sweep did; `pending` says that more is due now."""

    processed: int
    pending: bool
    by_category: dict[str, int]


class Bulk(Record, frozen=True):
    """How many records a bulk operation changed, and how many vanished before it came to them."""

    done: int
    vanished: int


class ErrorGroup(Record, frozen=True):
    name: str
    type: str
    count: int
    newest_ms: int

    @property
    def newest_at(self) -> datetime:
        return _at(self.newest_ms)


class NewJob(msgspec.Struct, frozen=True):
    """One item of `offer_many`, with the options of `offer`."""

    value: Any
    id: str | None = msgspec.field(default=None)
    name: str = ""
    delay: Duration | None = None
    at: datetime | None = None
    priority: int = 0
    max_attempts: int | None = None
    timeout: Duration | None = None
    keep: Any | UnsetType = UNSET
    metadata: dict[str, str] | None = None


class NewEvent(msgspec.Struct, frozen=True):
    """One item of `emit_many`, with the options of `emit`."""

    value: Any
    ttl: Duration | None | UnsetType = UNSET
    id: str | None = None


class Subscription(Record, frozen=True):
    """One life of a named subscription: a removed name that is subscribed again gets another generation."""

    queue: str
    name: str
    generation: str


class Recipient(Record, frozen=True):
    """What one subscription generation owes an event; `resolved_ms` is None while it is pending."""

    name: str
    generation: str
    status: ObligationStatus
    resolved_ms: int | None = None

    @property
    def resolved_at(self) -> datetime | None:
        return at_from_ms(self.resolved_ms)


class Event(Record, frozen=True):
    """An event as it stands. `expires_ms` is None without a deadline, `settled_ms` while it is active.

    `duplicate` is True from an emission whose id was taken; when only the memory of the id is left, `value` is None.
    """

    id: str
    queue: str
    value: Any
    status: EventStatus
    created_ms: int
    expires_ms: int | None = None
    settled_ms: int | None = None
    recipients: tuple[Recipient, ...] = ()
    duplicate: bool = False

    @property
    def created_at(self) -> datetime:
        return _at(self.created_ms)

    @property
    def expires_at(self) -> datetime | None:
        return at_from_ms(self.expires_ms)

    @property
    def settled_at(self) -> datetime | None:
        return at_from_ms(self.settled_ms)


class EventDelivery(Record, frozen=True):
    """An event leased to a subscription. `lost` alone changes: it turns True when the lease is known to be lost.

    `attempt` counts from 1. `fence` grows with every claim and every emission of the queue. The recipients of `event`
    are left out: `get` has them.
    """

    id: str
    value: Any
    attempt: int
    max_attempts: int | None
    token: str
    fence: int
    expires_ms: int
    created_ms: int
    queue: str
    subscription: Subscription
    event: Event
    lost: bool = False

    @property
    def expires_at(self) -> datetime:
        return _at(self.expires_ms)

    @property
    def created_at(self) -> datetime:
        return _at(self.created_ms)


class SubscriptionInfo(Record, frozen=True):
    """A subscription at a glance. `lag` is all that is pending, `in_flight` the part under a lease.

    `oldest_pending_ms` is the creation time of the oldest pending event, `dead` how many obligations are dead,
    `dropped` how many were given up because of `max_backlog` or `idle_after`.
    """

    name: str
    generation: str
    lag: int
    in_flight: int
    oldest_pending_ms: int | None
    dead: int
    dropped: int

    @property
    def oldest_pending_at(self) -> datetime | None:
        return at_from_ms(self.oldest_pending_ms)


class DeadObligation(Record, frozen=True):
    """What a subscription gave up: its attempts are used up, or the payload does not decode (then `value` is bytes)."""

    event_id: str
    name: str
    generation: str
    attempts: int
    error: ErrorDetail | None
    dead_ms: int
    value: Any

    @property
    def dead_at(self) -> datetime:
        return _at(self.dead_ms)


class Done(msgspec.Struct, frozen=True):
    """Settle by ack, with a result."""

    delivery: Any
    result: Any = None


class Failed(msgspec.Struct, frozen=True):
    """Settle by fail."""

    delivery: Any
    error: Any
    retry_in: Duration | None = None
    final: bool = False


class Released(msgspec.Struct, frozen=True):
    """Settle by release."""

    delivery: Any
    delay: Duration = 0


def _at(ms: int) -> datetime:
    moment = at_from_ms(ms)
    assert moment is not None
    return moment
