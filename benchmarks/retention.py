"""How finished jobs are swept away, and what their history costs.

python -m benchmarks.retention
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import click

from benchmarks.meter import Meter, Reading
from benchmarks.report import Spread, machine, save, say, short, table
from benchmarks.servers import connected, rounds_option, running, servers_option
from benchmarks.verbs import fill, finish, queue_on
from redisq import Delivery, Engine, ErrorDetail, Failed, History, Keep, Queue
from redisq.demo.screen import Progress
from redisq.testing import ManualClock
from tests.support.servers import OwnServer

AGE = 86_400.0
LIMITS = (100, 1000)
BATCH = 100
ERROR = ErrorDetail("OSError", "no route to host " * 8, "  File one, line two\n" * 40)  # some 1,000 bytes
RUNGS: dict[str, dict[str, Any]] = {
    **{f"history {rung}": {"history": rung, "keep": None} for rung in History},
    "keep off": {"keep": Keep(count=0)},
}
LIVES = {"acked at once": False, "failed once": True}

Figures = dict[tuple[str, str, str], list[tuple[Reading, float]]]


@click.command()
@servers_option
@rounds_option(5)
@click.option("--finished", default=200_000, show_default=True, help="Jobs past their age that are swept.")
@click.option("--jobs", default=20_000, show_default=True, help="Jobs of one round at one rung.")
def main(kinds: tuple[str, ...], rounds: int, finished: int, jobs: int) -> None:
    """Server time of every sweep while finished jobs drain; throughput and bytes at each rung of the history."""
    with running(kinds) as servers:
        about = machine(servers)
        drained = [_drain(server, finished, limit) for limit in LIMITS for server in servers]
        figures = _climb(servers, rounds, jobs)
    say(_drain_table(f"{finished:,} finished jobs past their age, no traffic, swept by maintain(limit)", drained))
    rows = list(_rows(figures, jobs))
    say(_ladder_table(f"{jobs:,} jobs of 100 bytes, offered, taken and settled by exchange({BATCH})", rows))
    save("retention", about, {"drain": drained, "ladder": rows})


def _drain(server: OwnServer, count: int, limit: int) -> dict[str, Any]:
    """Sweeps until nothing is pending, and holds what is left against the start."""
    clock, client = ManualClock(), connected(server)
    with Engine(server.unix_url, namespace="drain", clock=clock) as engine:
        meter, queue = Meter(client), queue_on(engine, f"by {limit}", keep=Keep(age=AGE))
        _finish_and_sweep(queue, clock, 1000)  # loads the scripts
        keys, start = set(client.keys("*drain*")), meter.settled_memory()
        finish(queue, count)
        full = meter.memory()
        clock.advance(AGE)
        wall: list[float] = []
        cpu: list[float] = []
        removed, pending, progress = 0, True, Progress(count)
        while pending:
            with meter.section() as reading:
                done = queue.maintain(limit)
            wall.append(reading.server_us)
            cpu.append(reading.cpu_us)
            removed, pending = removed + done.by_category["retention"], done.pending
            progress.update(removed, f"{server.name}, swept by {limit}")
        progress.end()
        end, left = meter.settled_memory(), set(client.keys("*drain*")) - keys
    return {"server": server.name, "limit": limit, "calls": len(wall), "removed": removed,
            "server_us": _spread(wall), "cpu_us": _spread(cpu), "records_per_second": removed / sum(wall) * 1e6,
            "keys_left": len(left), "mib_full": (full - start) / 2**20,
            "mib_left": (end - start) / 2**20}  # fmt: skip


def _spread(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {"median": statistics.median(ordered), "p99": ordered[int(len(ordered) * 0.99)], "most": ordered[-1]}


def _finish_and_sweep(queue: Queue[str], clock: ManualClock, count: int) -> None:
    finish(queue, count)
    clock.advance(AGE)
    while queue.maintain(1000).pending:
        pass


def _climb(servers: list[OwnServer], rounds: int, jobs: int) -> Figures:
    """All rungs of all servers in turn within each round, so that a slow minute of the machine meets them alike."""
    figures: Figures = {}
    places = [(server, rung, life) for server in servers for rung in RUNGS for life in LIVES]
    progress = Progress(rounds * len(places))
    for number in range(rounds):
        for step, (server, rung, life) in enumerate(places):
            figures.setdefault((server.name, rung, life), []).append(_live(server, rung, LIVES[life], jobs))
            progress.update(number * len(places) + step + 1, f"round {number + 1}, {server.name}, {rung}, {life}")
    progress.end()
    return figures


def _live(server: OwnServer, rung: str, failing: bool, jobs: int) -> tuple[Reading, float]:
    """What whole lives of `jobs` jobs cost, and the bytes that are left of each."""
    with Engine(server.unix_url, namespace="ladder") as engine:
        meter, queue = Meter(connected(server)), queue_on(engine, rung, **RUNGS[rung])
        _run(queue, BATCH, failing)
        start = meter.settled_memory()
        with meter.section() as reading:
            _run(queue, jobs, failing)
        left = (meter.settled_memory() - start) / jobs
        queue.delete()
    return reading, left


def _run(queue: Queue[str], count: int, failing: bool) -> None:
    fill(queue, count)
    held: list[Delivery] = []
    while True:
        settled = [Failed(each, ERROR, retry_in=0) if failing and each.attempt == 1 else each for each in held]
        _, held = queue.exchange(settled, BATCH)
        if not held:
            return


def _rows(figures: Figures, jobs: int) -> Iterator[dict[str, Any]]:
    for (server, rung, life), found in figures.items():
        yield {
            "server": server,
            "rung": rung,
            "life": life,
            "server_us_per_job": Spread.of(reading.server_us / jobs for reading, _ in found),
            "cpu_us_per_job": Spread.of(reading.cpu_us / jobs for reading, _ in found),
            "jobs_per_second": Spread.of(jobs / reading.client_us * 1e6 for reading, _ in found),
            "bytes_left_per_job": Spread.of(left for _, left in found),
        }


def _drain_table(title: str, rows: list[dict[str, Any]]) -> str:
    heads = ["server", "limit", "calls", "server µs: median", "p99", "most", "CPU µs: median", "p99", "most",
             "records a second", "keys left", "MiB full", "MiB left"]  # fmt: skip
    return table(title, heads, [
        (row["server"], f"{row['limit']:,}", f"{row['calls']:,}",
         *(short(row[kind][which]) for kind in ("server_us", "cpu_us") for which in ("median", "p99", "most")),
         short(row["records_per_second"]), row["keys_left"], short(row["mib_full"]), short(row["mib_left"]))
        for row in rows
    ])  # fmt: skip


def _ladder_table(title: str, rows: list[dict[str, Any]]) -> str:
    heads = ["server", "rung", "job", "server µs a job", "CPU µs a job", "jobs a second", "bytes left a job"]
    return table(title, heads, [
        (row["server"], row["rung"], row["life"], row["server_us_per_job"], row["cpu_us_per_job"],
         row["jobs_per_second"], short(row["bytes_left_per_job"].median))
        for row in rows
    ])  # fmt: skip


if __name__ == "__main__":
    main()
