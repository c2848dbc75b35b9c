"""A random user of one job queue through three clients, who asks the model the same and compares every answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, ClassVar, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import UNSET

from redisq.model import (
    TERMINAL,
    Attempt,
    Delivery,
    Done,
    ErrorDetail,
    Failed,
    Job,
    JobHistory,
    JobState,
    Maintenance,
    NewJob,
    Released,
)
from redisq.policy import Backoff, Keep, QueuePolicy
from redisq.testing import ManualClock, ReferenceQueue
from tests.machine.compare import Raised, listed, must_equal, outcome, plain

WORKERS = ("w0", "w1", "w2")
# the third client takes any value, so it can offer what the others can't decode
TYPES: tuple[Any, ...] = (int, int, Any)
WAITING = (JobState.READY, JobState.SCHEDULED)
UNDONE = (JobState.DEAD, JobState.QUARANTINED)
IDS = ("a", "b", "c", "d", "é")
ALL_DUE = 100
EVERYTHING = 5  # every so many steps all of it is compared, in between what changed


class Bench:
    """Three engines on one server and one clock, for one queue after the other.

    `check` finds broken invariants in the stored keys of a queue. `exchange_unstarted(queue, settlements, limit)` takes
    as a worker does for what waits behind its free slots, and `start(queue, deliveries)` marks those leases as started.
    """

    def __init__(
        self,
        engines: Sequence[Any],
        clock: ManualClock,
        *,
        check: Callable[[Any], list[str]] | None = None,
        exchange_unstarted: Callable[[Any, list[Any], int], Any] | None = None,
        start: Callable[[Any, list[Delivery]], Any] | None = None,
    ) -> None:
        self.engines = engines
        self.clock = clock
        self.check = check
        self.exchange_unstarted = exchange_unstarted
        self.start = start
        self.names: Iterator[str] = (f"jobs-{number}" for number in count())


class Pair(NamedTuple):
    """One claim on both sides."""

    real: Delivery
    model: Delivery


Pick = Callable[[Pair], Delivery]

clients = st.integers(0, 2)
picks = st.integers(0, 7)
known = st.integers(0, 9)
limits = st.sampled_from([1, 1, 2, 3, 10])
times = st.sampled_from([0, 0.5, 1, 2, 5])
leases = st.sampled_from([None, None, 1, 2, 0.001])
names = st.sampled_from(["", "mail"])
errors = st.builds(
    ErrorDetail, st.sampled_from(["ValueError", "OSError"]), st.sampled_from(["", "bad ü"]), st.just("tb")
)
rules_of_keep = st.sampled_from(
    [
        Keep(),
        Keep(count=0),
        Keep(count=1),
        Keep(count=2, age=3),
        Keep(age=0),
        Keep(age=2),
        Keep(completed=Keep(count=1), dead=Keep(age=4)),
    ]
)
backoffs = st.sampled_from(
    [
        Backoff.fixed(0),
        Backoff.fixed(2),
        Backoff.exponential(base=1, factor=2, cap=3),
        Backoff.delays(0, 1.5),
        Backoff.delays(2, 4, jitter=0.5),
    ]
)
ceilings = st.sampled_from([None, None, 4, {"dead": 3}, {"completed": 1, "cancelled": 6}])
policies = st.builds(
    QueuePolicy,
    max_attempts=st.integers(1, 3),
    backoff=backoffs,
    lease=st.sampled_from([1, 2, 5]),
    timeout=st.sampled_from([None, 7]),
    keep=st.one_of(st.just(Keep()), rules_of_keep),
    history_ttl=ceilings,
    history=st.sampled_from(["full", "full", "transitions", "off"]),
    transition_cap=st.sampled_from([3, 64]),
    attempt_cap=st.sampled_from([2, 64]),
    dedup=st.sampled_from([0, 4, 86_400]),
)
changes = st.one_of(
    st.builds(QueuePolicy, keep=rules_of_keep),
    st.builds(QueuePolicy, backoff=backoffs, lease=st.sampled_from([1, 3])),
    st.builds(QueuePolicy, history_ttl=ceilings, dedup=st.sampled_from([0, 4, 8])),
    st.builds(QueuePolicy, max_attempts=st.integers(1, 3), timeout=st.sampled_from([None, 2])),
)
new_jobs = st.fixed_dictionaries(
    {"value": st.integers(0, 9)},
    optional={
        "id": st.sampled_from(IDS),
        "name": names,
        "delay": times,
        "priority": st.sampled_from([0, 5, -5, 1000, -1000]),
        "max_attempts": st.integers(1, 3),
        "timeout": st.sampled_from([None, 3]),
        "keep": st.sampled_from([UNSET, None, Keep(count=0), Keep(count=1), Keep(age=3), Keep(dead=Keep(count=1))]),
        "metadata": st.sampled_from([None, {}, {"k": "ü"}]),
    },
)
settlements = st.lists(
    st.tuples(st.sampled_from(["ack", "done", "failed", "final", "released", "delayed"]), picks), max_size=5
)


class JobMachine(RuleBasedStateMachine):
    """The rules. `machine_for` binds them to a bench."""

    bench: ClassVar[Bench]

    @initialize(policy=policies, opener=clients, items=st.lists(new_jobs, min_size=1, max_size=6))
    def open(self, policy: QueuePolicy, opener: int, items: list[dict[str, Any]]) -> None:
        """Three clients of a new queue; the third one declares no policy, so when it comes first none is stored."""
        name, self.clock = next(self.bench.names), self.bench.clock
        declared = [policy, policy, None]
        self.real = [
            engine.queue(name, type, policy=each)
            for engine, type, each in zip(self.bench.engines, TYPES, declared, strict=True)
        ]
        self.made: deque[str] = deque()
        origin = ReferenceQueue(name, self.clock, make_id=self.made.popleft)
        self.model = [
            origin.client(policy=each, type=type, worker=worker)
            for worker, type, each in zip(WORKERS, TYPES, declared, strict=True)
        ]
        self.ids = list(IDS)
        self.pairs: list[Pair] = []
        self.settled: list[tuple[Pair, str]] = []
        self.tokens: set[str] = set()
        self.fence = 0
        self.walk: Walk | None = None
        self.steps = 0
        self.seen: dict[str, Any] = {}
        self.offer_many(opener, items)

    def teardown(self) -> None:
        if hasattr(self, "real"):
            self.real[2].delete(force=True)

    # -- asking both

    def both(self, client: int, call: Callable[[Any, Pick], Any]) -> tuple[Any, Any]:
        """The answers of the real queue and of the model, which must be equal."""
        real = outcome(lambda: call(self.real[client], lambda pair: pair.real))
        new = self._new_ids(real)
        self.made.extend(new)
        self.ids += new
        model = outcome(lambda: call(self.model[client], lambda pair: pair.model))
        must_equal(f"the answer to client {client}", plain(real), plain(model))
        must_equal("new ids", list(self.made), [])
        return real, model

    def _new_ids(self, real: Any) -> list[str]:
        """The ids that the real queue made for an offer; the model uses the same."""
        offers = real if isinstance(real, list) else [real]
        return [offer.id for offer in offers if getattr(offer, "duplicate", None) is False and offer.id not in self.ids]

    def take_and_pair(self, client: int, call: Callable[[Any, Pick], Any]) -> None:
        """Ask both for (answers, deliveries) and pair the deliveries."""
        real, model = self.both(client, call)
        if isinstance(real, Raised):
            return
        for delivery in real[1]:
            assert delivery.fence > self.fence, f"the fence went from {self.fence} to {delivery.fence}"
            assert delivery.token not in self.tokens, f"the token {delivery.token} was used before"
            self.fence = delivery.fence
            self.tokens.add(delivery.token)
        self.pairs += [Pair(*claims) for claims in zip(real[1], model[1], strict=True)]

    def pair(self, which: int) -> Pair:
        """A delivery, the newest first: live ones are likely, stale ones stay in reach."""
        return self.pairs[-1 - which % len(self.pairs)]

    def id(self, which: int, *states: JobState) -> str:
        """The id of a job in one of the states, else any known one, also of a removed job or one never offered."""
        fitting = [job.id for job in self.model[0]._store.jobs.values() if job.state in states]
        ids = [*fitting, *self.ids[-3:], *IDS]
        return ids[which % len(ids)]

    def has_pairs(self) -> bool:
        return bool(self.pairs)

    # -- producing

    @rule(client=clients, options=new_jobs, poison=st.integers(0, 5))
    def offer(self, client: int, options: dict[str, Any], poison: int) -> None:
        if poison == 0:
            options = {**options, "value": "poison"}
        self.both(client, lambda queue, pick: queue.offer(**options))

    @rule(client=clients, seconds=st.sampled_from([-5, 0, 0.001, 2]), which=known)
    def offer_at(self, client: int, seconds: float, which: int) -> None:
        at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=self.clock.now_ms, seconds=seconds)
        self.both(client, lambda queue, pick: queue.offer(1, id=self.id(which), at=at))

    @rule(client=clients, items=st.lists(new_jobs, max_size=4))
    def offer_many(self, client: int, items: list[dict[str, Any]]) -> None:
        self.both(client, lambda queue, pick: queue.offer_many([NewJob(**each) for each in items]))

    # -- consuming

    @rule(client=clients, limit=limits, lease=leases)
    def take(self, client: int, limit: int, lease: float | None) -> None:
        def call(queue: Any, pick: Pick) -> Any:
            if limit > 1:
                return None, queue.take_many(limit, lease=lease)
            delivery = queue.take(lease=lease)
            return None, [] if delivery is None else [delivery]

        self.take_and_pair(client, call)

    @precondition(has_pairs)
    @rule(client=clients, which=picks, result=st.sampled_from([None, 0, "done", [1, {"k": None}]]))
    def ack(self, client: int, which: int, result: Any) -> None:
        self.settle(client, self.pair(which), "ack", result)

    @precondition(has_pairs)
    @rule(client=clients, which=picks, delay=times)
    def release(self, client: int, which: int, delay: float) -> None:
        self.settle(client, self.pair(which), "release", delay=delay)

    @precondition(has_pairs)
    @rule(client=clients, which=picks, error=errors, retry_in=st.one_of(st.none(), times), final=st.booleans())
    def fail(self, client: int, which: int, error: ErrorDetail, retry_in: float | None, final: bool) -> None:
        self.settle(client, self.pair(which), "fail", error, retry_in=retry_in, final=final)

    @precondition(has_pairs)
    @rule(client=clients, which=picks)
    def quarantine(self, client: int, which: int) -> None:
        self.settle(client, self.pair(which), "quarantine", "no good")

    def settle(self, client: int, pair: Pair, verb: str, *args: Any, **options: Any) -> None:
        real, _ = self.both(client, lambda queue, pick: getattr(queue, verb)(pick(pair), *args, **options))
        if not isinstance(real, Raised):
            self.settled.append((pair, verb))

    @precondition(lambda self: self.settled)
    @rule(client=clients, which=picks)
    def repeat(self, client: int, which: int) -> None:
        """The same verb with its own token, however long after."""
        pair, verb = self.settled[-1 - which % len(self.settled)]
        self.settle(client, pair, verb, *{"fail": ["again"], "quarantine": ["again"]}.get(verb, []))

    @precondition(has_pairs)
    @rule(client=clients, which=st.lists(picks, max_size=4))
    def ack_many(self, client: int, which: list[int]) -> None:
        pairs = self._batch(which)
        self.both(client, lambda queue, pick: queue.ack_many([pick(pair) for pair in pairs]))

    @precondition(has_pairs)
    @rule(client=clients, which=picks, lease=leases)
    def renew(self, client: int, which: int, lease: float | None) -> None:
        self.both(client, lambda queue, pick: queue.renew(pick(self.pair(which)), lease))

    @precondition(has_pairs)
    @rule(client=clients, which=st.lists(picks, max_size=4), lease=leases)
    def renew_many(self, client: int, which: list[int], lease: float | None) -> None:
        self.both(client, lambda queue, pick: queue.renew_many([pick(self.pair(each)) for each in which], lease))

    @rule(client=clients, batch=settlements, limit=st.integers(0, 3), lease=leases)
    def exchange(self, client: int, batch: list[tuple[str, int]], limit: int, lease: float | None) -> None:
        self.take_and_pair(
            client, lambda queue, pick: queue.exchange(self._settlements(batch, pick), limit, lease=lease)
        )

    def _settlements(self, batch: list[tuple[str, int]], pick: Pick) -> list[Any]:
        pairs = self._batch([which for _, which in batch])
        return [_settlement(kind, pick(pair)) for (kind, _), pair in zip(batch, pairs, strict=False)]

    def _batch(self, which: list[int]) -> list[Pair]:
        """Deliveries for one call. When a rule could remove one of the jobs in the middle, none comes twice: whether
        the second settlement still finds the record is left open."""
        pairs = [self.pair(each) for each in which if self.pairs]
        jobs = self.model[0]._store.jobs
        found = [jobs[pair.real.id] for pair in pairs if pair.real.id in jobs]
        if all(self.model[0]._rule(job, state) == (None, None) for job in found for state in TERMINAL):
            return pairs
        return list({pair.real.id: pair for pair in pairs}.values())

    @precondition(lambda self: self.bench.exchange_unstarted is not None)
    @rule(client=clients, batch=settlements, limit=st.integers(0, 3))
    def exchange_unstarted(self, client: int, batch: list[tuple[str, int]], limit: int) -> None:
        def call(queue: Any, pick: Pick) -> Any:
            if isinstance(queue, ReferenceQueue):
                return queue.exchange(self._settlements(batch, pick), limit, started=False)
            assert self.bench.exchange_unstarted is not None
            return self.bench.exchange_unstarted(queue, self._settlements(batch, pick), limit)

        self.take_and_pair(client, call)

    @precondition(lambda self: self.bench.start is not None and self.pairs)
    @rule(client=clients, which=st.lists(picks, max_size=4))
    def start(self, client: int, which: list[int]) -> None:
        def call(queue: Any, pick: Pick) -> None:
            deliveries = [pick(self.pair(each)) for each in which]
            if isinstance(queue, ReferenceQueue):
                queue.start(deliveries)
            elif self.bench.start is not None:
                self.bench.start(queue, deliveries)

        self.both(client, call)

    # -- operating

    @rule(client=clients, which=known)
    def cancel(self, client: int, which: int) -> None:
        self.both(client, lambda queue, pick: queue.cancel(self.id(which, *WAITING)))

    @precondition(has_pairs)
    @rule(client=clients, which=picks)
    def cancel_taken(self, client: int, which: int) -> None:
        self.both(client, lambda queue, pick: queue.cancel(pick(self.pair(which)).id))

    @rule(client=clients, which=known)
    def retry(self, client: int, which: int) -> None:
        self.both(client, lambda queue, pick: queue.retry(self.id(which, *UNDONE)))

    @rule(client=clients, which=known)
    def promote(self, client: int, which: int) -> None:
        self.both(client, lambda queue, pick: queue.promote(self.id(which, JobState.SCHEDULED)))

    @rule(client=clients, which=known)
    def remove(self, client: int, which: int) -> None:
        self.both(client, lambda queue, pick: queue.remove(self.id(which, JobState.LEASED, *TERMINAL)))

    @rule(
        client=clients,
        state=st.sampled_from([*UNDONE, *UNDONE, JobState.COMPLETED, JobState.LEASED]),
        name=st.one_of(st.none(), names),
        error=st.sampled_from([None, None, "OSError"]),
    )
    def retry_many(self, client: int, state: JobState, name: str | None, error: str | None) -> None:
        self.both(client, lambda queue, pick: queue.retry_many(state, name=name, error=error))

    @rule(
        client=clients,
        state=st.sampled_from(list(JobState)),
        name=st.one_of(st.none(), names),
        error=st.sampled_from([None, None, "OSError"]),
    )
    def purge(self, client: int, state: JobState, name: str | None, error: str | None) -> None:
        self.both(client, lambda queue, pick: queue.purge(state, name=name, error=error))

    @rule(client=clients, what=st.sampled_from(["pause", "resume", "resume", "resume", "delete", "force"]))
    def pause_resume_or_delete(self, client: int, what: str) -> None:
        calls: dict[str, Callable[[Any, Pick], Any]] = {
            "pause": lambda queue, pick: queue.pause() and None,
            "resume": lambda queue, pick: queue.resume() and None,
            "delete": lambda queue, pick: queue.delete() and None,
            "force": lambda queue, pick: queue.delete(force=True) and None,
        }
        real, _ = self.both(client, calls[what])
        if what in ("delete", "force") and real is None:
            self.fence = 0  # the next queue of this name counts anew

    @rule(client=clients, change=changes)
    def alter(self, client: int, change: QueuePolicy) -> None:
        self.both(client, lambda queue, pick: queue.alter(change).stored)

    @rule(client=clients, limit=st.sampled_from([1, 2, ALL_DUE]))
    def maintain(self, client: int, limit: int) -> None:
        """One sweep for all; with a small limit, sweeps until nothing is pending, as only that end is promised."""
        if limit == ALL_DUE:
            self.both(client, lambda queue, pick: queue.maintain(limit))
        else:
            self.both(client, lambda queue, pick: _drained(queue, limit))

    # -- time

    @rule(seconds=st.sampled_from([0.001, 0.5, 1, 1, 2, 5, 60]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(which=st.integers(0, 3), offset_ms=st.sampled_from([-1, 0, 0, 1]))
    def advance_to_an_edge(self, which: int, offset_ms: int) -> None:
        """To an instant at which something falls due, or one millisecond beside it."""
        now, store = self.clock.now_ms, self.model[0]._store
        edges = {finished + seconds * 1000 for finished in store.memory.values() for seconds in (4, 8)}
        for job in store.jobs.values():
            edges |= {job.due_ms or 0, job.lease_ends_ms}
            edges |= {(job.finished_ms or 0) + seconds * 1000 for seconds in (1, 2, 3, 4, 6)}
        ahead = sorted(edge + offset_ms for edge in edges if edge + offset_ms > now)
        if ahead:
            self.clock.advance((ahead[which % len(ahead)] - now) / 1000)

    # -- looking

    @rule(state=st.sampled_from([None, *JobState]), limit=st.integers(1, 2))
    def walk_on(self, state: JobState | None, limit: int) -> None:
        """A listing whose pages are far apart: what stayed all the while is seen once."""
        if self.walk is None:
            self.walk = Walk(state, self._signatures())
        self.walk.next_page(self.real[2], limit)
        if self.walk.ended:
            self.walk.check()
            self.walk = None

    def _signatures(self) -> dict[str, Any]:
        """What changes about a job whenever it may change its place in a listing."""
        return {
            job.id: (job.state, job.created_ms, job.due_ms, job.token, job.lease_ends_ms, job.finished_ms, job.arrival)
            for job in self.model[0]._store.jobs.values()
        }

    @invariant()
    def agree(self) -> None:
        """Everything that can be seen is equal, whoever looks."""
        if not hasattr(self, "real"):
            return
        self.steps += 1
        client = self.steps % len(self.real)
        if self.walk is not None:
            self.walk.keep_steady(self._signatures())
        real, model = self.real[client], self.model[client]
        counted = outcome(model.counts)
        must_equal("counts", outcome(real.counts), counted)
        if isinstance(counted, Raised):  # this client declares another policy than the stored one
            return
        must_equal("info", real.info(), model.info())
        thorough = self.steps % EVERYTHING == 0
        limit = self.steps % 3 + 1 if thorough else 100
        found, expected = (_pages(queue, limit=limit) for queue in (real, model))
        must_equal("jobs", listed(found), listed(expected))
        for id in {*IDS, *(job.id for job in expected), *self.ids[-3:]}:
            seen = model.get(id), model.attempts(id), model.history(id)
            if thorough or seen != self.seen.get(id):
                self.seen[id] = seen
                self.look_at(id, real, *seen)
        if thorough:
            self.look_at_groups(real, model)
        if self.bench.check is not None:
            must_equal("broken invariants", self.bench.check(real), [])

    def look_at(self, id: str, real: Any, job: Job | None, attempts: list[Attempt], history: JobHistory) -> None:
        must_equal(f"get({id})", real.get(id), job)
        must_equal(f"attempts({id})", real.attempts(id), attempts)
        recorded = real.history(id)
        must_equal(f"history({id}).entries", recorded.entries, history.entries)
        if job is not None:  # what `recorded` says about an unknown job is nobody's business
            must_equal(f"history({id})", recorded, history)

    def look_at_groups(self, real: Any, model: Any) -> None:
        found, expected = (_pages(queue, name="mail", limit=2) for queue in (real, model))
        must_equal("jobs called mail", listed(found), listed(expected))
        for state in UNDONE:
            must_equal(f"errors({state})", plain(real.errors(state)), plain(model.errors(state)))


class Walk:
    """A listing taken page by page while the queue changes."""

    def __init__(self, state: JobState | None, steady: dict[str, Any]) -> None:
        self.state = state
        self.steady = steady
        self.cursor: str | None = None
        self.seen: list[str] = []
        self.ended = False

    def keep_steady(self, now: dict[str, Any]) -> None:
        self.steady = {id: at for id, at in self.steady.items() if now.get(id) == at}

    def next_page(self, queue: Any, limit: int) -> None:
        page = queue.jobs(state=self.state, limit=limit, cursor=self.cursor)
        self.seen += [job.id for job in page.items]
        self.cursor, self.ended = page.cursor, page.cursor is None

    def check(self) -> None:
        stayed = [id for id, signature in self.steady.items() if self.state in (None, signature[0])]
        must_equal("times seen", {id: self.seen.count(id) for id in stayed}, dict.fromkeys(stayed, 1))


def machine_for(bench: Bench) -> type[JobMachine]:
    return type("BoundJobMachine", (JobMachine,), {"bench": bench})


def _settlement(kind: str, delivery: Delivery) -> Any:
    match kind:
        case "done":
            return Done(delivery, "result")
        case "failed":
            return Failed(delivery, ErrorDetail("OSError", "batch"))
        case "final":
            return Failed(delivery, ErrorDetail("OSError", "batch"), final=True)
        case "released":
            return Released(delivery)
        case "delayed":
            return Released(delivery, 2)
    return delivery


def _drained(queue: Any, limit: int) -> dict[str, int]:
    """What all sweeps together did, until nothing was pending."""
    total: dict[str, int] = {}
    for _ in range(100):
        swept: Maintenance = queue.maintain(limit)
        assert swept.processed == sum(swept.by_category.values())
        total = {category: total.get(category, 0) + done for category, done in swept.by_category.items()}
        if not swept.pending:
            return total
    raise AssertionError(f"still pending after 100 sweeps: {total}")


def _pages(queue: Any, **options: Any) -> list[Job]:
    items, cursor = [], None
    while True:
        page = queue.jobs(cursor=cursor, **options)
        items += page.items
        cursor = page.cursor
        if cursor is None:
            return items
