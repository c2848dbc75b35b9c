"""Idle takers of a subscription wake up, and only those that something concerns; the 2 s cap is raised to 60 s."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import redis

from redisq import Backoff, EventDelivery, EventPolicy, EventQueue, Subscription, SubscriptionGone, flows
from tests.support.fronts import OpenEngine
from tests.support.servers import Server

pytestmark = [pytest.mark.real_server]
BOUND = 10.0
SOON = 0.3
Waiter = Callable[[Subscription], Future[Any]]


@pytest.fixture(autouse=True)
def cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "LOOK_EVERY", 60.0)


@pytest.fixture
def queue(open_engine: OpenEngine) -> EventQueue[Any]:
    """An event queue on the server's own time."""
    return open_engine().events("orders", policy=EventPolicy(backoff=Backoff.fixed(SOON), max_attempts=5))


@pytest.fixture
def blocked(raw: redis.Redis, namespace: str) -> Callable[[], int]:
    """How many takers of this test block."""
    return lambda: len([each for each in raw.client_list() if each["name"] == namespace and "b" in each["flags"]])


@pytest.fixture
def waiter(open_engine: OpenEngine, server: Server, namespace: str, blocked: Callable[[], int]) -> Iterator[Waiter]:
    """Starts a taker with an engine of its own, and returns once it blocks."""
    url = f"{server.url}{'&' if '?' in server.url else '?'}client_name={namespace}"
    with ThreadPoolExecutor(8) as pool:

        def start(subscription: Subscription, **options: Any) -> Future[Any]:
            before = blocked()
            queue = open_engine(url=url).events("orders")
            future = pool.submit(queue.take, subscription, **{"wait": 50, **options})
            limit = time.monotonic() + BOUND
            while blocked() <= before:
                assert time.monotonic() < limit, "nobody waits"
                time.sleep(0.005)
            return future

        yield start


def got(future: Future[EventDelivery | None]) -> Any:
    delivery = future.result(BOUND)
    assert delivery is not None
    return delivery.value


def test_an_emission_wakes_one_taker_of_each_subscription(queue: EventQueue[Any], waiter: Waiter) -> None:
    billing, email = queue.subscribe("billing"), queue.subscribe("email")
    waiting = [waiter(billing), waiter(email)]
    queue.emit("order")
    assert [got(each) for each in waiting] == ["order", "order"]


def test_several_takers_of_a_subscription_wake_one_for_each_event(queue: EventQueue[Any], waiter: Waiter) -> None:
    billing = queue.subscribe("billing")
    waiting = [waiter(billing) for _ in range(4)]
    queue.emit_many([1, 2])
    queue.emit(3)
    queue.emit(4)
    assert sorted(got(each) for each in waiting) == [1, 2, 3, 4]


def test_an_emission_rings_nobody_who_owes_nothing(
    queue: EventQueue[Any], waiter: Waiter, raw: redis.Redis, blocked: Callable[[], int], namespace: str
) -> None:
    busy = queue.subscribe("busy")
    idle = waiter(queue.subscribe("idle"))
    queue.emit("first")
    assert got(idle) == "first"
    assert list(raw.scan_iter(match=f"*{namespace}*:bell:{busy.generation}", count=1000)) == []


def test_a_release_a_failure_and_a_lapse_wake(queue: EventQueue[Any], waiter: Waiter) -> None:
    billing = queue.subscribe("billing")
    queue.emit("order")
    delivery = queue.take(billing)
    assert delivery is not None
    second = waiter(billing, lease=SOON)  # type: ignore[call-arg]
    queue.release(delivery)
    assert got(second) == "order"
    # the lease of the second runs out by itself
    third = waiter(billing)
    again = third.result(BOUND)
    assert again.attempt == 2
    fourth = waiter(billing)
    queue.fail(again, "no")
    assert fourth.result(BOUND).attempt == 3


def test_a_retried_obligation_wakes(queue: EventQueue[Any], waiter: Waiter) -> None:
    billing = queue.subscribe("billing")
    event = queue.emit("order")
    delivery = queue.take(billing)
    assert delivery is not None
    queue.fail(delivery, "no", final=True)
    waiting = waiter(billing)
    assert queue.retry(billing, event.id)
    assert got(waiting) == "order"


def test_every_taker_of_a_removed_subscription_is_told(queue: EventQueue[Any], waiter: Waiter) -> None:
    billing = queue.subscribe("billing")
    waiting = [waiter(billing) for _ in range(3)]
    assert queue.unsubscribe(billing)
    for each in waiting:
        with pytest.raises(SubscriptionGone):
            each.result(BOUND)


def test_a_wait_that_ends_finds_nothing(queue: EventQueue[Any]) -> None:
    assert queue.take(queue.subscribe("billing"), wait=0.05) is None


def test_a_taker_waits_for_a_queue_that_is_not_there(open_engine: OpenEngine) -> None:
    """Nothing is delivered, and nothing is created."""
    queue = open_engine().events("orders")
    stranger = Subscription(queue="orders", name="billing", generation="1-nobody")
    assert queue.take(stranger, wait=0.05) is None
    assert queue.subscriptions() == []


def test_takers_of_many_subscriptions_get_every_event(
    queue: EventQueue[Any], open_engine: OpenEngine, blocked: Callable[[], int]
) -> None:
    """A crowd in earnest: each of 40 subscriptions sees all events, whatever wakes whom."""
    subscriptions = [queue.subscribe(f"s{n}") for n in range(40)]
    wanted, seen = set(range(30)), {each.name: set[int]() for each in subscriptions}
    engines = [open_engine() for _ in range(4)]

    def consume(index: int) -> None:
        own = engines[index % 4].events("orders")
        subscription = subscriptions[index]
        while seen[subscription.name] != wanted:
            delivery = own.take(subscription, wait=20)
            assert delivery is not None
            seen[subscription.name].add(delivery.value)
            own.ack(delivery)

    threads = [threading.Thread(target=consume, args=(n,)) for n in range(40)]
    for thread in threads:
        thread.start()
    for n in range(30):
        queue.emit(n)
    for thread in threads:
        thread.join(40)
    assert all(values == wanted for values in seen.values())
    assert queue.info().oldest_ms is None
