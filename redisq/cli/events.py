"""`redisq events`: looking at events, and emitting them."""

from __future__ import annotations

from typing import Any, TextIO

import click
from msgspec import UNSET

from redisq.cli import show, units
from redisq.cli.app import App, examples, id_argument, json_option, pass_app, queue_argument, refuse
from redisq.cli.bulk import chunks, progress
from redisq.cli.jobs import lines_option, parsed, parsed_lines
from redisq.cli.show import Cell
from redisq.errors import CorruptRecord, SchemaMismatch
from redisq.model import DamagedRecord, Event, NewEvent
from redisq.sync import EventQueue

offset_option = click.option(
    "--offset", type=click.IntRange(0), default=0, show_default=True, help="Leave out so many."
)
limit_option = click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many.")


@click.group("events", help="Look at the events of a queue, and emit them.")
def command() -> None:
    pass


@command.command("list", epilog=examples("redisq events list news", "redisq events list news --offset 50 --json"))
@queue_argument
@offset_option
@limit_option
@json_option
@pass_app
def list_events(app: App, queue: str, offset: int, limit: int, as_json: bool) -> None:
    """List active events, the newest first, and how many recipients each still waits for."""
    found = app.events(queue)
    (ids,) = app.commands(("ZRANGE", f"{found._core.root}:log", offset, offset + limit - 1, "REV"))
    _print([_get(found, id.decode(errors="replace")) for id in ids], as_json)


@command.command("archived", epilog=examples("redisq events archived news", "redisq events archived news --json"))
@queue_argument
@offset_option
@limit_option
@json_option
@pass_app
def archived(app: App, queue: str, offset: int, limit: int, as_json: bool) -> None:
    """List archived events in the order in which they settled. With --json the document is the list of their ids."""
    found = app.events(queue)
    ids = found.list_archived(offset=offset, limit=limit)
    if as_json:
        show.document(ids)
    else:
        _print([_get(found, id) for id in ids], as_json)


@command.command("show", epilog=examples("redisq events show news 0Q8hRrmZ", "redisq events show news 0Q8hRrmZ --json"))
@queue_argument
@id_argument
@json_option
@pass_app
def show_event(app: App, queue: str, id: str, as_json: bool) -> None:
    """Show one event, and what became of it at every recipient."""
    event = app.events(queue).get(id)
    if event is None:
        raise refuse(f"queue {queue} has no event {id!r}")
    if as_json:
        show.document(event)
        return
    pairs: list[tuple[str, Cell]] = [
        ("id", event.id), ("queue", event.queue), ("status", show.coloured(event.status)),
        ("created", show.moment(event.created_ms)), ("expires", show.moment(event.expires_ms) or "never"),
        ("settled", show.moment(event.settled_ms) or "-"), ("value", show.value_text(event.value)),
    ]  # fmt: skip
    show.fields(pairs)
    if event.recipients:
        click.echo()
        show.table(["RECIPIENT", "STATUS", "RESOLVED", "GENERATION"], [
            [each.name, show.coloured(each.status), show.ago(each.resolved_ms), each.generation]
            for each in event.recipients
        ])  # fmt: skip


@command.command("emit", epilog=examples(
    """redisq events emit news '{"title": "spring"}' --ttl 1d""", "redisq events emit news --lines values.jsonl",
))  # fmt: skip
@queue_argument
@click.argument("value", required=False)
@lines_option
@click.option("--id", help="The same id again returns the first event.")
@click.option("--ttl", type=units.DURATION_OR_NONE, help="The deadline; the queue's own by default.")
@json_option
@pass_app
def emit(
    app: App, queue: str, value: str | None, lines: TextIO | None, id: str | None, ttl: Any, as_json: bool
) -> None:
    """Broadcast an event to the subscriptions of this moment; VALUE is JSON.

    With --json the document is the event, with --lines the list of them.
    """
    values = [parsed(value, "VALUE")] if lines is None else parsed_lines(lines, value, id)
    deadline = UNSET if ttl is None else units.or_none(ttl)
    found = app.engine.events(queue)
    events: list[Event] = []
    with progress("emit", len(values)) as bar:
        for chunk in chunks([NewEvent(each, deadline, id) for each in values]):
            events += found.emit_many(chunk)
            if bar is not None:
                bar.update(len(chunk))
    if as_json:
        show.document(events[0] if lines is None else events)
        return
    for event in events:
        owed = f"owed to {len(event.recipients)}" if event.recipients else "owed to nobody"
        click.echo(f"{show.escaped(event.id)}: {'duplicate, ' if event.duplicate else ''}{event.status}, {owed}")


def _get(queue: EventQueue[Any], id: str) -> Event | DamagedRecord | None:
    """One bad event does not hide the others."""
    try:
        return queue.get(id)
    except (CorruptRecord, SchemaMismatch) as error:
        return DamagedRecord(id=id, queue=queue.name, reason=str(error))


def _print(events: list[Event | DamagedRecord | None], as_json: bool) -> None:
    there = [event for event in events if event is not None]  # one may have gone meanwhile
    if as_json:
        show.document(there)
        return
    headers = ["ID", "STATUS", "CREATED", "EXPIRES", "SETTLED", "PENDING", "VALUE"]
    show.table(headers, [_row(event) for event in there], right=("PENDING",))


def _row(event: Event | DamagedRecord) -> list[Cell]:
    if isinstance(event, DamagedRecord):
        return [event.id, show.coloured("damaged"), "", "", "", "", event.reason]
    pending = sum(each.status == "pending" for each in event.recipients)
    return [event.id, show.coloured(event.status), show.ago(event.created_ms), show.ago(event.expires_ms),
            show.ago(event.settled_ms), f"{pending}/{len(event.recipients)}", show.value_text(event.value)]  # fmt: skip
