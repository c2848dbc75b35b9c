"""Mends what `check` finds and can be mended without a guess: see `lua/jobs/repair.lua`.

Every job is looked at again inside the script that mends it, so a job that moved meanwhile is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from redisq.calls import Call, Flow, Kind
from redisq.calls.core import QueueCore
from redisq.check import examine
from redisq.flows import use
from redisq.scripts import script

AT_ONCE = 20
"""Jobs that one script call looks at: each may cost a search of the ready list."""

DONE = {
    "lease": "its lease has an end again",
    "stale": "a leftover lease was dropped",
    "orphan": "what was left of a job without a head was removed",
    "ready": "it was put at the tail of the ready jobs",
    "index": "it was put back into the index of its state",
}


class Mended(msgspec.Struct, frozen=True):
    """One job that was mended, and how."""

    id: str
    what: str


def repair(core: QueueCore) -> Flow[list[Mended]]:
    """Mends a queue, and lists what was done; `check` names what is left."""
    _, suspects = yield from examine(core)
    mended: list[Mended] = []
    for at in range(0, len(suspects), AT_ONCE):
        some = suspects[at : at + AT_ONCE]
        mended += yield from use(core, lambda some=some: _repair(core, some))  # type: ignore[misc]
    return mended


def _repair(core: QueueCore, ids: Sequence[bytes]) -> Call[list[Mended]]:
    def decode(reply: list[bytes]) -> list[Mended]:
        pairs = zip(ids, (word.decode() for word in reply), strict=True)
        return [Mended(id.decode(errors="replace"), DONE[word]) for id, word in pairs if word]

    return Call("repair", script("jobs/repair"), core.root, list(ids), decode, kind=Kind.WRITE, missing=list)
