"""`redisq queues`."""

from __future__ import annotations

from typing import Any

import click

from redisq.cli import show
from redisq.cli.app import App, examples, json_option, pass_app
from redisq.cli.show import Cell
from redisq.model import EventStatus, JobState, QueueInfo

HEADERS = {
    JobState.READY: "READY", JobState.SCHEDULED: "SCHED", JobState.LEASED: "LEASED", JobState.COMPLETED: "DONE",
    JobState.CANCELLED: "CANC", JobState.DEAD: "DEAD", JobState.QUARANTINED: "QUAR",
}  # fmt: skip


@click.command("queues", epilog=examples("redisq queues", "redisq queues --json | jq '.[].name'"))
@json_option
@pass_app
def command(app: App, as_json: bool) -> None:
    """List every queue of the namespace, and how many jobs it holds in each state.

    OLDEST is how long the job that is handed out next has been there. Of an event queue, READY counts the active events
    and DEAD what subscriptions gave up.
    """
    infos = app.engine.queues()
    if as_json:
        show.document(infos)
    elif not infos:
        show.note(f"no queues in namespace {app.namespace!r}")
    else:
        headers = ["QUEUE", "KIND", *HEADERS.values(), "OLDEST", ""]
        show.table(headers, [_row(info) for info in infos], right=headers[2:-2])


def _row(info: QueueInfo) -> list[Cell]:
    counts: dict[Any, int] = {**info.counts}
    if info.kind == "events":
        counts = {JobState.READY: counts[EventStatus.ACTIVE], JobState.DEAD: info.dead}
    numbers = [_number(state, counts.get(state)) for state in HEADERS]
    return [info.name, info.kind, *numbers, show.ago(info.oldest_ms), show.coloured("paused") if info.paused else ""]


def _number(state: str, count: int | None) -> Cell:
    """What asks for attention is coloured; what a kind of queue has not is left out."""
    text = "" if count is None else f"{count}"
    return (text, show.COLOURS[state]) if count and state in (JobState.DEAD, JobState.QUARANTINED) else text
