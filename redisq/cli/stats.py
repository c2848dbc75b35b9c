"""`redisq stats`."""

from __future__ import annotations

import click

from redisq.cli import show
from redisq.cli.app import App, examples, json_option, kind_option, pass_app, queue_argument
from redisq.cli.show import Cell


@click.command("stats", epilog=examples("redisq stats mails", "redisq stats mails --json | jq .counts.ready"))
@queue_argument
@kind_option
@json_option
@pass_app
def command(app: App, queue: str, kind: str | None, as_json: bool) -> None:
    """Show one queue: how many jobs in each state, the oldest one that waits, whether it is paused."""
    info = app.queue(queue, kind).info()
    if as_json:
        show.document(info)
        return
    pairs: list[tuple[str, Cell]] = [("queue", info.name), ("kind", info.kind)]
    pairs += [(str(state), f"{count}") for state, count in info.counts.items()]
    if info.kind == "events":
        pairs.append(("dead", f"{info.dead}"))
    pairs.append(("oldest", show.moment(info.oldest_ms) or "-"))
    if info.kind == "jobs":
        pairs.append(("paused", show.coloured("paused") if info.paused else "no"))
    show.fields(pairs)
