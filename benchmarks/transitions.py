"""What each verb costs, by batch size and by what lies behind; and what a job weighs in memory.

python -m benchmarks.transitions
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import click

from benchmarks.meter import Meter, Reading
from benchmarks.report import Spread, machine, save, say, short, table
from benchmarks.servers import connected, rounds_option, running, servers_option
from benchmarks.verbs import VERBS, Verbs, calls_for, fill, finish, queue_on
from redisq import Engine, Keep, Queue
from redisq.demo.screen import Progress
from tests.support.servers import OwnServer

BATCHES = (1, 10, 100, 1000)
KEPT = 10_000  # completed records that the default rule keeps: with so many, an ack prunes as many as it adds
DAY = 86_400.0


class Depth(NamedTuple):
    """What lies behind the jobs that are measured."""

    name: str
    ready: int
    scheduled: int


class Place(NamedTuple):
    """One queue of one server, ready to be measured."""

    server: OwnServer
    depth: Depth
    queue: Queue[str]
    meter: Meter


Figures = dict[tuple[str, str, int, str], list[Reading]]


def depths(deep: int) -> list[Depth]:
    return [Depth("100 ready", 100, 0), Depth(f"{deep:,} ready", deep, 0), Depth(f"{deep:,} scheduled", 0, deep)]


@click.command()
@servers_option
@rounds_option(5)
@click.option("--deep", default=1_000_000, show_default=True, help="Jobs behind, in the deep cases.")
@click.option("--weighed", default=100_000, show_default=True, help="Jobs for the bytes of one.")
def main(kinds: tuple[str, ...], rounds: int, deep: int, weighed: int) -> None:
    """Server µs, commands, round trips, client µs and bytes of every verb; bytes of a job in every state."""
    with running(kinds) as servers:
        about = machine(servers)
        weights = [(server.name, *weight) for server in servers for weight in _weigh(server, weighed)]
        places = list(_prepare(servers, depths(deep)))
        figures = _measure(places, rounds)
    rows = list(_rows(places, figures))
    for server in servers:
        for depth in depths(deep):
            shown = [row for row in rows if row["server"] == server.name and row["behind"] == depth.name]
            say(_verbs_table(f"{server.name}, {depth.name} behind", shown))
    say(table(f"Bytes of a job in Redis, {weighed:,} of them, 100-byte payload", ["server", "job", "bytes"],
              [(name, state, short(size)) for name, state, size in weights]))  # fmt: skip
    save("transitions", about, {"verbs": rows, "bytes_per_job": weights})


def _prepare(servers: list[OwnServer], wanted: list[Depth]) -> Iterator[Place]:
    progress = Progress(len(servers) * len(wanted))
    for done, (server, depth) in enumerate(((server, depth) for server in servers for depth in wanted), 1):
        engine = Engine(server.unix_url, namespace="transitions")
        queue, meter = queue_on(engine, depth.name), Meter(connected(server), engine)
        Verbs(queue, meter, 2, 1).measure()  # loads the scripts
        finish(queue, KEPT)
        fill(queue, depth.ready)
        fill(queue, depth.scheduled, delay=DAY)
        progress.update(done, "queues filled")
        yield Place(server, depth, queue, meter)
    progress.end()


def _measure(places: list[Place], rounds: int) -> Figures:
    """All servers and depths in turn within each round, so that a slow minute of the machine meets them alike."""
    figures: Figures = {}
    steps = len(places) * len(BATCHES)
    progress = Progress(rounds * steps)
    for number in range(rounds):
        for step, (batch, place) in enumerate((batch, place) for batch in BATCHES for place in places):
            readings = Verbs(place.queue, place.meter, batch, calls_for(batch)).measure()
            for verb, reading in readings.items():
                figures.setdefault((place.server.name, place.depth.name, batch, verb), []).append(reading)
            progress.update(number * steps + step + 1, f"round {number + 1}, {place.server.name}, batch {batch:,}")
    progress.end()
    return figures


def _rows(places: list[Place], figures: Figures) -> Iterator[dict[str, Any]]:
    for place in places:
        for verb in VERBS:
            for batch in BATCHES:
                readings = figures[place.server.name, place.depth.name, batch, verb]
                yield {"server": place.server.name, "behind": place.depth.name, "verb": verb, "batch": batch,
                       **_costs(readings, batch)}  # fmt: skip


def _costs(readings: list[Reading], batch: int) -> dict[str, Any]:
    def per_call(cost: Callable[[Reading], float]) -> Spread:
        return Spread.of(cost(each) / each.calls for each in readings)

    def per_job(cost: Callable[[Reading], float]) -> Spread:
        return Spread.of(cost(each) / each.calls / batch for each in readings)

    return {
        "server_us": per_call(lambda each: each.server_us),
        "server_us_per_job": per_job(lambda each: each.server_us),
        "commands_per_job": per_job(lambda each: each.calls + each.inner_calls).median,
        "round_trips": per_call(lambda each: each.trips).median,
        "client_us": per_call(lambda each: each.client_us),
        "bytes_to_server_per_job": per_job(lambda each: each.received).median,
        "bytes_to_client_per_job": per_job(lambda each: each.sent).median,
    }


def _verbs_table(title: str, rows: list[dict[str, Any]]) -> str:
    heads = [
        "verb",
        "batch",
        "server µs a call",
        "µs a job",
        "commands a job",
        "trips",
        "client µs a call",
        "bytes in a job",
        "out",
    ]
    return table(title, heads, [
        (row["verb"], f"{row['batch']:,}", row["server_us"], short(row["server_us_per_job"].median),
         short(row["commands_per_job"]), short(row["round_trips"]), row["client_us"],
         short(row["bytes_to_server_per_job"]), short(row["bytes_to_client_per_job"]))
        for row in rows
    ])  # fmt: skip


def _weigh(server: OwnServer, count: int) -> Iterator[tuple[str, float]]:
    """What `count` jobs add to the server's memory in each state, and what is left of them without keep."""
    with Engine(server.unix_url, namespace="weights") as engine:
        meter = Meter(connected(server))
        for state, keep in (("finished, all kept", None), ("finished, keep off", Keep(count=0))):
            queue = queue_on(engine, state, keep=keep)
            finish(queue, 1)
            empty = meter.memory()
            fill(queue, count)
            if keep is None:
                yield "pending", (meter.memory() - empty) / count
            held = [each for _ in range(0, count, 1000) for each in queue.take_many(1000)]
            if keep is None:
                yield "leased", (meter.memory() - empty) / count
            queue.ack_many(held)
            yield state, (meter.memory() - empty) / count


if __name__ == "__main__":
    main()
