"""`redisq bench`: what this server does with this client."""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import msgspec

from redisq.cli import show
from redisq.cli.app import PATIENCE, App, examples, json_option, pass_app
from redisq.cli.bulk import progress
from redisq.model import Delivery
from redisq.sync import Engine, Queue


class Measure(msgspec.Struct, frozen=True):
    """One verb at one batch size. Times are of one call, from here to the server and back."""

    verb: str
    batch: int
    jobs_per_second: float
    median_ms: float
    slowest_ms: float


@click.command("bench", epilog=examples("redisq bench", "redisq bench --jobs 20000 --payload 1000 --json"))
@click.option("--jobs", "count", type=click.IntRange(10, 1_000_000), default=2000, show_default=True,
              help="Jobs for each batch size.")  # fmt: skip
@click.option("--batch", type=click.IntRange(2, 1000), default=100, show_default=True, help="The larger batch size.")
@click.option("--payload", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="Bytes of each job.")
@json_option
@pass_app
def command(app: App, count: int, batch: int, payload: int, as_json: bool) -> None:
    """Measure offer, take and ack against the server, one client in one thread: singly, and in batches.

    It uses a namespace of its own and removes it. On a server that others use, they notice.
    """
    measures: list[Measure] = []
    with Engine(app.url, namespace=f"redisq-bench-{secrets.token_hex(6)}", retry_for=PATIENCE) as engine:
        queue = engine.queue("bench", str)
        try:
            with progress("bench", 6) as bar:
                for size in (1, batch):
                    measures += _round(queue, count, size, "x" * payload, bar.update if bar else lambda _: None)
        finally:
            queue.delete(force=True)
    if as_json:
        show.document(measures)
        return
    headers = ["VERB", "BATCH", "JOBS/S", "MEDIAN MS", "SLOWEST MS"]
    show.table(headers, [
        [each.verb, f"{each.batch}", f"{each.jobs_per_second:,.0f}", f"{each.median_ms:.2f}", f"{each.slowest_ms:.2f}"]
        for each in measures
    ], right=headers[1:])  # fmt: skip


def _round(queue: Queue[Any], count: int, size: int, value: str, done: Callable[[int], None]) -> list[Measure]:
    """All verbs at one batch size: what is offered is taken, and what is taken is acked."""
    held: list[list[Delivery]] = []
    calls = max(count // size, 1)
    verbs: dict[str, Callable[[int], object]] = {
        "offer": lambda _: queue.offer(value) if size == 1 else queue.offer_many([value] * size),
        "take": lambda _: held.append(queue.take_many(size, lease=3600)),
        "ack": lambda at: queue.ack(held[at][0]) if size == 1 else queue.ack_many(held[at]),
    }
    measures = []
    for verb, call in verbs.items():
        taken = [_timed(call, at) for at in range(calls)]
        rate = calls * size / sum(taken)
        measures.append(Measure(verb, size, rate, statistics.median(taken) * 1000, max(taken) * 1000))
        done(1)
    return measures


def _timed(call: Callable[[int], object], at: int) -> float:
    started = time.perf_counter()
    call(at)
    return time.perf_counter() - started
