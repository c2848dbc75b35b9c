"""A real engine against the model, on both front ends."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from redisq import Engine, flows
from redisq.calls import consume
from redisq.model import Delivery
from redisq.sync import drive
from redisq.testing import ManualClock
from redisq.testing.check import check
from tests.machine.rules import WORKERS, Bench, machine_for

if TYPE_CHECKING:
    from tests.support.fronts import OpenEngine
    from tests.support.servers import Server

# The same histories each time, and no shrinking: `--hypothesis-profile=deep` makes new ones and shrinks what fails.
BRIEF = settings(
    max_examples=15,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
    report_multiple_bugs=False,
)


@pytest.mark.timeout(0)
def test_the_engine_agrees_with_the_model(open_engine: OpenEngine, front: str, server: Server, namespace: str) -> None:
    deep = settings.get_current_profile_name() == "deep"
    clock = ManualClock()
    engines = [open_engine(clock=clock, worker=worker) for worker in WORKERS]
    with Engine(server.url, namespace=namespace, clock=clock) as inspector:
        bench = Bench(engines, clock, check=lambda queue: check(inspector.queue(queue.name)))
        if front == "sync":
            bench.exchange_unstarted, bench.start = exchange_unstarted, start
        run_state_machine_as_test(machine_for(bench), settings=settings() if deep else BRIEF)


def exchange_unstarted(queue: Any, settlements: list[Any], limit: int) -> tuple[list[Any], list[Delivery]]:
    """The exchange of a worker for what waits behind its free slots."""
    core = queue._core
    items = [consume.settlement(core, each) for each in settlements]

    def story() -> Generator[Any, Any, tuple[list[Any], list[Delivery]]]:
        exchange = lambda: consume.exchange_items(core, items, limit, None, starts=0)  # noqa: E731
        answers, taken = yield from flows.use(core, exchange)
        found = list(taken.deliveries)
        while taken.undecodable:
            yield consume.quarantine_many(core, taken.undecodable)
            if len(found) == limit:
                break
            taken = yield consume.take(core, limit - len(found), None, starts=0)
            found += taken.deliveries
        return answers, found

    return drive(queue._sender, story())


def start(queue: Any, deliveries: list[Delivery]) -> None:
    """The mark that a worker sets before the handlers run."""
    core = queue._core
    items = [consume.begin(each) for each in deliveries]
    drive(queue._sender, flows.use(core, lambda: consume.exchange_items(core, items, 0, None)))
