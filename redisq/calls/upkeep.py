"""Builders of the steps of a sweep over an event queue."""

from __future__ import annotations

from collections.abc import Sequence

from redisq.calls import Call, Kind
from redisq.calls.core import EventCore
from redisq.scripts import script

CATEGORIES = ("deadlines", "lapsed", "archives", "removals", "dead", "dropped")
"""What `maintain` counts. The memory of ids is swept, too, and not counted: it holds nobody up."""


def due(core: EventCore, gap_ms: int) -> Call[list[str]]:
    """The categories that have work, in the order to do it; none when somebody swept less than `gap_ms` ago."""
    return Call("maintain", script("events/due"), core.root, [gap_ms], lambda reply: [name.decode() for name in reply],
                kind=Kind.READ, missing=list)  # fmt: skip


def sweep(core: EventCore, category: str, limit: int) -> Call[tuple[int, bool]]:
    """One bounded sweep of one category: how many it dealt with, and whether more is due."""
    return Call("maintain", script("events/sweep"), core.root, [category, limit],
                lambda reply: (int(reply[0]), reply[1] == 1), kind=Kind.WRITE, missing=lambda: (0, False))  # fmt: skip


def bring_up(core: EventCore, ids: Sequence[str]) -> Call[int]:
    """Settles and removes what these events are by now; how many of them it came to."""
    return Call("maintain", script("events/sweep"), core.root, ["ids", *ids], lambda reply: int(reply[0]),
                kind=Kind.WRITE, ids=ids, missing=lambda: len(ids))  # fmt: skip
