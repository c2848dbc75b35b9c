"""Everybody who uses a queue, at once, while masters come and go, and the books that tell whether all is well."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from redisq import (
    AsyncEngine,
    Backoff,
    Context,
    DamagedRecord,
    Delivery,
    Engine,
    Job,
    JobState,
    Offer,
    Queue,
    QueuePolicy,
    Sweeper,
    Worker,
)
from tests.jobs.steps import state_of
from tests.support.sentinel import Topology
from tests.worker.conftest import Serving

# leases are short: one whose take was lost in a failover has to run out before its job comes back
POLICY = QueuePolicy(max_attempts=1000, lease=3, backoff=Backoff.fixed(0.01), keep=None)
LIVE = (JobState.READY, JobState.SCHEDULED, JobState.LEASED)
BATCH = 20


class Crowd:
    """Two producers, a consumer of the queue "taken", a worker on "served", and a sweeper of "swept".

    `engine` is patient: nothing may be raised to a user of it in a failover. What `serving` makes is not: there calls
    fail, and the worker and the sweeper have to go on by themselves. `kept` are the jobs whose offers waited for a
    replica, by queue and id: they outlive a failover, while the others only may.
    """

    def __init__(self, topology: Topology, engine: Engine, serving: Callable[[], Engine | AsyncEngine]) -> None:
        self._topology = topology
        self.taken: Queue[int] = engine.queue("taken", int, policy=POLICY)
        self.served: Queue[int] = engine.queue("served", int, policy=POLICY)
        self.swept: Queue[int] = engine.queue("swept", int, policy=POLICY)
        self.replicas = 1  # that those offers wait for
        self.kept: list[tuple[Queue[int], str]] = []
        self.duplicates: list[str] = []
        self.deliveries: list[Delivery] = []
        self.fences: list[int] = []  # of the worker
        self._moved = Counter[str]()
        self._numbers = itertools.count()
        self._stopped, self._drained = threading.Event(), threading.Event()
        working = serving()
        queue = working.queue("served", int, policy=POLICY)
        queue.handler()(self._handle)
        self._worker = Serving(Worker(working, [queue], concurrency=8, sweep=False))
        self._sweeper = Sweeper(serving(), ["swept"], interval=0.1)
        self._pool = ThreadPoolExecutor()
        self._producers: list[Future[None]] = [self._pool.submit(act) for act in (self._offer_one, self._offer_many)]
        self._tasks = [*self._producers, *(self._pool.submit(act) for act in (self._sweeper.run, self._consume))]

    def all_move(self) -> None:
        """Return when everybody has done something that began after this call."""
        due = self.swept.offer(0, delay=0.001, replicas=self.replicas).id
        for _ in range(2):
            self._moved.clear()
            self._await("everybody to move", lambda: set(self._moved) == {"one", "many", "consumer", "worker"})
        self._await("a sweep", lambda: state_of(self.swept, due) is JobState.READY)

    def finish(self) -> None:
        """Stop the producers, let the others empty the queues, and end all."""
        self._stopped.set()
        self._await("the producers to end", lambda: all(task.done() for task in self._producers))
        self._await("empty queues", lambda: all(self._live(queue) == 0 for queue in (self.taken, self.served)))
        self.close()
        for task in self._tasks:
            task.result()

    def close(self) -> None:
        self._stopped.set()
        self._drained.set()
        self._sweeper.stop()
        if self._worker.running:
            self._worker.stop()
        self._pool.shutdown()

    def states(self, queue: Queue[int]) -> dict[str, JobState]:
        return {job.id: job.state for job in jobs_of(queue)}

    def _await(self, what: str, reached: Callable[[], bool]) -> None:
        def reached_unbroken() -> bool:
            for task in self._tasks:
                if task.done():
                    task.result()
            return reached()

        self._topology.wait_until(what, reached_unbroken)

    def _live(self, queue: Queue[int]) -> int:
        counts = queue.counts()
        return sum(counts[state] for state in LIVE)

    def _offer_one(self) -> None:
        while not self._stopped.is_set():
            for queue, replicas in itertools.product((self.taken, self.served), (0, self.replicas)):
                offers = [queue.offer(next(self._numbers), replicas=replicas)]
                self._note(queue, offers, replicas)
            self._moved["one"] += 1

    def _offer_many(self) -> None:
        while not self._stopped.is_set():
            for queue, replicas in itertools.product((self.taken, self.served), (0, self.replicas)):
                offers = queue.offer_many(list(itertools.islice(self._numbers, BATCH)), replicas=replicas)
                self._note(queue, offers, replicas)
            self._moved["many"] += 1

    def _note(self, queue: Queue[int], offers: list[Offer], replicas: int) -> None:
        self.duplicates += [offer.id for offer in offers if offer.duplicate]
        if replicas:
            self.kept += [(queue, offer.id) for offer in offers]

    def _consume(self) -> None:
        held: list[Delivery] = []
        while held or not self._drained.is_set():
            _, held = self.taken.exchange(held, BATCH, wait=0.1)
            self.deliveries += held
            self._moved["consumer"] += bool(held)

    async def _handle(self, value: int, context: Context) -> None:
        self.fences.append(context.fence)
        self._moved["worker"] += 1


def jobs_of(queue: Queue[int]) -> list[Job]:
    """All jobs of a queue."""
    found: list[Job] = []
    cursor = None
    while True:
        page = queue.jobs(limit=1000, cursor=cursor)
        for job in page.items:
            assert not isinstance(job, DamagedRecord)
            found.append(job)
        cursor = page.cursor
        if cursor is None:
            return found
