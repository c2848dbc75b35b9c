"""The demo from start to end: produce, work, kill a worker, recover, count."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from redisq import Backoff, Engine, Job, JobState, Keep, NewJob, Queue, QueuePolicy
from redisq.demo.crew import Crew
from redisq.demo.expected import expect
from redisq.demo.proof import Ledgers, prove
from redisq.demo.rows import RawRow, Row, iata, read
from redisq.demo.screen import Progress, table
from redisq.demo.worker import HALF_WAY, LEASE_S, QUEUE

EMBEDDED = "embedded://"
# nothing may be removed before it is counted
POLICY = QueuePolicy(max_attempts=5, backoff=Backoff.fixed(0.2), lease=LEASE_S, keep=Keep())
CHUNK = 500
LOOK_S = 0.1
STALL_S = 60.0

ALL_HOLDS = """\
All of it holds. Delivery is at least once: what the killed worker had done but
not settled was done again. So handlers must be idempotent: here every result is
written down with its fence, and of two the one with the higher fence counts."""
DOES_NOT_HOLD = "It does NOT hold: see the lines marked [NO]."


class DemoFailed(Exception):
    """The run did not get to the counting."""


def run(url: str, *, workers: int, rows: int) -> bool:
    """Run the demo on the server at `url`, in a namespace that is removed afterwards. True if every check holds."""
    raws = read(rows)
    namespace = f"redisq-demo-{secrets.token_hex(4)}"
    with (
        tempfile.TemporaryDirectory(prefix="redisq-demo-") as folder,
        Engine(url, namespace=namespace, retry_for=3) as engine,
    ):
        queue = engine.queue(QUEUE, Row, policy=POLICY, validate=False)
        queue.counts()
        server = "a server started for this run" if url == EMBEDDED else "the server given by --url"
        click.echo(f"{len(raws):,} rows of airports.csv, {workers} worker processes, {server}.")
        click.echo("The job of each row: find the nearest other airport.")
        try:
            with Crew(Path(folder), engine.url, namespace, workers=workers, rows=len(raws)) as crew:
                progress = Progress(len(raws))
                try:
                    accepted, killed = _work(queue, raws, crew, progress)
                finally:
                    progress.end()
                crew.send_home()
            ledgers = Ledgers({member.name: member.lines() for member in crew.members}, killed)
            return _count(queue, raws, accepted, ledgers)
        finally:
            queue.delete(force=True)


def _work(queue: Queue[Any], raws: list[RawRow], crew: Crew, progress: Progress) -> tuple[list[str], str]:
    """Offer all rows while the crew works, kill the first worker that is half-way, wait until every row has its end.

    Returns the ids that the queue accepted and the name of the killed worker.
    """
    chunks = _offers(queue, raws)
    accepted: list[str] = []
    killed = ""
    crew.begin()
    done, moved = 0, time.monotonic()
    while done < len(raws):
        offered = next(chunks, [])
        accepted += offered
        for member, word in crew.listen(0 if offered else LOOK_S):
            assert word == HALF_WAY
            if killed:
                crew.go_on(member)
                continue
            crew.kill(member)
            killed = member.name
            progress.say(f"kill -9 for {member.name} in the middle of a batch; its leases last {LEASE_S:g} s more.")
        counts = queue.counts()
        ended = sum(count for state, count in counts.items() if state.terminal)
        if ended > done:
            done, moved = ended, time.monotonic()
        elif time.monotonic() - moved > STALL_S:
            raise DemoFailed(f"no row came to its end for {STALL_S:g} s: {_note(counts)}")
        progress.update(done, _note(counts))
    return accepted, killed


def _offers(queue: Queue[Any], raws: list[RawRow]) -> Iterator[list[str]]:
    """Offer the rows chunk by chunk, each under its airport's code as id; the ids that were new to the queue."""
    for start in range(0, len(raws), CHUNK):
        offers = queue.offer_many([NewJob(raw, id=iata(raw)) for raw in raws[start : start + CHUNK]])
        yield [offer.id for offer in offers if not offer.duplicate]


def _count(queue: Queue[Any], raws: list[RawRow], accepted: list[str], ledgers: Ledgers) -> bool:
    click.echo("Counting the file, the queue, and what each worker wrote into a file of its own.\n")
    expected = expect(raws)
    sections = prove(expected, accepted, _jobs(queue), ledgers)
    click.echo(table(sections))
    holds = all(check.holds for section in sections for check in section.checks)
    click.echo(f"\n{ALL_HOLDS if holds else DOES_NOT_HOLD}")
    return holds


def _jobs(queue: Queue[Any]) -> list[Job]:
    found: list[Job] = []
    page = queue.jobs(limit=500)
    found += page.items
    while page.cursor is not None:
        page = queue.jobs(limit=500, cursor=page.cursor)
        found += page.items
    return found


def _note(counts: dict[JobState, int]) -> str:
    waiting, held, later = (counts[state] for state in (JobState.READY, JobState.LEASED, JobState.SCHEDULED))
    return f"{waiting:,} waiting, {held:,} in hand, {later:,} to retry"
