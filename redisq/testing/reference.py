"""A model of job queues in plain Python: what a queue has to answer, told as simply as possible.

The model is the judge in tests: whatever a real queue answers, the model answers too, on the same `ManualClock`. It
keeps Python values in lists and dicts and scans them from end to end. Nothing in it is bounded except what the contract
says is: `maintain` does at most `limit` per category and a settle prunes at most 2n+10 records.

Where the contract leaves something open the model has made a choice, marked by "choice:" below. Differences that a
comparison has to allow:

* `take` promotes and recovers everything that is due at once. A real queue does "at least `limit`" in a pass, so with
  more due than that its ready order and the states of the rest may differ.
* In one `maintain` with a small `limit` the model does lapsed, due, retention, dedup in that order, and `retention` is
  one budget for all states; compare retention after a drained `maintain`.
* Tokens and fences are the model's own. Pair its deliveries with the real ones by position.
* Nothing blocks: `wait` is accepted and ignored.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from redisq.errors import InvalidInput, LeaseLost, QueueNotEmpty
from redisq.ids import IdMaker
from redisq.model import (
    TERMINAL,
    Ack,
    Attempt,
    Bulk,
    Cancel,
    Delivery,
    Done,
    ErrorDetail,
    ErrorGroup,
    Failed,
    Failure,
    History,
    Job,
    JobHistory,
    JobState,
    Maintenance,
    NewJob,
    Offer,
    Outcome,
    Page,
    QueueInfo,
    Released,
    Renewal,
    Transition,
)
from redisq.policy import MAX_ATTEMPTS, Keep, QueuePolicy, keep_wire
from redisq.testing.clock import ManualClock
from redisq.testing.guard import Guard
from redisq.values import Duration, duration_ms, integer, metadata, text, time_ms

T = TypeVar("T")

DETAIL_BYTES = 8 * 1024
LEDGER_DETAIL_BYTES = 1024
LAPSED = ErrorDetail("LeaseLapsed", "the lease ran out before the job was settled")
QUARANTINED = "Quarantined"
UNDECODABLE = "Undecodable"


@dataclass
class _Job:
    id: str
    custom_id: bool
    name: str
    value: Any
    priority: int
    max_attempts: int | None
    timeout_ms: int | None
    keep: Keep | None
    metadata: dict[str, str]
    created_ms: int
    state: JobState
    due_ms: int | None
    attempts: int = 0
    attempts_before_retry: int = 0
    finished_ms: int | None = None
    arrival: int = 0
    result: Any = None
    error: ErrorDetail | None = None
    # the newest lease, and the newest settlement of any token: (token, verb, answer)
    token: str = ""
    worker: str = ""
    claimed_ms: int = 0
    lease_ends_ms: int = 0
    started: bool = False
    cancel_requested: bool = False
    settled: tuple[str, str, Failure] | None = None
    ledger: list[Attempt] = field(default_factory=list)
    history: list[Transition] = field(default_factory=list)
    transitions: int = 0


@dataclass
class _Store:
    """What the clients of one queue share."""

    make_id: Callable[[], str]
    exists: bool = False
    paused: bool = False
    policy: dict[str, str] | None = None
    jobs: dict[str, _Job] = field(default_factory=dict)
    # in the order of arrival; a take goes by priority first
    ready: list[_Job] = field(default_factory=list)
    # custom ids of removed jobs, with the time at which they finished
    memory: dict[str, int] = field(default_factory=dict)
    # names and states with more finished jobs than the queue's count: what the sweep has to see to
    excess: set[tuple[str, JobState]] = field(default_factory=set)
    fences: count[int] = field(default_factory=lambda: count(1))
    arrivals: count[int] = field(default_factory=lambda: count(1))


@dataclass
class _Call:
    """What one script call keeps account of."""

    now: int
    finished: list[_Job] = field(default_factory=list)
    head: list[_Job] = field(default_factory=list)


class ReferenceQueue:
    """A job queue without a server, with the methods, arguments and results of `Queue`.

    `client` makes another client of the same queue, with its own worker name, type and declared policy. `make_id`
    makes the ids of offers without one.
    """

    def __init__(
        self,
        name: str,
        clock: ManualClock,
        policy: QueuePolicy | None = None,
        *,
        type: Any = Any,
        worker: str = "",
        make_id: Callable[[], str] | None = None,
    ) -> None:
        self.name = text("name", name)
        self.clock = clock
        self._type = type
        self._worker = worker
        self._join(_Store(make_id or _one_id(IdMaker())), policy)

    def _join(self, store: _Store, policy: QueuePolicy | None) -> None:
        self._store = store
        self._guard = Guard(self.name, store, QueuePolicy, policy)

    def client(self, *, policy: QueuePolicy | None = None, type: Any = Any, worker: str = "") -> ReferenceQueue:
        """Another client of this queue."""
        other = self.__class__(self.name, self.clock, policy, type=type, worker=worker)
        other._join(self._store, policy)
        return other

    # -- producing

    def offer(
        self,
        value: Any,
        *,
        id: str | None = None,
        name: str = "",
        delay: Duration | None = None,
        at: Any = None,
        priority: int = 0,
        max_attempts: int | None = None,
        timeout: Duration | None = None,
        keep: Keep | None | UnsetType = UNSET,
        metadata: dict[str, str] | None = None,
        replicas: int = 0,
    ) -> Offer:
        integer("replicas", replicas, 0, 1000)
        job = NewJob(value, id, name, delay, at, priority, max_attempts, timeout, keep, metadata)
        return self.offer_many([job])[0]

    def offer_many(self, items: Iterable[Any]) -> list[Offer]:
        jobs = [item if isinstance(item, NewJob) else NewJob(item) for item in items]
        for job in jobs:
            self._check_new(job)
        if not jobs:
            return []
        self._guard.write(creates=True)
        return [self._offer(job, self.clock.now_ms) for job in jobs]

    def _check_new(self, new: NewJob) -> None:
        if new.id is not None:
            text("id", new.id)
        text("name", new.name, empty=True)
        if new.delay is not None and new.at is not None:
            raise InvalidInput("give delay or at, not both")
        duration_ms("delay", new.delay or 0)
        if new.at is not None:
            time_ms("at", new.at)
        integer("priority", new.priority, -1000, 1000)
        if new.max_attempts is not None:
            integer("max_attempts", new.max_attempts, 1, MAX_ATTEMPTS)
        if new.timeout is not None:
            duration_ms("timeout", new.timeout, least=1)
        if not isinstance(new.keep, UnsetType):
            keep_wire(new.keep)
        metadata(new.metadata or {})
        try:
            self._decode(new.value)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"value does not decode as the type of this queue: {error}") from error

    def _offer(self, new: NewJob, now: int) -> Offer:
        store = self._store
        id = new.id or store.make_id()
        if id in store.jobs:
            return Offer(id, True, store.jobs[id].state)
        if id in store.memory and store.memory[id] + self._dedup_ms() > now:
            return Offer(id, True, None)
        store.memory.pop(id, None)
        due = now + duration_ms("delay", new.delay or 0) if new.at is None else time_ms("at", new.at)
        state = JobState.SCHEDULED if due > now else JobState.READY
        job = store.jobs[id] = _Job(
            id=id,
            custom_id=new.id is not None,
            name=new.name,
            value=new.value,
            priority=new.priority,
            max_attempts=new.max_attempts,
            timeout_ms=None if new.timeout is None else duration_ms("timeout", new.timeout),
            keep=None if isinstance(new.keep, UnsetType) else Keep.from_wire(keep_wire(new.keep)),
            metadata=dict(new.metadata or {}),
            created_ms=now,
            state=state,
            due_ms=due if state is JobState.SCHEDULED else None,
        )
        if state is JobState.READY:
            store.ready.append(job)
        self._record(job, now)
        return Offer(id, False, state)

    # -- consuming

    def take(self, *, lease: Duration | None = None, wait: Duration | None = 0) -> Delivery | None:
        taken = self.take_many(1, lease=lease, wait=wait)
        return taken[0] if taken else None

    def take_many(self, limit: int, *, lease: Duration | None = None, wait: Duration | None = 0) -> list[Delivery]:
        integer("limit", limit, 1, 1000)
        return self.exchange([], limit, lease=lease, wait=wait)[1]

    def ack(self, delivery: Delivery, result: Any = None) -> Ack:
        return self._single(delivery, lambda call: self._ack(call, delivery, result))

    def ack_many(self, deliveries: Iterable[Delivery]) -> list[Ack]:
        deliveries = list(deliveries)
        return self.exchange(deliveries, 0)[0] if deliveries else []

    def renew(self, delivery: Delivery, lease: Duration | None = None) -> Renewal:
        _check_lease(lease)
        return self._single(delivery, lambda call: self._renew(call, delivery, self._lease_ms(lease)))

    def renew_many(self, deliveries: Iterable[Delivery], lease: Duration | None = None) -> list[Renewal | Ack]:
        deliveries = list(deliveries)
        _check_lease(lease)
        self._own(deliveries)
        if not deliveries:
            return []
        self._guard.write()
        call, lease_ms = _Call(self.clock.now_ms), self._lease_ms(lease)
        return [self._in_batch(each, partial(self._renew, call, each, lease_ms)) for each in deliveries]

    def release(self, delivery: Delivery, *, delay: Duration = 0) -> None:
        delay_ms = duration_ms("delay", delay)
        self._single(delivery, lambda call: self._release(call, delivery, delay_ms))

    def fail(self, delivery: Delivery, error: Any, *, retry_in: Duration | None = None, final: bool = False) -> Failure:
        _check_failed(Failed(delivery, error, retry_in, final))
        return self._single(delivery, lambda call: self._fail(call, Failed(delivery, error, retry_in, final)))

    def quarantine(self, delivery: Delivery, reason: str) -> Failure:
        detail = ErrorDetail(QUARANTINED, reason)
        return self._single(delivery, lambda call: self._quarantine(call, delivery, detail))

    def exchange(
        self,
        settlements: Sequence[Any],
        limit: int,
        *,
        lease: Duration | None = None,
        wait: Duration | None = 0,
        started: bool = True,
    ) -> tuple[list[Any], list[Delivery]]:
        """Settle a batch, then take up to `limit`. `started=False` leaves the leases unstarted, as a worker does."""
        integer("limit", limit, 0, 1000)
        duration_ms("wait", wait or 0)
        integer("number of settlements", len(settlements), 0, 1000)
        _check_lease(lease)
        settlements = [each if isinstance(each, Done | Failed | Released) else Done(each) for each in settlements]
        self._own(each.delivery for each in settlements)
        for each in settlements:
            if isinstance(each, Failed):
                _check_failed(each)
            elif isinstance(each, Released):
                duration_ms("delay", each.delay)
        self._guard.write()
        call = _Call(self.clock.now_ms)
        answers = [self._in_batch(each.delivery, partial(self._settle, call, each)) for each in settlements]
        taken = self._take(call, limit, self._lease_ms(lease), started) if limit else []
        self._prune(call)
        return answers, taken

    def start(self, deliveries: Iterable[Delivery]) -> None:
        """Mark live leases as started, so that their lapse counts as an attempt."""
        deliveries = list(deliveries)
        self._own(deliveries)
        self._guard.write()
        for delivery in deliveries:
            job = self._store.jobs.get(delivery.id)
            if job is not None and self._live(job, delivery, self.clock.now_ms):
                job.started = True

    def _settle(self, call: _Call, settlement: Done | Failed | Released) -> Ack | Failure:
        if isinstance(settlement, Done):
            return self._ack(call, settlement.delivery, settlement.result)
        if isinstance(settlement, Failed):
            return self._fail(call, settlement)
        return self._release(call, settlement.delivery, duration_ms("delay", settlement.delay))

    def _take(self, call: _Call, limit: int, lease_ms: int, started: bool) -> list[Delivery]:
        taken: list[Delivery] = []
        # choice: a paused take recovers no lapsed lease, just as it promotes nothing
        if self._store.paused:
            return taken
        self._recover(call)
        self._promote_due(call)
        self._prune(call)
        while self._store.ready and len(taken) < limit:
            # what does not decode is set aside by a call of its own, then the take goes on
            aside, room = _Call(call.now), min(limit - len(taken), len(self._store.ready))
            for delivery in [self._claim(call, lease_ms, started) for _ in range(room)]:
                try:
                    self._decode(delivery.value)
                except msgspec.ValidationError as error:
                    self._quarantine(aside, delivery, ErrorDetail(UNDECODABLE, f"ValidationError: {error}"))
                else:
                    taken.append(delivery)
            self._prune(aside)
        return taken

    def _claim(self, call: _Call, lease_ms: int, started: bool) -> Delivery:
        job = max(self._store.ready, key=lambda job: job.priority)  # the first one of the highest priority
        fence = next(self._store.fences)
        job.attempts += 1
        job.token = f"model-{fence}"
        job.worker, job.claimed_ms = self._worker, call.now
        job.lease_ends_ms, job.started = call.now + lease_ms, started
        self._move(call, job, JobState.LEASED, call.now)
        return Delivery(
            id=job.id,
            name=job.name,
            value=job.value,
            attempt=job.attempts,
            max_attempts=self._most_attempts(job),
            priority=job.priority,
            token=job.token,
            fence=fence,
            expires_ms=job.lease_ends_ms,
            created_ms=job.created_ms,
            timeout_ms=self._timeout_ms(job),
            metadata=job.metadata,
            queue=self.name,
        )

    # -- settling: each verb checks its token first, and a repeat changes nothing

    def _holder(self, call: _Call, delivery: Delivery, verb: str) -> tuple[_Job, Failure | None]:
        """The job under a live token and None, or the job and the first answer when `verb` is repeated."""
        job = self._store.jobs.get(delivery.id)
        if job is not None and job.settled is not None and job.settled[:2] == (delivery.token, verb):
            return job, job.settled[2]
        if job is None or not self._live(job, delivery, call.now):
            raise LeaseLost(f"{delivery.id}: the token no longer owns its lease")
        return job, None

    @staticmethod
    def _live(job: _Job, delivery: Delivery, now: int) -> bool:
        return job.state is JobState.LEASED and job.token == delivery.token and now < job.lease_ends_ms

    def _ack(self, call: _Call, delivery: Delivery, result: Any) -> Ack:
        if delivery.id not in self._store.jobs:
            return Ack.GONE
        job, repeated = self._holder(call, delivery, "ack")
        if repeated:
            return Ack.ALREADY_ACKNOWLEDGED
        # choice: the error is that of the newest failure, until the job completes or is retried by hand
        job.result, job.error = result, None
        self._log(job, Outcome.COMPLETED, call.now)
        self._move(call, job, JobState.COMPLETED, call.now)
        self._answer(job, delivery, "ack")
        return Ack.ACKNOWLEDGED

    def _renew(self, call: _Call, delivery: Delivery, lease_ms: int) -> Renewal:
        job, _ = self._holder(call, delivery, "renew")
        job.lease_ends_ms = max(job.lease_ends_ms, call.now + lease_ms)
        return Renewal(job.lease_ends_ms, job.cancel_requested)

    def _fail(self, call: _Call, failed: Failed) -> Failure:
        job, repeated = self._holder(call, failed.delivery, "fail")
        if repeated:
            return repeated
        error = job.error = self._shown(_detail(failed.error))
        if job.cancel_requested:
            self._log(job, Outcome.CANCELLED, call.now, error)
            self._move(call, job, JobState.CANCELLED, call.now, detail=error)
        elif failed.final or job.attempts >= self._most_attempts(job):
            self._log(job, Outcome.DEAD, call.now, error)
            self._move(call, job, JobState.DEAD, call.now, detail=error)
        else:
            self._log(job, Outcome.RETRIED, call.now, error)
            wait_ms = self._backoff_ms(job) if failed.retry_in is None else duration_ms("retry_in", failed.retry_in)
            self._wait(call, job, call.now + wait_ms if wait_ms else None, call.now, detail=error)
        return self._answer(job, failed.delivery, "fail")

    def _release(self, call: _Call, delivery: Delivery, delay_ms: int) -> Failure:
        job, repeated = self._holder(call, delivery, "release")
        if repeated:
            return repeated
        if job.cancel_requested:
            # choice: the attempt ends here, so it counts and has its row
            self._log(job, Outcome.CANCELLED, call.now)
            self._move(call, job, JobState.CANCELLED, call.now)
        else:
            self._wait(call, job, call.now + delay_ms if delay_ms else None, call.now, to_head=True)
            job.attempts -= 1
        return self._answer(job, delivery, "release")

    def _quarantine(self, call: _Call, delivery: Delivery, reason: ErrorDetail) -> Failure:
        job, repeated = self._holder(call, delivery, "quarantine")
        if repeated:
            return repeated
        job.error = self._shown(reason)
        self._log(job, Outcome.QUARANTINED, call.now, job.error)
        self._move(call, job, JobState.QUARANTINED, call.now, detail=job.error)
        return self._answer(job, delivery, "quarantine")

    @staticmethod
    def _answer(job: _Job, delivery: Delivery, verb: str) -> Failure:
        failure = Failure(job.state, job.due_ms)
        job.settled = (delivery.token, verb, failure)
        return failure

    # -- what time does

    def _lapsed(self, now: int) -> list[_Job]:
        lapsed = [job for job in self._in_state(JobState.LEASED) if job.lease_ends_ms <= now]
        return sorted(lapsed, key=lambda job: (job.lease_ends_ms, _key(job)))

    def _recover(self, call: _Call, limit: int | None = None) -> int:
        call.head = []
        lapsed = self._lapsed(call.now)[:limit]
        for job in lapsed:
            self._lapse(call, job)
        return len(lapsed)

    def _lapse(self, call: _Call, job: _Job) -> None:
        end = job.lease_ends_ms
        job.settled = None
        if job.cancel_requested:
            self._log(job, Outcome.CANCELLED, end)
            self._move(call, job, JobState.CANCELLED, end)
        elif not job.started:
            self._wait(call, job, None, end, to_head=True)
            job.attempts -= 1
        else:
            error = job.error = self._shown(LAPSED)
            self._log(job, Outcome.LAPSED, end, error)
            if job.attempts >= self._most_attempts(job):
                self._move(call, job, JobState.DEAD, end, detail=error)
            else:
                wait_ms = self._backoff_ms(job)
                self._wait(call, job, end + wait_ms if wait_ms else None, end, detail=error)

    def _due(self, now: int) -> list[_Job]:
        due = [job for job in self._in_state(JobState.SCHEDULED) if _due_of(job) <= now]
        return sorted(due, key=lambda job: (_due_of(job), _key(job)))

    def _promote_due(self, call: _Call, limit: int | None = None) -> int:
        due = self._due(call.now)[:limit]
        for job in due:
            self._move(call, job, JobState.READY, call.now, recorded=False)
        return len(due)

    # -- retention

    def _rule(self, job: _Job, state: JobState) -> tuple[int | None, int | None]:
        return (self._policy.keep if job.keep is None else job.keep).rule(state)

    def _group(self, name: str, state: JobState) -> list[_Job]:
        """The finished jobs of one name and state, oldest first."""
        return sorted((job for job in self._in_state(state) if job.name == name), key=_finish_order)

    def _over_count(self, name: str, state: JobState) -> int:
        most = self._policy.keep.rule(state)[0]
        return 0 if most is None else max(len(self._group(name, state)) - most, 0)

    def _prune(self, call: _Call) -> None:
        """Apply the rules of the jobs that finished in a call to their whole groups, oldest first and bounded."""
        # choice: at the end of the call, so that each rule counts for all that finished in it
        left = 2 * len(call.finished) + 10
        for job in call.finished:
            most, age_ms = self._rule(job, job.state)
            group = self._group(job.name, job.state)
            old = [each for each in group if age_ms is not None and _finished(each) + age_ms <= call.now]
            excess = group[: max(len(group) - most, 0)] if most is not None else []
            pruned = max(old, excess, key=len)[:left]
            for each in pruned:
                self._remove(each, call.now)
            left -= len(pruned)
            if len(pruned) < len(excess):
                self._store.excess.add((job.name, job.state))
        call.finished.clear()

    def _overdue(self, now: int) -> list[_Job]:
        """What a sweep may remove, oldest first: by its own age or the ceiling, and what is over the queue's count."""
        ceilings = self._policy.history_ttl or {}
        finished = [job for job in self._store.jobs.values() if job.state in TERMINAL]
        overdue = []
        for name, state in {(job.name, job.state) for job in finished}:
            group = self._group(name, state)
            excess = self._over_count(name, state) if (name, state) in self._store.excess else 0
            ceiling = ceilings.get(state)
            for place, job in enumerate(group):
                ages = [self._rule(job, state)[1], None if ceiling is None else round(ceiling * 1000)]
                if place < excess or any(age is not None and _finished(job) + age <= now for age in ages):
                    overdue.append(job)
        return sorted(overdue, key=_finish_order)

    def _remove(self, job: _Job, now: int, *, frees_id: bool = False) -> None:
        del self._store.jobs[job.id]
        if job in self._store.ready:
            self._store.ready.remove(job)
        finished = now if job.finished_ms is None else job.finished_ms
        if job.custom_id and not frees_id and finished + self._dedup_ms() > now:
            self._store.memory[job.id] = finished

    def _dedup_ms(self) -> int:
        return round(self._policy.dedup * 1000)

    def _forgettable(self, now: int) -> list[str]:
        return [id for id, finished in self._store.memory.items() if finished + self._dedup_ms() <= now]

    # -- looking

    def get(self, id: str) -> Job | None:
        text("id", id)
        self._guard.read()
        job = self._store.jobs.get(id)
        return None if job is None else self._view(job)

    def attempts(self, id: str) -> list[Attempt]:
        text("id", id)
        self._guard.read()
        job = self._store.jobs.get(id)
        return [] if job is None else job.ledger[-self._policy.attempt_cap :]

    def history(self, id: str) -> JobHistory:
        text("id", id)
        self._guard.read()
        job = self._store.jobs.get(id)
        # choice: a queue that records no history shows none, also what it recorded before
        recorded = self._policy.history is not History.OFF
        if job is None or not recorded:
            return JobHistory(entries=[], recorded=recorded)
        entries = job.history[-self._policy.transition_cap :]
        return JobHistory(entries=entries, recorded=recorded, dropped=job.transitions - len(entries))

    def jobs(
        self, *, state: JobState | None = None, name: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page:
        integer("limit", limit, 1, 1000)
        self._guard.read()
        states = list(JobState) if state is None else [_state(state)]
        listed = [job for each in states for job in self._listing(each) if name is None or job.name == name]
        # the cursor names all that was shown: what stayed is then shown once, whatever changed between two pages
        shown = msgspec.json.decode(cursor or "[]", type=list[str])
        rest = [job for job in listed if job.id not in shown]
        page = rest[:limit]
        more = msgspec.json.encode([*shown, *(job.id for job in page)]).decode() if len(rest) > limit else None
        return Page(items=[self._view(job) for job in page], cursor=more)

    def counts(self) -> dict[JobState, int]:
        self._guard.read()
        return {state: len(self._in_state(state)) for state in JobState}

    def info(self) -> QueueInfo:
        self._guard.read()
        next_ready = max(self._store.ready, key=lambda job: job.priority, default=None)
        return QueueInfo(
            kind="jobs",
            name=self.name,
            counts=self.counts(),
            paused=self._store.paused,
            oldest_ms=None if next_ready is None else next_ready.created_ms,
            dead=len(self._in_state(JobState.DEAD)),
        )

    def errors(self, state: JobState) -> list[ErrorGroup]:
        if _state(state) not in TERMINAL:
            raise InvalidInput(f"only finished jobs are grouped by error, not {state}")
        self._guard.read()
        groups: dict[tuple[str, str], list[int]] = {}
        for job in self._in_state(_state(state)):
            if job.error is not None and job.finished_ms is not None:
                groups.setdefault((job.name, job.error.type), []).append(job.finished_ms)
        return [
            ErrorGroup(name=name, type=type, count=len(times), newest_ms=max(times))
            for (name, type), times in groups.items()
        ]

    # -- operating

    def cancel(self, id: str) -> Cancel:
        text("id", id)
        self._guard.write()
        job = self._store.jobs.get(id)
        if job is None:
            return Cancel.UNKNOWN
        if job.state in TERMINAL:
            return Cancel.TOO_LATE
        if job.state is JobState.LEASED:
            job.cancel_requested = True
            return Cancel.REQUESTED
        job.settled = None
        call = _Call(self.clock.now_ms)
        self._move(call, job, JobState.CANCELLED, call.now)
        self._prune(call)
        return Cancel.CANCELLED

    def retry(self, id: str) -> bool:
        text("id", id)
        self._guard.write()
        job = self._store.jobs.get(id)
        if job is None or job.state not in (JobState.DEAD, JobState.QUARANTINED):
            return False
        job.attempts_before_retry += job.attempts
        job.attempts, job.error = 0, None
        call = _Call(self.clock.now_ms)
        self._move(call, job, JobState.READY, call.now)
        return True

    def promote(self, id: str) -> bool:
        text("id", id)
        self._guard.write()
        job = self._store.jobs.get(id)
        if job is None or job.state is not JobState.SCHEDULED:
            return False
        call = _Call(self.clock.now_ms)
        self._move(call, job, JobState.READY, call.now)
        return True

    def remove(self, id: str) -> bool:
        text("id", id)
        self._guard.write()
        job = self._store.jobs.get(id)
        if job is None or job.state is JobState.LEASED:
            return False
        self._remove(job, self.clock.now_ms, frees_id=True)
        return True

    def retry_many(self, state: JobState, *, name: str | None = None, error: str | None = None) -> Bulk:
        if _state(state) not in (JobState.DEAD, JobState.QUARANTINED):
            raise InvalidInput(f"only dead and quarantined jobs can be retried, not {state}")
        self._guard.write()
        # choice: the one that finished first comes first
        matching = [job.id for job in reversed(self._matching(state, name, error))]
        return Bulk(done=sum(self.retry(id) for id in matching), vanished=0)

    def purge(self, state: JobState, *, name: str | None = None, error: str | None = None) -> Bulk:
        if _state(state) is JobState.LEASED:
            raise InvalidInput(f"{state} jobs can't be purged")
        self._guard.write()
        matching = self._matching(state, name, error)
        for job in matching:
            self._remove(job, self.clock.now_ms)
        return Bulk(done=len(matching), vanished=0)

    def pause(self) -> None:
        self._guard.write(creates=True)
        self._store.paused = True

    def resume(self) -> None:
        self._guard.write()
        self._store.paused = False

    def alter(self, policy: QueuePolicy) -> QueuePolicy:
        old = self._guard.alter(policy)
        if "keep" in policy.given:
            self._store.excess |= {(job.name, job.state) for job in self._store.jobs.values() if job.state in TERMINAL}
        return old

    def maintain(self, limit: int = 100) -> Maintenance:
        integer("limit", limit, 1, 1000)
        self._guard.write()
        store, call = self._store, _Call(self.clock.now_ms)
        done = {"lapsed": self._recover(call, limit), "due": self._promote_due(call, limit)}
        self._prune(call)
        overdue = self._overdue(call.now)[:limit]
        for job in overdue:
            self._remove(job, call.now)
        store.excess = {group for group in store.excess if self._over_count(*group)}
        forgotten = self._forgettable(call.now)[:limit]
        for id in forgotten:
            del store.memory[id]
        done |= {"retention": len(overdue), "dedup": len(forgotten)}
        looks = (self._lapsed, self._due, self._overdue, self._forgettable)
        pending = any(look(call.now) for look in looks)
        return Maintenance(processed=sum(done.values()), pending=pending, by_category=done)

    def delete(self, force: bool = False) -> None:
        self._guard.write()
        if not force and any(job.state not in TERMINAL for job in self._store.jobs.values()):
            raise QueueNotEmpty(f"{self.name} still holds live jobs")
        self._guard.forget()
        old = self._store
        old.exists, old.paused, old.policy = False, False, None
        old.jobs.clear()
        old.ready.clear()
        old.memory.clear()
        old.excess.clear()

    # -- moving a job

    def _wait(
        self,
        call: _Call,
        job: _Job,
        due_ms: int | None,
        at: int,
        *,
        to_head: bool = False,
        detail: ErrorDetail | None = None,
    ) -> None:
        """Back to scheduled with a due time, else to ready."""
        state = JobState.READY if due_ms is None else JobState.SCHEDULED
        self._move(call, job, state, at, due_ms=due_ms, to_head=to_head, detail=detail)

    def _move(
        self,
        call: _Call,
        job: _Job,
        state: JobState,
        at: int,
        *,
        due_ms: int | None = None,
        to_head: bool = False,
        detail: ErrorDetail | None = None,
        recorded: bool = True,
    ) -> None:
        """The one place where a state changes."""
        if job.state is JobState.READY:
            self._store.ready.remove(job)
        job.state, job.due_ms, job.finished_ms = state, due_ms, None
        job.cancel_requested = False
        if recorded:
            self._record(job, at, detail)
        if state is JobState.READY and to_head:
            # what one call hands back stays together, in the order given
            self._store.ready.insert(len(call.head), job)
            call.head.append(job)
        elif state is JobState.READY:
            self._store.ready.append(job)
        elif state in TERMINAL:
            job.finished_ms, job.arrival = at, next(self._store.arrivals)
            call.finished.append(job)

    def _record(self, job: _Job, at: int, detail: ErrorDetail | None = None) -> None:
        if self._policy.history is History.OFF:
            return
        job.transitions += 1
        # choice: the attempt of a transition is the one that it ended, also by a release that doesn't count it
        row = Transition(ordinal=job.transitions, at_ms=at, state=job.state, attempt=job.attempts, detail=detail)
        job.history = [*job.history, row][-self._policy.transition_cap :]

    def _log(self, job: _Job, outcome: Outcome, at: int, error: ErrorDetail | None = None) -> None:
        row = Attempt(
            number=job.attempts_before_retry + job.attempts,
            started_ms=job.claimed_ms,
            finished_ms=at,
            outcome=outcome,
            error=None if error is None else _cut(error, LEDGER_DETAIL_BYTES),
            worker=job.worker,
        )
        job.ledger = [*job.ledger, row][-self._policy.attempt_cap :]

    def _shown(self, detail: ErrorDetail) -> ErrorDetail:
        """As much of an error as the queue's history rung keeps."""
        hidden = os.environ.get("REDISQ_DISABLE_FAILURE_DETAIL", "").strip().lower() in ("1", "true", "yes", "on")
        if hidden or self._policy.history is not History.FULL:
            detail = ErrorDetail(detail.type)
        return _cut(detail, DETAIL_BYTES)

    @property
    def _policy(self) -> QueuePolicy:
        return self._guard.policy

    # -- small helpers

    def _single(self, delivery: Delivery, verb: Callable[[_Call], T]) -> T:
        self._own([delivery])
        self._guard.write()
        call = _Call(self.clock.now_ms)
        answer = verb(call)
        self._prune(call)
        return answer

    def _in_batch(self, delivery: Delivery, verb: Callable[[], T]) -> T | Ack:
        """In a batch a lost lease is an answer instead of an error."""
        # choice: of a removed job every verb says gone in a batch, because that is what `gone` means
        if delivery.id not in self._store.jobs:
            return Ack.GONE
        try:
            return verb()
        except LeaseLost:
            return Ack.LEASE_LOST

    def _own(self, deliveries: Iterable[Delivery]) -> None:
        for delivery in deliveries:
            if delivery.queue != self.name:
                raise InvalidInput(f"this delivery belongs to {delivery.queue}, not to {self.name}")

    def _lease_ms(self, lease: Duration | None) -> int:
        return duration_ms("lease", self._policy.lease if lease is None else lease)

    # choice: what an offer left to the policy goes by the policy as it stands, like keep

    def _most_attempts(self, job: _Job) -> int:
        return self._policy.max_attempts if job.max_attempts is None else job.max_attempts

    def _timeout_ms(self, job: _Job) -> int | None:
        if job.timeout_ms is None and self._policy.timeout is not None:
            return duration_ms("timeout", self._policy.timeout)
        return job.timeout_ms

    def _backoff_ms(self, job: _Job) -> int:
        return round(self._policy.backoff.delay(job.attempts, job.id) * 1000)

    def _decode(self, value: Any) -> Any:
        return msgspec.convert(value, self._type)

    def _in_state(self, state: JobState) -> list[_Job]:
        return [job for job in self._store.jobs.values() if job.state is state]

    def _listing(self, state: JobState) -> list[_Job]:
        if state is JobState.READY:
            return sorted(self._store.ready, key=lambda job: -job.priority)[::-1]
        if state is JobState.SCHEDULED:
            return sorted(self._in_state(state), key=lambda job: (_due_of(job), _key(job)), reverse=True)
        if state is JobState.LEASED:
            return sorted(self._in_state(state), key=lambda job: (job.lease_ends_ms, _key(job)), reverse=True)
        return sorted(self._in_state(state), key=_finish_order, reverse=True)

    def _matching(self, state: JobState, name: str | None, error: str | None) -> list[_Job]:
        return [
            job
            for job in self._listing(_state(state))
            if (name is None or job.name == name)
            and (error is None or (job.error is not None and job.error.type == error))
        ]

    def _view(self, job: _Job) -> Job:
        try:
            value = self._decode(job.value)
        except msgspec.ValidationError:
            value = msgspec.json.encode(job.value)
        return Job(
            id=job.id,
            queue=self.name,
            name=job.name,
            state=job.state,
            value=value,
            attempts=job.attempts,
            max_attempts=self._most_attempts(job),
            priority=job.priority,
            created_ms=job.created_ms,
            due_ms=job.due_ms,
            lease_expires_ms=job.lease_ends_ms if job.state is JobState.LEASED else None,
            finished_ms=job.finished_ms,
            timeout_ms=self._timeout_ms(job),
            result=job.result if job.state is JobState.COMPLETED else None,
            error=job.error,
            metadata=job.metadata,
            cancel_requested=job.cancel_requested,
        )


def _check_lease(lease: Duration | None) -> None:
    if lease is not None:
        duration_ms("lease", lease, least=1)


def _check_failed(failed: Failed) -> None:
    _detail(failed.error)
    if failed.retry_in is not None:
        duration_ms("retry_in", failed.retry_in)


def _detail(error: Any) -> ErrorDetail:
    if isinstance(error, ErrorDetail):
        return error
    if isinstance(error, str):
        return ErrorDetail("Error", error)
    if isinstance(error, BaseException):
        return ErrorDetail(type(error).__name__, str(error), "".join(traceback.format_exception(error)))
    raise InvalidInput(f"error must be an exception, a str or an ErrorDetail, not {type(error).__name__}")


def _cut(detail: ErrorDetail, limit: int) -> ErrorDetail:
    """At most `limit` bytes in all: the starts of type and message, then the end of the traceback."""
    kind = detail.type.encode()[:limit]
    message = detail.message.encode()[: limit - len(kind)]
    left = limit - len(kind) - len(message)
    end = detail.traceback.encode()[-left:] if left else b""
    return ErrorDetail(*(part.decode(errors="ignore") for part in (kind, message, end)))


def _state(state: Any) -> JobState:
    try:
        return JobState(state)
    except ValueError:
        raise InvalidInput(f"state must be one of {', '.join(JobState)}, not {state!r}") from None


def _key(job: _Job) -> bytes:
    return job.id.encode()


def _due_of(job: _Job) -> int:
    assert job.due_ms is not None
    return job.due_ms


def _finished(job: _Job) -> int:
    assert job.finished_ms is not None
    return job.finished_ms


def _finish_order(job: _Job) -> tuple[int, int]:
    return _finished(job), job.arrival


def _one_id(maker: IdMaker) -> Callable[[], str]:
    return lambda: maker.make()[0]
