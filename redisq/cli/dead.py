"""`redisq dead`: the jobs that a queue gave up."""

from __future__ import annotations

from typing import Any

import click

from redisq.cli import bulk, show
from redisq.cli.app import App, examples, json_option, pass_app, queue_argument, walk
from redisq.cli.jobs import MOST, cursor_option, retry, yield_into
from redisq.cli.show import Cell
from redisq.model import DamagedRecord, Job, JobState, Page

state_option = click.option(
    "--state", type=click.Choice(["dead", "quarantined"]), default="dead", show_default=True,
    help="Those whose attempts are used up, or those that nobody could run.",
)  # fmt: skip


@click.group("dead", help="Look at the jobs that a queue gave up, retry or purge them.")
def command() -> None:
    pass


@command.command("list", epilog=examples("redisq dead list mails", "redisq dead list mails --state quarantined"))
@queue_argument
@state_option
@bulk.name_option
@click.option("--limit", type=click.IntRange(1, MOST), default=50, show_default=True, help="How many jobs.")
@cursor_option
@json_option
@pass_app
def list_dead(
    app: App, queue: str, state: str, name: str | None, limit: int, cursor: str | None, as_json: bool
) -> None:
    """List dead or quarantined jobs with what went wrong, the newest first.

    With --json the document is a page: its items, and the cursor of the next page or null.
    """
    found = app.jobs(queue)
    items: list[Any] = []
    pages = walk(lambda at, size: found.jobs(state=state, name=name, limit=size, cursor=at), limit, cursor)
    following = yield_into(items, pages)
    if as_json:
        show.document(Page(items=items, cursor=following))
        return
    show.table(["ID", "NAME", "TRIES", "WHEN", "ERROR"], [_row(item) for item in items], right=("TRIES",))
    if following is not None:
        show.note(f"there may be more: add --cursor {following}")


@command.command("errors", epilog=examples("redisq dead errors mails", "redisq dead errors mails --json"))
@queue_argument
@state_option
@json_option
@pass_app
def errors(app: App, queue: str, state: str, as_json: bool) -> None:
    """Count dead jobs by name and type of error, the largest group first."""
    groups = app.jobs(queue).errors(state)
    if as_json:
        show.document(groups)
        return
    show.table(["COUNT", "NEWEST", "NAME", "ERROR"], [
        [f"{group.count}", show.ago(group.newest_ms), group.name, group.type] for group in groups
    ], right=("COUNT",))  # fmt: skip


@command.command("retry", epilog=examples(
    "redisq dead retry mails welcome-ann", "redisq dead retry mails --all",
    "redisq dead retry mails --all --error TimeoutError",
))  # fmt: skip
@queue_argument
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All of them, or those of --name and --error.")
@state_option
@bulk.name_option
@bulk.error_option
@json_option
@click.pass_context
def retry_dead(
    ctx: click.Context, queue: str, ids: tuple[str, ...], every: bool, state: str, name: str | None, error: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Give dead jobs all their attempts again, in the order in which they died."""
    if bool(ids) == every:
        raise click.UsageError("give either ids or --all")
    if ids:
        if name is not None or error is not None:
            raise click.UsageError("--name and --error go with --all")
        ctx.invoke(retry, queue=queue, ids=ids, as_json=as_json)
        return
    app = ctx.ensure_object(App)
    bulk.change(app, app.jobs(queue), "retry", JobState(state), name, error, as_json)


@command.command("purge", epilog=examples("redisq dead purge mails --yes", "redisq dead purge mails --error KeyError"))
@queue_argument
@state_option
@bulk.name_option
@bulk.error_option
@bulk.yes_option
@json_option
@pass_app
def purge(app: App, queue: str, state: str, name: str | None, error: str | None, yes: bool, as_json: bool) -> None:
    """Delete dead jobs, or those of one name or error type. It can't be undone."""
    found = app.jobs(queue)
    bulk.confirm(f"delete the {state} jobs of queue {queue}?", yes)
    bulk.change(app, found, "purge", JobState(state), name, error, as_json)


def _row(item: Job | DamagedRecord) -> list[Cell]:
    if isinstance(item, DamagedRecord):
        return [item.id, "", "", show.coloured("damaged"), item.reason]
    return [item.id, item.name, f"{item.attempts}/{item.max_attempts}", show.ago(item.finished_ms),
            show.error_text(item.error)]  # fmt: skip
