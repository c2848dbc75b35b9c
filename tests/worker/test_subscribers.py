"""A worker serves the subscribers of event queues (SPEC 7)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from redisq import Backoff, Context, Engine, EventPolicy, EventQueue, InvalidInput, Reject
from redisq.handlers import Subscribers
from tests.worker.conftest import WAIT, Serve
from tests.worker.test_faults import until

pytestmark = pytest.mark.skipif(
    not issubclass(EventQueue, Subscribers), reason="event queues do not register subscribers yet"
)

Function = TypeVar("Function", bound=Callable[..., Any])


def subscriber(events: Any, name: str) -> Callable[[Function], Function]:
    registers: Callable[[Function], Function] = events.subscriber(name)
    return registers


def test_every_subscriber_gets_every_event(engine: Engine, serve: Serve) -> None:
    events: Any = engine.events("news", policy=EventPolicy(on_completion="archive"))
    seen: dict[str, list[int]] = {"billing": [], "mails": []}

    @subscriber(events, "billing")
    async def bill(value: int, context: Context) -> None:
        assert (context.attempt, context.lost) == (1, False)
        seen["billing"].append(value)

    @subscriber(events, "mails")
    def mail(value: int) -> None:
        seen["mails"].append(value)

    serve("news")
    until(lambda: len(events.subscriptions()) == 2)
    emitted = [events.emit(at) for at in range(20)]
    until(lambda: all(events.get(event.id).status == "completed" for event in emitted))
    assert {name: sorted(values) for name, values in seen.items()} == {name: list(range(20)) for name in seen}


def test_failures_are_tried_again_and_rejections_are_not(engine: Engine, serve: Serve) -> None:
    events: Any = engine.events("news", policy=EventPolicy(max_attempts=5, backoff=Backoff.fixed(0.01)))
    attempts: list[tuple[str, int]] = []

    @subscriber(events, "billing")
    async def bill(value: str, context: Context) -> None:
        attempts.append((value, context.attempt))
        if value == "bad":
            raise Reject("not for us")
        if context.attempt == 1:
            raise ValueError("once")

    subscription = events.subscribe("billing")
    serve(events)
    events.emit("bad")
    events.emit("good")
    until(lambda: ("good", 2) in attempts)
    until(lambda: events.subscriptions()[0].lag == 0)
    (dead,) = events.dead(subscription).items
    assert (dead.value, dead.error.message) == ("bad", "not for us")
    assert attempts.count(("bad", 1)) == 1


def test_what_runs_is_handed_back_at_a_stop(engine: Engine, serve: Serve) -> None:
    events: Any = engine.events("news")
    started = threading.Event()

    @subscriber(events, "billing")
    async def bill(value: str) -> None:
        started.set()
        await asyncio.sleep(3600)

    subscription = events.subscribe("billing")
    event = events.emit("x")
    serving = serve(events, grace=0)
    assert started.wait(WAIT)
    serving.stop()
    delivery = events.take(subscription)
    assert (delivery.id, delivery.attempt) == (event.id, 1)
    events.ack(delivery)


def test_a_removed_subscription_is_left_alone_and_the_others_go_on(
    engine: Engine, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker does not subscribe again what an operator has removed while it runs."""
    events: Any = engine.events("news")
    jobs = engine.queue("jobs")

    billed = threading.Event()

    @subscriber(events, "billing")
    async def bill(value: str) -> None:
        billed.set()

    @jobs.handler()
    async def handle(value: str) -> str:
        return value

    subscription = events.subscribe("billing")
    events.emit("x")
    serving = serve([events, jobs])
    assert billed.wait(WAIT)
    assert events.unsubscribe(subscription)
    until(lambda: any("no longer taken" in record.getMessage() for record in caplog.records))
    assert jobs.wait_result(jobs.offer("x").id, WAIT) == "x"
    assert events.subscriptions() == []
    assert serving.stop() == 0


def test_a_payload_of_another_type_is_a_dead_obligation(engine: Engine, serve: Serve) -> None:
    with Engine(engine.url, namespace=engine.namespace) as other:
        anything: Any = other.events("news")
        subscription = anything.subscribe("billing")
        anything.emit("text")
        anything.emit(7)
    events: Any = engine.events("news", int)
    seen: list[int] = []
    events.subscriber("billing")(seen.append)
    serve(events)
    until(lambda: seen == [7])
    until(lambda: events.dead(subscription).items)
    (dead,) = events.dead(subscription).items
    assert dead.error.type == "Undecodable"


def test_one_handler_for_a_name(engine: Engine) -> None:
    events: Any = engine.events("news")
    events.subscriber("billing")(print)
    with pytest.raises(InvalidInput, match="'billing'"):
        events.subscriber("billing")(print)
    with pytest.raises(InvalidInput):
        events.subscriber("")
