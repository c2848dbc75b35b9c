"""`redisq sweep`."""

from __future__ import annotations

import os
import signal
from types import FrameType

import click

from redisq.cli import logs, units
from redisq.cli.app import App, QueueName, examples, pass_app
from redisq.sweeper import Sweeper
from redisq.worker import EXIT_AT_ONCE


@click.command("sweep", epilog=examples("redisq sweep", "redisq sweep mails news --interval 5s"))
@click.argument("queues", nargs=-1, type=QueueName(), metavar="[QUEUE]...")
@click.option("--interval", type=units.DURATION, default=1.0, show_default="1s", help="Between two rounds.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Records per category.")
@click.option("--allow-eviction", is_flag=True, help="Start under an allkeys-* eviction policy, too.")
@logs.options
@pass_app
def command(app: App, queues: tuple[str, ...], interval: float, limit: int, allow_eviction: bool) -> None:
    """Run the bounded maintenance of queues, all of the namespace by default, until SIGTERM or SIGINT.

    Workers sweep what they serve; this is for queues without a worker, and for what only grows too old. Several at once
    are harmless. A second signal ends at once with exit code 130.
    """
    sweeper = Sweeper(app.engine, list(queues) or None, interval=interval, limit=limit, allow_eviction=allow_eviction)
    signalled = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal signalled
        if signalled:
            os._exit(EXIT_AT_ONCE)
        signalled = True
        sweeper.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    logs.banner("sweep", app.engine, f"queues {', '.join(queues) or 'all'}, every {units.written(interval)}")
    sweeper.run()
