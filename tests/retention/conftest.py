"""Fixtures of the retention tests."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from redisq import Engine, Queue
from redisq.sync import drive
from redisq.testing import ManualClock
from tests.support.servers import Server

Interrupted = Callable[[Queue[Any], Generator[Any, Any, Any], Callable[[int], object]], Any]


@pytest.fixture
def alone(server: Server, namespace: str, clock: ManualClock) -> Iterator[Engine]:
    """A synchronous engine, where the steps of a flow are what is tested."""
    with Engine(server.url, namespace=namespace, clock=clock) as engine:
        yield engine


@pytest.fixture
def interrupted() -> Interrupted:
    """Runs a flow of a queue of `alone`, and calls `between(n)` after its n-th step."""

    def run(queue: Queue[Any], story: Generator[Any, Any, Any], between: Callable[[int], object]) -> Any:
        def steps() -> Generator[Any, Any, Any]:
            outcome: Any = None
            for number in range(1, 1000):
                try:
                    step = story.send(outcome)
                except StopIteration as stop:
                    return stop.value
                outcome = yield step
                between(number)
            raise AssertionError("the flow never ends")

        return drive(queue._sender, steps())

    return run
