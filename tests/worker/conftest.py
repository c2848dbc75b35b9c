"""Fixtures of the worker tests: a plain engine on the server's own time, and workers in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redisq import AsyncEngine, Backoff, Engine, Queue, QueuePolicy, Worker
from redisq.testing.check import check
from tests.support.servers import Server

WAIT = 10.0
"""The bound of a wait in earnest; it ends long before."""

QUICK = QueuePolicy(backoff=Backoff.fixed(0.02), lease=30)


class Serving:
    """A worker in a thread of its own."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.code: int | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="worker")
        self._thread.start()

    def _run(self) -> None:
        try:
            self.code = self.worker.run()
        except BaseException as error:  # noqa: BLE001 - raised again in the test
            self.error = error

    def join(self, seconds: float = WAIT) -> int:
        """The exit code of a worker that ends by itself."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the worker does not end"
        if self.error is not None:
            raise self.error
        assert self.code is not None
        return self.code

    def stop(self) -> int:
        self.worker.stop()
        return self.join()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()


Serve = Callable[..., Serving]


@pytest.fixture
def engine(server: Server, namespace: str, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A plain engine on the server's own time."""
    with Engine(server.url, namespace=namespace, retry_for=2) as engine:
        yield engine
        if request.node.get_closest_marker("leaves_damage") is None:
            queues = [engine.queue(info.name) for info in engine.queues() if info.kind == "jobs"]
            assert [found for queue in queues for found in check(queue)] == []


@pytest.fixture
def queue(engine: Engine) -> Queue[Any]:
    """A job queue with a short back-off."""
    return engine.queue("jobs", policy=QUICK)


@pytest.fixture
def serve(engine: Engine) -> Iterator[Serve]:
    """Starts workers; those still running are stopped after the test."""
    started: list[Serving] = []

    def start(queues: Any, *, engine: Engine | AsyncEngine = engine, **options: Any) -> Serving:
        worker = queues if isinstance(queues, Worker) else Worker(engine, queues, **{"grace": 5, **options})
        started.append(Serving(worker))
        return started[-1]

    yield start
    for each in started:
        if each.running:
            each.stop()
