"""What one entrant is asked to do in a round, with the server's books read around it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import redis

from benchmarks.meter import Meter, Reading
from benchmarks.peers.actor import Actor, PeerFailed

NAP = 0.01
IDLE = (0.02, 0.06)  # seconds between two wake-ups; they vary, lest they fall into step with a peer that polls
FIRST_JOBS = 300  # of a drain whose speed is not known yet
MOST_JOBS = 60_000
STARTED = 1.0  # seconds after which a worker that was told to go is idle
OFFERED = {"offer": "one by one", "offer_many": "1,000 a call", "bare": "bare EVALSHA"}


@dataclass(frozen=True)
class Size:
    """How much a round asks for."""

    seconds: float
    """Of each offer and each drain."""
    wakes: int
    weighed: int
    """Jobs whose bytes are measured; 0: not in this round."""


@dataclass
class Entrant:
    """One library in one contest, and its figures: a value a round."""

    name: str
    python: str
    url: str
    about: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, list[float]] = field(default_factory=dict)
    wakes: list[float] = field(default_factory=list)
    """Milliseconds from the enqueue call to the handler."""
    held: bool | None = None
    """Whether the server still had a job while its handler ran: without that, there is no "at least once"."""
    failure: str = ""
    speeds: dict[float, float] = field(default_factory=dict)

    def add(self, what: str, value: float) -> None:
        self.figures.setdefault(what, []).append(value)

    def forget(self) -> None:
        """Drops the figures of a warm-up, but for the weights, which are measured there alone."""
        self.wakes.clear()
        self.figures = {what: values for what, values in self.figures.items() if what.endswith("_bytes")}


class Round:
    """One entrant's turn on a server that holds nothing else."""

    def __init__(self, entrant: Entrant, client: redis.Redis, size: Size) -> None:
        self._entrant = entrant
        self._client = client
        self._meter = Meter(client)
        self._size = size
        self._queues = (f"queue{number}" for number in range(1_000_000))

    def run(self) -> None:
        """Everything once; what fails is kept as the entrant's failure, and it is not asked again."""
        entrant = self._entrant
        self._client.flushall()
        try:
            with self._actor() as producer:
                entrant.about = producer.about
                for verb in producer.about["verbs"]:
                    self._offer(producer, verb)
                self._drain(producer, 0.0)
                if producer.about["concurrency"][1]:
                    self._drain(producer, NAP)
                self._wake(producer)
            if self._size.weighed:
                self._weigh()
        except PeerFailed as error:
            entrant.failure = str(error)
        finally:
            self._client.flushall()

    def _actor(self) -> Actor:
        return Actor(self._entrant.name, self._entrant.python, self._entrant.url)

    def _open(self, producer: Actor) -> str:
        self._client.flushall()
        queue = next(self._queues)
        producer.ask(do="open", queue=queue)
        return queue

    def _offer(self, producer: Actor, verb: str) -> None:
        self._open(producer)
        with self._meter.section() as reading:
            answer = producer.ask(do="offer", verb=verb, seconds=self._size.seconds)
        self._entrant.add(verb, answer["jobs"] / answer["seconds"])
        self._entrant.add(f"{verb}_cpu", reading.cpu_us / (answer["jobs"] + answer["first"]))

    def _weigh(self) -> None:
        """Each weight is taken while nobody but the meter is connected, lest buffers of connections count."""
        self._client.flushall()
        jobs, few = self._size.weighed, max(FIRST_JOBS, self._size.weighed // 10)
        empty = self._weight()
        with self._actor() as producer:
            self._filled(producer, jobs)
        self._entrant.add("pending_bytes", (self._weight() - empty) / jobs)
        with self._actor() as producer:
            queue = self._filled(producer, few)
        self._run_worker(queue, few, 0.0)
        self._entrant.add("finished_bytes", (self._weight() - empty) / few)

    def _filled(self, producer: Actor, jobs: int) -> str:
        queue = self._open(producer)
        producer.ask(do="fill", jobs=jobs)
        return queue

    def _weight(self) -> int:
        """Bytes that the server uses, but for the text of scripts."""
        while self._books("clients")["connected_clients"] > 1:
            time.sleep(0.02)
        self._meter.settled_memory()
        books = self._books("memory")
        return int(books["used_memory"] - books["used_memory_scripts_eval"] - books["used_memory_functions"])

    def _books(self, section: str) -> dict[str, Any]:
        books: Any = self._client.info(section)
        return dict(books)

    def _drain(self, producer: Actor, nap: float) -> None:
        """A worker meets a queue that is full already; the time is from its first handler to its last."""
        entrant, jobs, what = self._entrant, self._jobs(nap), "drain10" if nap else "drain"
        reading, answer = self._run_worker(self._filled(producer, jobs), jobs, nap)
        entrant.speeds[nap] = (jobs - 1) / answer["seconds"]
        entrant.add(what, entrant.speeds[nap])
        entrant.add(f"{what}_cpu", reading.cpu_us / jobs)
        entrant.add(f"{what}_commands", (reading.calls + reading.inner_calls) / jobs)
        entrant.add(f"{what}_repeats", answer["run"] - jobs)

    def _run_worker(self, queue: str, jobs: int, nap: float) -> tuple[Reading, dict[str, Any]]:
        """Lets a worker run all the jobs of a queue, and counts them."""
        command = {"do": "drain", "queue": queue, "jobs": jobs, "nap": nap}
        with self._worker(command) as worker, self._meter.section() as reading:
            worker.tell()
            answer = worker.hear()
        if answer["distinct"] != jobs or answer["left"]:
            raise PeerFailed(
                f"{self._entrant.name} ran {answer['distinct']:,} of {jobs:,} jobs and left {answer['left']:,}"
            )
        return reading, answer

    def _jobs(self, nap: float) -> int:
        """As many as the last speed does in the seconds of a drain."""
        speed = self._entrant.speeds.get(nap, 0.0)
        return max(FIRST_JOBS, min(MOST_JOBS, int(speed * self._size.seconds)))

    def _wake(self, producer: Actor) -> None:
        queue = self._open(producer)
        with self._worker({"do": "wake", "queue": queue}) as worker:
            worker.tell()
            time.sleep(STARTED)
            for number in range(-3, self._size.wakes):
                producer.ask(do="send")
                answer = worker.hear()
                if "held" in answer:
                    self._entrant.held = answer["held"]
                elif number >= 0:
                    self._entrant.wakes.append(answer["microseconds"] / 1000)
                time.sleep(random.uniform(*IDLE))

    @contextmanager
    def _worker(self, command: dict[str, Any]) -> Iterator[Actor]:
        with ExitStack() as stack:
            worker = stack.enter_context(self._actor())
            worker.ask(**command)
            yield worker
