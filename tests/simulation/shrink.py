"""Makes a history that breaks a promise short: it leaves out what is not needed for it (delta debugging)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

from tests.simulation.facts import Broken, Sabotage
from tests.simulation.world import Step, World

MOST_REPLAYS = 400

_numbers = itertools.count(1)


def replayed(
    url: str, steps: list[Step], *, sabotage: Callable[[str], Sabotage] | None = None, drain: bool = True
) -> Broken | None:
    """How a history ends, in a namespace of its own."""
    namespace = f"replay{next(_numbers)}"
    world = World(
        url, namespace, sabotage=None if sabotage is None else sabotage(namespace), check_every=max(25, len(steps) // 8)
    )
    try:
        world.run(iter(steps), drain=drain)
    except Broken as broken:
        return broken
    finally:
        world.close()
    return None


def shortened(
    steps: list[Step], rule: str, replay: Callable[[list[Step]], Broken | None], *, progress: Callable[[str], Any] = len
) -> list[Step]:
    """A part of the history that still breaks `rule`, and from which no single step can be left out."""
    budget = itertools.count()

    def breaks(part: list[Step]) -> bool:
        if next(budget) >= MOST_REPLAYS:
            return False
        broken = replay(part)
        return broken is not None and broken.rule == rule

    # the last part alone often suffices, and is much quicker to replay
    for size in (200, 1000, 5000):
        if size < len(steps) and breaks(steps[-size:]):
            steps = steps[-size:]
            break
    size = len(steps) // 2
    while size >= 1:
        at = len(steps) - size
        while at > -size and len(steps) > 1:
            rest = steps[: max(at, 0)] + steps[max(at, 0) + size if at >= 0 else size + at :]
            if len(rest) < len(steps) and breaks(rest):
                steps = rest
            at -= size
        progress(f"{len(steps):,} steps left")
        size //= 2
    return steps


def text_of(steps: list[Step]) -> str:
    return "".join(json.dumps(step) + "\n" for step in steps)
