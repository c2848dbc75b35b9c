"""`redisq jobs`: looking at jobs, putting them in, and changing what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TextIO

import click
import msgspec

from redisq.cli import bulk, show, units
from redisq.cli.app import (
    App,
    examples,
    id_argument,
    ids_argument,
    json_option,
    pass_app,
    queue_argument,
    refuse,
    walk,
)
from redisq.cli.show import Cell
from redisq.errors import InvalidInput
from redisq.model import Attempt, Cancel, DamagedRecord, Job, JobHistory, JobState, NewJob, Offer, Page

PURGED = [state.value for state in JobState if state not in (JobState.LEASED, JobState.BLOCKED)]
MOST = 1_000_000
cursor_option = click.option("--cursor", help="Go on where an earlier page ended.")
lines_option = click.option("--lines", type=click.File("r", encoding="utf-8"), metavar="FILE",
                            help="Every line of a file, each of them JSON; - is standard input.")  # fmt: skip


@click.group("jobs", help="Look at the jobs of a queue, offer, cancel, retry and remove them.")
def command() -> None:
    pass


@command.command("list", epilog=examples(
    "redisq jobs list mails", "redisq jobs list mails --state scheduled --name welcome",
    "redisq jobs list mails --limit 100000 --json | jq -r '.items[].id'",
))  # fmt: skip
@queue_argument
@click.option("--state", type=click.Choice([state.value for state in JobState]), help="Only jobs of this state.")
@bulk.name_option
@click.option("--limit", type=click.IntRange(1, MOST), default=50, show_default=True, help="How many jobs.")
@cursor_option
@json_option
@pass_app
def list_jobs(
    app: App, queue: str, state: str | None, name: str | None, limit: int, cursor: str | None, as_json: bool
) -> None:
    """List jobs: ready ones last in line first, scheduled and leased by time, finished ones newest first.

    A job that can't be read stands there as damaged, with the reason. With --json the document is a page: its items,
    and the cursor of the next page or null.
    """
    found = app.jobs(queue)
    items: list[Any] = []
    pages = walk(lambda at, size: found.jobs(state=state, name=name, limit=size, cursor=at), limit, cursor)
    following = yield_into(items, pages)
    if as_json:
        show.document(Page(items=items, cursor=following))
        return
    headers = ["ID", "NAME", "STATE", "PRIO", "TRIES", "WHEN", "VALUE"]
    show.table(headers, [_row(item) for item in items], right=("PRIO", "TRIES"))
    if following is not None:
        show.note(f"there may be more: add --cursor {following}")


@command.command("show", epilog=examples(
    "redisq jobs show mails welcome-ann", "redisq jobs show mails welcome-ann --attempts --json",
))  # fmt: skip
@queue_argument
@id_argument
@click.option("--attempts", "part", flag_value="attempts", help="Only its attempts.")
@click.option("--history", "part", flag_value="history", help="Only its transitions.")
@json_option
@pass_app
def show_job(app: App, queue: str, id: str, part: str | None, as_json: bool) -> None:
    """Show one job with all that is known of it: its error, its attempts, its history.

    With --json the document is the job, with --attempts the list of attempts, with --history the history. A payload
    that does not decode is shown as bytes, in JSON as base64.
    """
    found = app.jobs(queue)
    job = found.get(id)
    if job is None:
        raise refuse(f"queue {queue} has no job {id!r}")
    if as_json:
        show.document(found.attempts(id) if part == "attempts" else found.history(id) if part == "history" else job)
        return
    if part is None:
        _show_job(job)
    if part in (None, "attempts"):
        _show_attempts(found.attempts(id))
    if part in (None, "history"):
        _show_history(found.history(id))


@command.command("offer", epilog=examples(
    """redisq jobs offer mails '{"to": "ann@example.org"}' --id welcome-ann""",
    "redisq jobs offer mails 42 --name number --delay 5m --priority 10",
    "redisq jobs offer mails --lines values.jsonl",
))  # fmt: skip
@queue_argument
@click.argument("value", required=False)
@lines_option
@click.option("--id", help="The first offer of an id wins; a later one changes nothing.")
@click.option("--name", default="", help="What kind of job it is; workers choose the handler by it.")
@click.option("--delay", type=units.DURATION, help="Not before so long.")
@click.option("--at", type=units.TIME, help="Not before this time, with its zone.")
@click.option("--priority", type=click.IntRange(-1000, 1000), default=0, show_default=True, help="Higher goes first.")
@click.option("--max-attempts", type=int, help="In place of the policy's.")
@click.option("--timeout", type=units.DURATION, help="In place of the policy's.")
@click.option("--metadata", "-m", multiple=True, metavar="KEY=TEXT", help="A note beside the payload; again for more.")
@json_option
@pass_app
def offer(
    app: App, /, queue: str, value: str | None, lines: TextIO | None, id: str | None, as_json: bool,
    metadata: tuple[str, ...], **options: Any,
) -> None:  # fmt: skip
    """Put a job in; VALUE is JSON. What it is not proven to be is what the queue's consumers expect: a payload that
    they can't decode ends in quarantine.

    With --json the document is the answer, with --lines the list of them.
    """
    options["metadata"] = _metadata(metadata)
    values = [parsed(value, "VALUE")] if lines is None else parsed_lines(lines, value, id)
    found = app.engine.queue(queue)
    answers: list[Offer] = []
    with bulk.progress("offer", len(values)) as bar:
        for chunk in bulk.chunks([NewJob(each, id, **options) for each in values]):
            answers += found.offer_many(chunk)
            if bar is not None:
                bar.update(len(chunk))
    if as_json:
        show.document(answers[0] if lines is None else answers)
        return
    for each in answers:
        what = f"duplicate, {each.state or 'removed'}" if each.duplicate else str(each.state)
        click.echo(f"{show.escaped(each.id)}: {what}")


@command.command("cancel", epilog=examples("redisq jobs cancel mails welcome-ann"))
@queue_argument
@ids_argument
@json_option
@pass_app
def cancel(app: App, queue: str, ids: tuple[str, ...], as_json: bool) -> None:
    """End jobs that wait; ask the worker of one that runs to stop (`requested`). A finished one is `too-late`."""
    bulk.each(ids, app.jobs(queue).cancel, lambda answer: answer in (Cancel.CANCELLED, Cancel.REQUESTED), str, as_json)


@command.command("retry", epilog=examples("redisq jobs retry mails welcome-ann"))
@queue_argument
@ids_argument
@json_option
@pass_app
def retry(app: App, queue: str, ids: tuple[str, ...], as_json: bool) -> None:
    """Give dead or quarantined jobs all their attempts again. `redisq dead retry` does it to many."""
    said = bulk.said("retried", "is not there, or neither dead nor quarantined")
    bulk.each(ids, app.jobs(queue).retry, bool, said, as_json)


@command.command("promote", epilog=examples("redisq jobs promote mails welcome-ann"))
@queue_argument
@ids_argument
@json_option
@pass_app
def promote(app: App, queue: str, ids: tuple[str, ...], as_json: bool) -> None:
    """Make scheduled jobs ready now."""
    bulk.each(ids, app.jobs(queue).promote, bool, bulk.said("ready now", "is not there, or not scheduled"), as_json)


@command.command("remove", epilog=examples("redisq jobs remove mails welcome-ann"))
@queue_argument
@ids_argument
@json_option
@pass_app
def remove(app: App, queue: str, ids: tuple[str, ...], as_json: bool) -> None:
    """Delete jobs that nobody is running, or what is left of damaged ones; their ids are free at once."""
    bulk.each(ids, app.jobs(queue).remove, bool, bulk.said("removed", "is not there, or leased"), as_json)


@command.command("purge", epilog=examples("redisq jobs purge mails --state completed", "redisq jobs purge mails "
                                          "--state dead --name welcome --yes"))  # fmt: skip
@queue_argument
@click.option("--state", type=click.Choice(PURGED), required=True, help="The jobs of this state.")
@bulk.name_option
@bulk.error_option
@bulk.yes_option
@json_option
@pass_app
def purge(app: App, queue: str, state: str, name: str | None, error: str | None, yes: bool, as_json: bool) -> None:
    """Delete all jobs of a state, or those of one name or error type. It can't be undone."""
    found = app.jobs(queue)
    bulk.confirm(f"delete the {state} jobs of queue {queue}?", yes)
    bulk.change(app, found, "purge", JobState(state), name, error, as_json)


def yield_into(items: list[Any], pages: Any) -> str | None:
    """Collects the items of a walk; returns where it ended."""
    while True:
        try:
            items.append(next(pages))
        except StopIteration as end:
            following: str | None = end.value
            return following


def _row(item: Job | DamagedRecord) -> list[Cell]:
    if isinstance(item, DamagedRecord):
        return [item.id, "", show.coloured("damaged"), "", "", "", item.reason]
    return [item.id, item.name, show.coloured(item.state), f"{item.priority}", f"{item.attempts}/{item.max_attempts}",
            _when(item), show.value_text(item.value)]  # fmt: skip


def _when(job: Job) -> str:
    """The moment that matters in the state that the job is in."""
    if job.state is JobState.SCHEDULED:
        return f"due {show.ago(job.due_ms)}"
    if job.state is JobState.LEASED:
        return f"lease ends {show.ago(job.lease_expires_ms)}"
    if job.state.terminal:
        return show.ago(job.finished_ms)
    return f"offered {show.ago(job.created_ms)}"


def _show_job(job: Job) -> None:
    pairs: list[tuple[str, Cell]] = [
        ("id", job.id), ("queue", job.queue), ("name", job.name or "-"), ("state", show.coloured(job.state)),
        ("attempts", f"{job.attempts} of {job.max_attempts}"), ("priority", f"{job.priority}"),
        ("created", show.moment(job.created_ms)),
    ]  # fmt: skip
    times = (("due", job.due_ms), ("lease ends", job.lease_expires_ms), ("finished", job.finished_ms))
    pairs += [(name, show.moment(ms)) for name, ms in times if ms is not None]
    if job.timeout_ms is not None:
        pairs.append(("timeout", show.span(job.timeout_ms)))
    if job.cancel_requested:
        pairs.append(("cancel", "requested"))
    pairs += [(f"metadata {key}", text) for key, text in job.metadata.items()]
    if job.progress is not None:
        pairs.append(("progress", show.value_text(job.progress)))
    pairs.append(("value", show.value_text(job.value)))
    if job.result is not None:
        pairs.append(("result", show.value_text(job.result)))
    if job.error is not None:
        pairs.append(("error", (show.error_text(job.error), "red")))
    show.fields(pairs)
    if job.error is not None and job.error.traceback:
        show.block("traceback", job.error.traceback)


def _show_attempts(attempts: list[Attempt]) -> None:
    if not attempts:
        return
    click.echo()
    show.table(["ATTEMPT", "STARTED", "TOOK", "OUTCOME", "WORKER", "ERROR"], [
        [f"{each.number}", show.ago(each.started_ms), show.span(each.finished_ms - each.started_ms),
         show.coloured(each.outcome), each.worker, show.error_text(each.error)]
        for each in attempts
    ], right=("ATTEMPT", "TOOK"))  # fmt: skip


def _show_history(history: JobHistory) -> None:
    if not history.recorded:
        show.note("this queue records no history")
    if not history.entries:
        return
    click.echo()
    if history.dropped:
        show.note(f"{history.dropped} older transitions were dropped")
    show.table(["STEP", "AT", "STATE", "ATTEMPT", "DETAIL"], [
        [f"{each.ordinal}", show.moment(each.at_ms), show.coloured(each.state), f"{each.attempt}",
         show.error_text(each.detail)]
        for each in history.entries
    ], right=("STEP", "ATTEMPT"))  # fmt: skip


def parsed(text: str | None, where: str) -> Any:
    """The value of a JSON text from the command line or a file."""
    if text is None:
        raise click.UsageError("give either a VALUE or --lines FILE")
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidInput(f"""{where} is not JSON ({error}): a text needs its own quotes, as in '"text"'""") from error


def _metadata(given: Iterable[str]) -> dict[str, str] | None:
    pairs = [each.partition("=") for each in given]
    for key, equals, _ in pairs:
        if not equals:
            raise click.UsageError(f"--metadata {key}: write KEY=TEXT")
    return {key: text for key, _, text in pairs} or None


def parsed_lines(lines: TextIO, value: str | None, id: str | None) -> list[Any]:
    """The values of `--lines`; what can't go with it is refused."""
    if value is not None:
        raise click.UsageError("give either a VALUE or --lines FILE")
    if id is not None:
        raise click.UsageError("--lines makes an id for every line: leave --id out")
    return [parsed(line, f"line {at}") for at, line in enumerate(lines, 1) if line.strip()]
