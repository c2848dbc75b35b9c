"""Builders of what producers call: `offer` and the chunks of `offer_many`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from redisq.calls import Argument, Call, Copies, Kind
from redisq.calls.core import QueueCore
from redisq.codec import MAX_PAYLOAD_BYTES
from redisq.errors import InvalidInput
from redisq.model import JobState, NewJob, Offer
from redisq.policy import MAX_ATTEMPTS, Keep, keep_wire
from redisq.scripts import script
from redisq.values import Duration, duration_ms, integer, metadata, text, time_ms

CHUNK_JOBS = 1000
CHUNK_BYTES = 4 * 1024 * 1024
BIG_PAYLOAD = 4096
"""Payloads above this many bytes carry their size in the head, so that a take knows what it is about to reply."""

WAIT_MS = 250
"""How long one WAIT for replicas blocks: well under any socket timeout."""

_JOB_OVERHEAD = 256
_DEFAULTS = ";"
"""The tail of a head whose producer chose nothing."""
_NEW = "rs"
_STATE = {
    "r": JobState.READY, "s": JobState.SCHEDULED,
    "R": JobState.READY, "S": JobState.SCHEDULED, "L": JobState.LEASED, "C": JobState.COMPLETED,
    "D": JobState.DEAD, "X": JobState.CANCELLED, "Q": JobState.QUARANTINED, "M": None,
}  # fmt: skip


class Sized(Protocol):
    @property
    def size(self) -> int:
        """The bytes that it takes on the wire, about."""


S = TypeVar("S", bound=Sized)


class Encoded(msgspec.Struct, gc=False):
    """One job as the offer script takes it."""

    id: str
    body: bytes
    size: int
    tail: str = _DEFAULTS
    due: str = ""
    meta: bytes = b""


def encode(core: QueueCore, item: Any, id: str) -> Encoded:
    """Encodes a value, or a `NewJob` after a check of its options; raises InvalidInput naming the argument."""
    if isinstance(item, NewJob):
        return _encode_job(core, item, id)
    body = core.codec.encode("value", item, limit=MAX_PAYLOAD_BYTES, validate=core.validate)
    size = len(body)
    if size <= BIG_PAYLOAD:
        return Encoded(id, body, size + _JOB_OVERHEAD)
    return Encoded(id, body, size + _JOB_OVERHEAD, _tail(NewJob(item), size, False))


def _encode_job(core: QueueCore, job: NewJob, id: str) -> Encoded:
    body = core.codec.encode("value", job.value, limit=MAX_PAYLOAD_BYTES, validate=core.validate)
    meta = b"" if not job.metadata else msgspec.json.encode(metadata(job.metadata))
    size = len(body) + len(meta) + _JOB_OVERHEAD
    return Encoded(id, body, size, _tail(job, len(body), bool(meta)), _due(job), meta)


def offers(core: QueueCore, jobs: Sequence[Encoded], replicas: int = 0) -> Call[list[Offer]]:
    """One script call for up to a chunk of jobs: each is stored whole, or all are not. See `Copies` for replicas."""
    # most jobs are due now and have no metadata: then nothing is sent for these
    plain = not any(job.due or job.meta for job in jobs)
    args: list[Argument] = [3 if plain else 5]
    for job in jobs:
        args += (job.id, job.body, job.tail) if plain else (job.id, job.body, job.tail, job.due, job.meta)

    def decode(reply: bytes) -> list[Offer]:
        return [
            Offer(job.id, letter not in _NEW, _STATE[letter]) for job, letter in zip(jobs, reply.decode(), strict=True)
        ]

    mark = ("HSET", core.directory, core.entry, "1")
    # WAIT takes 0 as for ever
    copies = Copies(replicas, min(max(round(core.retry_for * 1000), 1), WAIT_MS), mark) if replicas else None
    return Call("offer", script("jobs/offer"), core.root, args, decode, kind=Kind.WRITE, ids=[job.id for job in jobs],
                copies=copies)  # fmt: skip


def checked_id(item: Any) -> str | None:
    """The id that a producer chose for an item."""
    return text("id", item.id) if isinstance(item, NewJob) and item.id is not None else None


def chunks(jobs: Sequence[S]) -> list[list[S]]:
    """In order, each of at most 1,000 jobs (or events) and 4 MiB (a single larger one alone)."""
    result: list[list[S]] = []
    size = 0
    for job in jobs:
        more = job.size
        if not result or len(result[-1]) == CHUNK_JOBS or size + more > CHUNK_BYTES:
            result.append([])
            size = 0
        result[-1].append(job)
        size += more
    return result


def new_job(
    value: Any,
    *,
    id: str | None = None,
    name: str = "",
    delay: Duration | None = None,
    at: datetime | None = None,
    priority: int = 0,
    max_attempts: int | None = None,
    timeout: Duration | None = None,
    keep: Keep | None | UnsetType = UNSET,
    metadata: dict[str, str] | None = None,
) -> NewJob:
    return NewJob(value, id, name, delay, at, priority, max_attempts, timeout, keep, metadata)


def _tail(job: NewJob, size: int, has_meta: bool) -> str:
    """The part of the head that the producer fixes (see lua/lib/head.lua); "" for each default."""
    fields = (
        _unless(integer("priority", job.priority, -1000, 1000), 0),
        "" if job.max_attempts is None else str(integer("max_attempts", job.max_attempts, 1, MAX_ATTEMPTS)),
        "" if job.timeout is None else str(duration_ms("timeout", job.timeout, least=1)),
        ("c" if job.id is not None else "") + ("m" if has_meta else ""),
        "" if job.keep is UNSET else keep_wire(job.keep),
        str(size) if size > BIG_PAYLOAD else "",
    )
    return f"{','.join(fields).rstrip(',')};{text('name', job.name, empty=True)}"


def _due(job: NewJob) -> str:
    if job.delay is not None and job.at is not None:
        raise InvalidInput("give either delay or at, not both")
    if job.at is not None:
        return f"@{time_ms('at', job.at)}"
    ms = 0 if job.delay is None else duration_ms("delay", job.delay)
    return f"+{ms}" if ms else ""


def _unless(value: int, default: int) -> str:
    return "" if value == default else str(value)
