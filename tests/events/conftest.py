"""What the tests of event queues share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pytest

from redisq import Engine, EventPolicy, EventQueue


class OpenEvents(Protocol):
    """The fixture `open_events`: the event queue "orders" of the test's engine, with these policy fields."""

    def __call__(self, **policy: Any) -> EventQueue[Any]: ...


@pytest.fixture
def open_events(engine: Engine) -> OpenEvents:
    def open_one(**policy: Any) -> EventQueue[Any]:
        return engine.events("orders", policy=EventPolicy(**policy))

    return open_one


@pytest.fixture
def events(open_events: OpenEvents) -> EventQueue[Any]:
    """The event queue "orders", which archives."""
    return open_events(on_completion="archive")


@pytest.fixture
def swept() -> Callable[[EventQueue[Any]], dict[str, int]]:
    """Sweeps until nothing is pending; returns how many of each category that took."""

    def sweep(queue: EventQueue[Any]) -> dict[str, int]:
        total: dict[str, int] = {}
        for _ in range(10_000):
            done = queue.maintain()
            for category, count in done.by_category.items():
                total[category] = total.get(category, 0) + count
            if not done.pending:
                return total
        raise AssertionError("a sweep never comes to an end")

    return sweep
