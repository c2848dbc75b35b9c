"""Turns the columns that a read script returns into `Job` records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from redisq.calls.consume import metadata_of
from redisq.calls.core import QueueCore
from redisq.calls.heads import Head, error_of, head, lease
from redisq.codec import Undecodable
from redisq.errors import CorruptRecord, SchemaMismatch
from redisq.model import TERMINAL, DamagedRecord, Job, JobState

_LETTERS = {"c": JobState.COMPLETED, "d": JobState.DEAD, "x": JobState.CANCELLED, "q": JobState.QUARANTINED}


class _Columns(NamedTuple):
    """One job's fields, in the order of lua/lib/record.lua."""

    head: bytes | None
    body: bytes | None
    meta: bytes | None
    lease: bytes | None
    stop: Any
    due: Any
    result: bytes | None
    error: bytes | None
    progress: bytes | None
    broken: bytes | None
    completed: Any
    dead: Any
    cancelled: Any
    quarantined: Any


class _Damage(Exception):
    """Why a job can't be read."""


def one(core: QueueCore, reply: Sequence[Any]) -> Job | None:
    """The job of a reply about a single id; None for an unknown one."""
    found = many(core, reply, strict=True)[0]
    if isinstance(found, DamagedRecord):
        raise CorruptRecord(
            f"job {found.id} of queue {core.name} is damaged: {found.reason}. See it with check, then remove it"
        )
    return found


def many(core: QueueCore, reply: Sequence[Any], *, strict: bool = False) -> list[Job | DamagedRecord | None]:
    """One entry per id: its job, what is damaged about it, or None when nothing of it is left.

    With `strict` a result of another type than declared raises SchemaMismatch; else it counts as damage.
    """
    _, most, timeout, ids, *columns = reply
    jobs: list[Job | DamagedRecord | None] = []
    for i, raw_id in enumerate(ids):
        row = _Columns(*(column[i] if column else None for column in columns))
        id = raw_id.decode(errors="replace")
        try:
            jobs.append(_job(core, id, row, int(most), int(timeout) if timeout else None))
        except (_Damage, ValueError, OverflowError) as damage:
            jobs.append(DamagedRecord(id=id, queue=core.name, reason=str(damage), raw=row.body or b""))
        except SchemaMismatch as mismatch:
            if strict:
                raise
            jobs.append(DamagedRecord(id=id, queue=core.name, reason=str(mismatch), raw=row.result or b""))
    return jobs


def _job(core: QueueCore, id: str, row: _Columns, most: int, timeout: int | None) -> Job | None:
    if row.broken is not None:
        raise _Damage(row.broken.decode(errors="replace"))
    if row.head is None:
        if any(field is not None for field in row):
            raise _Damage("its head is missing")
        return None
    standing = head(row.head)
    if row.body is None:
        raise _Damage("its payload is missing")
    state = _state(standing, row)
    held = None if row.lease is None else lease(row.lease)
    fixed = standing.fixed
    return Job(
        id=id,
        queue=core.name,
        name=fixed.name,
        state=state,
        value=_value(core, row.body),
        attempts=standing.attempts if held is None else held.attempt,
        max_attempts=fixed.max_attempts or most,
        priority=fixed.priority,
        created_ms=standing.created_ms,
        due_ms=_ms(row.due) if state is JobState.SCHEDULED else None,
        lease_expires_ms=_ms(row.stop) if state is JobState.LEASED else None,
        finished_ms=_ms(getattr(row, state)) if state in TERMINAL else None,
        timeout_ms=fixed.timeout_ms or timeout,
        result=decode_result(core, id, row.result),
        error=error_of(row.error),
        metadata=metadata_of(row.meta),
        progress=None if row.progress is None else progress_of(row.progress),
        cancel_requested=held is not None and held.cancel_requested,
    )


def _state(standing: Head, row: _Columns) -> JobState:
    """The state that head and indexes agree on; the sum of their disagreements is damage."""
    if not standing.waiting:
        state = _LETTERS[standing.letter]
        if getattr(row, state) is None:
            raise _Damage(f"it is {state} but not in that index")
        return state
    if (row.lease is None) != (row.stop is None):
        raise _Damage("its lease is missing" if row.lease is None else "its lease has no end")
    if row.lease is not None:
        return JobState.LEASED
    return JobState.READY if row.due is None else JobState.SCHEDULED


def _value(core: QueueCore, body: bytes) -> Any:
    try:
        return core.codec.decode(body)
    except Undecodable:
        return body


def decode_result(core: QueueCore, id: str, data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return core.results.decode(data)
    except Undecodable as error:
        raise SchemaMismatch(f"the result of job {id} is not of the declared type: {error}") from error


def progress_of(data: bytes) -> Any:
    """What `Context.progress` stored: JSON, whatever the queue's codec is."""
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError) as error:
        raise _Damage(f"its progress does not decode: {error}") from error


def _ms(score: Any) -> int | None:
    return None if score is None else int(float(score))
