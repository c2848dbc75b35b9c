"""How soon an idle taker has a job: after an offer, and after a due time; a bare BLPOP in the same run beside it.

    python -m benchmarks.wakeup

Takers are processes of their own. Only one is idle at a time; the payload tells it when it was sent, or due.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import click
import redis

from benchmarks.report import machine, quantile, save, say, table
from benchmarks.servers import connected, rounds_option, running, servers_option
from redisq import AsyncEngine, Engine, Queue
from redisq.demo.screen import Progress
from tests.support.servers import OwnServer

IDLE = 0.02  # seconds until a taker that was told to take is surely blocked
SOON = 0.05  # seconds to a due time
TAKERS = ("blpop", "sync", "async")


class Measured(NamedTuple):
    """One series: a kind of taker, and what it waited for."""

    taker: str
    waited_for: str


def take_blpop(url: str, pipe: Connection) -> None:
    client: Any = redis.Redis.from_url(url)
    while pipe.recv():
        _, value = client.blpop(["bare"], 10)
        pipe.send(time.time_ns() - int(value))


def take_sync(url: str, pipe: Connection) -> None:
    with Engine(url, namespace="wakeup") as engine:
        queue = engine.queue("sync", int)
        while pipe.recv():
            delivery = queue.take(wait=10)
            arrived = time.time_ns()
            assert delivery is not None
            pipe.send(arrived - delivery.value)
            queue.ack(delivery)


def take_async(url: str, pipe: Connection) -> None:
    async def run() -> None:
        async with AsyncEngine(url, namespace="wakeup") as engine:
            queue = engine.queue("async", int)
            while await asyncio.to_thread(pipe.recv):
                delivery = await queue.take(wait=10)
                arrived = time.time_ns()
                assert delivery is not None
                pipe.send(arrived - delivery.value)
                await queue.ack(delivery)

    asyncio.run(run())


class Taker:
    """A process that takes one job each time it is told to."""

    def __init__(self, target: Callable[[str, Connection], None], url: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=target, args=(url, theirs), daemon=True)
        self._process.start()

    def sample(self, send: Callable[[], object]) -> float:
        """Milliseconds from what `send` put into the payload until the taker had it."""
        self._pipe.send(True)
        time.sleep(IDLE)
        send()
        return float(self._pipe.recv()) / 1e6

    def stop(self) -> None:
        self._pipe.send(False)
        self._process.join()


@click.command()
@servers_option
@rounds_option(300)
def main(kinds: tuple[str, ...], rounds: int) -> None:
    """Milliseconds from the enqueue call, or the due time, to the value in the taker's hand."""
    figures: list[dict[str, Any]] = []
    with running(kinds) as servers:
        about = machine(servers)
        for server in servers:
            figures += [{"server": server.name, **row} for row in _judged(_sample(server, rounds))]
    heads = ["server", "taker", "waited for", "median ms", "p99 ms", "most ms", "to BLPOP", "goal", "reached"]
    say(table("Wake-up of an idle taker", heads, [[_cell(row[head]) for head in heads] for row in figures]))
    save("wakeup", about, figures)


def _sample(server: OwnServer, rounds: int) -> dict[Measured, list[float]]:
    url, client = server.unix_url, connected(server)
    samples: dict[Measured, list[float]] = {}
    with Engine(url, namespace="wakeup") as engine:
        queues = {name: engine.queue(name, int) for name in TAKERS[1:]}
        takers = {
            name: Taker(target, url) for name, target in zip(TAKERS, (take_blpop, take_sync, take_async), strict=True)
        }
        progress = Progress(rounds)
        for number in range(-3, rounds):  # the first few warm connections and scripts up
            found = {Measured("blpop", "a push"): takers["blpop"].sample(lambda: client.rpush("bare", time.time_ns()))}
            for name, queue in queues.items():
                found[Measured(name, "an offer")] = takers[name].sample(lambda queue=queue: queue.offer(time.time_ns()))  # type: ignore[misc]
                found[Measured(name, "a due time")] = takers[name].sample(lambda queue=queue: _offer_soon(queue))  # type: ignore[misc]
            if number >= 0:
                for measured, value in found.items():
                    samples.setdefault(measured, []).append(value)
                progress.update(number + 1, server.name)
        progress.end()
        for taker in takers.values():
            taker.stop()
    return samples


def _offer_soon(queue: Queue[int]) -> None:
    """Times are kept in whole milliseconds, so the due time is one."""
    due_ms = time.time_ns() // 1_000_000 + int(SOON * 1000)
    queue.offer(due_ms * 1_000_000, at=datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=due_ms))


def _judged(samples: dict[Measured, list[float]]) -> list[dict[str, Any]]:
    bare = quantile(samples[Measured("blpop", "a push")], 0.5)
    rows = []
    for (taker, waited_for), values in samples.items():
        median, p99 = quantile(values, 0.5), quantile(values, 0.99)
        goal = ""
        reached: bool | None = None
        if waited_for == "an offer":
            goal, reached = "median ≤ 1.5 × BLPOP, p99 ≤ 5 ms", median <= 1.5 * bare and p99 <= 5
        elif waited_for == "a due time":
            goal, reached = "within 10 ms", p99 <= 10
        rows.append({"taker": taker, "waited for": waited_for, "median ms": median, "p99 ms": p99,
                     "most ms": max(values), "to BLPOP": median / bare, "goal": goal,
                     "reached": reached})  # fmt: skip
    return rows


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
