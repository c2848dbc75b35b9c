"""One process of a run's clients: threads that put in, take, settle and renew at random, half of them through asyncio.

    python -m tests.history.workload '{"url": …}'

Every call is recorded. SIGTERM ends it after the calls in hand; it also ends when its parent is gone.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from redisq import (
    AsyncEngine,
    Backoff,
    Done,
    Engine,
    EventPolicy,
    Failed,
    Keep,
    LeaseLost,
    NewEvent,
    NewJob,
    QueuePolicy,
    Released,
    Subscription,
)
from tests.history.record import Answer, Call, History, Put, Reply, Settle, answer_of, claims_of
from tests.support.fronts import LoopThread, sync_face_of

JOBS = "jobs"
POLICY = QueuePolicy(max_attempts=100_000, backoff=Backoff.fixed(0.02), keep=Keep())
_DAY = 86_400
EVENTS = {
    "news": (EventPolicy(on_completion="archive", backoff=Backoff.fixed(0.02), dedup=_DAY), ("anna", "bert", "cleo")),
    "mail": (EventPolicy(on_completion="delete", backoff=Backoff.fixed(0.02), dedup=_DAY), ("dora", "emil")),
}
CLOCK_STEP = 600.0


class Work(msgspec.Struct):
    """What a process is to do. lease: seconds. retry_for: of its two engines. wild_clock: steps of `time.time`.
    replicas: how many some of the offers wait for."""

    url: str
    namespace: str
    folder: str
    name: str
    seed: int
    subscriptions: list[Subscription]
    threads: int = 4
    lease: float = 1.0
    retry_for: tuple[float, float] = (10.0, 0.1)
    wild_clock: bool = False
    replicas: int = 0


class Lane:
    """The recorded calls of one client on the job queue, or for one subscription."""

    def __init__(self, history: History, client: str, queue: Any, sub: Subscription | None, lease: float) -> None:
        self._history = history
        self._client = client
        self._queue = queue
        self._to: tuple[Any, ...] = () if sub is None else (sub,)
        self._sub = "" if sub is None else sub.name
        self._lease = lease
        self.name: str = queue.name
        self.held: list[Any] = []
        self.past: deque[Any] = deque(maxlen=20)
        self.dry = True

    def _call(self, verb: str, **more: Any) -> Call:
        return Call(self._client, verb, self.name, self._sub, **more)

    def put(self, items: Sequence[NewJob | NewEvent], puts: list[Put], **options: Any) -> None:
        verb = "offer_many" if self.name == JOBS else "emit_many"
        with self._history.call(Call(self._client, verb, self.name, puts=puts)) as reply:
            made = getattr(self._queue, verb)(items, **options)
            reply.added = ["duplicate" if each.duplicate else "new" for each in made]

    def take(self, limit: int, wait: float = 0, lease: float | None = None) -> None:
        lease = self._lease if lease is None else lease
        with self._history.call(self._call("take", limit=limit, lease_ms=round(lease * 1000))) as reply:
            if limit == 1:
                one = self._queue.take(*self._to, lease=lease, wait=wait)
                self._got([] if one is None else [one], limit, reply)
            else:
                self._got(self._queue.take_many(*self._to, limit, lease=lease, wait=wait), limit, reply)

    def _got(self, deliveries: list[Any], limit: int, reply: Reply) -> None:
        reply.claimed = claims_of(deliveries)
        self.held += deliveries
        self.dry = len(deliveries) < limit

    def exchange(self, settlements: list[Any], limit: int, wait: float) -> None:
        call = self._call("exchange", settles=[_settle(each) for each in settlements], limit=limit,
                          lease_ms=round(self._lease * 1000))  # fmt: skip
        with self._history.call(call) as reply:
            answers, found = self._queue.exchange(*self._to, settlements, limit, lease=self._lease, wait=wait)
            reply.settled = [answer_of(each) for each in answers]
            self._got(found, limit, reply)

    def ack_many(self, deliveries: list[Any]) -> None:
        with self._history.call(self._call("ack_many", settles=[_settle(each) for each in deliveries])) as reply:
            reply.settled = [answer_of(each) for each in self._queue.ack_many(deliveries)]

    def renew_many(self, deliveries: list[Any]) -> None:
        settles = [self._renewal(each) for each in deliveries]
        with self._history.call(self._call("renew_many", settles=settles)) as reply:
            reply.settled = [answer_of(each) for each in self._queue.renew_many(deliveries, self._lease)]

    def ack(self, delivery: Any) -> None:
        self._one(_settle(delivery), delivery)

    def fail(self, delivery: Any, *, final: bool) -> None:
        self._one(Settle("fail", delivery.value, delivery.token, final=final), delivery, "no", final=final)

    def release(self, delivery: Any, delay: float) -> None:
        settle = Settle("release", delivery.value, delivery.token, round(delay * 1000))
        self._one(settle, delivery, delay=delay)

    def renew(self, delivery: Any) -> None:
        self._one(self._renewal(delivery), delivery, self._lease)

    def _renewal(self, delivery: Any) -> Settle:
        return Settle("renew", delivery.value, delivery.token, round(self._lease * 1000))

    def _one(self, settle: Settle, *args: Any, **options: Any) -> None:
        with self._history.call(self._call(settle.verb, settles=[settle])) as reply:
            try:
                reply.settled = [answer_of(getattr(self._queue, settle.verb)(*args, **options))]
            except LeaseLost:
                reply.settled = [Answer("lease-lost")]


def _settle(item: Any) -> Settle:
    if isinstance(item, Failed):
        return Settle("fail", item.delivery.value, item.delivery.token, final=item.final)
    if isinstance(item, Released):
        ms = round(float(item.delay) * 1000)  # type: ignore[arg-type] # this module gives seconds
        return Settle("release", item.delivery.value, item.delivery.token, ms)
    delivery = item.delivery if isinstance(item, Done) else item
    return Settle("ack", delivery.value, delivery.token)


class Client:
    """One thread: it goes from lane to lane, and puts in where it finds nothing to take."""

    def __init__(self, lanes: list[Lane], name: str, seed: str, replicas: int = 0) -> None:
        self._lanes = lanes
        self._replicas = replicas
        self._name = name
        self._dice = random.Random(seed)
        self._count = 0
        self._puts: dict[str, deque[Put]] = {JOBS: deque(maxlen=50), **{name: deque(maxlen=50) for name in EVENTS}}

    def step(self) -> None:
        # jobs are half of the work
        lane = self._lanes[0] if self._dice.random() < 0.5 else self._dice.choice(self._lanes)
        if lane.past and self._dice.random() < 0.05:
            self._settle_one(lane, self._dice.choice(lane.past))
        elif lane.held:
            self._handle(lane)
        elif self._dice.random() < 0.05:
            self._dawdle(lane)
        else:
            if lane.dry or self._dice.random() < 0.1:
                self._put(lane)
            lane.take(self._size(), self._dice.choice((0, 0, 0.1)))

    def _dawdle(self, lane: Lane) -> None:
        """Settles right before the end of a short lease, or right after it, when maybe nobody has seen that."""
        lane.take(1, lease=0.04)
        if lane.held:
            time.sleep(self._dice.uniform(0.03, 0.07))
            lane.past.append(lane.held[0])
            self._settle_one(lane, lane.held.pop())

    def _size(self) -> int:
        return self._dice.choice((1, 1, 2, 5, 20))

    def _put(self, lane: Lane) -> None:
        known = self._puts[lane.name]
        puts = [self._new(lane.name) for _ in range(self._size())]
        if lane.name == JOBS and self._replicas and self._dice.random() < 0.3:
            puts = [msgspec.structs.replace(put, safe=True) for put in puts]
            lane.put([_item(JOBS, put) for put in puts], puts, replicas=self._replicas)
            return
        if known and self._dice.random() < 0.1:
            puts.append(self._dice.choice(known))
        known += (put for put in puts if _named(put.key))
        lane.put([_item(lane.name, put) for put in puts], puts)

    def _new(self, queue: str) -> Put:
        """Every other one has an id of its own, and so can be put in again; all of the archived events have."""
        self._count += 1
        key = f"{self._name}-{self._count}{'' if self._count % 2 or queue == 'news' else '*'}"
        if queue != JOBS:
            return Put(key)
        most = 3 if self._dice.random() < 0.2 else 0
        delay = self._dice.randrange(10, 200) if self._dice.random() < 0.1 else 0
        return Put(key, most, brief=self._dice.random() < 0.3, delay_ms=delay)

    def _handle(self, lane: Lane) -> None:
        act = self._dice.random()
        if act < 0.35:
            held, lane.held = lane.held, []
            lane.past += held
            lane.exchange([self._settlement(each) for each in held], self._size(), self._dice.choice((0, 0, 0.1)))
        elif act < 0.5:
            held, lane.held = lane.held, []
            lane.past += held
            lane.ack_many(held)
        elif act < 0.6:
            lane.renew_many(lane.held)
        else:
            delivery = lane.held[0] if act < 0.68 else lane.held.pop(self._dice.randrange(len(lane.held)))
            if act < 0.68:
                lane.renew(delivery)
            elif act < 0.99:  # the rest is forgotten, and lapses
                lane.past.append(delivery)
                self._settle_one(lane, delivery)

    def _settlement(self, delivery: Any) -> Any:
        act = self._dice.random()
        if act < 0.8:
            return Done(delivery, "well") if act < 0.4 else delivery
        if act < 0.9:
            return Failed(delivery, "no", final=act < 0.81)
        return Released(delivery, self._dice.choice((0, 0.03)))

    def _settle_one(self, lane: Lane, delivery: Any) -> None:
        act = self._dice.random()
        if act < 0.65:
            lane.ack(delivery)
        elif act < 0.8:
            lane.fail(delivery, final=act < 0.66)
        elif act < 0.95:
            lane.release(delivery, self._dice.choice((0, 0.03)))
        else:
            lane.renew(delivery)


def _named(key: str) -> bool:
    return not key.endswith("*")


def _item(queue: str, put: Put) -> NewJob | NewEvent:
    id = put.key if _named(put.key) else None
    if queue != JOBS:
        return NewEvent(put.key, id=id)
    # a rule of its own prunes all finished jobs of the same name, so the brief ones have another
    keep: dict[str, Any] = {"keep": Keep(count=0), "name": "brief"} if put.brief else {}
    delay = put.delay_ms / 1000 or None
    return NewJob(put.key, id, max_attempts=put.most or None, delay=delay, priority=len(put.key) % 2, **keep)


def lanes_of(engine: Any, history: History, client: str, subs: Sequence[Subscription], lease: float) -> list[Lane]:
    lanes = [Lane(history, client, engine.queue(JOBS), None, lease)]
    return [*lanes, *(Lane(history, client, engine.events(sub.queue), sub, lease) for sub in subs)]


def run(work: Work, stop: threading.Event) -> None:
    history = History(Path(work.folder), work.name)
    loop = LoopThread()
    options: dict[str, Any] = {"namespace": work.namespace}
    errors: list[BaseException] = []
    parent = os.getppid()

    def serve(client: Client) -> None:
        try:
            while not stop.is_set() and os.getppid() == parent:
                client.step()
        except BaseException as error:  # noqa: BLE001 - raised again by the main thread
            errors.append(error)
            stop.set()

    with (
        Engine(work.url, retry_for=work.retry_for[0], **options) as blocking,
        sync_face_of(loop, lambda: AsyncEngine(work.url, retry_for=work.retry_for[1], **options)) as awaited,
    ):
        threads = []
        for number in range(work.threads):
            name = f"{work.name}.{number}"
            engine = awaited if number % 2 else blocking
            lanes = lanes_of(engine, history, name, work.subscriptions, work.lease)
            client = Client(lanes, name, f"{work.seed} {name}", work.replicas)
            threads.append(threading.Thread(target=serve, args=(client,), name=name))
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if work.wild_clock:
                step_clock(random.Random(time.monotonic_ns()).uniform(-CLOCK_STEP, CLOCK_STEP))
            threads[0].join(0.1)
            for thread in threads[1:]:
                thread.join(0.01)
    loop.close()
    history.close()
    if errors:
        raise errors[0]


_true_time, _true_time_ns = time.time, time.time_ns


def step_clock(seconds: float) -> None:
    """This process's clock is wrong by that much from now on."""
    time.time = lambda: _true_time() + seconds
    time.time_ns = lambda: _true_time_ns() + round(seconds * 1e9)


def main() -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's; the parent sees to the end
    run(msgspec.json.decode(sys.argv[1], type=Work), stop)


if __name__ == "__main__":
    main()
