"""Whether a queue's depth costs anything: offer, take and ack with 1,000 to 1,000,000 ready jobs behind them.

    python -m benchmarks.depth

Server microseconds a job by the server's own books, a call of one job and one of a hundred, depths in turn.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import click

from benchmarks.meter import Meter
from benchmarks.report import Spread, machine, save, say, table
from benchmarks.servers import connected, rounds_option, running, servers_option
from benchmarks.verbs import Verbs, calls_for, fill, queue_on
from redisq import Engine
from redisq.demo.screen import Progress
from tests.support.servers import OwnServer

DEPTHS = (1_000, 10_000, 100_000, 1_000_000)
BATCHES = (1, 100)


class Place(NamedTuple):
    server: OwnServer
    depth: int
    verbs: dict[int, Verbs]


@click.command(help=__doc__)
@servers_option
@rounds_option(5)
@click.option("--most", type=click.IntRange(1000), default=DEPTHS[-1], show_default=True, help="The deepest queue.")
def main(kinds: tuple[str, ...], rounds: int, most: int) -> None:
    costs: dict[tuple[str, int, int], list[float]] = {}
    with running(kinds) as servers:
        about = machine(servers)
        places = [_place(server, depth) for server in servers for depth in DEPTHS if depth <= most]
        progress = Progress(rounds)
        for number in range(rounds):
            for place in places:
                for batch, verbs in place.verbs.items():
                    costs.setdefault((place.server.name, batch, place.depth), []).append(_cost(verbs, batch))
            progress.update(number + 1, "depths in turn")
        progress.end()
    rows = [_row(key, values, costs[key[0], key[1], DEPTHS[0]]) for key, values in costs.items()]
    heads = ["server", "batch", "jobs behind", "µs a job", "to 1,000 behind"]
    say(table("Offer, take and ack of a job, server µs", heads, [[str(row[head]) for head in heads] for row in rows]))
    save("depth", about, rows)


def _place(server: OwnServer, depth: int) -> Place:
    engine = Engine(server.unix_url, namespace=f"depth-{depth}")
    queue, meter = queue_on(engine, "q"), Meter(connected(server), engine)
    fill(queue, depth)
    return Place(server, depth, {batch: Verbs(queue, meter, batch, calls_for(batch)) for batch in BATCHES})


def _cost(verbs: Verbs, batch: int) -> float:
    readings = verbs.measure()
    return sum(readings[verb].server_us for verb in ("offer", "take", "ack")) / calls_for(batch) / batch


def _row(key: tuple[str, int, int], values: list[float], base: list[float]) -> dict[str, Any]:
    server, batch, depth = key
    ratio = Spread.of(a / b for a, b in zip(values, base, strict=True))
    return {"server": server, "batch": batch, "jobs behind": f"{depth:,}", "µs a job": Spread.of(values),
            "to 1,000 behind": ratio}  # fmt: skip


if __name__ == "__main__":
    main()
