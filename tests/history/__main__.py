"""Runs workloads under faults, judges their histories, and prints the table of what came of it.

    python -m tests.history                                  every fault, a few minutes in all
    python -m tests.history --fault power --runs 5 --operations 20000 --seed 7
    python -m tests.history --judge FOLDER                   a history that was kept, once more

The exit code is 1 when a promise was broken; the history of such a run is kept, and its path printed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.history.broken import DOUBLED, LOST, OTHER, STUCK
from tests.history.faults import FAULTS, Outcome, run
from tests.history.judge import judge

SHOWN = 5
COLUMNS = (
    "fault",
    "runs",
    "times",
    "operations",
    "lost",
    "doubled without cause",
    "stuck",
    "other",
    "lost in its window",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", action="append", choices=FAULTS, help="every fault by default; may be repeated")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--operations", type=int, default=4000, help="calls per run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--judge", type=Path, metavar="FOLDER", help="run nothing, and judge the history in FOLDER")
    options = parser.parse_args()
    if options.judge is not None:
        verdict = judge(options.judge)
        for line in [verdict, *verdict.broken]:
            say(str(line), done=True)
        return 1 if verdict.broken else 0
    outcomes: dict[str, list[Outcome]] = {name: [] for name in options.fault or FAULTS}
    for name, done in outcomes.items():
        for number in range(options.runs):
            began = time.monotonic()
            done.append(run(name, options.operations, options.seed + number, tell=progress(name, number)))
            say(f"{name} {number + 1}: {done[-1].verdict}; {time.monotonic() - began:.0f} s", done=True)
            report(done[-1])
    say(f"\n{table(outcomes)}", done=True)
    return 0 if all(outcome.good for done in outcomes.values() for outcome in done) else 1


def progress(name: str, number: int) -> Callable[[str], None]:
    return lambda line: say(f"{name} {number + 1}: {line}", done=False)


def say(text: str, *, done: bool) -> None:
    """A line; one that is not the last word is overwritten on a terminal, and left out elsewhere."""
    if sys.stdout.isatty():
        sys.stdout.write(f"\r\x1b[K{text}" + "\n" * done)
    elif done:
        sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def report(outcome: Outcome) -> None:
    """What is wrong with a run."""
    if outcome.good:
        return
    found = [*map(str, outcome.verdict.broken), *(f"damage: {line}" for line in outcome.damage)]
    for text in found[:SHOWN]:
        say(text, done=True)
    say(f"{len(found)} findings; the history is kept in {outcome.kept}", done=True)


def table(outcomes: dict[str, list[Outcome]]) -> str:
    """The table of the README, in Markdown."""
    lines = [
        f"| {' | '.join(COLUMNS)} |",
        f"|{'---|' * len(COLUMNS)}",
    ]
    for name, done in outcomes.items():
        verdicts = [outcome.verdict for outcome in done]
        broken = [sum(verdict.count(kind) for verdict in verdicts) for kind in (LOST, DOUBLED, STUCK, OTHER)]
        broken[-1] += sum(len(outcome.damage) for outcome in done)
        window = f"{sum(verdict.lost for verdict in verdicts):,}" if FAULTS[name].undoes else "–"
        calls, faults = sum(verdict.calls for verdict in verdicts), sum(outcome.faults for outcome in done)
        cells = [FAULTS[name].says, len(done), faults, f"{calls:,}", *broken, window]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    versions = sorted({outcome.version for done in outcomes.values() for outcome in done})
    return "\n".join([*lines, "", f"Measured on {', '.join(versions)}."])


if __name__ == "__main__":
    raise SystemExit(main())
