"""Builders of what operators call, and of what opens a queue."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, NamedTuple, TypeVar

from redisq.calls import Argument, Call, Kind, heads as texts
from redisq.calls.core import Core, QueueCore
from redisq.calls.records import decode_result, many, one
from redisq.errors import InvalidInput, JobCancelled, JobFailed, JobGone, UnsupportedServer
from redisq.model import (
    TERMINAL,
    Attempt,
    Cancel,
    ErrorGroup,
    History,
    Job,
    JobHistory,
    JobState,
    Maintenance,
    Page,
    QueueInfo,
)
from redisq.policy import Policy
from redisq.scripts import script
from redisq.values import integer, text

P = TypeVar("P", bound=Policy)

_COUNTED = (
    JobState.READY, JobState.SCHEDULED, JobState.LEASED, JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED,
    JobState.QUARANTINED,
)  # fmt: skip
BULK_SLICE = 100
"""Jobs that one script call of a bulk operation looks at."""

# the places of lua/lib/listing.lua and lua/jobs/list.lua
_SCORED = rb"-?(?:inf|\d+(?:\.\d+)?(?:e[+-]?\d+)?)\|.*"
_PLACE = re.compile(rb"(?:%s)?" % _SCORED, re.DOTALL)
_READY_PLACE = re.compile(rb"(?:[zh]%s|l(?:-?\d+)?)?" % _SCORED, re.DOTALL)
_SWEPT = ("due", "lapsed", "retention", "dedup")
_LISTED = tuple(JobState)


class Settings(NamedTuple):
    """What `open` and `create` answer: whether the queue holds a declared policy, and its codec."""

    declared: bool
    codec: str
    created: bool = False


def open_queue(core: Core) -> Call[Settings | None]:
    """Holds this client's declaration against the stored one; None when there is no queue yet."""
    return Call(
        "open",
        script("queue/open"),
        core.root,
        _flat(core.declared),
        lambda reply: Settings(reply[0] == b"1", _codec(core, reply[1])),
        kind=Kind.READ,
        missing=lambda: None,
    )


def create_queue(core: Core) -> Call[Settings]:
    """Makes the queue, or stores the policy of this client when none was declared before."""
    declares = core.policy is not None
    args: list[Argument] = [int(declares), len(core.declared), *_flat(core.declared), *_flat(core.stored)]
    return Call(
        "create",
        script("queue/create"),
        core.root,
        args,
        lambda reply: Settings(declares, _codec(core, reply[1]), reply[0] == b"1"),
        kind=Kind.READ,
    )


def alter(core: Core, policy: P) -> Call[P]:
    """Change the stored policy: the fields given to `policy`'s constructor, in one step. Returns the old policy.

    Running clients go by the new fields at once; a client that starts later and declares an old value conflicts.
    """
    wanted = core.policy_type
    if not isinstance(policy, wanted):
        raise InvalidInput(f"policy must be {wanted.__name__}, not {type(policy).__name__}")
    names = list(wanted.DEFAULTS)
    args: list[Argument] = [len(names), *names, *_flat(policy.given)]

    def decode(reply: list[bytes]) -> P:
        stored = dict(zip(names, (value.decode() for value in reply), strict=True))
        try:
            return type(policy).from_stored(stored)
        except OverflowError as error:
            raise ValueError("a stored duration is out of range") from error

    return Call("alter", script("queue/alter"), core.root, args, decode, kind=Kind.WRITE)


def pause(core: QueueCore) -> Call[None]:
    """Stop handing out jobs, for every consumer, until `resume`; offers and settlements go on."""
    return Call("pause", script("jobs/pause"), core.root, [1], _nothing, kind=Kind.WRITE)


def resume(core: QueueCore) -> Call[None]:
    """End a pause and wake the takers that wait. A queue that is not there is not made by this."""
    return Call("resume", script("jobs/pause"), core.root, [0], _nothing, kind=Kind.WRITE, missing=lambda: None)


def _nothing(_: Any) -> None:
    return None


def cancel(core: QueueCore, id: str) -> Call[Cancel]:
    """End a waiting job at once (`cancelled`), or ask the holder of a leased one to stop (`requested`, again too).

    `too-late` for a terminal job, `unknown` for none. After a request, fail, release and lapse end in cancelled; an ack
    still wins.
    """
    return _verb(core, "cancel", id, lambda reply: Cancel(reply.decode()), Cancel.UNKNOWN)


def retry(core: QueueCore, id: str) -> Call[bool]:
    """Give a dead or quarantined job all its attempts again, at the tail; its ledger and history go on."""
    return _verb(core, "retry", id, lambda reply: reply == b"1", False)


def promote(core: QueueCore, id: str) -> Call[bool]:
    """Make a scheduled job ready now, at the tail; False when it is not scheduled."""
    return _verb(core, "promote", id, lambda reply: reply == b"1", False)


def remove(core: QueueCore, id: str) -> Call[bool]:
    """Delete a job, or what is left of a damaged one; False when unknown or leased. Its id is free at once."""
    return _verb(core, "remove", id, lambda reply: reply == b"1", False)


def _verb(core: QueueCore, operation: str, id: str, decode: Any, missing: Any) -> Call[Any]:
    id = text("id", id)
    return Call(operation, script(f"jobs/{operation}"), core.root, [id], decode, kind=Kind.WRITE,
                missing=lambda: missing, ids=[id])  # fmt: skip


def get(core: QueueCore, id: str) -> Call[Job | None]:
    """The job as it stands now; None when unknown or removed. Raises CorruptRecord for a damaged one, SchemaMismatch
    for a result of another type than `result_type`."""
    return Call("get", script("jobs/get"), core.root, [text("id", id)], lambda reply: one(core, reply),
                kind=Kind.READ, missing=lambda: None, ids=[id])  # fmt: skip


def attempts(core: QueueCore, id: str) -> Call[list[Attempt]]:
    """The ledger of a job, oldest first: its newest `attempt_cap` attempts. Empty for an unknown id."""

    def decode(reply: list[Any]) -> list[Attempt]:
        past = _past(reply)
        return [] if past is None else texts.attempts(past, int(reply[1]))

    return Call("attempts", script("jobs/past"), core.root, [text("id", id)], decode, kind=Kind.READ, missing=list)


def history(core: QueueCore, id: str) -> Call[JobHistory]:
    """The transitions of a job, oldest first: its newest `transition_cap`; `dropped` says how many went before."""

    def decode(reply: list[Any]) -> JobHistory:
        past, recorded = _past(reply), History(reply[0].decode()) is not History.OFF
        if past is None or not recorded:
            return JobHistory(entries=[], recorded=recorded)
        rows = texts.transitions(past, int(reply[2]))
        return JobHistory(entries=rows, recorded=recorded, dropped=rows[0].ordinal - 1 if rows else 0)

    return Call("history", script("jobs/past"), core.root, [text("id", id)], decode, kind=Kind.READ,
                missing=lambda: JobHistory(entries=[], recorded=True))  # fmt: skip


def _past(reply: list[Any]) -> texts.Past | None:
    head, lease, ledger, rows, error, brief = reply[3:]
    if head is None:
        return None
    return texts.Past(texts.head(head), None if lease is None else texts.lease(lease), ledger or b"", rows or b"",
                      error or b"", brief or b"")  # fmt: skip


def counts(core: QueueCore) -> Call[dict[JobState, int]]:
    """How many jobs are in each state; costs the same however many there are."""
    return Call("counts", script("jobs/info"), core.root, [], lambda reply: _counts(reply[2:]), kind=Kind.READ,
                missing=lambda: _counts([0] * len(_COUNTED)))  # fmt: skip


def info(core: QueueCore) -> Call[QueueInfo]:
    """The queue at a glance. `oldest_ms` is when the job that a take would hand out next was created."""
    return Call("info", script("jobs/info"), core.root, [], lambda reply: _info(core, reply), kind=Kind.READ,
                missing=lambda: _info(core, [b"0", b"", *[0] * len(_COUNTED)]))  # fmt: skip


def info_if_there(core: QueueCore) -> Call[QueueInfo | None]:
    """As `info`, but None when there is no queue."""
    return Call("info", script("jobs/info"), core.root, [], lambda reply: _info(core, reply), kind=Kind.READ,
                missing=lambda: None)  # fmt: skip


def _info(core: QueueCore, reply: list[Any]) -> QueueInfo:
    paused, oldest, *numbers = reply
    numbered = _counts(numbers)
    return QueueInfo(
        kind="jobs",
        name=core.name,
        counts=numbered,
        paused=paused == b"1",
        oldest_ms=int(oldest) if oldest else None,
        dead=numbered[JobState.DEAD],
    )


def _counts(numbers: list[int]) -> dict[JobState, int]:
    found = dict(zip(_COUNTED, numbers, strict=True))
    return {state: found.get(state, 0) for state in JobState}


def maintain(core: QueueCore, limit: int = 100) -> Call[Maintenance]:
    """One bounded sweep: at most `limit` (1…1,000) due jobs, lapsed leases, past records and passed ids each."""
    return sweep(core, limit, 0)


def sweep(core: QueueCore, limit: int, gap_ms: int) -> Call[Maintenance]:
    """As `maintain`, unless somebody swept the queue less than `gap_ms` ago."""
    integer("limit", limit, 1, 1000)

    def decode(reply: list[bytes]) -> Maintenance:
        *done, pending = (int(number) for number in reply)
        by_category = dict(zip(_SWEPT, done, strict=True))
        return Maintenance(processed=sum(by_category.values()), pending=pending == 1, by_category=by_category)

    return Call("maintain", script("jobs/maintain"), core.root, [limit, gap_ms], decode, kind=Kind.WRITE,
                missing=lambda: decode([b"0"] * 5))  # fmt: skip


def jobs(
    core: QueueCore,
    *,
    state: JobState | str | None = None,
    name: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Call[Page]:
    """A page of jobs, `limit` 1…1,000 of them: ready in reverse take order, scheduled by due time and leased by lease
    end, latest first, terminal by finish, newest first; `state=None` walks all states in that order.

    Every job that stayed where it was is seen once. A page may be short or empty while `cursor` is not None. A damaged
    job stands as a `DamagedRecord`.
    """
    integer("limit", limit, 1, 1000)
    wanted = None if state is None else _listed(state)
    named = "" if name is None else text("name", name, empty=True)
    current, place = (wanted or _LISTED[0], "") if cursor is None else _from_cursor(cursor, wanted)

    def decode(reply: list[Any]) -> Page:
        rest, columns = reply
        items = [item for item in many(core, columns) if item is not None]
        following: str | None = None
        if rest:
            following = _to_cursor(current, rest)
        elif wanted is None and current is not _LISTED[-1]:
            following = _to_cursor(_LISTED[_LISTED.index(current) + 1], b"")
        return Page(items=items, cursor=following)

    args: list[Argument] = [current.value, int(name is not None), named, limit, place]
    return Call("jobs", script("jobs/list"), core.root, args, decode, kind=Kind.READ,
                missing=lambda: Page(items=[]))  # fmt: skip


def bulk(
    core: QueueCore, verb: str, state: JobState, name: str | None, error: str | None, cursor: bytes
) -> Call[tuple[int, int, bytes]]:
    """One slice of `retry_many` or `purge`: done, vanished, the next cursor or empty."""
    args: list[Argument] = [verb, state.value, int(name is not None), name or "", int(error is not None), error or "",
                            BULK_SLICE, cursor]  # fmt: skip
    return Call(
        "retry_many" if verb == "retry" else verb,
        script("jobs/bulk"),
        core.root,
        args,
        lambda reply: (int(reply[0]), int(reply[1]), reply[2]),
        kind=Kind.WRITE,
        missing=lambda: (0, 0, b""),
    )


def error_groups(core: QueueCore, state: JobState, cursor: bytes) -> Call[tuple[list[ErrorGroup], bytes]]:
    """The groups of one slice of a state, and the next cursor or empty."""

    def decode(reply: list[Any]) -> tuple[list[ErrorGroup], bytes]:
        rest, *flat = reply
        rows = zip(flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True)
        groups = [
            ErrorGroup(name=name.decode(), type=kind.decode(errors="replace"), count=int(count), newest_ms=int(newest))
            for name, kind, count, newest in rows
        ]
        return groups, rest

    return Call("errors", script("jobs/errors"), core.root, [state.value, 1000, cursor], decode, kind=Kind.READ,
                missing=lambda: ([], b""))  # fmt: skip


def delete_once(core: QueueCore, force: bool) -> Call[bool]:
    """True when the queue is gone; False when its terminal jobs are of too many names for one call."""
    return Call("delete", script("jobs/delete"), core.root, [int(force)], lambda reply: reply == b"1", kind=Kind.WRITE,
                missing=lambda: True)  # fmt: skip


def outcome(core: QueueCore, id: str, nonce: str, ms: int) -> Call[Any]:
    """The outcome of a job as (letter, data), or None while it is not finished; then `nonce` is told of its end."""
    return Call("wait_result", script("jobs/await"), core.root, [id, nonce, ms],
                lambda reply: (reply[:1].decode(), reply[1:]) if reply else None, kind=Kind.READ,
                missing=lambda: ("g", b""), ids=[id])  # fmt: skip


def result_of(core: QueueCore, id: str, letter: str, data: bytes) -> Any:
    """The result, or the error, that a job's outcome stands for."""
    if letter == "c":
        return decode_result(core, id, data or None)
    if letter == "x":
        raise JobCancelled(f"job {id} of queue {core.name} was cancelled")
    if letter == "g":
        raise JobGone(f"job {id} of queue {core.name} is unknown or was removed")
    what = "was quarantined" if letter == "q" else "failed for good"
    try:
        error = texts.error_of(data)
        why = "no reason is recorded" if error is None else f"{error.type}: {error.message}"
    except ValueError as damage:
        error, why = None, f"{damage}, so its reason can't be read"
    raise JobFailed(f"job {id} of queue {core.name} {what}: {why}", error=error)


def terminal_state(state: Any, allowed: tuple[JobState, ...] = TERMINAL) -> JobState:
    known = _listed(state)
    if known not in allowed:
        raise InvalidInput(f"state must be one of {', '.join(allowed)}, not {known}")
    return known


def _listed(state: JobState | str) -> JobState:
    try:
        known = JobState(state)
    except ValueError:
        raise InvalidInput(f"state must be one of {', '.join(JobState)}, not {state!r}") from None
    return known


def _to_cursor(state: JobState, place: bytes) -> str:
    return base64.urlsafe_b64encode(state.value.encode() + b" " + place).decode()


def _from_cursor(cursor: str, wanted: JobState | None) -> tuple[JobState, bytes]:
    try:
        word, place = base64.b64decode(cursor, b"-_", validate=True).split(b" ", 1)
        state = JobState(word.decode())
        if not (_READY_PLACE if state is JobState.READY else _PLACE).fullmatch(place):
            raise ValueError
    except (binascii.Error, ValueError, TypeError):
        raise InvalidInput("cursor is not one that a page of this listing gave") from None
    if wanted is not None and state is not wanted:
        raise InvalidInput(f"cursor belongs to a listing of {state} jobs, not of {wanted} ones")
    return state, place


def _flat(fields: dict[str, str]) -> list[Argument]:
    return [part for pair in fields.items() for part in pair]


def _codec(core: Core, stored: bytes) -> str:
    name = stored.decode()
    if name not in ("json", "msgpack"):
        raise UnsupportedServer(f"queue {core.name} stores its payloads as {name!r}, which this release can't read")
    return name
