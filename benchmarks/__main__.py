"""All benchmarks, one after the other, and the goals that their figures reach; or one of them by its name.

    python -m benchmarks [--quick]
    python -m benchmarks peers --rounds 3 --only huey,rq

`--quick` is a look at whether they run, not at speed: it keeps no figures.
"""

from __future__ import annotations

from types import ModuleType

import click

from benchmarks import (
    budget,
    depth,
    fanout,
    goals,
    limit,
    lua_lines,
    profile_scripts,
    report,
    retention,
    ringing,
    transitions,
    wakeup,
)
from benchmarks.peers import harness

QUICK: dict[ModuleType, list[str]] = {
    transitions: ["--rounds", "1", "--deep", "2000", "--weighed", "2000"],
    limit: ["--rounds", "1", "--jobs", "1000", "--deep", "2000"],
    depth: ["--rounds", "1", "--most", "10000"],
    wakeup: ["--rounds", "5"],
    ringing: ["--rounds", "5"],
    fanout: ["--rounds", "1", "--subscriptions", "1", "--subscriptions", "1000"],
    retention: ["--rounds", "1", "--finished", "2000", "--jobs", "1000"],
    profile_scripts: ["--rounds", "1"],
    harness: ["--quick"],
    goals: [],
}
ALONE = (budget, lua_lines)
"""Not part of a run of all."""


@click.group(invoke_without_command=True, help=__doc__)
@click.option("--quick", is_flag=True, help="Few rounds and small queues.")
@click.pass_context
def main(context: click.Context, quick: bool) -> None:
    if context.invoked_subcommand is not None:
        return
    if quick:
        report.keep_nothing()
    for benchmark, options in QUICK.items():
        click.echo(f"\n## {_name(benchmark)}\n")
        benchmark.main.main(options if quick else [], standalone_mode=False)


def _name(benchmark: ModuleType) -> str:
    return "peers" if benchmark is harness else benchmark.__name__.rpartition(".")[2]


for each in (*QUICK, *ALONE):
    main.add_command(each.main, _name(each))

if __name__ == "__main__":
    main()
