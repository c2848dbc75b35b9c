"""The stories of several steps, written once as generators: a driver runs each step, in either world.

A driver sends a step's result in, or throws its error, cancellation included: so `except` and `finally` here clean up
for the sync and the async front end alike.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from redisq.calls import (
    Call,
    Commands,
    Flow,
    Handle,
    HandlerExit,
    Kind,
    NoQueue,
    Wait,
    broadcast,
    consume,
    operate,
    produce,
)
from redisq.calls.consume import Look, Poison, Settlement, Taken
from redisq.calls.core import Core, Opened, QueueCore, directory
from redisq.errors import (
    CorruptRecord,
    IndeterminateWrite,
    InvalidInput,
    LeaseLost,
    OutOfMemory,
    RedisqError,
    Unavailable,
)
from redisq.frontend import Registry
from redisq.ids import nonce as new_nonce
from redisq.model import (
    TERMINAL,
    Ack,
    Bulk,
    Delivery,
    ErrorGroup,
    Failure,
    JobState,
    NewJob,
    Offer,
    QueueInfo,
    Renewal,
)
from redisq.policy import Keep
from redisq.values import Duration, boolean, duration_ms, integer, text

T = TypeVar("T")
New = TypeVar("New")
S = TypeVar("S", bound=produce.Sized)
D = TypeVar("D")
D_contra = TypeVar("D_contra", contravariant=True)
_log = logging.getLogger("redisq")

LOOK_EVERY = 2.0
"""Seconds after which an idle taker looks by itself, whatever was lost."""

RESULT_WAIT_MS = 60_000
"""How long a waiter for a result stays registered without looking again."""


def use(core: Core, build: Callable[[], Call[T]]) -> Flow[T]:
    """Runs the call that `build` makes, once the stored settings were held against what this client declared.

    The call is built before anything is sent, so that bad input is refused first; it is built again when the stored
    codec turns out to be another one than was assumed.
    """
    call = build()
    codec = core.codec.name
    yield from settle_terms(core, writes=call.kind is not Kind.READ)
    if core.codec.name != codec:
        call = build()
    try:
        result: T = yield call
    except NoQueue:
        yield from _create(core)
        result = yield call
    return result


def settle_terms(core: Core, *, writes: bool) -> Flow[bool]:
    """Compares this client's declaration with the queue, and stores it before a first write; False: no queue yet."""
    if core.opened is not Opened.NO and writes and not core.settled:
        # before a first write: another client may have deleted the queue since, and a third one made it anew
        (declared,) = yield Commands(("HGET", core.root, "declared"))
        if declared is None:
            return False
        if declared != b"1":
            core.opened = Opened.UNDECLARED
    if core.opened is Opened.NO:
        found = yield operate.open_queue(core)
        if found is None:
            return False
        _adopt(core, found)
    if writes and core.opened is Opened.UNDECLARED and core.policy is not None:
        try:
            yield from _create(core)
        except OutOfMemory:
            # a full server must still be drained: the queue goes by what it has until there is room to declare
            return True
    core.wrote |= writes
    return True


def _create(core: Core) -> Flow[None]:
    """Makes the queue and lists it: before, and again after, so that no crash leaves a queue that nobody sees."""
    listed = Commands(("HSET", core.directory, core.entry, "1"))
    if core.opened is not Opened.UNDECLARED:
        yield listed
    made = yield operate.create_queue(core)
    if made.created:
        yield listed
    _adopt(core, made)
    core.wrote = True


def _adopt(core: Core, found: operate.Settings) -> None:
    if found.codec != core.codec.name:
        core.use_codec(found.codec)
    core.opened = Opened.YES if found.declared else Opened.UNDECLARED


def offer(
    core: QueueCore,
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
    replicas: int = 0,
) -> Flow[Offer]:
    """Put a job in, and return its id, whether it is a duplicate, and its state.

    id: the first offer of an id wins while its record, or the memory of it, lives; a later one changes nothing. Without
    one the client makes an id, and a retried request is still one job. delay, at: not before that long, or that time
    (an aware datetime; the past is now). priority: -1,000…1,000, higher first. max_attempts, timeout, keep: in place of
    the policy's. metadata: str to str, 16 KiB. replicas: wait until so many replicas have it, at most `retry_for`.

    Raises InvalidInput before anything is sent, OutOfMemory when the server is full, IndeterminateWrite when the reply
    was lost for good or the replicas did not answer.
    """
    job = NewJob(value, id, name, delay, at, priority, max_attempts, timeout, keep, metadata)
    integer("replicas", replicas, 0, 1000)
    own = produce.checked_id(job) or core.ids.make()[0]
    offers = yield from use(core, lambda: produce.offers(core, [produce.encode(core, job, own)], replicas))
    return offers[0]


def offer_many(core: QueueCore, items: Iterable[Any], *, replicas: int = 0) -> Flow[list[Offer]]:
    """Put many jobs in: values, or `NewJob` for those with options. The order is kept.

    All are checked first. They go in chunks of at most 1,000 jobs or 4 MiB, one script call each, each whole or not at
    all. When a chunk stays uncertain, IndeterminateWrite tells in `done` the offers before it.
    """
    integer("replicas", replicas, 0, 1000)
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise InvalidInput(f"items must be an iterable of values or NewJob, not {type(items).__name__}")
    return (
        yield from in_chunks(
            core,
            "offer_many",
            list(items),
            produce.checked_id,
            partial(produce.encode, core),
            lambda chunk: use(core, lambda: produce.offers(core, chunk, replicas)),
        )
    )


def in_chunks(
    core: Core,
    operation: str,
    items: Sequence[New],
    checked_id: Callable[[New], str | None],
    encode: Callable[[New, str], S],
    send: Callable[[Sequence[S]], Flow[list[T]]],
) -> Flow[list[T]]:
    """Stores many new records: names and encodes all of them first, and again when the stored codec is another one;
    then sends chunk by chunk."""
    ids = [checked_id(item) for item in items]
    made = iter(core.ids.make(ids.count(None)))
    named = [id if id is not None else next(made) for id in ids]

    def chunks() -> list[list[S]]:
        return produce.chunks([encode(item, id) for item, id in zip(items, named, strict=True)])

    encoded = chunks()
    if not encoded:
        return []
    codec = core.codec.name
    yield from settle_terms(core, writes=True)
    if core.codec.name != codec:
        encoded = chunks()
    done: list[T] = []
    for chunk in encoded:
        with counting(operation, done):
            done += yield from send(chunk)
    return done


@contextlib.contextmanager
def counting(operation: str, done: Sequence[Any]) -> Iterator[None]:
    """Makes an error tell what was `done` before it. `Unavailable` says that nothing was: then it is another one."""
    try:
        yield
    except (IndeterminateWrite, OutOfMemory) as error:
        error.done = (*done, *error.done)
        raise
    except Unavailable as error:
        if not done:
            raise
        raise IndeterminateWrite(
            f"{operation}: {error}; what came before was applied: see `done`", operation=operation, done=done
        ) from error


def take(core: QueueCore, *, lease: Duration | None = None, wait: Duration | None = 0) -> Flow[Delivery | None]:
    """Claim the next job, or None when nothing is takeable. See `take_many`."""
    found = yield from take_many(core, 1, lease=lease, wait=wait)
    return found[0] if found else None


def take_many(
    core: QueueCore, limit: int, *, lease: Duration | None = None, wait: Duration | None = 0
) -> Flow[list[Delivery]]:
    """Claim up to `limit` (1…1,000) jobs in order, each under a lease of its own token.

    Due jobs are promoted and lapsed leases recovered first. Fewer than `limit` means that nothing more is takeable, or
    that the batch reached 8 MiB. lease: how long, None for the policy's. wait: block up to that long for the first
    job, None for ever; an offer, a due time, a back-off's end or a resume wakes it. A payload that does not decode is
    quarantined, and the take goes on to the next job.
    """
    integer("limit", limit, 1, consume.MAX_BATCH)
    found, _ = yield from wait_and_take(JobClaims(core, _lease_ms(lease)), limit, seconds_of(wait))
    return found


def exchange(
    core: QueueCore,
    settlements: Sequence[Settlement],
    limit: int,
    *,
    lease: Duration | None = None,
    wait: Duration | None = 0,
) -> Flow[tuple[list[Ack | Failure], list[Delivery]]]:
    """Settle a batch and take the next one, in one script call: the normal step of a consumer's loop.

    settlements: at most 1,000 deliveries (ack) or `Done`, `Failed`, `Released`; each answers for itself, a `Released`
    with a `Failure` of its new state. limit: 0…1,000 jobs to take. lease, wait: as in `take_many`.
    """
    lease_ms, seconds = _lease_ms(lease), seconds_of(wait)
    first = yield from use(core, lambda: consume.exchange(core, settlements, limit, lease_ms))
    return (yield from take_after_exchange(JobClaims(core, lease_ms), first, limit, seconds))


class Claims(Protocol[D_contra]):
    """How one kind of queue hands out work and takes it back: what the stories of takers are told with."""

    @property
    def core(self) -> Core: ...
    @property
    def bell(self) -> str:
        """The key that an idle taker blocks on."""

    def take(self, limit: int, look: Look) -> Call[Taken]: ...
    def set_aside(self, undecodable: Sequence[Poison]) -> Call[Any]: ...
    def hand_back(self, deliveries: Sequence[D_contra]) -> Call[Any]: ...
    def renew(self, delivery: D_contra) -> Call[Any]: ...
    def fail(self, delivery: D_contra, error: Exception, *, final: bool = False) -> Call[Any]: ...
    def ack(self, delivery: D_contra, result: Any) -> Call[Any]: ...


class JobClaims:
    """Claims on a job queue. lease_ms: None is the policy's."""

    def __init__(self, core: QueueCore, lease_ms: int | None) -> None:
        self.core = core
        self.bell = f"{core.root}:bell"
        self._lease_ms = lease_ms

    def take(self, limit: int, look: Look) -> Call[Taken]:  # noqa: ARG002 - all looks are alike here
        return consume.take(self.core, limit, self._lease_ms)

    def set_aside(self, undecodable: Sequence[Poison]) -> Call[Any]:
        return consume.quarantine_many(self.core, undecodable)

    def hand_back(self, deliveries: Sequence[Delivery]) -> Call[Any]:
        return consume.hand_back(self.core, deliveries)

    def renew(self, delivery: Delivery) -> Call[Any]:
        return consume.renew_ms(self.core, delivery, self._lease_ms)

    def fail(self, delivery: Delivery, error: Exception, *, final: bool = False) -> Call[Any]:
        return consume.fail(self.core, delivery, error, final=final)

    def ack(self, delivery: Delivery, result: Any) -> Call[Any]:
        return consume.ack(self.core, delivery, result)


def take_after_exchange(
    claims: Claims[D], first: tuple[list[Ack | Failure], Taken], limit: int, seconds: float | None
) -> Flow[tuple[list[Ack | Failure], list[D]]]:
    """Goes on where the first script call of an exchange left off."""
    answers, taken = first
    if limit == 0:
        return answers, []
    found, _ = yield from _complete(claims, taken, limit)
    if not found and (seconds is None or seconds > 0):
        with counting("exchange", answers):
            found, _ = yield from wait_and_take(claims, limit, seconds)
    return answers, found


def wait_and_take(claims: Claims[D], limit: int, seconds: float | None) -> Flow[tuple[list[D], Taken]]:
    """Looks, and then sleeps on the bell until there is something, or the time is up."""
    core = claims.core
    stop = None if seconds is None else time.monotonic() + seconds
    look = Look.ONCE if seconds == 0 else Look.BEFORE_WAIT
    block, nudge = 0.0, False
    while True:
        call = claims.take(limit, Look.AFTER_WAIT if block > 0 else look)
        if (yield from settle_terms(core, writes=True)):
            taken: Taken = yield Wait(claims.bell, block, call, nudge=nudge) if block > 0 else call
            found, taken = yield from _complete(claims, taken, limit)
            if found:
                return found, taken
            soonest = taken.next_in
        else:
            if block > 0 and (yield Wait(claims.bell, block, operate.open_queue(core))) is not None:
                # the ring that told of the queue told of work, too: look before the next wait
                block = 0.0
                continue
            soonest = None
        left = None if stop is None else stop - time.monotonic()
        if left is not None and left <= 0:
            return [], Taken([], [], False, None, 0.0)
        block = min(LOOK_EVERY, *(each for each in (left, soonest) if each is not None), LOOK_EVERY)
        nudge = soonest is not None and block == soonest
        block = max(block, 0.001)


def _complete(claims: Claims[D], taken: Taken, limit: int) -> Flow[tuple[list[D], Taken]]:
    """Repeats bounded passes until the batch is full or nothing more is takeable; sets undecodable jobs aside."""
    found = list(taken.deliveries)
    try:
        while True:
            if taken.undecodable:
                yield claims.set_aside(taken.undecodable)
            if len(found) >= limit or not (taken.more or taken.undecodable):
                return found, taken
            taken = yield claims.take(limit - len(found), Look.ONCE)
            found += taken.deliveries
    except BaseException:
        if found:
            yield from _hand_back(claims, found)
        raise


def _hand_back(claims: Claims[D], deliveries: Sequence[D]) -> Flow[None]:
    """Releases what an interrupted caller holds. Where that fails the leases run out, and the interruption goes on."""
    try:
        yield claims.hand_back(deliveries)
    except RedisqError as error:
        _log.warning("%d deliveries were not handed back, so their leases have to run out: %s", len(deliveries), error)


def ack_many(core: QueueCore, deliveries: Sequence[Delivery]) -> Flow[list[Ack]]:
    """Finish many jobs, up to 1,000 in one script call; each answers for itself, a stale token with `lease-lost`."""
    consume.check_batch("deliveries", deliveries)
    answers: list[Ack] = []
    for chunk in slices(deliveries):
        answers += yield from use(core, lambda chunk=chunk: consume.ack_many(core, chunk))  # type: ignore[misc]
    return answers


def renew_many(
    core: QueueCore, deliveries: Sequence[Delivery], lease: Duration | None = None
) -> Flow[list[Renewal | Ack]]:
    """Extend many leases, up to 1,000 in one script call; a lost one answers `lease-lost`, a removed job `gone`."""
    consume.check_batch("deliveries", deliveries)
    lease_ms = _lease_ms(lease)
    answers: list[Renewal | Ack] = []
    for chunk in slices(deliveries):
        answers += yield from use(core, lambda chunk=chunk: consume.renew_many(core, chunk, lease_ms))  # type: ignore[misc]
    return answers


def process_one(
    core: QueueCore,
    handler: Callable[[Delivery], Any],
    *,
    lease: Duration | None = None,
    renew_every: Duration | None = None,
    wait: Duration | None = 0,
) -> Flow[bool]:
    """Take one job, run `handler(delivery)` while renewing its lease, and settle it; False when there was none.

    The handler's return value is the result. Its exception is recorded as a failure and raised again; a result that
    can't be stored fails the job finally, since finished work is never run again for its result. KeyboardInterrupt,
    SystemExit, GeneratorExit and cancellation hand the job back, no attempt counted. renew_every: more than 0, less
    than the lease; a third of it by default. A lost lease cancels an async handler, sets `delivery.lost` for a sync
    one, records nothing and raises LeaseLost.
    """
    lease_ms, seconds = _lease_ms(lease), seconds_of(wait)
    return (yield from process(JobClaims(core, lease_ms), handler, lease_ms, renew_every, seconds))


def process(
    claims: Claims[D],
    handler: Callable[[D], Any],
    lease_ms: int | None,
    renew_every: Duration | None,
    seconds: float | None,
) -> Flow[bool]:
    """`process_one` of any kind of queue."""
    every_ms = None if renew_every is None else duration_ms("renew_every", renew_every, least=1)
    if every_ms is not None and lease_ms is not None and every_ms >= lease_ms:
        raise InvalidInput(f"renew_every must be less than the lease: {every_ms} ms is not less than {lease_ms} ms")
    found, taken = yield from wait_and_take(claims, 1, seconds)
    if not found:
        return False
    delivery = found[0]
    every = taken.lease / 3 if every_ms is None else every_ms / 1000
    if every >= taken.lease:
        yield claims.hand_back(found)
        raise InvalidInput(f"renew_every must be less than the lease: {every:g} s is not less than {taken.lease:g} s")
    yield from _handle(claims, delivery, handler, taken.lease, every)
    return True


def _handle(claims: Claims[D], delivery: D, handler: Callable[[D], Any], lease: float, every: float) -> Flow[None]:
    try:
        result = yield Handle(handler, delivery, lambda: claims.renew(delivery), lease, every)
    except LeaseLost:
        raise
    except Exception as error:
        yield claims.fail(delivery, error)
        raise
    except BaseException as error:
        yield from _hand_back(claims, [delivery])
        if isinstance(error, HandlerExit):
            raise GeneratorExit from error
        raise
    try:
        settled = claims.ack(delivery, result)
    except InvalidInput as error:
        yield claims.fail(delivery, error, final=True)
        raise
    yield settled


def slices(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[at : at + consume.MAX_BATCH] for at in range(0, len(items), consume.MAX_BATCH)]


def _lease_ms(lease: Duration | None) -> int | None:
    return None if lease is None else duration_ms("lease", lease, least=1)


def seconds_of(wait: Duration | None, name: str = "wait") -> float | None:
    return None if wait is None else duration_ms(name, wait) / 1000


def retry_many(
    core: QueueCore, state: JobState | str, *, name: str | None = None, error: str | None = None
) -> Flow[Bulk]:
    """Retry every dead or quarantined job, or those of one name or error type (`ErrorDetail.type`), in bounded steps.

    They line up at the tail in the order in which they died; what dies meanwhile is not touched again.
    """
    wanted = operate.terminal_state(state, (JobState.DEAD, JobState.QUARANTINED))
    return (yield from _bulk(core, "retry", wanted, name, error))


def purge(core: QueueCore, state: JobState | str, *, name: str | None = None, error: str | None = None) -> Flow[Bulk]:
    """Delete every job of a state (any but leased), or those of one name or error type, in bounded steps.

    Custom ids go on blocking for the policy's `dedup`, from the job's end, or from now when it never finished.
    """
    allowed = (JobState.READY, JobState.SCHEDULED, JobState.BLOCKED, *TERMINAL)
    return (yield from _bulk(core, "purge", operate.terminal_state(state, allowed), name, error))


def _bulk(core: QueueCore, verb: str, state: JobState, name: str | None, error: str | None) -> Flow[Bulk]:
    if name is not None:
        text("name", name, empty=True)
    if error is not None:
        text("error", error, empty=True)
    done = vanished = 0
    cursor = b""
    while True:
        changed, gone, cursor = yield from use(
            core,
            lambda cursor=cursor: operate.bulk(core, verb, state, name, error, cursor),  # type: ignore[misc]
        )
        done, vanished = done + changed, vanished + gone
        if not cursor:
            return Bulk(done=done, vanished=vanished)


def errors(core: QueueCore, state: JobState | str) -> Flow[list[ErrorGroup]]:
    """The jobs of a terminal state, grouped by name and error type, the largest group first; read in bounded steps."""
    wanted = operate.terminal_state(state)
    groups: dict[tuple[str, str], ErrorGroup] = {}
    cursor = b""
    while True:
        page, cursor = yield from use(core, lambda cursor=cursor: operate.error_groups(core, wanted, cursor))  # type: ignore[misc]
        for each in page:
            known = groups.get((each.name, each.type), msgspec.structs.replace(each, count=0))
            groups[each.name, each.type] = msgspec.structs.replace(
                each, count=known.count + each.count, newest_ms=max(known.newest_ms, each.newest_ms)
            )
        if not cursor:
            return sorted(groups.values(), key=lambda group: (-group.count, group.name, group.type))


def delete(core: QueueCore, *, force: bool = False) -> Flow[None]:
    """End the queue: its jobs, its history, its policy. Raises QueueNotEmpty while it holds live jobs, unless `force`.

    With force running tokens answer `gone`, and those who wait for results learn that their jobs are gone. The next
    offer makes the queue anew.
    """
    boolean("force", force)
    while not (yield from use(core, lambda: operate.delete_once(core, force))):
        done = 0
        for state in TERMINAL:
            done += (yield from purge(core, state)).done
        if not done:
            raise CorruptRecord(f"queue {core.name} has too many damaged jobs for one step: see check, and remove them")
    core.opened, core.wrote = Opened.NO, False
    yield Commands(("HDEL", core.directory, core.entry))
    # whoever made it anew meanwhile may have listed it before that
    (there,) = yield Commands(("EXISTS", core.root))
    if there:
        yield Commands(("HSET", core.directory, core.entry, "1"))


def wait_result(core: QueueCore, id: str, timeout: Duration | None) -> Flow[Any]:
    """The result of a job, once it is completed; None when it has none. No polling: the job's end wakes the caller.

    timeout: seconds, None for ever. Raises JobFailed when it ends dead or quarantined, JobCancelled, JobGone when it is
    unknown or removed, the built-in TimeoutError when the time is up, SchemaMismatch for a result of another type.
    """
    id, seconds = text("id", id), seconds_of(timeout, "timeout")
    stop = math.inf if seconds is None else time.monotonic() + seconds
    nonce = new_nonce()
    yield from settle_terms(core, writes=False)
    try:
        block = 0.0
        while True:
            left = stop - time.monotonic()
            # the last look takes this waiter off the list
            call = operate.outcome(core, id, nonce, RESULT_WAIT_MS if left > 0 else 0)
            ended = yield Wait(f"{core.root}:w:{nonce}", block, call) if block > 0 and left > 0 else call
            if ended is not None:
                return operate.result_of(core, id, *ended)
            if left <= 0:
                raise TimeoutError(f"job {id} of queue {core.name} did not finish within {seconds:g} s")
            block = min(LOOK_EVERY, stop - time.monotonic())
    except BaseException as error:
        if not isinstance(error, Exception | GeneratorExit):
            yield operate.outcome(core, id, nonce, 0)
        raise


def queues(registry: Registry[Any, Any]) -> Flow[list[QueueInfo]]:
    """The queues of a namespace, by name; one that is listed but not there (yet, or any more) is left out."""
    (listed,) = yield Commands(("HKEYS", directory(registry.namespace)))
    found: list[QueueInfo] = []
    for entry in sorted(entry.decode() for entry in listed):
        kind, _, name = entry.partition(":")
        info = None
        if kind == "jobs":
            info = yield operate.info_if_there(registry.core(name))
        elif kind == "events":
            info = yield broadcast.info_if_there(registry.event_core(name))
        found += [] if info is None else [info]
    return found
