"""`redisq maintain`."""

from __future__ import annotations

import click

from redisq.cli import show
from redisq.cli.app import App, examples, json_option, kind_option, pass_app, queue_argument


@click.command("maintain", epilog=examples("redisq maintain mails", "redisq maintain mails --limit 1000 --json"))
@queue_argument
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Records per category.")
@kind_option
@json_option
@pass_app
def command(app: App, queue: str, limit: int, kind: str | None, as_json: bool) -> None:
    """Do one bounded sweep of a queue, and say what it did and whether more is due.

    `redisq sweep` and every worker do this again and again by themselves.
    """
    done = app.queue(queue, kind).maintain(limit)
    if as_json:
        show.document(done)
        return
    show.fields([*((name, f"{count}") for name, count in done.by_category.items()),
                 ("pending", "yes: more is due now" if done.pending else "no")])  # fmt: skip
