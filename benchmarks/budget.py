"""Guards what each verb costs the server: the commands of a fixed workload, exactly, against benchmarks/budget.json.

    python -m benchmarks.budget [--accept]

Counts do not depend on the machine, so one that grew is a change of the scripts. The server µs beside them are for the
eye alone. A count that should grow is accepted with --accept, and then shows in the diff of budget.json.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import click

from benchmarks.meter import Meter, Reading
from benchmarks.report import say, short, table
from benchmarks.servers import connected, running
from benchmarks.verbs import PAYLOAD, Verbs, finish, queue_on
from redisq import Engine

STORED = Path(__file__).with_name("budget.json")
SERVER = "valkey9"
CALLS = 20
BATCHES = (1, 100)

Counts: TypeAlias = dict[str, dict[str, int]]
"""Verb at a batch size -> command -> how often it ran in CALLS calls, the script's own call included."""


@click.command(help=__doc__)
@click.option("--accept", is_flag=True, help="Store what is measured now.")
def main(accept: bool) -> None:
    readings = _measure()
    measured = {verb: counts(reading) for verb, (reading, _) in readings.items()}
    stored: Counts = json.loads(STORED.read_text()) if STORED.exists() else {}
    if accept:
        STORED.write_text(json.dumps(measured, indent=1, sort_keys=True) + "\n")
        stored = measured
    say(table("Commands of one job, and server µs", ["verb", "stored", "measured", "server µs a job"], [
        (verb, _a_job(stored.get(verb), jobs), _a_job(measured[verb], jobs), short(reading.server_us / jobs))
        for verb, (reading, jobs) in readings.items()
    ]))  # fmt: skip
    if findings := compared(stored, measured):
        raise click.ClickException("\n".join(
            [*findings, "If that is meant: python -m benchmarks.budget --accept, and commit benchmarks/budget.json."]
        ))  # fmt: skip


def counts(reading: Reading) -> dict[str, int]:
    return {"evalsha": reading.calls} | {name: calls for name, (calls, _) in reading.commands.items()}


def compared(stored: Mapping[str, Mapping[str, int]], measured: Mapping[str, Mapping[str, int]]) -> list[str]:
    """What is over the budget, a line a verb: both counts, and the commands that grew. Fewer is no finding."""
    findings = []
    for verb, found in measured.items():
        allowed = stored.get(verb)
        if allowed is None:
            findings.append(f"{verb} has no budget; it ran {sum(found.values())} commands in {CALLS} calls")
        elif sum(found.values()) > sum(allowed.values()):
            grown = [f"{name} {allowed.get(name, 0)} → {count}" for name, count in sorted(found.items())
                     if count > allowed.get(name, 0)]  # fmt: skip
            findings.append(
                f"{verb} is over its budget: {sum(allowed.values())} commands stored, {sum(found.values())} measured "
                f"in {CALLS} calls ({', '.join(grown)})"
            )
    return findings


def _a_job(found: Mapping[str, int] | None, jobs: int) -> str:
    return "–" if found is None else short(sum(found.values()) / jobs)


def _measure() -> dict[str, tuple[Reading, int]]:
    """A reading and its jobs for each verb."""
    readings: dict[str, tuple[Reading, int]] = {}
    with running([SERVER]) as (server,), Engine(server.unix_url, namespace="budget") as engine:
        meter = Meter(connected(server), engine)
        for batch in BATCHES:
            queue = queue_on(engine, f"of {batch}")
            finish(queue, 2 * batch)
            Verbs(queue, meter, batch, 2).measure()  # loads the scripts
            for verb, reading in Verbs(queue, meter, batch, CALLS).measure().items():
                readings[f"{verb}, {batch} a call"] = (reading, CALLS * batch)
            readings |= _measure_events(engine, meter, batch)
    return readings


def _measure_events(engine: Engine, meter: Meter, batch: int) -> dict[str, tuple[Reading, int]]:
    """Events with ten subscriptions, one of which takes and acks."""
    events = engine.events(f"of {batch}", str)
    subscription, *_ = [events.subscribe(f"subscriber {number}") for number in range(10)]

    def emit() -> None:
        if batch == 1:
            events.emit(PAYLOAD)
        else:
            events.emit_many([PAYLOAD] * batch)

    def deliver() -> None:
        events.ack_many(events.take_many(subscription, batch))

    emit()
    deliver()
    return {f"{verb}, {batch} a call": (_repeated(meter, action), CALLS * batch)
            for verb, action in (("emit", emit), ("event take and ack", deliver))}  # fmt: skip


def _repeated(meter: Meter, action: Callable[[], None]) -> Reading:
    with meter.section() as reading:
        for _ in range(CALLS):
            action()
    return reading


if __name__ == "__main__":
    main()
