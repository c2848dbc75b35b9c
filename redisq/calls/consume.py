"""Builders of what consumers call: take, ack, fail, release, quarantine, renew, exchange."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeVar

import msgspec

from redisq import detail
from redisq.calls import Argument, Call, Kind
from redisq.calls.core import QueueCore
from redisq.calls.heads import head
from redisq.codec import MAX_RESULT_BYTES, Undecodable
from redisq.errors import CorruptRecord, InvalidInput, LeaseLost
from redisq.ids import nonce
from redisq.model import Ack, Delivery, Done, ErrorDetail, Failed, Failure, JobState, Released, Renewal
from redisq.scripts import script
from redisq.values import Duration, boolean, duration_ms, integer, text

T = TypeVar("T")
MAX_BATCH = 1000
Settlement = Delivery | Done | Failed | Released
Item = list[Argument]
"""The five arguments of one settlement: verb, id, token, extra, data (see lua/lib/settle.lua)."""

_ACKS = {"A": Ack.ACKNOWLEDGED, "B": Ack.ALREADY_ACKNOWLEDGED, "G": Ack.GONE, "L": Ack.LEASE_LOST, "!": Ack.GONE}
_FAILURES = {
    "r": JobState.READY, "s": JobState.SCHEDULED, "d": JobState.DEAD, "x": JobState.CANCELLED,
    "q": JobState.QUARANTINED,
}  # fmt: skip
_LOST = "the token of job {id} holds no lease on queue {queue}: it ran out, was settled, or the job is gone"
_NO_RETRY = "!"
_LONGEST_MS = 2**53
_OUTCOMES = (Done, Failed, Released)
_BEGUN = "b"


class Poison(NamedTuple):
    """A job that was leased and can't be handed out: its payload, or what surrounds it, does not decode."""

    id: str
    token: str
    reason: str


class Look(Enum):
    """What a look for work comes after, and what comes after it when there is none."""

    ONCE = "once"
    BEFORE_WAIT = "before a wait"
    AFTER_WAIT = "after a wait"


class Taken(NamedTuple):
    """What one bounded pass of a take found."""

    deliveries: list[Any]
    undecodable: list[Poison]
    more: bool
    next_in: float | None
    """Seconds until something becomes takeable by time alone; None when nothing is known to."""
    lease: float
    """Seconds that these leases last."""


NOTHING: Taken = Taken([], [], False, None, 0.0)


def take(core: QueueCore, limit: int, lease_ms: int | None, *, starts: int = MAX_BATCH) -> Call[Taken]:
    """One bounded pass: recover, promote, claim up to `limit`; the first `starts` of them are started."""
    fresh = nonce()
    return Call(
        "take",
        script("jobs/take"),
        core.root,
        _claim(core, fresh, limit, lease_ms, starts),
        lambda reply: _taken(core, fresh, reply),
        kind=Kind.TAKE,
        missing=lambda: NOTHING,
        undo=give_back(core, fresh),
    )


def exchange(
    core: QueueCore, settlements: Sequence[Settlement], limit: int, lease_ms: int | None
) -> Call[tuple[list[Ack | Failure], Taken]]:
    """Settles a batch, then takes the next one: one script."""
    check_batch("settlements", settlements)
    if len(settlements) > MAX_BATCH:
        raise InvalidInput(f"settlements must be at most {MAX_BATCH:,}, not {len(settlements):,}")
    integer("limit", limit, 0, MAX_BATCH)
    return exchange_items(core, [settlement(core, each) for each in settlements], limit, lease_ms)


def exchange_items(
    core: QueueCore, items: Sequence[Item], limit: int, lease_ms: int | None, *, starts: int = MAX_BATCH
) -> Call[tuple[list[Ack | Failure], Taken]]:
    """An exchange of settlements that are encoded already; the first `starts` of the jobs taken are started."""
    fresh = nonce()
    args = _claim(core, fresh, limit, lease_ms, starts)
    for item in items:
        args += item

    def decode(reply: list[Any]) -> tuple[list[Ack | Failure], Taken]:
        words = reply[0].decode().split(",") if reply[0] else []
        answers = [_batch_answer(word) for _, word in zip(items, words, strict=True)]
        return answers, _taken(core, fresh, reply[1])

    return Call(
        "exchange",
        script("jobs/exchange"),
        core.root,
        args,
        decode,
        kind=Kind.TAKE if limit else Kind.WRITE,
        missing=lambda: ([Ack.GONE for _ in items], NOTHING),
        ids=[str(item[1]) for item in items],
        undo=give_back(core, fresh) if limit else None,
    )


def give_back(core: QueueCore, nonce: str) -> Call[int]:
    """Undoes a take under the same request number, whether or not it arrived."""
    return Call("give_back", script("jobs/give_back"), core.root, [nonce], int, kind=Kind.WRITE, missing=lambda: 0)


def begin(delivery: Delivery) -> Item:
    """Marks a lease as started: from now on its lapse counts as an attempt."""
    return ["b", delivery.id, delivery.token]


def progress(core: QueueCore, delivery: Delivery, value: bytes) -> Call[None]:
    """Stores how far a job has come, as JSON; raises LeaseLost for a stale token."""
    return Call("progress", script("jobs/progress"), core.root, [delivery.id, delivery.token, value],
                lambda reply: _raise_lost(core, delivery, reply.decode()), kind=Kind.WRITE,
                missing=lambda: _raise_lost(core, delivery, "G"), ids=[delivery.id])  # fmt: skip


def quarantine_many(core: QueueCore, undecodable: Sequence[Poison]) -> Call[list[Ack | Failure]]:
    """Sets jobs aside that do not decode, each with the reason; the raw bytes stay."""
    items = [quarantined(each.id, each.token, "Undecodable", each.reason) for each in undecodable]
    return _settle_many(core, "quarantine", items)


def hand_back(core: QueueCore, deliveries: Sequence[Delivery]) -> Call[list[Ack | Failure]]:
    """Releases several deliveries to the head as one block."""
    return _settle_many(core, "release", [settlement(core, Released(each)) for each in deliveries])


def ack(core: QueueCore, delivery: Delivery, result: Any = None) -> Call[Ack]:
    """Finish a job. `result` (None: none) is kept on its record: at most 64 KiB encoded.

    Returns `acknowledged`, `already-acknowledged` (the same token again) or `gone` (no such record now, which is no
    proof that this attempt finished it). Raises LeaseLost for a stale token, and InvalidInput for a result that is too
    large or can't be encoded; then nothing was applied.
    """

    def decode(word: str) -> Ack:
        _raise_lost(core, delivery, word, gone=False)
        return _ACKS[word]

    return _settle(core, "ack", Done(delivery, result), decode, lambda: Ack.GONE)


def ack_many(core: QueueCore, deliveries: Sequence[Delivery]) -> Call[list[Any]]:
    """Acks up to 1,000 deliveries in one call."""
    return _settle_many(core, "ack_many", [settlement(core, _own(core, each)) for each in deliveries])


def fail(
    core: QueueCore, delivery: Delivery, error: Any, *, retry_in: Duration | None = None, final: bool = False
) -> Call[Failure]:
    """Record a failed attempt: `error` is an exception, a str or an `ErrorDetail` (8 KiB are kept).

    With attempts left the job is scheduled after the policy's back-off, or after `retry_in`; else, or with `final`, it
    is dead. A job whose cancel was asked for ends cancelled. Raises LeaseLost for a stale token or a removed job.
    """
    item = Failed(delivery, error, retry_in, final)
    return _settle(core, "fail", item, lambda word: _failure_of(core, delivery, word), None)


def release(core: QueueCore, delivery: Delivery, *, delay: Duration = 0) -> Call[None]:
    """Hand a job back without counting the attempt: to the head of the queue, or scheduled after `delay`.

    Raises LeaseLost for a stale token or a removed job.
    """
    item = Released(delivery, delay)
    return _settle(core, "release", item, lambda word: _raise_lost(core, delivery, word), None)


def quarantine(core: QueueCore, delivery: Delivery, reason: str) -> Call[Failure]:
    """Set a job aside as one that no retry can help; `retry(id)` brings it back. Raises LeaseLost for a stale token."""
    if not isinstance(reason, str):
        raise InvalidInput(f"reason must be a str, not {type(reason).__name__}")
    item = quarantined(_own(core, delivery).id, delivery.token, "Quarantined", reason)
    return _settle_item(core, "quarantine", delivery, item, lambda word: _failure_of(core, delivery, word), None)


def renew(core: QueueCore, delivery: Delivery, lease: Duration | None = None) -> Call[Renewal]:
    """Extend a lease to `lease` (None: the policy's) from now; never shortens it. Tells of a cancel request.

    Raises LeaseLost for a stale token or a removed job.
    """
    return renew_ms(core, delivery, None if lease is None else duration_ms("lease", lease, least=1))


def renew_ms(core: QueueCore, delivery: Delivery, lease_ms: int | None) -> Call[Renewal]:
    def decode(words: list[str]) -> Renewal:
        _raise_lost(core, delivery, words[0])
        return _renewed(words[0])

    return _renew(core, "renew", [delivery], lease_ms, decode)


def renew_many(core: QueueCore, deliveries: Sequence[Delivery], lease_ms: int | None) -> Call[list[Renewal | Ack]]:
    """Renews up to 1,000 leases in one call."""
    return _renew(core, "renew_many", deliveries, lease_ms, lambda words: [_renewal(word) for word in words])


def _renew(
    core: QueueCore,
    operation: str,
    deliveries: Sequence[Delivery],
    lease_ms: int | None,
    decode: Callable[[list[str]], T],
) -> Call[T]:
    args: list[Argument] = ["" if lease_ms is None else lease_ms]
    for each in deliveries:
        args += [_own(core, each).id, each.token]
    return Call(operation, script("jobs/renew"), core.root, args,
                lambda reply: decode(reply.decode().split(",") if reply else []), kind=Kind.WRITE,
                missing=lambda: decode(["G"] * len(deliveries)), ids=[each.id for each in deliveries])  # fmt: skip


def _renewal(word: str) -> Renewal | Ack:
    return _ACKS[word] if word in _ACKS else _renewed(word)


def _renewed(word: str) -> Renewal:
    return Renewal(int(word.rstrip("!")), word.endswith("!"))


def _claim(core: QueueCore, nonce: str, limit: int, lease_ms: int | None, starts: int) -> list[Argument]:
    return [nonce, core.fence, limit, "" if lease_ms is None else lease_ms, starts, core.worker]


def _taken(core: QueueCore, nonce: str, reply: list[Any]) -> Taken:
    now, stop, first, most, timeout, more, soonest, ids, heads, bodies, metas = reply
    deliveries: list[Delivery] = []
    undecodable: list[Poison] = []
    expires_ms, stamp, policy_most = int(stop), int(first), int(most)
    policy_timeout = int(timeout) if timeout else None
    for i, raw in enumerate(heads):
        if raw is None:
            continue
        fence = stamp + i
        token = f"{fence}-{nonce}"
        try:
            standing = head(raw)
            fixed = standing.fixed
            delivery = Delivery(
                id=ids[i].decode(),
                name=fixed.name,
                value=core.codec.decode(bodies[i]),
                attempt=standing.attempts + 1,
                max_attempts=fixed.max_attempts or policy_most,
                priority=fixed.priority,
                token=token,
                fence=fence,
                expires_ms=expires_ms,
                created_ms=standing.created_ms,
                timeout_ms=fixed.timeout_ms or policy_timeout,
                metadata=metadata_of(metas[i] if metas else None),
                queue=core.name,
            )
        except (Undecodable, ValueError) as error:
            undecodable.append(Poison(ids[i].decode(errors="replace"), token, str(error)))
        else:
            deliveries.append(delivery)
    if heads:
        core.fence = max(core.fence, stamp + len(heads) - 1)
    next_in = seconds(int(soonest) - int(now)) if soonest else None
    return Taken(deliveries, undecodable, more == b"1", next_in, seconds(expires_ms - int(now)))


def seconds(ms: int) -> float:
    """Milliseconds of a reply as seconds; ValueError when they are no time at all."""
    if abs(ms) > _LONGEST_MS:
        raise ValueError("a time in it is out of range")
    return ms / 1000


def metadata_of(data: bytes | None) -> dict[str, str]:
    return msgspec.json.decode(data, type=dict[str, str]) if data else {}


def _settle(
    core: QueueCore, operation: str, item: Settlement, decode: Callable[[str], T], missing: Callable[[], T] | None
) -> Call[T]:
    return _settle_item(core, operation, delivery_of(item), settlement(core, item), decode, missing)


def _settle_item(
    core: QueueCore,
    operation: str,
    delivery: Delivery,
    args: Sequence[Argument],
    decode: Callable[[str], T],
    missing: Callable[[], T] | None,
) -> Call[T]:
    return Call(operation, script("jobs/settle"), core.root, args, lambda reply: decode(reply.decode()),
                kind=Kind.WRITE, missing=missing or (lambda: decode("G")), ids=[delivery.id])  # fmt: skip


def _failure_of(core: QueueCore, delivery: Delivery, word: str) -> Failure:
    _raise_lost(core, delivery, word)
    return Failure(_FAILURES[word[0]], int(word[1:]) if word[1:] else None)


def _raise_lost(core: QueueCore, delivery: Delivery, word: str, *, gone: bool = True) -> None:
    if word == "L" or (gone and word == "G"):
        raise LeaseLost(_LOST.format(id=delivery.id, queue=core.name))
    if word == "!":
        raise CorruptRecord(
            f"job {delivery.id} of queue {core.name} has a damaged head: look with check, then remove it"
        )


def _settle_many(core: QueueCore, operation: str, items: Sequence[Sequence[Argument]]) -> Call[list[Any]]:
    args = [arg for item in items for arg in item]

    def decode(reply: bytes) -> list[Ack | Failure]:
        words = reply.decode().split(",") if reply else []
        return [_batch_answer(word) for _, word in zip(items, words, strict=True)]

    return Call(operation, script("jobs/settle"), core.root, args, decode, kind=Kind.WRITE,
                ids=[str(item[1]) for item in items], missing=lambda: [Ack.GONE for _ in items])  # fmt: skip


def _batch_answer(word: str) -> Ack | Failure:
    if word in _ACKS:
        return _ACKS[word]
    if word == _BEGUN:
        return Failure(JobState.LEASED)
    return Failure(_FAILURES[word[0]], int(word[1:]) if word[1:] else None)


def success(delivery: Delivery) -> Item:
    """An ack without a result."""
    return ["a", delivery.id, delivery.token]


def released(id: str, token: str, delay: Duration) -> Item:
    return [f"r{duration_ms('delay', delay)}", id, token]


def quarantined(id: str, token: str, kind: str, reason: str) -> Item:
    return ["q+", id, token, detail.to_wire(ErrorDetail(kind, reason))]


def settlement(core: QueueCore, item: Any) -> Item:
    """Raises InvalidInput for a delivery of another queue, or a result that can't be stored."""
    delivery = _own(core, delivery_of(item))
    if isinstance(item, Delivery) or (isinstance(item, Done) and item.result is None):
        return success(delivery)
    if isinstance(item, Done):
        return ["a+", delivery.id, delivery.token, core.results.encode("result", item.result, limit=MAX_RESULT_BYTES)]
    if isinstance(item, Failed):
        wait = "" if item.retry_in is None else str(duration_ms("retry_in", item.retry_in))
        final = boolean("final", item.final)
        return [f"f+{_NO_RETRY if final else wait}", delivery.id, delivery.token, detail.to_wire(item.error)]
    return released(delivery.id, delivery.token, item.delay)


def delivery_of(item: Any) -> Any:
    """What a settlement is about: the delivery in it, or itself."""
    return item.delivery if isinstance(item, _OUTCOMES) else item


def _own(core: QueueCore, delivery: Any) -> Delivery:
    if not isinstance(delivery, Delivery):
        raise InvalidInput(f"delivery must be a Delivery of this queue, not {type(delivery).__name__}")
    if delivery.queue != core.name:
        raise InvalidInput(f"delivery {delivery.id} is of queue {delivery.queue}; it can't be settled on {core.name}")
    text("delivery.token", delivery.token)
    return delivery


def check_batch(name: str, items: Any) -> None:
    if not isinstance(items, Sequence) or isinstance(items, str | bytes):
        raise InvalidInput(f"{name} must be a list or tuple of deliveries, not {type(items).__name__}")
