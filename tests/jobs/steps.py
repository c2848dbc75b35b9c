"""Small steps that the job tests share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redisq import Delivery, Engine, JobState, Queue
from redisq.calls import consume
from redisq.testing import ManualClock

ENDINGS = ["completed", "dead", "cancelled", "quarantined"]


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


def end(queue: Queue[Any], state: str, value: Any = "x", **options: Any) -> str:
    """Offers a job and ends it in a state of `ENDINGS`; returns its id."""
    id = queue.offer(value, **options).id
    if state == "cancelled":
        queue.cancel(id)
        return id
    delivery = taken(queue)
    if state == "completed":
        queue.ack(delivery)
    elif state == "dead":
        queue.fail(delivery, "broken", final=True)
    else:
        queue.quarantine(delivery, "poison")
    return id


def swept(queue: Queue[Any], limit: int = 100) -> int:
    """Maintains until nothing is due; how many records went."""
    total = 0
    for _ in range(1000):
        done = queue.maintain(limit)
        total += done.by_category["retention"]
        if not done.pending:
            return total
    raise AssertionError("the sweep never ends")


def state_of(queue: Queue[Any], id: str) -> JobState | None:
    job = queue.get(id)
    return None if job is None else job.state


class Prefetcher:
    """Takes from "jobs" as a worker does: leases wait unstarted behind its free slots, and are begun in bulk."""

    def __init__(self, url: str, namespace: str, clock: ManualClock) -> None:
        self._engine = Engine(url, namespace=namespace, clock=clock)
        self._core = self._engine.queue("jobs")._core

    def take(self, limit: int, *, starts: int = 0) -> list[Delivery]:
        """Up to `limit` leases, of which the first `starts` are started."""
        _, taken = self._engine._sender.run(consume.exchange_items(self._core, [], limit, None, starts=starts))
        return taken.deliveries

    def begin(self, deliveries: Iterable[Delivery]) -> list[Any]:
        """Marks leases as started; the answers, one each."""
        items = [consume.begin(each) for each in deliveries]
        answers, _ = self._engine._sender.run(consume.exchange_items(self._core, items, 0, None))
        return list(answers)

    def close(self) -> None:
        self._engine.close()


def root_of(queue: Queue[Any]) -> str:
    """The key of the queue's own hash; its columns are `root:column`."""
    root: str = queue._core.root
    return root
