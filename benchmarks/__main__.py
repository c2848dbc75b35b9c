"""All benchmarks, one after the other. `--quick` is a look at whether they run, not at speed: it keeps no figures.

python -m benchmarks [--quick]
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from benchmarks import limit, profile_scripts, report, retention, transitions, wakeup

QUICK = {
    transitions: ["--rounds", "1", "--deep", "2000", "--weighed", "2000"],
    limit: ["--rounds", "1", "--jobs", "1000", "--deep", "2000"],
    wakeup: ["--rounds", "5"],
    retention: ["--rounds", "1", "--finished", "2000", "--jobs", "1000"],
    profile_scripts: ["--rounds", "1"],
}


@click.command()
@click.option("--quick", is_flag=True, help="Few rounds and small queues.")
def main(quick: bool) -> None:
    """Measure transitions, the distance to the limit, wake-up, retention, and where script time goes."""
    if quick:
        report.RESULTS = Path(tempfile.mkdtemp(prefix="redisq-bench-"))
    for benchmark, options in QUICK.items():
        click.echo(f"\n## {benchmark.__name__.rpartition('.')[2]}\n")
        benchmark.main.main(options if quick else [], standalone_mode=False)


if __name__ == "__main__":
    main()
