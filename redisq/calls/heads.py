"""Reads the small texts that the scripts keep per job: heads, leases, ledger and history rows (see lua/lib)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from redisq import detail
from redisq.model import Attempt, ErrorDetail, JobState, Outcome, Transition

_NUMBER = rb"(\d{0,16}(?!\d))"
_PRESENT = re.compile(rb"([wWcdxq])%b(?:,%b)?(?:,%b)?(?:([|!])(.+))?" % (_NUMBER, _NUMBER, _NUMBER), re.DOTALL)
_LAST = re.compile(rb"([a-zA-Z]),(\d{1,16}),([a-zA-Z]),(\d*),([^,]*),(\d{1,16}),([suSU]),(\d{1,16}),([^,]*)", re.DOTALL)
_LEASE = re.compile(rb"([^,]*),(\d{1,16}),([suSU]),(\d{1,16}),[^,]*")
_CREATED = re.compile(rb"(\d{1,16})(d?)")
_TAIL = re.compile(rb"(-?\d*),?(\d*),?(\d*),?([a-zA-Z]*),?([\d:/]*),?(\d*)")
_KEEP = re.compile(rb"|\d*:\d*(?:/\d*:\d*){3}")
_DIGITS = 16

STATES = {
    "r": JobState.READY, "s": JobState.SCHEDULED, "l": JobState.LEASED, "c": JobState.COMPLETED,
    "d": JobState.DEAD, "x": JobState.CANCELLED, "q": JobState.QUARANTINED,
}  # fmt: skip
OUTCOMES = {
    "c": Outcome.COMPLETED, "f": Outcome.RETRIED, "d": Outcome.DEAD, "l": Outcome.LAPSED,
    "x": Outcome.CANCELLED, "q": Outcome.QUARANTINED,
}  # fmt: skip
_FAILURES = ("f", "l", "q")


class Fixed(NamedTuple):
    """What the producer fixed; None where the policy decides."""

    name: str
    priority: int
    max_attempts: int | None
    timeout_ms: int | None


class Last(NamedTuple):
    """The last settlement of a claim."""

    verb: str
    taken_ms: int
    at_ms: int
    attempt: int
    state: str
    worker: str
    folded: bool


class Head(NamedTuple):
    letter: str
    attempts: int
    earlier: int
    folded: int
    last: Last | None
    created_ms: int
    delayed: bool
    fixed: Fixed

    @property
    def waiting(self) -> bool:
        return self.letter in "wW"


class Lease(NamedTuple):
    token: str
    attempt: int
    cancel_requested: bool
    taken_ms: int


@lru_cache(maxsize=4096)
def fixed(tail: bytes) -> Fixed:
    options, end, name = tail.partition(b";")
    match = _TAIL.fullmatch(options)
    if not end or match is None:
        raise ValueError("the options in its head are damaged")
    priority, most, timeout, _, keep, size = match.groups()
    if priority == b"-" or not _KEEP.fullmatch(keep) or max(map(len, (priority, most, timeout, size))) > _DIGITS:
        raise ValueError("the options in its head are damaged")
    return Fixed(
        name.decode(),
        int(priority or 0),
        int(most) if most else None,
        int(timeout) if timeout else None,
    )


@lru_cache(maxsize=256)  # jobs of one bulk offer have the same head
def head(data: bytes) -> Head:
    """Raises ValueError when the head is damaged."""
    parts = data.split(b";", 2)
    present = _PRESENT.fullmatch(parts[0])
    created = _CREATED.fullmatch(parts[1]) if len(parts) == 3 else None
    if present is None or created is None:
        raise ValueError("its head is damaged")
    letter, attempts, earlier, folded, mark, last = present.groups()
    return Head(
        letter.decode(),
        int(attempts or 0),
        int(earlier or 0),
        int(folded or 0),
        None if mark is None else _last(last, mark == b"!"),
        int(created[1]),
        bool(created[2]),
        fixed(parts[2]),
    )


def _last(data: bytes, folded: bool) -> Last:
    found = _LAST.fullmatch(data)
    if found is None:
        raise ValueError("the last settlement in its head is damaged")
    verb, at, state, _, _, attempt, _, taken, worker = (part.decode(errors="replace") for part in found.groups())
    return Last(verb, int(taken), int(at), int(attempt), state, unquote(worker), folded)


def lease(data: bytes) -> Lease:
    """Raises ValueError when the lease is damaged."""
    found = _LEASE.fullmatch(data)
    if found is None:
        raise ValueError("its lease is damaged")
    token, attempt, mark, taken = found.groups()
    return Lease(token.decode(), int(attempt), mark.isupper(), int(taken))


def error_of(data: bytes | None) -> ErrorDetail | None:
    return detail.from_wire(data) if data else None


class Past(NamedTuple):
    """A job's columns of the past, as read by `jobs/past`."""

    head: Head
    lease: Lease | None
    attempts: bytes
    history: bytes
    error: bytes
    brief: bytes


def attempts(past: Past, cap: int) -> list[Attempt]:
    """The ledger: the folded rows, then the last settlement if it was an attempt."""
    rows = [_attempt(number, fields, body) for number, fields, body in _rows(past.attempts)]
    last = past.head.last
    outcome = None if last is None or last.folded else _outcome(last)
    if last is not None and outcome is not None:
        rows.append(
            Attempt(
                number=past.head.earlier + last.attempt,
                started_ms=last.taken_ms,
                finished_ms=last.at_ms,
                outcome=OUTCOMES[outcome],
                error=_failure(last, past.brief),
                worker=last.worker,
            )
        )
    return rows[-cap:]


def transitions(past: Past, cap: int) -> list[Transition]:
    """The history: the folded rows (before there are any, the offer), the last settlement, the running claim."""
    head = past.head
    rows = [_transition(number, fields, body) for number, fields, body in _rows(past.history)]

    def add(at_ms: int, state: JobState, attempt: int, error: ErrorDetail | None = None) -> None:
        ordinal = rows[-1].ordinal + 1 if rows else 1
        rows.append(Transition(ordinal=ordinal, at_ms=at_ms, state=state, attempt=attempt, detail=error))

    if not rows:
        add(head.created_ms, JobState.SCHEDULED if head.delayed else JobState.READY, 0)
    last = head.last
    if last is not None and not last.folded:
        if last.taken_ms:
            add(last.taken_ms, JobState.LEASED, last.attempt)
        add(last.at_ms, STATES[last.state], last.attempt, _failure(last, past.error))
    if past.lease is not None:
        add(past.lease.taken_ms, JobState.LEASED, past.lease.attempt)
    return rows[-cap:]


def _outcome(last: Last) -> str | None:
    """The outcome letter of a settlement; None when it was no attempt (lua/lib/ledger.lua says the same)."""
    if last.state == "x":
        return "x"
    if last.verb in ("r", "u"):
        return None
    if last.verb == "a":
        return "c"
    return ("d" if last.state == "d" else "f") if last.verb == "f" else last.verb


def _failure(last: Last, error: bytes) -> ErrorDetail | None:
    if last.verb not in _FAILURES or (last.verb == "l" and last.state == "x"):
        return None
    return error_of(error)


def _rows(data: bytes) -> list[tuple[int, list[str], bytes]]:
    """Rows of number "," fields… "," length ":" body."""
    rows = []
    while data:
        front, _, rest = data.partition(b":")
        number, *fields, size = front.decode().split(",")
        rows.append((int(number), fields, rest[: int(size)]))
        data = rest[int(size) :]
    return rows


def _attempt(number: int, fields: list[str], body: bytes) -> Attempt:
    started, finished, outcome = fields
    worker, _, error = body.partition(b",")
    return Attempt(
        number=number,
        started_ms=int(started),
        finished_ms=int(finished),
        outcome=OUTCOMES[outcome],
        error=error_of(error),
        worker=unquote(worker.decode()),
    )


def _transition(number: int, fields: list[str], body: bytes) -> Transition:
    at, state, attempt = fields
    return Transition(ordinal=number, at_ms=int(at), state=STATES[state], attempt=int(attempt), detail=error_of(body))
