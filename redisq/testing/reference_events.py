"""A model of event queues in plain Python: what an event queue has to answer, told as simply as possible.

As in `redisq.testing.reference`, the model is the judge in tests: lists and dicts, scanned from end to end, on the same
`ManualClock` as the queue that it is compared with. Whatever time does by itself (deadlines, retention, the end of a
hold, of a memory) the model does at the door of every method, as of its own time; only the lapse of a lease and the
limits on a backlog wait for a take or a sweep, because the contract says so.

Where the contract leaves something open the model has made a choice, marked by "choice:" below. Differences that a
comparison has to allow:

* No order of deliveries is promised. `handing_out` names the ids that the next take hands out first, in that order, if
  they are takeable; without it the model goes by the time since which an event is takeable.
* `maintain` counts in `lapsed` and `dropped` what it did and in the other categories nothing, because there all is done
  before it comes. Compare the sum of `dropped` of a drained `maintain`.
* Events settled at the same time stand in `list_archived` in any order, and recipients as their subscriptions came.
* Tokens, fences and generations are the model's own, unless `make_generation` gives the real ones.
* Nothing blocks: `wait` is accepted and ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from redisq.detail import disabled
from redisq.errors import CapacityExceeded, EventNotActive, InvalidInput, LeaseLost, SchemaMismatch, SubscriptionGone
from redisq.ids import IdMaker
from redisq.model import (
    Ack,
    DeadObligation,
    Done,
    ErrorDetail,
    Event,
    EventDelivery,
    EventStatus,
    Failed,
    Failure,
    Maintenance,
    NewEvent,
    ObligationStatus,
    Page,
    Recipient,
    Released,
    Renewal,
    Subscription,
    SubscriptionInfo,
)
from redisq.policy import EventPolicy
from redisq.testing.clock import ManualClock
from redisq.testing.guard import Guard
from redisq.testing.reference import (
    DETAIL_BYTES,
    LAPSED,
    UNDECODABLE,
    _check_failed,
    _check_lease,
    _cut,
    _detail,
    _one_id,
)
from redisq.values import Duration, duration_ms, integer, text

T = TypeVar("T")

MOST_SUBSCRIPTIONS = 1000
CATEGORIES = ("deadlines", "lapsed", "archives", "removals", "dead", "dropped")


@dataclass(eq=False)
class _Subscription:
    """One generation. `last_take_ms` is when a take returned something, at first 0."""

    name: str
    generation: str
    active: bool = True
    last_take_ms: int = 0
    dropped: int = 0


@dataclass(eq=False)
class _Obligation:
    """What one generation owes one event. While it is leased, `lease_ends_ms` is set, also when that is past."""

    event: _Event
    subscription: _Subscription
    takeable_ms: int
    status: ObligationStatus = ObligationStatus.PENDING
    resolved_ms: int | None = None
    # when the event stopped to wait for it: a retried obligation does not make it wait again
    freed_ms: int | None = None
    # dead, and neither discarded nor past its retention; or dead once and pending again
    listed: bool = False
    retried: bool = False
    died_ms: int = 0
    error: ErrorDetail | None = None
    attempts: int = 0
    token: str = ""
    lease_ends_ms: int | None = None
    # the newest settlement of any token: (token, verb, answer)
    settled: tuple[str, str, Failure] | None = None

    @property
    def owed(self) -> bool:
        """Whether somebody may still take it, or has taken it."""
        return self.status is ObligationStatus.PENDING and (self.retried or self.event.status is EventStatus.ACTIVE)

    @property
    def waiting(self) -> bool:
        return self.owed and self.lease_ends_ms is None


@dataclass(eq=False)
class _Event:
    id: str
    value: Any
    created_ms: int
    expires_ms: int | None
    emission: int
    obligations: list[_Obligation] = field(default_factory=list)
    status: EventStatus = EventStatus.ACTIVE
    settled_ms: int | None = None
    # whether it went into the archive: the policy at its settlement decides that, and no later one
    archived: bool = False
    # past its archive retention: hidden, and gone unless it is held
    past: bool = False

    @property
    def held(self) -> bool:
        return any(each.listed or (each.retried and each.owed) for each in self.obligations)


@dataclass
class _Store:
    """What the clients of one queue share."""

    make_id: Callable[[], str]
    make_generation: Callable[[], str]
    exists: bool = False
    policy: dict[str, str] | None = None
    # by name, the active ones
    subscriptions: dict[str, _Subscription] = field(default_factory=dict)
    # in the order of emission
    events: dict[str, _Event] = field(default_factory=dict)
    # what is left of the events whose record went
    memory: dict[str, _Event] = field(default_factory=dict)
    fences: count[int] = field(default_factory=lambda: count(1))


class _Gone(Exception):
    """The event of a delivery has no record."""


class ReferenceEventQueue:
    """An event queue without a server, with the methods, arguments and results of `EventQueue`.

    `client` makes another client of the same queue, with its own type and declared policy. `make_id` makes the ids of
    emissions without one, `make_generation` those of subscriptions.
    """

    def __init__(
        self,
        name: str,
        clock: ManualClock,
        policy: EventPolicy | None = None,
        *,
        type: Any = Any,
        make_id: Callable[[], str] | None = None,
        make_generation: Callable[[], str] | None = None,
        store: _Store | None = None,
    ) -> None:
        self.name = text("name", name)
        self.clock = clock
        self.handing_out: list[str] = []
        self._type = type
        one_id = _one_id(IdMaker())
        self._store = store or _Store(make_id or one_id, make_generation or one_id)
        self._guard = Guard(name, self._store, EventPolicy, policy)

    def client(self, *, policy: EventPolicy | None = None, type: Any = Any) -> ReferenceEventQueue:
        """Another client of this queue."""
        return self.__class__(self.name, self.clock, policy, type=type, store=self._store)

    # -- subscriptions

    def subscribe(self, name: str) -> Subscription:
        text("name", name)
        self._write(creates=True)
        active = self._store.subscriptions
        if name not in active:
            if len(active) >= MOST_SUBSCRIPTIONS:
                raise CapacityExceeded(f"{self.name} has {MOST_SUBSCRIPTIONS} subscriptions already")
            active[name] = _Subscription(name, self._store.make_generation())
        return Subscription(queue=self.name, name=name, generation=active[name].generation)

    def unsubscribe(self, subscription: Subscription) -> bool:
        self._own([subscription])
        now = self._write()
        found = self._find(subscription)
        if found is None:
            return False
        for obligation in self._of(found):
            obligation.listed = False
            if obligation.owed:
                self._waive(obligation, now)
        found.active = False
        del self._store.subscriptions[found.name]
        self._let_time_pass()
        return True

    def subscriptions(self) -> list[SubscriptionInfo]:
        self._read()
        return [self._progress(self._store.subscriptions[name]) for name in sorted(self._store.subscriptions, key=_key)]

    def _progress(self, subscription: _Subscription) -> SubscriptionInfo:
        pending = [each for each in self._of(subscription) if each.owed]
        return SubscriptionInfo(
            name=subscription.name,
            generation=subscription.generation,
            lag=len(pending),
            # choice: a lapsed lease is in flight until a take or a sweep sees it, like a lapsed job reads leased
            in_flight=sum(not each.waiting for each in pending),
            oldest_pending_ms=min((each.event.created_ms for each in pending), default=None),
            dead=sum(each.listed for each in self._of(subscription)),
            dropped=subscription.dropped,
        )

    # -- emitting and looking

    def emit(self, value: Any, *, ttl: Duration | None | UnsetType = UNSET, id: str | None = None) -> Event:
        return self.emit_many([NewEvent(value, ttl, id)])[0]

    def emit_many(self, items: Iterable[Any]) -> list[Event]:
        events = [item if isinstance(item, NewEvent) else NewEvent(item) for item in items]
        for new in events:
            self._check_new(new)
        if not events:
            return []
        now = self._write(creates=True)
        # choice: the chunk is emitted before a duplicate's record is read, so one of another type stops nothing
        emitted = [self._emit(new, now) for new in events]
        found = [self._duplicate(event) if event.duplicate else event for event in emitted]
        self._let_time_pass()
        return found

    def _check_new(self, new: NewEvent) -> None:
        if new.id is not None:
            text("id", new.id)
        if isinstance(new.ttl, int | float):
            duration_ms("ttl", new.ttl)
        try:
            self._decode(new.value)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"value does not decode as the type of this queue: {error}") from error

    def _emit(self, new: NewEvent, now: int) -> Event:
        self._let_time_pass()
        store = self._store
        id = new.id or store.make_id()
        known = store.events.get(id) or store.memory.get(id)
        if known is not None:
            return self._view(known, duplicate=True, value=None, recipients=())
        ttl = self._policy.ttl if isinstance(new.ttl, UnsetType) else new.ttl
        owing = list(store.subscriptions.values())
        expires_ms = None if ttl is None or not owing else now + duration_ms("ttl", ttl)
        event = store.events[id] = _Event(id, new.value, now, expires_ms, next(store.fences))
        event.obligations = [_Obligation(event, each, takeable_ms=now) for each in owing]
        if not owing:
            self._settle_event(event, EventStatus.COMPLETED, now)
        elif expires_ms == now:
            self._settle_event(event, EventStatus.EXPIRED, now)
        return self._view(event, value=new.value)

    def _duplicate(self, remembered: Event) -> Event:
        found = self.get(remembered.id)
        return remembered if found is None else msgspec.structs.replace(found, duplicate=True)

    def get(self, id: str) -> Event | None:
        text("id", id)
        self._read()
        event = self._store.events.get(id)
        if event is None:
            return None
        try:
            return self._view(event, value=self._decode(event.value))
        except msgspec.ValidationError as error:
            raise SchemaMismatch(f"{id} is not of the type of this queue: {error}") from error

    def list_archived(self, *, offset: int = 0, limit: int = 100) -> list[str]:
        integer("offset", offset, 0, 2**53 - 1)
        integer("limit", limit, 1, 1000)
        self._read()
        archived = [event for event in self._store.events.values() if event.archived and not event.past]
        return [event.id for event in sorted(archived, key=_settlement_order)][offset : offset + limit]

    # -- consuming

    def take(
        self, subscription: Subscription, *, lease: Duration = 30, wait: Duration | None = 0
    ) -> EventDelivery | None:
        taken = self.take_many(subscription, 1, lease=lease, wait=wait)
        return taken[0] if taken else None

    def take_many(
        self, subscription: Subscription, limit: int, *, lease: Duration = 30, wait: Duration | None = 0
    ) -> list[EventDelivery]:
        integer("limit", limit, 1, 1000)
        return self.exchange(subscription, [], limit, lease=lease, wait=wait)[1]

    def exchange(
        self,
        subscription: Subscription,
        settlements: Sequence[Any],
        limit: int,
        *,
        lease: Duration = 30,
        wait: Duration | None = 0,
    ) -> tuple[list[Ack | Failure], list[EventDelivery]]:
        integer("limit", limit, 0, 1000)
        integer("number of settlements", len(settlements), 0, 1000)
        duration_ms("wait", wait or 0)
        _check_lease(lease)
        settlements = [each if isinstance(each, Done | Failed | Released) else Done(each) for each in settlements]
        self._own([subscription, *(each.delivery for each in settlements)])
        for each in settlements:
            if isinstance(each, Failed):
                _check_failed(each)
            elif isinstance(each, Released):
                duration_ms("delay", each.delay)
        self._write()
        answers = [self._in_batch(partial(self._settle, each)) for each in settlements]
        found = self._find(subscription)
        if found is None and self._store.exists:
            raise SubscriptionGone(f"{subscription.name} of {self.name}: this generation was removed")
        taken = self._take(found, limit, duration_ms("lease", lease)) if found is not None and limit else []
        return answers, taken

    def _take(self, subscription: _Subscription, limit: int, lease_ms: int) -> list[EventDelivery]:
        now = self.clock.now_ms
        for obligation in self._lapsed(now):
            if obligation.subscription is subscription:
                self._lapse(obligation)
        self._let_time_pass()
        taken: list[EventDelivery] = []
        for obligation in self._takeable(subscription, now):
            if len(taken) == limit:
                break
            delivery = self._claim(obligation, now, lease_ms)
            try:
                self._decode(obligation.event.value)
            except msgspec.ValidationError as error:
                obligation.settled = None
                self._die(obligation, now, ErrorDetail(UNDECODABLE, f"ValidationError: {error}"))
            else:
                taken.append(delivery)
        if taken:
            subscription.last_take_ms = now
        self._let_time_pass()
        return taken

    def _takeable(self, subscription: _Subscription, now: int) -> list[_Obligation]:
        takeable = [each for each in self._of(subscription) if each.waiting and each.takeable_ms <= now]
        first, self.handing_out = {id: place for place, id in enumerate(self.handing_out)}, []
        # choice: the order is that of becoming takeable, then of emission
        return sorted(
            takeable,
            key=lambda each: (first.get(each.event.id, len(first)), each.takeable_ms, each.event.emission),
        )

    def _claim(self, obligation: _Obligation, now: int, lease_ms: int) -> EventDelivery:
        fence, event, subscription = next(self._store.fences), obligation.event, obligation.subscription
        obligation.attempts += 1
        obligation.token = f"model-{fence}"
        obligation.lease_ends_ms = self._granted(obligation, now, lease_ms)
        return EventDelivery(
            id=event.id,
            value=event.value,
            attempt=obligation.attempts,
            max_attempts=self._policy.max_attempts,
            token=obligation.token,
            fence=fence,
            expires_ms=obligation.lease_ends_ms,
            created_ms=event.created_ms,
            queue=self.name,
            subscription=Subscription(queue=self.name, name=subscription.name, generation=subscription.generation),
            event=self._view(event, value=event.value, recipients=()),
        )

    @staticmethod
    def _granted(obligation: _Obligation, now: int, lease_ms: int) -> int:
        """The lease never outlives the deadline, which a retried obligation ignores."""
        deadline = obligation.event.expires_ms
        return now + lease_ms if deadline is None or obligation.retried else min(now + lease_ms, deadline)

    # -- settling: each verb checks its token first, and a repeat changes nothing

    def ack(self, delivery: EventDelivery) -> Ack:
        self._own([delivery])
        self._write()
        try:
            return self._ack(delivery)
        except _Gone:
            return Ack.GONE

    acknowledge = ack

    def ack_many(self, deliveries: Iterable[EventDelivery]) -> list[Ack]:
        deliveries = list(deliveries)
        self._own(deliveries)
        if not deliveries:
            return []
        self._write()
        return [self._in_batch(partial(self._ack, each)) for each in deliveries]

    def renew(self, delivery: EventDelivery, lease: Duration = 30) -> Renewal:
        _check_lease(lease)
        return self._single(delivery, lambda: self._renew(delivery, duration_ms("lease", lease)))

    def renew_many(self, deliveries: Iterable[EventDelivery], lease: Duration = 30) -> list[Renewal | Ack]:
        deliveries = list(deliveries)
        _check_lease(lease)
        self._own(deliveries)
        if not deliveries:
            return []
        self._write()
        return [self._in_batch(partial(self._renew, each, duration_ms("lease", lease))) for each in deliveries]

    def release(self, delivery: EventDelivery, *, delay: Duration = 0) -> None:
        delay_ms = duration_ms("delay", delay)
        self._single(delivery, lambda: self._release(delivery, delay_ms))

    def fail(
        self, delivery: EventDelivery, error: Any, *, retry_in: Duration | None = None, final: bool = False
    ) -> Failure:
        failed = Failed(delivery, error, retry_in, final)
        _check_failed(failed)
        return self._single(delivery, lambda: self._fail(failed))

    def _settle(self, settlement: Done | Failed | Released) -> Ack | Failure:
        if isinstance(settlement, Done):
            return self._ack(settlement.delivery)
        if isinstance(settlement, Failed):
            return self._fail(settlement)
        return self._release(settlement.delivery, duration_ms("delay", settlement.delay))

    def _holder(self, delivery: EventDelivery, verb: str) -> tuple[_Obligation, Failure | None]:
        """The obligation under a live token and None, or it and the first answer when `verb` is repeated."""
        self._let_time_pass()
        now, event = self.clock.now_ms, self._store.events.get(delivery.id)
        if event is None:
            raise _Gone
        lost = LeaseLost(f"{delivery.id}: the token no longer owns its lease")
        obligation = _owed_to(event, delivery.subscription)
        if obligation is None:  # the id is used again, for others
            raise lost
        # choice: of a removed generation the ack alone can be repeated
        if verb != "ack" and not obligation.subscription.active:
            raise lost
        if obligation.settled is not None and obligation.settled[:2] == (delivery.token, verb):
            return obligation, obligation.settled[2]
        if obligation.token != delivery.token or obligation.lease_ends_ms is None:
            raise lost
        if obligation.subscription.active and not obligation.owed and obligation.lease_ends_ms == event.expires_ms:
            raise EventNotActive(f"{delivery.id} settled before this delivery did")
        if obligation.lease_ends_ms <= now:
            raise lost
        return obligation, None

    def _ack(self, delivery: EventDelivery) -> Ack:
        obligation, repeated = self._holder(delivery, "ack")
        if repeated:
            return Ack.ALREADY_ACKNOWLEDGED
        obligation.error = None
        self._resolve(obligation, ObligationStatus.ACKNOWLEDGED, self.clock.now_ms)
        self._answer(obligation, delivery, "ack")
        return Ack.ACKNOWLEDGED

    def _renew(self, delivery: EventDelivery, lease_ms: int) -> Renewal:
        obligation, _ = self._holder(delivery, "renew")
        end = max(_lease_end(obligation), self._granted(obligation, self.clock.now_ms, lease_ms))
        obligation.lease_ends_ms = end
        return Renewal(end)

    def _release(self, delivery: EventDelivery, delay_ms: int) -> Failure:
        obligation, repeated = self._holder(delivery, "release")
        if repeated:
            return repeated
        obligation.attempts -= 1
        self._wait(obligation, self.clock.now_ms + delay_ms)
        return self._answer(obligation, delivery, "release")

    def _fail(self, failed: Failed) -> Failure:
        obligation, repeated = self._holder(failed.delivery, "fail")
        if repeated:
            return repeated
        now, error = self.clock.now_ms, _shown(_detail(failed.error))
        if failed.final or self._is_last(obligation):
            self._die(obligation, now, error)
        else:
            wait_ms = self._backoff_ms(obligation)
            if failed.retry_in is not None:
                wait_ms = duration_ms("retry_in", failed.retry_in)
            self._wait(obligation, now + wait_ms)
        return self._answer(obligation, failed.delivery, "fail")

    def _answer(self, obligation: _Obligation, delivery: EventDelivery, verb: str) -> Failure:
        due_ms = obligation.takeable_ms if obligation.waiting else None
        failure = Failure(obligation.status, None if due_ms == self.clock.now_ms else due_ms)
        obligation.settled = (delivery.token, verb, failure)
        return failure

    # -- what becomes of an obligation

    def _wait(self, obligation: _Obligation, takeable_ms: int) -> None:
        obligation.takeable_ms, obligation.lease_ends_ms = takeable_ms, None

    def _lapsed(self, now: int) -> list[_Obligation]:
        lapsed = [each for each in self._obligations() if each.owed and not each.waiting and _lease_end(each) <= now]
        return sorted(lapsed, key=lambda each: (_lease_end(each), each.event.emission))

    def _lapse(self, obligation: _Obligation) -> None:
        end, obligation.settled = _lease_end(obligation), None
        if self._is_last(obligation):
            self._die(obligation, end, LAPSED)
        else:
            self._wait(obligation, end)

    def _die(self, obligation: _Obligation, at: int, error: ErrorDetail) -> None:
        obligation.error, obligation.died_ms, obligation.listed = _shown(error), at, True
        self._resolve(obligation, ObligationStatus.DEAD, at)

    def _waive(self, obligation: _Obligation, at: int) -> None:
        obligation.settled = None
        self._resolve(obligation, ObligationStatus.WAIVED, at)

    def _resolve(self, obligation: _Obligation, status: ObligationStatus, at: int) -> None:
        """The one place where an obligation ends; with the last one ends the event."""
        event = obligation.event
        obligation.status, obligation.resolved_ms, obligation.retried = status, at, False
        obligation.lease_ends_ms = None
        if obligation.freed_ms is None:
            obligation.freed_ms = at
        freed = [each.freed_ms for each in event.obligations if each.freed_ms is not None]
        if event.status is EventStatus.ACTIVE and len(freed) == len(event.obligations):
            self._settle_event(event, EventStatus.COMPLETED, max(freed))

    def _settle_event(self, event: _Event, status: EventStatus, at: int) -> None:
        event.status, event.settled_ms = status, at
        event.archived = self._policy.on_completion == "archive"
        for obligation in event.obligations:
            # choice: to repeat a release or a failure comes too late, too
            if status is EventStatus.EXPIRED and not obligation.retried and obligation.resolved_ms is None:
                obligation.settled = None

    def _is_last(self, obligation: _Obligation) -> bool:
        most = self._policy.max_attempts
        return most is not None and obligation.attempts >= most

    def _backoff_ms(self, obligation: _Obligation) -> int:
        return round(self._policy.backoff.delay(obligation.attempts, obligation.event.id) * 1000)

    # -- what time does by itself

    def _let_time_pass(self) -> int:
        """Everything that the clock alone decides, as of its own time; the time now."""
        now, store = self.clock.now_ms, self._store
        for event in store.events.values():
            if event.status is EventStatus.ACTIVE and event.expires_ms is not None and event.expires_ms <= now:
                self._settle_event(event, EventStatus.EXPIRED, event.expires_ms)
        for obligation in self._obligations():
            if obligation.listed and _passed(obligation.died_ms, self._policy.dead_retention, now):
                obligation.listed = False
        for event in store.events.values():
            event.past |= _passed(event.settled_ms, self._policy.archive_retention, now)
        for event in [event for event in store.events.values() if self._is_gone(event)]:
            store.memory[event.id] = store.events.pop(event.id)
        for event in list(store.memory.values()):
            if _passed(event.settled_ms, self._policy.dedup, now):
                del store.memory[event.id]
        return now

    def _is_gone(self, event: _Event) -> bool:
        if event.settled_ms is None or event.held:
            return False
        # choice: past its retention an archived event is gone, like a settled one that nobody archives
        return not event.archived or event.past

    # -- operating

    def dead(self, subscription: Subscription, *, limit: int = 50, cursor: str | None = None) -> Page:
        self._own([subscription])
        integer("limit", limit, 1, 1000)
        self._read()
        found = self._find(subscription)
        listed = [each for each in self._of(found) if each.listed] if found is not None else []
        listed.sort(key=lambda each: (each.died_ms, _key(each.event.id)), reverse=True)
        # as in a listing of jobs, the cursor names all that was shown
        shown = msgspec.json.decode(cursor or "[]", type=list[str])
        rest = [each for each in listed if each.event.id not in shown]
        page = rest[:limit]
        more = msgspec.json.encode([*shown, *(each.event.id for each in page)]).decode() if len(rest) > limit else None
        return Page(items=[self._dead_view(each) for each in page], cursor=more)

    def retry(self, subscription: Subscription, id: str) -> bool:
        obligation = self._dead_or_retried(subscription, id)
        if obligation is None or not obligation.listed:
            return False
        obligation.status, obligation.resolved_ms = ObligationStatus.PENDING, None
        obligation.listed, obligation.retried = False, True
        obligation.attempts, obligation.error = 0, None
        self._wait(obligation, self.clock.now_ms)
        return True

    def discard(self, subscription: Subscription, id: str) -> bool:
        obligation = self._dead_or_retried(subscription, id)
        if obligation is None:
            return False
        if obligation.retried:  # choice: it reads dead again, since when it died
            self._resolve(obligation, ObligationStatus.DEAD, obligation.died_ms)
            if obligation.settled is not None and obligation.settled[2].state is ObligationStatus.PENDING:
                obligation.settled = None  # the discard is newer than what let it wait
        obligation.listed = False
        self._let_time_pass()
        return True

    def _dead_or_retried(self, subscription: Subscription, id: str) -> _Obligation | None:
        text("id", id)
        self._own([subscription])
        self._write()
        found, event = self._find(subscription), self._store.events.get(id)
        obligation = None if found is None or event is None else _owed_to(event, subscription)
        return obligation if obligation is not None and (obligation.listed or obligation.retried) else None

    def alter(self, policy: EventPolicy) -> EventPolicy:
        self._write(creates=True)
        return self._guard.alter(policy)

    def maintain(self, limit: int = 100) -> Maintenance:
        integer("limit", limit, 1, 1000)
        now = self._write()
        done = dict.fromkeys(CATEGORIES, 0)
        for obligation in self._lapsed(now)[:limit]:
            self._lapse(obligation)
            done["lapsed"] += 1
        for subscription, obligation in self._beyond(now)[:limit]:
            self._waive(obligation, now)
            subscription.dropped += 1
            done["dropped"] += 1
        self._let_time_pass()
        pending = bool(self._lapsed(now) or self._beyond(now))
        return Maintenance(processed=sum(done.values()), pending=pending, by_category=done)

    def _beyond(self, now: int) -> list[tuple[_Subscription, _Obligation]]:
        """What the limits on a backlog give up, the oldest of each subscription first."""
        beyond = []
        for subscription in self._store.subscriptions.values():
            waiting = [each for each in self._of(subscription) if self._counts(each)]
            most, idle = self._policy.max_backlog, self._policy.idle_after
            excess = 0 if most is None else max(len(waiting) - most, 0)
            for place, obligation in enumerate(waiting):
                since = max(subscription.last_take_ms, obligation.event.created_ms)
                if place < excess or _passed(since, idle, now):
                    beyond.append((subscription, obligation))
        return beyond

    @staticmethod
    def _counts(obligation: _Obligation) -> bool:
        """Whether it is part of the backlog: takeable or parked."""
        return obligation.waiting

    # -- the door of every method

    @property
    def _policy(self) -> EventPolicy:
        return self._guard.policy

    def _read(self) -> int:
        self._guard.read()
        return self._let_time_pass()

    def _write(self, *, creates: bool = False) -> int:
        self._guard.write(creates=creates)
        return self._let_time_pass()

    # -- small helpers

    def _single(self, delivery: EventDelivery, verb: Callable[[], T]) -> T:
        self._own([delivery])
        self._write()
        try:
            return verb()
        except _Gone:
            raise LeaseLost(f"{delivery.id} is gone") from None

    def _in_batch(self, verb: Callable[[], T]) -> T | Ack:
        """In a batch what a token came too late for is an answer instead of an error."""
        try:
            return verb()
        except _Gone:
            return Ack.GONE
        except LeaseLost:
            return Ack.LEASE_LOST
        except EventNotActive:
            return Ack.NOT_ACTIVE

    def _own(self, items: Iterable[EventDelivery | Subscription]) -> None:
        for each in items:
            if each.queue != self.name:
                raise InvalidInput(f"this belongs to {each.queue}, not to {self.name}")

    def _find(self, subscription: Subscription) -> _Subscription | None:
        """The active subscription of this very generation."""
        found = self._store.subscriptions.get(subscription.name)
        return found if found is not None and found.generation == subscription.generation else None

    def _obligations(self) -> list[_Obligation]:
        return [obligation for event in self._store.events.values() for obligation in event.obligations]

    def _of(self, subscription: _Subscription) -> list[_Obligation]:
        """What a subscription owes or owed, in the order of emission."""
        return [each for each in self._obligations() if each.subscription is subscription]

    def _decode(self, value: Any) -> Any:
        return msgspec.convert(value, self._type)

    def _view(self, event: _Event, **changes: Any) -> Event:
        fields = {
            "id": event.id,
            "queue": self.name,
            "status": event.status,
            "created_ms": event.created_ms,
            "expires_ms": event.expires_ms,
            "settled_ms": event.settled_ms,
            "recipients": tuple(
                Recipient(
                    name=each.subscription.name,
                    generation=each.subscription.generation,
                    status=each.status,
                    resolved_ms=each.resolved_ms,
                )
                for each in event.obligations
            ),
        }
        return Event(**{**fields, **changes})

    def _dead_view(self, obligation: _Obligation) -> DeadObligation:
        try:
            value = self._decode(obligation.event.value)
        except msgspec.ValidationError:
            value = msgspec.json.encode(obligation.event.value)
        return DeadObligation(
            event_id=obligation.event.id,
            name=obligation.subscription.name,
            generation=obligation.subscription.generation,
            attempts=obligation.attempts,
            error=obligation.error,
            dead_ms=obligation.died_ms,
            value=value,
        )


def _owed_to(event: _Event, subscription: Subscription) -> _Obligation | None:
    generation = subscription.generation
    return next((each for each in event.obligations if each.subscription.generation == generation), None)


def _lease_end(obligation: _Obligation) -> int:
    assert obligation.lease_ends_ms is not None
    return obligation.lease_ends_ms


def _passed(since_ms: int | None, seconds: float | None, now: int) -> bool:
    return since_ms is not None and seconds is not None and since_ms + round(seconds * 1000) <= now


def _settlement_order(event: _Event) -> tuple[int, int]:
    assert event.settled_ms is not None
    return event.settled_ms, event.emission


def _shown(detail: ErrorDetail) -> ErrorDetail:
    return ErrorDetail(detail.type) if disabled() else _cut(detail, DETAIL_BYTES)


def _key(text: str) -> bytes:
    return text.encode()
