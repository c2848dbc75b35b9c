"""`python -m tests.simulation --seed 7 --steps 200000`, or `--replay FILE` of a history that it printed."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from redisq.transport.embedded import EmbeddedServer
from tests.simulation.facts import Broken
from tests.simulation.shrink import replayed, shortened, text_of
from tests.simulation.steps import Steps
from tests.simulation.world import START_MS, Step, World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="so many seeds, from --seed on")
    parser.add_argument("--steps", type=int, default=20_000, help="per seed")
    parser.add_argument("--check-every", type=int, default=500, help="steps between two walks of everything")
    parser.add_argument("--replay", type=Path, help="a file of steps, one JSON document a line")
    args = parser.parse_args()
    server = EmbeddedServer()
    try:
        if args.replay is not None:
            return _replay(server.url, args.replay)
        return max(_run(server.url, seed, args.steps, args.check_every)
                   for seed in range(args.seed, args.seed + args.seeds))  # fmt: skip
    finally:
        server.stop()


def _run(url: str, seed: int, steps: int, check_every: int) -> int:
    world = World(url, f"sim{seed}", check_every=check_every)
    started = time.monotonic()
    try:
        world.run(_with_progress(Steps(world, seed, steps), steps, seed))
    except Broken as broken:
        _say(f"seed {seed}: broken after {world.steps:,} steps: {broken}")
        _explain(url, world, broken)
        return 1
    finally:
        world.close()
    seconds = time.monotonic() - started
    jobs, events = world.jobs.values(), world.events.values()
    hours = (world.now - START_MS) / 3_600_000
    claims, finishes = sum(len(each.claims) for each in jobs), sum(each.finishes for each in jobs)
    _say(
        f"seed {seed}: {world.steps:,} steps in {seconds:.1f} s, {hours:.1f} hours of their time: "
        f"{sum(each.accepted for each in jobs):,} jobs accepted, {claims:,} claims, {finishes:,} finishes; "
        f"{sum(each.accepted for each in events):,} events, {sum(each.delivered for each in events):,} deliveries; "
        f"{world.faults:,} lost replies, {world.crashes:,} crashes, {world.stale:,} stale tokens used; nothing broken"
    )
    return 0


def _replay(url: str, file: Path) -> int:
    steps = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
    broken = replayed(url, steps)
    _say("nothing broken" if broken is None else f"{broken}\n{chr(10).join(getattr(broken, '__notes__', []))}")
    return 0 if broken is None else 1


def _explain(url: str, world: World, broken: Broken) -> None:
    _say(f"looking for a short history of {world.steps:,} steps …")
    short = shortened(
        world.history, broken.rule, lambda steps: replayed(url, steps, drain=world.drained), progress=_say
    )
    with tempfile.NamedTemporaryFile("w", prefix="redisq-history-", suffix=".jsonl", delete=False) as file:
        file.write(text_of(short))
    again = replayed(url, short)
    _say(f"{again}\n{text_of(short)}replay it: python -m tests.simulation --replay {file.name}")


def _with_progress(feed: Iterator[Step], steps: int, seed: int) -> Iterator[Step]:
    started = time.monotonic()
    for number, step in enumerate(feed, 1):
        yield step
        if number % 20_000 == 0:
            _say(f"seed {seed}: {number:,} of {steps:,} steps, {number / (time.monotonic() - started):,.0f} a second")


def _say(text: str) -> None:
    sys.stderr.write(text.rstrip() + "\n")


if __name__ == "__main__":
    sys.exit(main())
