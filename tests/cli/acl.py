"""Everything that an application does to queues, for the access rules of the README to be held against."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from redisq import (
    AsyncEngine,
    Backoff,
    Done,
    Engine,
    EventPolicy,
    EventQueue,
    Failed,
    Keep,
    Queue,
    QueuePolicy,
    Released,
    Sweeper,
    Worker,
)


def work(url: str, namespace: str) -> None:
    """Each verb, on each of its ways: priorities, delays, groups, retention, waiting, waking."""
    with Engine(url, namespace=namespace) as engine:
        _jobs(engine.queue("mails", policy=QueuePolicy(backoff=Backoff.fixed(0), dedup=1, keep=Keep(count=5))))
        _events(engine.events("news", policy=EventPolicy(on_completion="archive", max_attempts=1, max_backlog=5)))
        engine.queues()
    asyncio.run(_serve(url, namespace))


def _jobs(mails: Queue[Any]) -> None:
    mails.offer_many(range(80))
    for number in range(20):
        mails.offer(number, id=f"j{number}", name=f"n{number % 3}", priority=number % 4 - 1, metadata={"a": "b"},
                    delay=0.001 if number % 5 == 0 else None)  # fmt: skip
    for id in ("j1", "j2"):
        mails.cancel(id)
    mails.remove("j3")
    some = mails.take_many(40)
    mails.renew_many(some)
    mails.exchange([Done(some[0], "result"), Failed(some[1], "error"), Released(some[2])], 5)
    mails.ack_many(some[3:20])
    for delivery in some[20:30]:
        mails.fail(delivery, ValueError("x"), final=True)
    mails.quarantine(some[30], "odd")
    mails.release(some[31], delay=0.001)
    mails.release(some[33])
    mails.cancel(some[32].id)
    mails.process_one(lambda delivery: None)
    mails.take_many(3, lease=0.001)
    mails.take(wait=0.01)
    mails.retry_many("dead", name="nobody")
    mails.retry(mails.jobs(state="dead").items[0].id)
    mails.maintain()
    mails.pause()
    mails.resume()
    mails.alter(QueuePolicy(max_attempts=3, keep=Keep(count=1), history_ttl=0.001))
    mails.maintain(1000)
    mails.offer("later", id="later", delay=3600)
    mails.promote("later")
    _raises(TimeoutError, lambda: mails.wait_result("later", 0.01))
    mails.purge("ready")
    mails.errors("dead")
    for state in (None, "ready", "scheduled", "leased", "completed", "dead"):
        cursor = None
        while True:
            page = mails.jobs(state=state, name="n1" if state == "completed" else None, cursor=cursor)
            cursor = page.cursor
            if cursor is None:
                break
    mails.attempts("later")
    mails.delete(force=True)


def _events(news: EventQueue[Any]) -> None:
    billing, shipping = news.subscribe("billing"), news.subscribe("shipping")
    news.emit_many(range(20))
    news.emit("once", id="once", ttl=0.001)
    news.emit("again", id="once")
    first, second, third = news.take_many(billing, 3)
    news.renew(first)
    news.ack(first)
    news.fail(second, "broken")
    news.release(third)
    news.exchange(billing, [], 5)
    news.take_many(shipping, 10, lease=0.001)
    news.take(billing, wait=0.01)
    for dead in news.dead(billing).items:
        news.retry(billing, dead.event_id)
        news.discard(billing, dead.event_id)
    news.subscriptions()
    news.maintain()
    news.get(first.id)
    news.unsubscribe(shipping)
    news.maintain(1000)
    for delivery in news.take_many(billing, 100):
        news.ack(delivery)
    news.list_archived()
    news.alter(EventPolicy(archive_retention=0))
    while news.maintain(1000).pending:
        pass


async def _serve(url: str, namespace: str) -> None:
    """A worker and a sweeper, which wait for work and are woken."""
    async with AsyncEngine(url, namespace=namespace) as engine:
        queue = engine.queue("served")
        done = asyncio.Event()

        @queue.handler()
        async def handle(value: Any) -> None:
            done.set()

        worker, sweeper = Worker(engine, queue), Sweeper(engine)
        tasks = [asyncio.create_task(worker.arun()), asyncio.create_task(sweeper.arun())]
        await queue.offer(1)
        await asyncio.wait_for(done.wait(), 20)
        worker.stop()
        sweeper.stop()
        await asyncio.gather(*tasks)


def _raises(expected: type[Exception], action: Callable[[], object]) -> None:
    try:
        action()
    except expected:
        return
    raise AssertionError(f"{expected.__name__} was not raised")
