"""How soon idle takers have an event, with 1,000 subscriptions of which some have several takers that wait.

    python -m benchmarks.ringing [--waiting 20] [--takers 3]

All takers of all waiting subscriptions share one process and its event loop; one of each subscription gets the event.
The last one of them is the figure that counts: it has waited for all the others.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Any

import click

from benchmarks.report import machine, quantile, save, say, short, table
from benchmarks.servers import connected, rounds_option, running, servers_option
from redisq import AsyncEngine, AsyncEventQueue, Engine, Subscription
from redisq.demo.screen import Progress
from tests.support.servers import OwnServer

SUBSCRIPTIONS = 1000
IDLE = 0.05  # seconds until takers that settled their last event are surely blocked again
GOAL_MS = 50


def wait_for_events(url: str, waiting: int, takers: int, pipe: Connection) -> None:
    """Takes for ever; tells for each event how many nanoseconds after its emission each subscription had it."""

    async def take(events: AsyncEventQueue[int], subscription: Subscription, came: asyncio.Queue[int]) -> None:
        while True:
            delivery = await events.take(subscription, wait=10)
            if delivery is not None:
                came.put_nowait(time.time_ns() - delivery.value)
                await events.ack(delivery)

    async def run() -> None:
        came: asyncio.Queue[int] = asyncio.Queue()
        async with AsyncEngine(url, namespace="ringing") as engine:
            events = engine.events("news", int)
            subscriptions = [await events.subscribe(f"reader {n}") for n in range(waiting)]
            tasks = [asyncio.create_task(take(events, each, came)) for each in subscriptions for _ in range(takers)]
            while await asyncio.to_thread(pipe.recv):
                pipe.send([await came.get() for _ in range(waiting)])
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())


@click.command(help=__doc__)
@servers_option
@rounds_option(50)
@click.option("--waiting", type=click.IntRange(1, SUBSCRIPTIONS), default=20, show_default=True)
@click.option(
    "--takers", type=click.IntRange(1, 50), default=3, show_default=True, help="Of each waiting subscription."
)
def main(kinds: tuple[str, ...], rounds: int, waiting: int, takers: int) -> None:
    rows: list[dict[str, Any]] = []
    with running(kinds) as servers:
        about = machine(servers)
        for server in servers:
            each, last = _sample(server, rounds, waiting, takers)
            rows.append({
                "server": server.name, "subscriptions": SUBSCRIPTIONS, "waiting": waiting, "takers of each": takers,
                "median ms": quantile(each, 0.5), "last, median ms": quantile(last, 0.5),
                "last, p99 ms": quantile(last, 0.99), "within 50 ms": quantile(last, 0.99) <= GOAL_MS,
            })  # fmt: skip
    heads = list(rows[0])
    cells = [[short(value) if isinstance(value, float) else value for value in row.values()] for row in rows]
    say(table("Wake-up of idle takers of events", heads, cells))
    save("ringing", about, rows)


def _sample(server: OwnServer, rounds: int, waiting: int, takers: int) -> tuple[list[float], list[float]]:
    """Milliseconds of every delivery, and of the last one of each event."""
    connected(server).flushall()
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    each: list[float] = []
    last: list[float] = []
    with Engine(server.unix_url, namespace="ringing") as engine:
        events = engine.events("news", int)
        for n in range(SUBSCRIPTIONS):
            events.subscribe(f"reader {n}")
        process = context.Process(target=wait_for_events, args=(server.unix_url, waiting, takers, theirs), daemon=True)
        process.start()
        progress = Progress(rounds)
        for number in range(-3, rounds):  # the first few warm connections and scripts up
            pipe.send(True)
            time.sleep(IDLE)
            events.emit(time.time_ns())
            found = [ns / 1e6 for ns in pipe.recv()]
            if number >= 0:
                each += found
                last.append(max(found))
                progress.update(number + 1, server.name)
        progress.end()
        pipe.send(False)
        process.join()
    return each, last


if __name__ == "__main__":
    main()
