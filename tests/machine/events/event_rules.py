"""A random user of one event queue through three clients, who asks the model the same and compares every answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, ClassVar, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import UNSET

from redisq.model import Done, ErrorDetail, EventDelivery, Failed, NewEvent, ObligationStatus, Released, Subscription
from redisq.policy import Backoff, EventPolicy
from redisq.testing import ManualClock, ReferenceEventQueue
from tests.machine.compare import Raised, must_equal, outcome
from tests.machine.events.comparing import all_archived, all_dead, drained, plain

# the third client takes any value, so it can emit what the others can't decode
TYPES: tuple[Any, ...] = (int, int, Any)
ANY = 2
NAMES = ("mail", "ledger", "é")
IDS = ("id-a", "id-b", "id-c", "id-d", "id-é")
EVERYTHING = 5  # every so many steps all of it is compared, in between what changed
SECONDS = (0, 0.5, 1, 2, 3, 4, 5, 6, 8)  # all durations that a policy or a call may state


class Bench:
    """Three engines on one server and one clock, for one queue after the other.

    `check` finds broken invariants in the stored keys of a queue. `contents` reads them: the elements of each key,
    names and scores and values alike.
    """

    def __init__(
        self,
        engines: Sequence[Any],
        clock: ManualClock,
        *,
        check: Callable[[str], list[str]] | None = None,
        contents: Callable[[str], dict[str, set[str]]] | None = None,
    ) -> None:
        self.engines = engines
        self.clock = clock
        self.check = check
        self.contents = contents
        self.names: Iterator[str] = (f"events-{number}" for number in count())


class Pair(NamedTuple):
    """One claim on both sides."""

    real: EventDelivery
    model: EventDelivery


Pick = Callable[[Pair], EventDelivery]

clients = st.integers(0, 2)
picks = st.integers(0, 7)
limits = st.sampled_from([1, 1, 2, 3, 10])
times = st.sampled_from([0, 0.5, 1, 2, 5])
leases = st.sampled_from([30, 30, 1, 2, 5, 0.001])
errors = st.builds(
    ErrorDetail, st.sampled_from(["ValueError", "OSError"]), st.sampled_from(["", "bad ü"]), st.just("tb")
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
policies = st.builds(
    EventPolicy,
    on_completion=st.sampled_from(["delete", "archive"]),
    ttl=st.sampled_from([None, None, 3, 0]),
    archive_retention=st.sampled_from([None, 4, 0]),
    max_attempts=st.sampled_from([None, 1, 1, 2]),
    backoff=backoffs,
    dedup=st.sampled_from([0, 4, 86_400]),
    dead_retention=st.sampled_from([None, None, 6, 0]),
    max_backlog=st.sampled_from([None, None, None, None, 1, 3]),
    idle_after=st.sampled_from([None, None, None, 5]),
)
changes = st.one_of(
    st.builds(EventPolicy, backoff=backoffs, max_attempts=st.sampled_from([None, 1, 2])),
    st.builds(EventPolicy, max_backlog=st.sampled_from([None, 2]), idle_after=st.sampled_from([None, 3, 8])),
    st.builds(EventPolicy, dead_retention=st.sampled_from([None, 2]), dedup=st.sampled_from([0, 4, 8])),
    st.builds(EventPolicy, archive_retention=st.sampled_from([None, 2, 8]), ttl=st.sampled_from([None, 2])),
    st.builds(EventPolicy, on_completion=st.sampled_from(["delete", "archive"])),
)
new_events = st.fixed_dictionaries(
    {"value": st.integers(0, 9)},
    optional={
        "id": st.sampled_from(IDS),
        "ttl": st.sampled_from([UNSET, None, 0, 1, 2, 5]),
    },
)
settlements = st.lists(
    st.tuples(st.sampled_from(["ack", "done", "failed", "final", "released", "delayed"]), picks), max_size=5
)


class EventMachine(RuleBasedStateMachine):
    """The rules. `machine_for` binds them to a bench."""

    bench: ClassVar[Bench]

    @initialize(policy=policies, opener=clients, names=st.lists(st.sampled_from(NAMES), max_size=3, unique=True))
    def open(self, policy: EventPolicy, opener: int, names: list[str]) -> None:
        """Three clients of a new queue; the third one declares no policy, so when it comes first none is stored."""
        self.name, self.clock = next(self.bench.names), self.bench.clock
        declared = [policy, policy, None]
        self.real = [
            engine.events(self.name, type, policy=each)
            for engine, type, each in zip(self.bench.engines, TYPES, declared, strict=True)
        ]
        self.made: deque[str] = deque()
        origin = ReferenceEventQueue(
            self.name, self.clock, make_id=self.made.popleft, make_generation=self.made.popleft
        )
        self.model = [origin.client(policy=each, type=type) for type, each in zip(TYPES, declared, strict=True)]
        self.ids = list(IDS)
        self.subscriptions: list[Subscription] = []
        self.pairs: list[Pair] = []
        self.settled: list[tuple[Pair, str]] = []
        self.tokens: set[str] = set()
        self.fence = 0
        self.steps = 0
        self.seen: dict[str, Any] = {}
        if policy.max_backlog or policy.idle_after:
            # a client that brings in such a rule late alters it: see `alter` about retried obligations
            nobody = Subscription(queue=self.name, name="nobody", generation="none")
            self.both(0, self._discarding(nobody, "nothing"))
        for name in names:
            self.subscribe(opener, name)

    # -- asking both

    def both(self, client: int, call: Callable[[Any, Pick], Any], *, hint: Callable[[Any], None] | None = None) -> Any:
        """The answers of the real queue and of the model, which must be equal."""
        real = outcome(lambda: call(self.real[client], lambda pair: pair.real))
        self.made.extend(self._new_names(real))
        if hint is not None:
            hint(real)
        model = outcome(lambda: call(self.model[client], lambda pair: pair.model))
        must_equal(f"the answer to client {client}", plain(real), plain(model))
        must_equal("new ids", list(self.made), [])
        return real, model

    def _new_names(self, real: Any) -> list[str]:
        """The ids and generations that the real queue made; the model uses the same."""
        if isinstance(real, Subscription):
            if real in self.subscriptions:
                return []
            assert real.generation not in {each.generation for each in self.subscriptions}
            self.subscriptions.append(real)
            return [real.generation]
        events = real if isinstance(real, list) else [real]
        new = [event.id for event in events if getattr(event, "duplicate", None) is False and event.id not in self.ids]
        self.ids += new
        return new

    def take_and_pair(self, client: int, subscription: Subscription, call: Callable[[Any, Pick], Any]) -> None:
        """Ask both for (answers, deliveries) and pair the deliveries. The order is the real queue's."""
        poison = self._poison(subscription)

        def hint(real: Any) -> None:
            taken = [] if isinstance(real, Raised) else [delivery.id for delivery in real[1]]
            self.model[client].handing_out = [*self._set_aside(poison, subscription), *taken]

        real, model = self.both(client, call, hint=hint)
        if isinstance(real, Raised):
            return
        for delivery in real[1]:
            assert delivery.fence > self.fence, f"the fence went from {self.fence} to {delivery.fence}"
            assert delivery.token not in self.tokens, f"the token {delivery.token} was used before"
            self.fence = delivery.fence
            self.tokens.add(delivery.token)
        self.pairs += [Pair(*claims) for claims in zip(real[1], model[1], strict=True)]

    def _poison(self, subscription: Subscription) -> list[str]:
        """Ids of events that a take for this subscription may come to and can't decode."""
        return [
            each.event.id
            for each in self.model[0]._obligations()
            if each.owed and each.event.value == "poison" and each.subscription.generation == subscription.generation
        ]

    def _set_aside(self, poison: list[str], subscription: Subscription) -> list[str]:
        """Which of them the real queue's take came to: how many there are before `limit` others is left open."""

        def pending(id: str) -> bool:
            event = self.real[ANY].get(id)
            return event is not None and any(
                each.generation == subscription.generation and each.status is ObligationStatus.PENDING
                for each in event.recipients
            )

        return [id for id in poison if not pending(id)]

    def pair(self, which: int) -> Pair:
        """A delivery, the newest first: live ones are likely, stale ones stay in reach."""
        return self.pairs[-1 - which % len(self.pairs)]

    def subscription(self, which: int) -> Subscription:
        """A handle, the newest first, also of a removed generation."""
        return self.subscriptions[-1 - which % len(self.subscriptions)]

    def dead_one(self, which: int) -> tuple[Subscription, str]:
        """A dead or retried obligation, if there is one; sometimes any other."""
        found = [each for each in self.model[0]._obligations() if each.listed or each.retried]
        if not found or which == 0:
            return self.subscription(which), self.ids[-1 - which % len(self.ids)]
        chosen = found[which % len(found)]
        name, generation = chosen.subscription.name, chosen.subscription.generation
        return Subscription(queue=self.name, name=name, generation=generation), chosen.event.id

    def has_pairs(self) -> bool:
        return bool(self.pairs)

    def has_subscriptions(self) -> bool:
        return bool(self.subscriptions)

    # -- subscriptions

    @rule(client=clients, name=st.sampled_from(NAMES))
    def subscribe(self, client: int, name: str) -> None:
        self.both(client, lambda queue, pick: queue.subscribe(name))

    @precondition(has_subscriptions)
    @rule(client=clients, which=st.integers(0, 9))
    def unsubscribe(self, client: int, which: int) -> None:
        """Not too often, so that not all rules wait for a subscription."""
        active = list(self.model[0]._store.subscriptions.values())
        subscription = self.subscription(which)
        if active and which in (1, 2, 3):
            chosen = active[which % len(active)]
            subscription = Subscription(queue=self.name, name=chosen.name, generation=chosen.generation)
        if which < 4:
            self.both(client, lambda queue, pick: queue.unsubscribe(subscription))
            for pair, verb in self.settled[-4:]:
                if pair.real.subscription == subscription:
                    self.settle(ANY, pair, verb, *{"fail": ["again"]}.get(verb, []))

    # -- emitting

    @rule(client=clients, options=new_events, poison=st.integers(0, 5))
    def emit(self, client: int, options: dict[str, Any], poison: int) -> None:
        if poison == 0:
            options = {**options, "value": "poison"}
        self.both(client, lambda queue, pick: queue.emit(**options))

    @rule(client=clients, items=st.lists(new_events, max_size=4))
    def emit_many(self, client: int, items: list[dict[str, Any]]) -> None:
        """Without duplicates that this client can't decode: their error would hide the ids of the others."""
        events = self.model[0]._store.events.values()
        poison = {event.id for event in events if event.value == "poison" and client != ANY}
        items = [each for each in items if each.get("id") not in poison]
        if self.model[0]._policy.dedup == 0:
            # whether an id that is free again at the very instant of its emission is free in that batch is left open
            items = list({each.get("id", place): each for place, each in enumerate(items)}.values())
        self.both(client, lambda queue, pick: queue.emit_many([NewEvent(**each) for each in items]))

    # -- consuming

    @precondition(has_subscriptions)
    @rule(client=clients, which=picks, limit=limits, lease=leases)
    def take(self, client: int, which: int, limit: int, lease: float) -> None:
        subscription = self.subscription(which)

        def call(queue: Any, pick: Pick) -> Any:
            if limit > 1:
                return None, queue.take_many(subscription, limit, lease=lease)
            delivery = queue.take(subscription, lease=lease)
            return None, [] if delivery is None else [delivery]

        self.take_and_pair(client, subscription, call)

    @precondition(has_pairs)
    @rule(client=clients, which=picks)
    def ack(self, client: int, which: int) -> None:
        self.settle(client, self.pair(which), "ack")

    @precondition(has_pairs)
    @rule(client=clients, which=picks, delay=times)
    def release(self, client: int, which: int, delay: float) -> None:
        self.settle(client, self.pair(which), "release", delay=delay)

    @precondition(has_pairs)
    @rule(client=clients, which=picks, error=errors, retry_in=st.one_of(st.none(), times), final=st.booleans())
    def fail(self, client: int, which: int, error: ErrorDetail, retry_in: float | None, final: bool) -> None:
        self.settle(client, self.pair(which), "fail", error, retry_in=retry_in, final=final)

    def settle(self, client: int, pair: Pair, verb: str, *args: Any, **options: Any) -> None:
        real, _ = self.both(client, lambda queue, pick: getattr(queue, verb)(pick(pair), *args, **options))
        if not isinstance(real, Raised):
            self.settled.append((pair, verb))

    @precondition(lambda self: self.settled)
    @rule(client=clients, which=picks)
    def repeat(self, client: int, which: int) -> None:
        """The same verb with its own token, however long after."""
        pair, verb = self.settled[-1 - which % len(self.settled)]
        self.settle(client, pair, verb, *{"fail": ["again"]}.get(verb, []))

    @precondition(has_pairs)
    @rule(client=clients, which=st.lists(picks, max_size=4))
    def ack_many(self, client: int, which: list[int]) -> None:
        self.both(client, lambda queue, pick: queue.ack_many([pick(self.pair(each)) for each in which]))

    @precondition(has_pairs)
    @rule(client=clients, which=picks, lease=leases)
    def renew(self, client: int, which: int, lease: float) -> None:
        self.both(client, lambda queue, pick: queue.renew(pick(self.pair(which)), lease))

    @precondition(has_pairs)
    @rule(client=clients, which=st.lists(picks, max_size=4), lease=leases)
    def renew_many(self, client: int, which: list[int], lease: float) -> None:
        self.both(client, lambda queue, pick: queue.renew_many([pick(self.pair(each)) for each in which], lease))

    @precondition(has_subscriptions)
    @rule(client=clients, which=picks, batch=settlements, limit=st.integers(0, 3), lease=leases)
    def exchange(self, client: int, which: int, batch: list[tuple[str, int]], limit: int, lease: float) -> None:
        subscription = self.subscription(which)
        pairs = [(kind, self.pair(each)) for kind, each in batch if self.pairs]

        def call(queue: Any, pick: Pick) -> Any:
            batch = [_settlement(kind, pick(pair)) for kind, pair in pairs]
            return queue.exchange(subscription, batch, limit, lease=lease)

        self.take_and_pair(client, subscription, call)

    # -- operating

    def has_no_backlog_limit(self) -> bool:
        """Whether a retried obligation is part of the backlog is left open, so it never is one here."""
        policy = self.model[0]._policy
        return policy.max_backlog is None and policy.idle_after is None

    @precondition(lambda self: self.subscriptions and self.has_no_backlog_limit())
    @rule(client=clients, which=picks)
    def retry(self, client: int, which: int) -> None:
        subscription, id = self.dead_one(which)
        self.both(client, self._retrying(subscription, id))

    @precondition(has_subscriptions)
    @rule(client=clients, which=picks)
    def discard(self, client: int, which: int) -> None:
        self.both(client, self._discarding(*self.dead_one(which)))

    @precondition(lambda self: self.model[ANY]._store.subscriptions)
    @rule(which=picks, ttl=st.sampled_from([UNSET, None, 2]), again=st.integers(0, 2), lease=leases)
    def give_up(self, which: int, ttl: Any, again: int, lease: float) -> None:
        """An event that is dead for one, perhaps retried, perhaps taken again: chance alone seldom comes that far."""
        self.both(ANY, lambda queue, pick: queue.emit(1, ttl=ttl))
        active = list(self.model[ANY]._store.subscriptions.values())
        chosen = active[which % len(active)]
        subscription = Subscription(queue=self.name, name=chosen.name, generation=chosen.generation)
        known = len(self.pairs)
        self.take_and_pair(ANY, subscription, lambda queue, pick: (None, queue.take_many(subscription, 10)))
        taken = self.pairs[known:]
        for pair in taken:
            self.settle(ANY, pair, "fail", "no good", final=True)
        if again and self.has_no_backlog_limit():
            for pair in taken:
                self.both(ANY, self._retrying(subscription, pair.real.id))
        if again == 2:
            self.take_and_pair(
                ANY, subscription, lambda queue, pick: (None, queue.take_many(subscription, 10, lease=lease))
            )

    @precondition(lambda self: self.model[ANY]._store.subscriptions and self.model[ANY]._policy.idle_after)
    @rule(which=picks, before=st.sampled_from([1, 2, 5]), after=st.sampled_from([2, 3, 4, 5]))
    def take_one_of_two(self, which: int, before: float, after: float) -> None:
        """A subscriber that leaves an event waiting, though it took another one."""
        self.both(ANY, lambda queue, pick: queue.emit_many([NewEvent(1, ttl=None), NewEvent(2, ttl=None)]))
        self.clock.advance(before)
        active = list(self.model[ANY]._store.subscriptions.values())
        chosen = active[which % len(active)]
        subscription = Subscription(queue=self.name, name=chosen.name, generation=chosen.generation)
        self.take_and_pair(ANY, subscription, lambda queue, pick: (None, queue.take_many(subscription, 1)))
        self.clock.advance(after)
        self.maintain(ANY, 100)

    @staticmethod
    def _retrying(subscription: Subscription, id: str) -> Callable[[Any, Pick], Any]:
        return lambda queue, pick: queue.retry(subscription, id)

    @staticmethod
    def _discarding(subscription: Subscription, id: str) -> Callable[[Any, Pick], Any]:
        return lambda queue, pick: queue.discard(subscription, id)

    @rule(client=clients, change=changes)
    def alter(self, client: int, change: EventPolicy) -> None:
        """After a sweep: what a longer retention does to records that are past the shorter one is left open."""
        if {"max_backlog", "idle_after"} & change.given.keys():
            for each in [each for each in self.model[0]._obligations() if each.retried]:
                name, generation = each.subscription.name, each.subscription.generation
                subscription = Subscription(queue=self.name, name=name, generation=generation)
                self.both(client, self._discarding(subscription, each.event.id))
        self.maintain(client, 100)
        self.both(client, lambda queue, pick: queue.alter(change).stored)

    @rule(client=clients, limit=st.sampled_from([1, 2, 100]))
    def maintain(self, client: int, limit: int) -> None:
        """Sweeps until nothing is pending, as only that end is promised.

        The discard before it is the first write of a client, if it had none: a sweep with nothing to do is not.
        """
        nothing = Subscription(queue=self.name, name="nobody", generation="none")
        if isinstance(self.both(client, lambda queue, pick: queue.discard(nothing, "nothing"))[0], Raised):
            return
        self.both(client, lambda queue, pick: drained(queue, limit))

    @precondition(lambda self: self.bench.contents is not None and self.model[0]._policy.on_completion == "delete")
    @rule(often=st.integers(0, 4))
    def finish(self, often: int) -> None:
        """Everything is settled, forgotten and swept; of a queue that deletes, only its frame is left.

        What was archived before the queue came to delete stays, so there is no such end then.
        """
        if often < 4 or any(each.archived for each in self.model[0]._store.events.values()):
            return
        for _ in range(5):
            self.clock.advance(100_000)
            for each in list(self.model[ANY]._store.subscriptions.values()):
                self._clear(Subscription(queue=self.name, name=each.name, generation=each.generation))
            if not self.model[ANY]._store.events:
                break
        self.clock.advance(100_000)
        for client in range(len(self.real)):
            self.maintain(client, 100)
        assert not self.model[ANY]._store.events
        assert self.bench.contents is not None
        must_equal("leftovers", leftovers(self.bench, self.name, self.model[ANY], self.ids), [])

    def _clear(self, subscription: Subscription) -> None:
        for dead in self.model[ANY].dead(subscription, limit=1000).items:
            self.both(ANY, self._discarding(subscription, dead.event_id))
        known = len(self.pairs)
        self.take_and_pair(ANY, subscription, lambda queue, pick: (None, queue.take_many(subscription, 1000)))
        taken = self.pairs[known:]
        self.both(ANY, lambda queue, pick: queue.ack_many([pick(pair) for pair in taken]))

    # -- time

    @rule(seconds=st.sampled_from([0.001, 0.5, 1, 1, 2, 5, 60]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(which=st.integers(0, 5), offset_ms=st.sampled_from([-1, 0, 0, 1]))
    def advance_to_an_edge(self, which: int, offset_ms: int) -> None:
        """To an instant at which something falls due, or one millisecond beside it."""
        now, store = self.clock.now_ms, self.model[0]._store
        edges: set[int | None] = set()
        for event in [*store.events.values(), *store.memory.values()]:
            starts = {event.created_ms, event.settled_ms or 0, *(each.died_ms for each in event.obligations)}
            edges |= {event.expires_ms, *(start + round(seconds * 1000) for start in starts for seconds in SECONDS)}
            for each in event.obligations:
                edges |= {each.lease_ends_ms, each.takeable_ms}
        ahead = sorted(edge + offset_ms for edge in edges if edge is not None and edge + offset_ms > now)
        if ahead:
            self.clock.advance((ahead[which % len(ahead)] - now) / 1000)

    # -- looking

    @invariant()
    def agree(self) -> None:
        """Everything that can be seen is equal, whoever looks."""
        if not hasattr(self, "real"):
            return
        self.steps += 1
        client, thorough = self.steps % len(self.real), self.steps % EVERYTHING == 0
        real, model = self.real[client], self.model[client]
        figures = outcome(model.subscriptions)
        must_equal("subscriptions", outcome(real.subscriptions), figures)
        if isinstance(figures, Raised):  # this client declares another policy than the stored one
            return
        limit = self.steps % 3 + 1 if thorough else 100
        must_equal("archived", *(all_archived(queue, limit, self._settled_ms) for queue in (real, model)))
        for id in {*IDS, *self.model[0]._store.events, *self.ids[-3:]}:
            seen = plain(outcome(partial(model.get, id)))
            if thorough or seen != self.seen.get(id):
                must_equal(f"get({id})", plain(outcome(partial(real.get, id))), seen)
                self.seen[id] = None if isinstance(seen, Raised) else seen
        for each in self.subscriptions[-6:]:
            must_equal(f"dead({each})", *(all_dead(queue, each, limit) for queue in (real, model)))
        if self.bench.check is not None:
            must_equal("broken invariants", self.bench.check(self.name), [])

    def _settled_ms(self, id: str) -> int:
        event = self.model[0]._store.events.get(id)
        return 0 if event is None or event.settled_ms is None else event.settled_ms


def leftovers(bench: Bench, name: str, model: ReferenceEventQueue, ids: list[str]) -> list[str]:
    """What the keys of a queue hold beside its configuration and its subscriptions.

    No trace of an event may be left, and a key that a fresh queue with such subscriptions does not have may hold
    nothing but their generations and counts.
    """
    assert bench.contents is not None
    fresh = next(bench.names)
    queue = bench.engines[ANY].events(fresh)
    queue.alter(model._policy)
    queue.unsubscribe(queue.subscribe("somebody"))
    queue.discard(Subscription(queue=fresh, name="nobody", generation="none"), "nothing")
    for each in model._store.subscriptions:
        queue.subscribe(each)
    frame = {key.replace(fresh, name) for key in bench.contents(fresh)}
    generations = {each.generation for each in model._store.subscriptions.values()}
    found = []
    for key, elements in bench.contents(name).items():
        found += [f"{key} holds {id}" for id in (*ids, "poison") for each in (key, *elements) if id in each]
        allowed = set(elements) if key in frame else generations
        found += [f"{key} holds {each}" for each in elements if each not in allowed and not each.isdigit()]
    return found


def machine_for(bench: Bench) -> type[EventMachine]:
    return type("BoundEventMachine", (EventMachine,), {"bench": bench})


def _settlement(kind: str, delivery: EventDelivery) -> Any:
    match kind:
        case "done":
            return Done(delivery, "ignored")
        case "failed":
            return Failed(delivery, ErrorDetail("OSError", "batch"))
        case "final":
            return Failed(delivery, ErrorDetail("OSError", "batch"), final=True)
        case "released":
            return Released(delivery)
        case "delayed":
            return Released(delivery, 2)
    return delivery
