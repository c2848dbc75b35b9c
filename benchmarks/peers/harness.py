"""redisq beside other queues for Python, and beside the least that is possible, on one server, in turn.

    python -m benchmarks peers [--rounds 5] [--only rq,huey] [--quick]

Every library runs in a process of its own, its producer and its one worker apart, over TCP on this machine. Each round
asks every one of them for everything; a first round, not counted, finds how many jobs suit each and weighs a job.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import click
import redis

from benchmarks import report
from benchmarks.peers import plots
from benchmarks.peers.contest import Entrant, Round, Size
from benchmarks.peers.environment import OURS, PEERS, python_of
from benchmarks.report import Spread, machine, quantile, save, say, short, table
from benchmarks.servers import rounds_option, running, servers_option
from redisq.demo.screen import Progress
from tests.support.servers import OwnServer

RAW = "redis-benchmark"
RAW_JOBS = 20_000
WARM_UP = Size(seconds=0.1, wakes=0, weighed=10_000)
QUICK = Size(seconds=0.1, wakes=5, weighed=1_000)
WAKES = 200
"""Wake-ups of each entrant, all rounds together."""


@click.command(help=__doc__)
@servers_option
@rounds_option(5)
@click.option("--seconds", default=0.6, show_default=True, help="Of each offer and each drain.")
@click.option("--only", default=",".join(PEERS), show_default=True, help="Peers beside redisq and the limit.")
@click.option("--quick", is_flag=True, help="One short round: a look at whether they run; the figures are not kept.")
def main(kinds: tuple[str, ...], rounds: int, seconds: float, only: str, quick: bool) -> None:
    names = [*OURS, *_chosen(only)]
    if quick:
        report.keep_nothing()
    pythons = {name: python_of(name) for name in names}
    figures: dict[str, Any] = {}
    with running(kinds, 1) as servers:
        about = {**machine(servers), "rounds": 1 if quick else rounds, "set_up": {}, "peers": {}}
        for server in servers:
            entrants = [Entrant(name, pythons[name], server.url) for name in names]
            raw = _compete(server, entrants, [QUICK] if quick else _sizes(rounds, seconds))
            figures[server.name] = {entrant.name: _figures(entrant) for entrant in entrants} | {RAW: raw}
            about["set_up"] |= {each.name: each.about.get("set_up", "") for each in entrants}
            about["peers"] |= {each.name: each.about.get("versions", {}) for each in entrants}
            _show(server, entrants, figures[server.name])
        path = save("peers", about, figures)
    say(f"figures: {path}")
    for server_name, rows in figures.items():
        plots.draw(server_name, rows, path.with_suffix(".png"))


def _chosen(only: str) -> list[str]:
    chosen = [name for name in only.replace(",", " ").split() if name not in OURS]
    for name in chosen:
        if name not in PEERS:
            raise click.BadParameter(f"{name} is none of {', '.join(PEERS)}", param_hint="--only")
    return chosen


def _sizes(rounds: int, seconds: float) -> list[Size]:
    return [WARM_UP, *[Size(seconds, -(-WAKES // rounds), 0)] * rounds]


def _compete(server: OwnServer, entrants: list[Entrant], sizes: list[Size]) -> dict[str, Any]:
    """All rounds; another entrant begins each. Returns what redis-benchmark says of the server, beside them."""
    raw: dict[str, list[float]] = {}
    progress = Progress(len(sizes) * len(entrants))
    with server.client() as client:
        for number, size in enumerate(sizes):
            turn = number % len(entrants)
            for step, entrant in enumerate(entrants[turn:] + entrants[:turn], 1):
                if not entrant.failure:
                    Round(entrant, client, size).run()
                progress.update(number * len(entrants) + step, f"{server.name}, {entrant.name}")
            if size is WARM_UP:
                for entrant in entrants:
                    entrant.forget()
            else:
                _ask_redis_benchmark(server, client, raw)
    progress.end()
    return {what: _spread(values) for what, values in raw.items()}


def _ask_redis_benchmark(server: OwnServer, client: redis.Redis, raw: dict[str, list[float]]) -> None:
    """LPUSH of 100 bytes from C: one at a time, and 1,000 a packet."""
    program = shutil.which(RAW) or shutil.which("valkey-benchmark")
    if program is None:
        return
    for what, pipeline in (("offer", 1), ("offer_many", 1000)):
        command = [program, "-p", str(server.port), "-c", "1", "-d", "100", "-t", "lpush", "--csv"]
        done = subprocess.run([*command, "-n", str(RAW_JOBS if pipeline == 1 else 20 * RAW_JOBS), "-P", str(pipeline)],
                              capture_output=True, text=True, check=True)  # fmt: skip
        raw.setdefault(what, []).append(float(done.stdout.splitlines()[-1].split(",")[1].strip('"')))
    client.flushall()


def _figures(entrant: Entrant) -> dict[str, Any]:
    figures: dict[str, Any] = {what: _spread(values) for what, values in entrant.figures.items()}
    if entrant.wakes:
        figures["wake_ms"] = {"median": quantile(entrant.wakes, 0.5), "p99": quantile(entrant.wakes, 0.99),
                              "samples": len(entrant.wakes)}  # fmt: skip
    return {**figures, "held": entrant.held, "failure": entrant.failure}


def _spread(values: list[float]) -> dict[str, Any]:
    spread = Spread.of(values)
    return {"median": spread.median, "least": spread.least, "most": spread.most, "rounds": values}


def _show(server: OwnServer, entrants: list[Entrant], figures: dict[str, Any]) -> None:
    heads = ["", "offer, jobs/s", "1,000 a call", "drain no-op", "drain 10 ms", "CPU µs a job", "commands a job",
             "wake-up ms: median", "p99", "bytes pending", "finished", "held while it runs"]  # fmt: skip
    rows = [[name, *_cells(each)] for name, each in figures.items()]
    say(table(f"{server.name}: jobs per second, and what a job costs the server while it is drained", heads, rows))
    for entrant in entrants:
        versions = ", ".join(f"{name} {version}" for name, version in entrant.about.get("versions", {}).items())
        say(f"- {entrant.name} ({versions}): {entrant.failure or entrant.about['set_up']}")
    say("")


def _cells(figures: dict[str, Any]) -> list[str]:
    def cell(what: str) -> str:
        found = figures.get(what)
        return str(Spread(found["median"], found["least"], found["most"])) if found else "–"

    def plain(what: str, part: str = "median") -> str:
        found = figures.get(what)
        return short(found[part]) if found else "–"

    held = {None: "–", True: "yes", False: "no"}[figures.get("held")]
    return [cell("offer"), cell("offer_many"), cell("drain"), cell("drain10"), plain("drain_cpu"),
            plain("drain_commands"), plain("wake_ms"), plain("wake_ms", "p99"), plain("pending_bytes"),
            plain("finished_bytes"), held]  # fmt: skip


if __name__ == "__main__":
    main()
