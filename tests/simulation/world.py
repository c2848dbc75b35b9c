"""Many clients of one store, under one clock, and the ledgers that hold them to what they were told.

A step is a small dictionary that names what it acts on by label (`"12.0"`: the first job or delivery of step 12), so a
history can be stored, replayed, and shortened: a step whose subject is not there does nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import redis

from redisq import (
    Backoff,
    Done,
    EventPolicy,
    Failed,
    Keep,
    NewEvent,
    NewJob,
    QueuePolicy,
    Released,
    Subscription,
)
from redisq.calls.broadcast import Emitted
from redisq.calls.consume import Taken
from redisq.errors import IndeterminateWrite, InvalidInput, RedisqError
from redisq.testing import ManualClock, check
from tests.simulation.events import EventLedger, EventTerms
from tests.simulation.facts import Broken, Sabotage
from tests.simulation.jobs import HELD, JobLedger, Terms
from tests.simulation.transport import LATE, Interrupted, SimulatedEngine, connect, reproducible

Step = dict[str, Any]

START_MS = 1_800_000_000_000
CLIENTS = 6
RETRY_FOR_MS = 10_000
"""As long as a client would repeat a request: nobody asks again after more than that."""

JOB_QUEUES: dict[str, tuple[QueuePolicy, Terms]] = {
    "by-age": (
        QueuePolicy(
            max_attempts=3, backoff=Backoff.fixed(2), lease=20, dedup=120,
            keep=Keep(completed=Keep(age=300), dead=Keep(age=600), cancelled=Keep(age=300), quarantined=Keep(age=600)),
        ),
        Terms(20_000, 3, (2000,), 120_000,
              {"completed": 300_000, "dead": 600_000, "cancelled": 300_000, "quarantined": 600_000}),
    ),
    "by-count": (
        QueuePolicy(
            max_attempts=4, backoff=Backoff.exponential(base=1, factor=2, cap=8), lease=30, dedup=60,
            keep=Keep(count=3), history_ttl=900, attempt_cap=3, transition_cap=4,
        ),
        Terms(30_000, 4, (1000, 2000, 4000, 8000), 60_000,
              dict.fromkeys(("completed", "dead", "cancelled", "quarantined"), 900_000), count=3),
    ),
}  # fmt: skip
EVENT_QUEUES: dict[str, tuple[EventPolicy, EventTerms]] = {
    "archived": (
        EventPolicy(on_completion="archive", archive_retention=200, max_attempts=3, backoff=Backoff.fixed(1),
                    dedup=60, dead_retention=300),
        EventTerms(3, 1000, 60_000, 200_000, 300_000),
    ),
    "deleted": (
        EventPolicy(max_attempts=2, backoff=Backoff.fixed(1), dedup=60, dead_retention=300),
        EventTerms(2, 1000, 60_000, None, 300_000),
    ),
}  # fmt: skip
LEASE_MS = 20_000


@dataclass(eq=False)
class Client:
    """One client process: what it holds, and older deliveries whose tokens it may still use. A crash forgets both."""

    engine: SimulatedEngine
    deliveries: dict[str, tuple[str, Any]] = field(default_factory=dict)  # label -> queue, delivery

    def keep(self, label: str, queue: str, delivery: Any) -> None:
        self.deliveries[label] = (queue, delivery)
        if len(self.deliveries) > 60:
            del self.deliveries[next(iter(self.deliveries))]


class World:
    """Applies steps. `check_every`: after so many, everything is walked; every tenth time by `redisq.testing.check`."""

    def __init__(self, url: str, namespace: str, *, sabotage: Sabotage | None = None, check_every: int = 500) -> None:
        self.url = url
        self.namespace = namespace
        self.sabotage = sabotage
        self.check_every = check_every
        self.clock = ManualClock(START_MS)
        self.jobs = {name: JobLedger(name, Terms(**_fields(terms))) for name, (_, terms) in JOB_QUEUES.items()}
        self.events = {name: EventLedger(name, terms) for name, (_, terms) in EVENT_QUEUES.items()}
        self.handles: dict[str, Subscription] = {}  # label of its subscribe -> subscription
        self.steps = self.faults = self.crashes = self.stale = 0
        self.history: list[Step] = []
        self.drained = False
        self._feed: Iterator[Step] = iter(())
        self._late = 0
        self._late_until = 0
        self._worker = 0
        self.observer = connect(url, namespace, self.clock, "observer", sabotage)
        for name, (policy, _) in JOB_QUEUES.items():
            self.observer.queue(name).alter(policy)
        for name, (events_policy, _) in EVENT_QUEUES.items():
            self.observer.events(name).alter(events_policy)
        self.clients = [self._client() for _ in range(CLIENTS)]

    def _client(self) -> Client:
        self._worker += 1
        return Client(connect(self.url, self.namespace, self.clock, f"w{self._worker}", self.sabotage))

    @property
    def now(self) -> int:
        return self.clock.now_ms

    def close(self) -> None:
        for client in self.clients:
            client.engine.close()
        self.observer.close()

    # running

    def run(self, feed: Iterator[Step], *, drain: bool = True) -> None:
        """Applies all steps of `feed`, then walks everything, and at the end drains it."""
        with reproducible(0, self.clock):
            self._run(feed, drain=drain)

    def _run(self, feed: Iterator[Step], *, drain: bool) -> None:
        self._feed = feed
        for step in feed:
            self.apply(step)
            if self.steps % self.check_every == 0 and not self._late:
                self.walk(thoroughly=self.steps % (10 * self.check_every) == 0)
        self.walk(thoroughly=True)
        if drain:
            self.drained = True
            self.drain()

    def apply(self, step: Step) -> None:
        self.history.append(step)
        self.steps += 1
        try:
            getattr(self, "do_" + step["do"])(step)
        except Broken as broken:
            broken.add_note(f"at step {self.steps}: {step}")
            raise

    def _call(self, step: Step, call: Any, told: Any) -> Any:
        """Runs `call` of a client under the step's fault. `told` is called once per answer, when it was given."""
        engine = self.clients[step["client"]].engine
        sender = engine._sender
        heard: list[Any] = []

        def tell(answer: Any) -> None:
            heard.append(answer)
            told(answer)

        sender.told, sender.fault, sender.compare = (
            tell,
            step.get("fault"),
            lambda first, again: self._compare(first, again, told),
        )
        sender.meanwhile = lambda: self._meanwhile(step.get("hold", 0))
        if sender.fault is not None:
            self.faults += 1
        try:
            return call(engine)
        except IndeterminateWrite as error:
            return error
        except Interrupted as error:
            return error
        except InvalidInput:
            raise
        except RedisqError as error:
            if not heard:
                told(error)
            return error
        finally:
            sender.told = sender.fault = sender.compare = sender.meanwhile = None

    def _compare(self, first: Any, again: Any, told: Any) -> None:
        """A repeated request gets the first answer; of leases, those that still live, and new ones if none does."""
        if type(first) is tuple:
            self._compare(first[0], again[0], told)
            self._compare(first[1], again[1], told)
        elif isinstance(first, Taken):
            if any(self._ledger(each.queue).live(self.now, each.token) for each in first.deliveries):
                self._same_leases(first.deliveries, again.deliveries)
            else:
                told(again)
        elif again != first and not (isinstance(first, Exception) and type(again) is type(first)):
            raise Broken("repeat", f"a request was answered {first!r}, its repeat {again!r}")

    def _same_leases(self, made: list[Any], found: list[Any]) -> None:
        known, arrived = {each.token: each for each in made}, {each.token: each for each in found}
        for token in known.keys() | arrived.keys():
            if token in known and token in arrived:
                fine = known[token] == arrived[token]
            else:
                fine = token in known and not self._ledger(known[token].queue).live(self.now, token)
            if not fine:
                raise Broken("repeat", f"a take was answered with {known.get(token)}, its repeat {arrived.get(token)}")

    def _ledger(self, queue: str) -> Any:
        return self.jobs.get(queue) or self.events[queue]

    def _meanwhile(self, count: int) -> None:
        """What others do between a request and the moment when it is sent again."""
        if self._late:
            return
        self._late = 1
        self._late_until = self.now + RETRY_FOR_MS - 1
        try:
            for _ in range(count):
                step = next(self._feed, None)
                if step is None:
                    return
                self.apply(step)
        finally:
            self._late = 0

    # time and crashes

    def do_advance(self, step: Step) -> None:
        ms = step["ms"]
        if self._late:
            ms = max(0, min(ms, self._late_until - self.now))
        self.clock.advance(ms / 1000)

    def do_crash(self, step: Step) -> None:
        """A client process is gone, with all that it held; another one takes its place."""
        if self._late:
            return
        self.crashes += 1
        self.clients[step["client"]].engine.close()
        self.clients[step["client"]] = self._client()

    # job queues

    def do_offer(self, step: Step) -> None:
        ledger, specs = self.jobs[step["queue"]], step["jobs"]

        def told(answer: Any) -> None:
            answers = answer if isinstance(answer, list) else [answer] * len(specs)
            for at, (spec, each) in enumerate(zip(specs, answers, strict=True)):
                ledger.offered(self.now, spec, f"{step['n']}.{at}", each)

        jobs = [NewJob(value=spec["value"], id=spec.get("id"), name=spec.get("name", ""),
                       delay=spec["delay"] / 1000 if spec.get("delay") else None, priority=spec.get("priority", 0),
                       max_attempts=spec.get("max_attempts")) for spec in specs]  # fmt: skip
        self._call(step, lambda engine: engine.queue(step["queue"]).offer_many(jobs), told)

    def do_take(self, step: Step) -> None:
        lease = self.jobs[step["queue"]].terms.lease if step.get("lease") is None else step["lease"]
        claims = _Claims(self, step, self.jobs[step["queue"]], lease)
        wanted = None if step.get("lease") is None else lease / 1000
        found = self._call(
            step, lambda engine: engine.queue(step["queue"]).take_many(step["limit"], lease=wanted), claims.told
        )
        claims.done(found)

    def do_settle(self, step: Step) -> None:
        held = self._held(step)
        if held is None:
            return
        queue, delivery = held
        if queue in self.events:
            self._settle_event(step, queue, delivery)
            return
        ledger, verb = self.jobs[queue], step["verb"]
        before = self._before(step, ledger.live(self.now, delivery.token), lambda: self._job(queue, delivery.id))

        def told(answer: Any) -> None:
            ledger.settled(self.now, verb, delivery.token, answer, step)

        def call(engine: SimulatedEngine) -> Any:
            jobs = engine.queue(queue)
            if verb == "ack":
                return jobs.ack(delivery, step.get("result"))
            if verb == "fail":
                return jobs.fail(
                    delivery, "broken", retry_in=_seconds(step.get("retry_in")), final=step.get("final", False)
                )
            if verb == "release":
                return jobs.release(delivery, delay=step.get("delay", 0) / 1000)
            return jobs.quarantine(delivery, "poison")

        self._call(step, call, told)
        self._after(before)

    def do_renew(self, step: Step) -> None:
        held = self._held(step)
        if held is None:
            return
        queue, delivery = held
        ledger = self._ledger(queue)
        look = self._job if queue in self.jobs else self._event
        before = self._before(step, ledger.live(self.now, delivery.token), lambda: look(queue, delivery.id))
        self._call(
            step,
            lambda engine: self._front(engine, queue).renew(delivery, step["lease"] / 1000),
            lambda answer: ledger.renewed(self.now, delivery.token, step["lease"], answer),
        )
        self._after(before)

    def do_exchange(self, step: Step) -> None:
        client, queue = self.clients[step["client"]], step["queue"]
        parts = [part for part in step["settle"] if client.deliveries.get(part["delivery"], (None,))[0] == queue]
        if queue in self.events:
            handle = self.handles.get(step["to"])
            if handle is None:
                return
            if self.events[queue].active.get(handle.name) != handle:
                parts = []  # they would be settled, and nobody would be told how
        held = [client.deliveries[part["delivery"]][1] for part in parts]
        items = [_item(part, delivery) for part, delivery in zip(parts, held, strict=True)]
        ledger = self._ledger(queue)
        lease = ledger.terms.lease if queue in self.jobs else LEASE_MS
        claims = _Claims(self, step, ledger, lease)

        def told(answer: Any) -> None:
            if type(answer) is tuple:
                for part, delivery, each in zip(parts, held, answer[0], strict=True):
                    ledger.settled(self.now, part["verb"], delivery.token, each, part)
                answer = answer[1]
            claims.told(answer)

        def call(engine: SimulatedEngine) -> Any:
            if queue in self.jobs:
                return engine.queue(queue).exchange(items, step["limit"])
            return engine.events(queue).exchange(self.handles[step["to"]], items, step["limit"], lease=lease / 1000)

        found = self._call(step, call, told)
        if step["limit"]:
            claims.done(found[1] if isinstance(found, tuple) else found)

    def do_operate(self, step: Step) -> None:
        """cancel, retry, promote, remove"""
        ledger, verb = self.jobs[step["queue"]], step["verb"]
        id: str = ledger.labels.get(step["job"]) or step["job"]

        def told(answer: Any) -> None:
            if verb == "cancel":
                ledger.cancelled(self.now, id, answer)
            else:
                ledger.stepped(self.now, verb, id, answer)

        self._call(step, lambda engine: getattr(engine.queue(step["queue"]), verb)(id), told)

    def do_bulk(self, step: Step) -> None:
        """purge, retry_many"""
        if self._late:
            return
        queue, verb = step["queue"], step["verb"]
        done = getattr(self.clients[step["client"]].engine.queue(queue), verb)(step["state"])
        self.jobs[queue].bulk(self.now, verb, step["state"], done.done, partial(self._job, queue))

    def do_pause(self, step: Step) -> None:
        ledger, verb = self.jobs[step["queue"]], step["verb"]

        def told(answer: Any) -> None:
            ledger.paused = verb == "pause"

        self._call(step, lambda engine: getattr(engine.queue(step["queue"]), verb)(), told)

    def do_alter(self, step: Step) -> None:
        ledger = self.jobs["by-age"]

        def told(answer: Any) -> None:
            ledger.terms.alter((step["backoff"],))

        policy = QueuePolicy(backoff=Backoff.fixed(step["backoff"] / 1000))
        self._call(step, lambda engine: engine.queue("by-age").alter(policy), told)

    def do_maintain(self, step: Step) -> None:
        queue = step["queue"]

        def told(answer: Any) -> None:
            if queue in self.jobs:
                self.jobs[queue].swept(self.now, answer.by_category)

        self._call(step, lambda engine: self._front(engine, queue).maintain(step["limit"]), told)

    # event queues

    def do_subscribe(self, step: Step) -> None:
        def told(answer: Any) -> None:
            self.events[step["queue"]].subscribed(step["name"], answer)
            self.handles[str(step["n"])] = answer

        self._call(step, lambda engine: engine.events(step["queue"]).subscribe(step["name"]), told)

    def do_unsubscribe(self, step: Step) -> None:
        handle = self.handles.get(step["to"])
        if handle is not None and not self._late:
            answer = self.clients[step["client"]].engine.events(handle.queue).unsubscribe(handle)
            self.events[handle.queue].unsubscribed(self.now, handle, answer)

    def do_emit(self, step: Step) -> None:
        ledger, specs = self.events[step["queue"]], step["events"]

        def told(answer: Any) -> None:
            if isinstance(answer, Exception):
                raise Broken("emit", f"an emission was refused: {answer!r}")
            if not isinstance(answer, Emitted) or answer.unswept:
                return  # what was in the way of its ids is brought up first
            answers = answer.events
            for at, (spec, each) in enumerate(zip(specs, answers, strict=True)):
                ledger.emitted(self.now, spec, f"{step['n']}.{at}", each)

        events = [NewEvent(value=spec["value"], id=spec.get("id"), ttl=_seconds(spec.get("ttl"))) for spec in specs]
        self._call(step, lambda engine: engine.events(step["queue"]).emit_many(events), told)

    def do_receive(self, step: Step) -> None:
        handle = self.handles.get(step["to"])
        if handle is None:
            return
        claims = _Claims(self, step, self.events[handle.queue], step["lease"])
        claims.done(self._call(
            step,
            lambda engine: engine.events(handle.queue).take_many(handle, step["limit"], lease=step["lease"] / 1000),
            claims.told,
        ))  # fmt: skip

    def _settle_event(self, step: Step, queue: str, delivery: Any) -> None:
        ledger, verb = self.events[queue], step["verb"]
        before = self._before(step, ledger.live(self.now, delivery.token), lambda: self._event(queue, delivery.id))

        def call(engine: SimulatedEngine) -> Any:
            events = engine.events(queue)
            if verb == "ack":
                return events.ack(delivery)
            if verb == "release":
                return events.release(delivery, delay=step.get("delay", 0) / 1000)
            return events.fail(
                delivery, "broken", retry_in=_seconds(step.get("retry_in")), final=step.get("final", False)
            )

        self._call(step, call, lambda answer: ledger.settled(self.now, verb, delivery.token, answer, step))
        self._after(before)

    def do_resolve(self, step: Step) -> None:
        """retry and discard of dead obligations"""
        handle = self.handles.get(step["to"])
        if handle is None:
            return
        ledger = self.events[handle.queue]
        id: str = ledger.labels.get(step["event"]) or step["event"]
        self._call(
            step,
            lambda engine: getattr(engine.events(handle.queue), step["verb"])(handle, id),
            lambda answer: ledger.operated(self.now, step["verb"], handle, id, answer),
        )

    # looking

    def _front(self, engine: SimulatedEngine, queue: str) -> Any:
        return engine.queue(queue) if queue in self.jobs else engine.events(queue)

    def _job(self, queue: str, id: str) -> Any:
        return self.observer.queue(queue).get(id)

    def _event(self, queue: str, id: str) -> Any:
        return self.observer.events(queue).get(id)

    def _held(self, step: Step) -> tuple[str, Any] | None:
        return self.clients[step["client"]].deliveries.get(step["delivery"])

    def _before(self, step: Step, live: bool, look: Any) -> Any:
        """What a stale token must not change."""
        if live or step.get("fault") == LATE:
            return None
        self.stale += 1
        return look, look()

    def _after(self, before: Any) -> None:
        if before is not None and (after := before[0]()) != before[1]:
            raise Broken("stale", f"a stale token changed {before[1]} to {after}")

    def walk(self, *, thoroughly: bool) -> None:
        """Compares everything that can be read with what was told."""
        for name, ledger in self.jobs.items():
            queue = self.observer.queue(name)
            jobs, cursor = [], None
            while True:
                page = queue.jobs(limit=1000, cursor=cursor)
                jobs += page.items
                cursor = page.cursor
                if cursor is None:
                    break
            ledger.walked(self.now, jobs, queue.counts())
            if thoroughly:
                _sound(name, check(queue))
        for name, events in self.events.items():
            front = self.observer.events(name)
            for emission in events.alive:
                events.looked(self.now, emission, front.get(emission.id))
            events.listed(self.now, front.subscriptions())
            for subscription in events.active.values():
                events.dead_listed(self.now, subscription, front.dead(subscription, limit=1000).items)
            events.forget(self.now)
            if thoroughly:
                _sound(name, check(front))

    def drain(self) -> None:
        """Takes and acks everything, lets all retention pass, and finds nothing left but configuration."""
        for _ in range(3):
            for name, ledger in self.jobs.items():
                self.observer.queue(name).resume()
                ledger.paused = False
                self._drain_jobs(name, ledger)
            for name, events in self.events.items():
                self._drain_events(name, events)
            self.clock.advance(max(terms.hardest for terms in (each.terms for each in self.jobs.values())) / 1000 + 40)
        self.walk(thoroughly=True)
        for name, ledger in self.jobs.items():
            if ledger.alive:
                raise Broken("lost", f"{name} was drained, and {ledger.alive[0]} never was handed out")
        for events in self.events.values():
            for subscription in list(events.active.values()):
                events.unsubscribed(self.now, subscription, self.observer.events(events.name).unsubscribe(subscription))
        self.clock.advance(3600)
        for name in (*self.jobs, *self.events):
            while self._front(self.observer, name).maintain(1000).pending:
                pass
        self._nothing_left()

    def _drain_jobs(self, name: str, ledger: JobLedger) -> None:
        queue = self.observer.queue(name)
        for _ in range(200):
            self.clock.advance(ledger.terms.hardest / 1000)
            found = queue.take_many(100)
            for delivery in found:
                ledger.claimed(self.now, delivery, ledger.terms.lease)
                ledger.settled(self.now, "ack", delivery.token, queue.ack(delivery), {})
            if len(found) < 100:
                ledger.nothing_left(self.now)
            if not any(life.state == HELD or life.due for life in ledger.alive):
                return
            if not found:
                self.clock.advance(60)

    def _drain_events(self, name: str, events: EventLedger) -> None:
        front = self.observer.events(name)
        for subscription in list(events.active.values()):
            while found := front.take_many(subscription, 100, lease=LEASE_MS / 1000):
                for delivery in found:
                    events.claimed(self.now, delivery, LEASE_MS)
                    events.settled(self.now, "ack", delivery.token, front.ack(delivery), {})
            events.nothing_left(self.now, subscription)

    def _nothing_left(self) -> None:
        with contextlib.closing(redis.Redis.from_url(self.url)) as client:
            keys = {key.decode() for key in client.scan_iter(match=f"*{self.namespace}*", count=1000)}
            kept = {f"{self.namespace}:queues"}
            kept |= {self.observer.queue(name)._core.root for name in self.jobs}
            kept |= {self.observer.events(name)._core.root for name in self.events}
            left = {key: _content(client, key) for key in sorted(keys - kept)}
        # the ring for takers that may wait is no work, and the present set of subscriptions is configuration
        left = {key: what for key, what in left.items() if not key.endswith((":bell", ":roster"))}
        if left:
            raise Broken("left", f"all is over, and this is left: {left}")


class _Claims:
    """The claims of one step: told as they are made, kept by the client when it gets to know them."""

    def __init__(self, world: World, step: Step, ledger: Any, lease: int) -> None:
        self._world = world
        self._step = step
        self._ledger = ledger
        self._lease = lease
        self._made: list[Any] = []

    def told(self, answer: Any) -> None:
        if isinstance(answer, Taken):
            for delivery in answer.deliveries:
                self._ledger.claimed(self._world.now, delivery, self._lease)
            self._made += answer.deliveries

    def done(self, found: Any) -> None:
        """`found` is what the call returned, or how it ended."""
        world, ledger = self._world, self._ledger
        if isinstance(found, Interrupted):
            # the last claim is handed back first, so that the first one is at the head again
            for delivery in self._made:
                args = (delivery.token,) if isinstance(ledger, JobLedger) else (world.now, delivery.token)
                ledger.handed_back(*args)
            return
        if not isinstance(found, list):
            return
        world._same_leases(self._made, found)
        client = world.clients[self._step["client"]]
        for at, delivery in enumerate(found):
            client.keep(f"{self._step['n']}.{at}", ledger.name, delivery)
        if len(found) < self._step["limit"] and self._step.get("fault") != LATE:
            if isinstance(ledger, JobLedger):
                ledger.nothing_left(world.now)
            else:
                ledger.nothing_left(world.now, world.handles[self._step["to"]])


def _item(part: Step, delivery: Any) -> Any:
    verb = part["verb"]
    if verb == "ack":
        return delivery if part.get("result") is None else Done(delivery, part["result"])
    if verb == "release":
        return Released(delivery, part.get("delay", 0) / 1000)
    return Failed(delivery, "broken", _seconds(part.get("retry_in")), part.get("final", False))


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _fields(terms: Terms) -> dict[str, Any]:
    return {name: getattr(terms, name) for name in ("lease", "max_attempts", "backoffs", "dedup", "ages", "count")}


def _sound(name: str, findings: list[str]) -> None:
    if findings:
        raise Broken("check", f"{name}: {'; '.join(findings)}")


def _content(client: redis.Redis, key: str) -> Any:
    kind: Any = client.type(key)
    if kind == b"hash":
        return client.hgetall(key)
    return client.zrange(key, 0, 5, withscores=True) if kind == b"zset" else kind


__all__ = ["Step", "World"]
