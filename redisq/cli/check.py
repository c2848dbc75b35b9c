"""`redisq check`."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from redisq import check, check_events
from redisq.cli import show
from redisq.cli.app import App, examples, json_option, kind_option, pass_app, queue_argument
from redisq.repair import repair
from redisq.sync import EventQueue, Queue

FOUND = 4

# what to do, by what a sentence of the walk says; the first that fits
_FOREIGN = (
    ("would expire", "make it stay with PERSIST, and find out who sets a time to live on keys of redisq"),
    ("holds a ", "some other program writes there: move that key away with RENAME, and give it another database"),
    (" is no number", "nothing counts it again: write the right one with redis-cli while no worker runs"),
)
_ADVICE = (
    ("was set aside", "look at what is left with `redisq jobs list`, then `redisq jobs remove {queue} ID`"),
    ("its head is damaged", "what it was can't be told any more: `redisq jobs remove {queue} ID`, and offer it again"),
    ("options in its head", "what it was can't be told any more: `redisq jobs remove {queue} ID`, and offer it again"),
    ("its payload is missing", "it can't be run: `redisq jobs remove {queue} ID`, and offer it again"),
    *_FOREIGN,
    (" belongs", "`redisq check {queue} --repair`; what it leaves: `redisq jobs remove {queue} ID`"),
    ("dead list entries", "no job is lost by this: pause the queue, let it run empty, and the count starts again"),
    ("times in ready", "it may be handed out twice: `redisq jobs cancel {queue} ID`, or let it run"),
    ("remembered as removed", "nothing: the memory of its id goes by itself"),
)
_REPAIR = "`redisq check {queue} --repair`"
_EVENTS = "takes and `redisq maintain {queue}` set it aside; see then `redisq subs dead {queue} NAME`"


class Finding(msgspec.Struct, frozen=True):
    problem: str
    advice: str


class Report(msgspec.Struct, frozen=True):
    """What `check --repair --json` prints: the jobs that were mended, and what is left."""

    mended: list[msgspec.Struct]
    findings: list[Finding]


@click.command("check", epilog=examples("redisq check mails", "redisq check mails --repair"))
@queue_argument
@kind_option
@click.option("--repair", "mend", is_flag=True, help="Mend lost leases, orphans, missing index entries; list each.")
@json_option
@pass_app
def command(app: App, queue: str, kind: str | None, mend: bool, as_json: bool) -> None:
    """Walk the keys of a queue, and name every broken invariant and what to do about it.

    It reads in small steps, so the queue can be in use; what it names was there at two looks. Exit code 4 means that
    something was found, and with --repair that something is left.

    --json prints the list of findings, with --repair an object of what was `mended` and the `findings` left.
    """
    found = app.queue(queue, kind)
    if mend and not isinstance(found, Queue):
        raise click.UsageError("--repair is for job queues: in event queues damage is set aside by takes and sweeps")
    mended = app.tell(repair(found._core)) if isinstance(found, Queue) and mend else []
    findings = [Finding(problem, _advice(problem, found)) for problem in _problems(app, found)]
    if as_json:
        show.document(Report([*mended], findings) if mend else findings)
    else:
        for each in mended:
            click.echo(f"mended job {show.escaped(each.id)}: {each.what}")
        for finding in findings:
            click.echo(f"{show.escaped(finding.problem)}\n  -> {show.escaped(finding.advice)}")
        if not findings:
            show.note(f"queue {queue}: every invariant holds")
    if findings:
        raise SystemExit(FOUND)


def _problems(app: App, queue: Queue[Any] | EventQueue[Any]) -> list[str]:
    """What two walks both name: a job that moves between two steps of one looks broken to that one."""
    first = _walk(app, queue)
    if not first:
        return []
    again = set(_walk(app, queue))
    return [problem for problem in first if problem in again]


def _walk(app: App, queue: Queue[Any] | EventQueue[Any]) -> list[str]:
    return app.tell(check.walk(queue._core) if isinstance(queue, Queue) else check_events.walk(queue._core))


def _advice(problem: str, queue: Queue[Any] | EventQueue[Any]) -> str:
    signs = _ADVICE if isinstance(queue, Queue) else _FOREIGN
    rest = _REPAIR if isinstance(queue, Queue) else _EVENTS
    return next((text for sign, text in signs if sign in problem), rest).format(queue=queue.name)
