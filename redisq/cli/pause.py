"""`redisq pause` and `redisq resume`."""

from __future__ import annotations

import click

from redisq.cli import show
from redisq.cli.app import App, examples, pass_app, queue_argument


@click.command("pause", epilog=examples("redisq pause mails"))
@queue_argument
@pass_app
def command(app: App, queue: str) -> None:
    """Stop handing out jobs of a queue, for every worker, until `resume`.

    Jobs that are running end as usual, and offers go on. A queue that is not there yet is made, paused.
    """
    app.engine.queue(queue).pause()
    show.note(f"queue {queue} is paused")


@click.command("resume", epilog=examples("redisq resume mails"))
@queue_argument
@pass_app
def resume(app: App, queue: str) -> None:
    """End a pause; workers that wait go on at once."""
    app.jobs(queue).resume()
    show.note(f"queue {queue} is resumed")
