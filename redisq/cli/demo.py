"""`redisq demo`: the run itself is in `redisq.demo`."""

from __future__ import annotations

import click

from redisq.demo.crew import WorkerDied
from redisq.demo.rows import TOTAL
from redisq.demo.story import EMBEDDED, DemoFailed, run


@click.command("demo")
@click.option(
    "--workers",
    type=click.IntRange(2, 32),
    default=4,
    show_default=True,
    help="Worker processes; one of them gets killed.",
)
@click.option(
    "--rows",
    type=click.IntRange(100, TOTAL),
    default=TOTAL,
    show_default=True,
    help="How many rows of the file to use, from its start.",
)
@click.option(
    "--url",
    default=EMBEDDED,
    show_default=True,
    metavar="URL",
    help="The server to use: redis://, rediss://, unix:// or sentinel://. The default starts one and ends it again.",
)
def command(workers: int, rows: int, url: str) -> None:
    """Run a real workload, kill a worker in the middle, and prove by counting that nothing was lost.

    A producer offers the airports of a file that comes with redisq, some of them broken; worker processes find the
    nearest other airport of each. Some attempts fail and are retried, the broken rows end dead, a cut-off one in
    quarantine, and one worker is killed with -9 while it holds a batch.

    At the end the file, the queue and the workers' own files are counted against each other: what was lost (nothing),
    what was delivered twice, and why. Exit code 0 means that every check held.

    On a server of yours the demo uses a namespace of its own and removes it afterwards.
    """
    if url.startswith(("memory:", "sentinel:")):
        raise click.BadParameter(
            "the demo runs on redis://, rediss://, unix:// and embedded:// only", param_hint="--url"
        )
    try:
        holds = run(url, workers=workers, rows=rows)
    except (DemoFailed, WorkerDied) as error:
        raise click.ClickException(str(error)) from error
    if not holds:
        raise SystemExit(1)
