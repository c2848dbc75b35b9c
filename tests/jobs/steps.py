"""Small steps that the job tests share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redisq import Delivery, Engine, JobState, Queue
from redisq.calls import consume
from redisq.testing import ManualClock


def taken(queue: Queue[Any], **options: Any) -> Delivery:
    """The next delivery, which must be there."""
    delivery = queue.take(**options)
    assert delivery is not None
    return delivery


def drained(queue: Queue[Any], limit: int = 1000) -> list[Delivery]:
    """Everything that is takeable now, in order."""
    found: list[Delivery] = []
    while batch := queue.take_many(limit):
        found += batch
    return found


def values(deliveries: Iterable[Delivery]) -> list[Any]:
    return [each.value for each in deliveries]


def ids(items: Iterable[Any]) -> list[str]:
    return [each.id for each in items]


def walked(queue: Queue[Any], **options: Any) -> list[Any]:
    """All items of a listing, page by page."""
    items: list[Any] = []
    cursor = None
    while True:
        page = queue.jobs(cursor=cursor, **options)
        items += page.items
        cursor = page.cursor
        if cursor is None:
            return items


def killed(queue: Queue[Any], value: Any = "dead", **options: Any) -> str:
    """Offers a job and fails it finally; returns its id."""
    id = queue.offer(value, **options).id
    delivery = taken(queue)
    assert delivery.id == id
    assert queue.fail(delivery, "broken", final=True).state is JobState.DEAD
    return id


def finished(queue: Queue[Any], value: Any = "done", **options: Any) -> str:
    """Offers a job and acks it; returns its id."""
    id = queue.offer(value, **options).id
    delivery = taken(queue)
    assert delivery.id == id
    queue.ack(delivery)
    return id


def state_of(queue: Queue[Any], id: str) -> JobState | None:
    job = queue.get(id)
    return None if job is None else job.state


def taken_unstarted(url: str, namespace: str, clock: ManualClock, limit: int = 1) -> list[Delivery]:
    """Leases of "jobs" as a worker's exchange makes them for deliveries that wait behind its free slots."""
    with Engine(url, namespace=namespace, clock=clock) as engine:
        core = engine.queue("jobs")._core
        _, found = engine._sender.run(consume.exchange(core, [], limit, None, started=False))
        return found.deliveries


def root_of(queue: Queue[Any]) -> str:
    """The key of the queue's own hash; its columns are `root:column`."""
    root: str = queue._core.root
    return root
