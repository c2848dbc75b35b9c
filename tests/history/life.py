"""What one job (or what one subscription owes of one event) may go through: the rules, a step at a time.

Written from the contract alone. A step is a call's part that concerns this one thing; `apply` says which states it may
leave behind, and from which moment on. Times are ns; the moment is the earliest at which all of it can have happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

NEVER = 1 << 62
SOME = "?"  # the token of a lease whose claimer never learned of it


class State(NamedTuple):
    """Where it stands: absent, waiting, leased, done or dead.

    low: of a waiting one, when it can be taken; of a lease, the earliest end. high: the latest end of a lease.
    """

    kind: str = "absent"
    attempts: int = 0
    token: str = ""  # of the lease; of the ack that finished it
    low: int = 0
    high: int = 0
    settled: tuple[str, str] | None = None  # the latest verb that ended a lease, and its token


ABSENT = State()


@dataclass(frozen=True)
class Step:
    """One step: put, take, ack, fail, release, renew; or fault, or found, what was there in the end.

    answer: None when nobody knows what was answered, or whether it was done at all. number: the end of the lease
    (take, renew), when it is due again (fail). span: the lease, or the delay. reach: of a fault, see `record.Fault`.
    """

    verb: str
    start: int
    end: int
    client: str = ""
    answer: str | None = None
    token: str = ""
    number: int | None = None
    span: int = 0
    attempt: int = 0
    final: bool = False
    reach: tuple[int, int] = (0, 0)

    @property
    def unknown(self) -> bool:
        return self.answer is None


@dataclass(frozen=True)
class Terms:
    """What holds for one thing. most: its attempts, 0 for any. brief: its record may go once it has ended. safe: no
    fault makes it absent again."""

    most: int = 0
    brief: bool = False
    backoff: int = 0
    slack: int = 0  # by how much the clocks may differ
    safe: bool = False


Outcomes = Iterator[tuple[State, int]]


def apply(state: State, step: Step, now: int, terms: Terms) -> Outcomes:
    """The states after `step`, each with its moment; none where the step can't have happened here."""
    now = max(now, step.start)
    if now > step.end + terms.slack:
        return
    if step.verb == "put":
        yield from _put(state, step, now)
    elif step.verb == "take":
        yield from _take(state, step, now, terms)
    elif step.verb == "found":
        if _looks(state, step.answer, terms):
            yield state, now
    elif step.unknown:
        yield from _unknown(state, step, now, terms)
    elif step.answer in ("lease-lost", "gone", "already-acknowledged"):
        yield from _refused(state, step, now, terms)
    else:
        yield from _settled(state, step, now, terms)


def passing(state: State, now: int, terms: Terms) -> Outcomes:
    """What happens by itself: a lease runs out."""
    if state.kind == "leased":
        now = max(now, state.low - terms.slack)
        if terms.most and state.attempts >= terms.most:
            yield State("dead", state.attempts), now
        else:
            yield State("waiting", state.attempts, low=state.low + terms.backoff), now


def claimed_unseen(state: State, now: int, lease: int, terms: Terms) -> Outcomes:
    """A take whose answer reached nobody."""
    if state.kind == "waiting":
        now = max(now, state.low - terms.slack)
        yield State("leased", state.attempts + 1, SOME, now + lease - terms.slack, NEVER, state.settled), now


def _put(state: State, step: Step, now: int) -> Outcomes:
    absent = state.kind == "absent"
    if step.answer == "duplicate":
        if not absent:
            yield state, now
    elif absent:
        yield State("waiting", low=now + step.span), now


def _take(state: State, step: Step, now: int, terms: Terms) -> Outcomes:
    if state.kind != "waiting" or step.attempt != state.attempts + 1 or step.number is None:
        return
    # the server says when the lease ends, and so when it began
    began = step.number - step.span
    now = max(now, state.low - terms.slack, began - terms.slack)
    if step.start - terms.slack <= began and now <= step.end + terms.slack:
        yield State("leased", step.attempt, step.token, step.number, step.number, state.settled), now


def _holds(state: State, step: Step, now: int, terms: Terms) -> bool:
    return state.kind == "leased" and state.token == step.token and now < state.high + terms.slack


def _last(state: State, terms: Terms) -> bool:
    return bool(terms.most) and state.attempts >= terms.most


def _settled(state: State, step: Step, now: int, terms: Terms) -> Outcomes:
    """It was done, as told."""
    if not _holds(state, step, now, terms):
        if state.settled == (step.verb, step.token) and state.kind in ("waiting", "leased", "dead"):
            yield state, now  # told again
        return
    if step.verb == "ack":
        yield State("done", state.attempts, step.token), now
    elif step.verb == "renew":
        ends = step.number or 0
        now = max(now, ends - step.span - terms.slack) if ends > state.high else now
        if ends >= step.start + step.span - terms.slack and now <= step.end + terms.slack:
            yield state._replace(low=max(state.low, ends), high=max(state.high, ends)), now
    elif step.verb == "release":
        yield _waits(state, step, now + step.span, state.attempts - 1), now
    elif step.answer == "dead":
        if step.final or _last(state, terms):
            yield State("dead", state.attempts, settled=("fail", step.token)), now
    elif not (step.final or _last(state, terms)):
        yield _waits(state, step, step.number or now, state.attempts), now


def _waits(state: State, step: Step, low: int, attempts: int) -> State:
    return State("waiting", attempts, low=low, settled=(step.verb, step.token))


def _unknown(state: State, step: Step, now: int, terms: Terms) -> Outcomes:
    """It was done, and nobody knows: the other case, that it was not, needs no step."""
    if not _holds(state, step, now, terms):
        return
    if step.verb == "renew":
        # it may have come later, too: the later, the longer the lease
        yield state._replace(low=max(state.low, now + step.span), high=state.high + step.span), now
    elif step.verb == "ack":
        yield State("done", state.attempts, step.token), now
    elif step.verb == "release":
        yield _waits(state, step, now + step.span, state.attempts - 1), now
    elif step.final or _last(state, terms):
        yield State("dead", state.attempts, settled=("fail", step.token)), now
    else:
        yield _waits(state, step, now, state.attempts), now


def _refused(state: State, step: Step, now: int, terms: Terms) -> Outcomes:
    """The token was stale, or there is no such record; nothing was changed."""
    ended = state.kind in ("done", "dead")
    if state.kind == "absent":
        if step.answer == "gone" or (step.answer == "lease-lost" and step.verb != "ack"):
            yield state, now
    elif step.answer == "gone":
        if ended and terms.brief:
            yield state, now
    elif step.answer == "already-acknowledged":
        if state.kind == "done" and state.token == step.token:
            yield state, now
    elif state.kind == "leased" and state.token == step.token:
        # right at its end: whether or not anyone has taken it since
        now = max(now, state.low - terms.slack)
        if now <= step.end + terms.slack:
            yield state, now
    elif not (state.kind == "done" and state.token == step.token and step.verb == "ack" and not terms.brief):
        yield state, now


def _looks(state: State, seen: str | None, terms: Terms) -> bool:
    return state.kind == seen or (seen == "absent" and terms.brief and state.kind in ("done", "dead"))
