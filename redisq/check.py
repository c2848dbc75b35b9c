"""Walks the keys of one job queue and names every broken invariant.

Reads in bounded steps and writes nothing. On a queue that others use meanwhile a job may move between two steps: what a
second walk names again is real.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from redisq.calls import Commands, Flow
from redisq.calls.core import Core, QueueCore
from redisq.calls.heads import Head, head, lease

_HASHES = (
    "head", "body", "lease", "meta", "result", "error", "attempts", "history", "progress", "ghost", "broken", "groups",
)  # fmt: skip
_SETS = ("ranked", "sched", "leased", "completed", "dead", "cancelled", "quarantined", "aging", "seen")
_LISTS = ("ready",)
_TERMINAL = {"c": "completed", "d": "dead", "x": "cancelled", "q": "quarantined"}
_OWNED = ("meta", "result", "error", "attempts", "history", "progress")
_STEP = 1000
_NUMBER = re.compile(rb"-?\d{1,16}")  # what a script can still count with
_SHOWN = 40

Column = dict[bytes, Any]


class Numbers:
    """Reads the stored numbers of a queue. One that is none is a finding, and stands for zero."""

    def __init__(self, core: Core) -> None:
        self.root = core.root
        self.findings: list[str] = []

    def read(self, column: str, field: bytes, text: bytes | None) -> int:
        """A field of a column, or of the root where it has no name; what is not there is zero too."""
        if text is None:
            return 0
        if _NUMBER.fullmatch(text):
            return int(text)
        key = f"{self.root}:{column}" if column else self.root
        self.findings.append(f"field {shown(field)} of key {key} is no number: {shown(text[:_SHOWN])}")
        return 0

    def pair(self, column: str, field: bytes, text: bytes) -> tuple[int, int | None]:
        """A number, and the one that may follow behind a comma."""
        first, comma, second = text.partition(b",")
        return self.read(column, field, first), self.read(column, field, second) if comma else None


def walk(core: QueueCore) -> Flow[list[str]]:
    """The broken invariants of a queue, one sentence each; empty when all is well."""
    problems, _ = yield from examine(core)
    return problems


def examine(core: QueueCore) -> Flow[tuple[list[str], list[bytes]]]:
    """As `walk`, and the ids of jobs that `repair` may be able to mend."""
    problems: list[str] = yield from foreign_types(
        core, [("", "hash"), *typed(_HASHES, _SETS), *((name, "list") for name in (*_LISTS, "bell"))]
    )
    if problems:
        return problems, []
    columns: dict[str, Column] = {}
    for name in _HASHES:
        columns[name] = yield from scan("HSCAN", f"{core.root}:{name}")
    for name in _SETS:
        columns[name] = yield from scan("ZSCAN", f"{core.root}:{name}")
    ready = yield from _list(f"{core.root}:ready")
    ((first, ghosts),) = yield Commands(("HMGET", core.root, "first", "ghosts"))
    groups: dict[bytes, Column] = {}
    for field in _expected_groups(columns) | set(columns["groups"]):
        key = f"{core.root}:group:".encode() + field
        (found,) = yield Commands(("TYPE", key))
        if found in (b"none", b"zset"):
            groups[field] = yield from scan("ZSCAN", key)
        else:
            problems.append(f"group {shown(field)} holds a {found.decode()} where a zset belongs")
    snapshot = _Snapshot(core, columns, ready, first, ghosts, groups)
    return [*problems, *snapshot.problems()], sorted(snapshot.suspects())


class _Snapshot:
    """All columns of a queue as they were read."""

    def __init__(
        self,
        core: QueueCore,
        columns: dict[str, Column],
        ready: list[bytes],
        first: bytes | None,
        ghosts: bytes | None,
        groups: dict[bytes, Column],
    ) -> None:
        self.columns = columns
        self.ready = ready
        self.numbers = Numbers(core)
        self.first = self.numbers.read("", b"first", first)
        self.ghosts = self.numbers.read("", b"ghosts", ghosts)
        self.dead: Counter[bytes] = Counter()
        self.marks: dict[bytes, int | None] = {}
        for id, text in columns["ghost"].items():
            self.dead[id], self.marks[id] = self.numbers.pair("ghost", id, text)
        self.groups = groups
        self.broken = columns["broken"]
        self.heads: dict[bytes, Head] = {}
        self.damaged: dict[bytes, str] = {}
        for id, text in columns["head"].items():
            try:
                self.heads[id] = head(text)
            except ValueError as error:
                self.damaged[id] = str(error)

    def problems(self) -> Iterator[str]:
        for id, reason in self.broken.items():
            yield f"{_job(id)} was set aside: {reason.decode(errors='replace')}"
        for id, reason in self.damaged.items():
            if id not in self.broken:
                yield f"{_job(id)}: {reason}"
        yield from self.numbers.findings
        yield from self._places()
        yield from self._terminal()
        yield from self._leases()
        yield from self._columns()
        yield from self._ghosts()
        yield from self._memory()

    def suspects(self) -> set[bytes]:
        """Jobs with half a lease, jobs that no index holds, and ids of which something is left without a head."""
        found = set(self.columns["lease"].keys() ^ self.columns["leased"].keys())
        places = self._found()
        for id, standing in self.heads.items():
            if not standing.waiting:
                state = self.columns[_TERMINAL[standing.letter]].get(id)
                group = self.groups.get(_group(standing), {}).get(id)
                if state is None or state != group:
                    found.add(id)
            elif id not in places:
                found.add(id)
        for name in ("body", "lease", *_OWNED, *_SETS):
            if name != "seen":
                found |= self.columns[name].keys() - self.columns["head"].keys()
        found |= places.keys() - self.columns["head"].keys()
        return found - self.broken.keys()

    def _found(self) -> dict[bytes, list[str]]:
        """The indexes that each job stands in."""
        places: dict[bytes, list[str]] = defaultdict(list)
        for index in ("ranked", "sched", "leased"):
            for id in self.columns[index]:
                places[id].append(index)
        for id, live in self._list_entries():
            if live:
                places[id].append("ready")
        for state in _TERMINAL.values():
            for id in self.columns[state]:
                places[id].append(state)
        return dict(places)

    def _places(self) -> Iterator[str]:
        """Each live job in exactly one index; each index entry with a head."""
        places = self._found()
        for id, standing in self.heads.items():
            wanted = {"ready", "ranked", "sched", "leased"} if standing.waiting else {_TERMINAL[standing.letter]}
            found = places.get(id, [])
            if id not in self.broken and (len(found) != 1 or found[0] not in wanted):
                where = " and ".join(found) or "no index"
                yield f"{_job(id)} belongs in one of {', '.join(sorted(wanted))}, and stands in {where}"
        for id, found in places.items():
            if id not in self.heads and id not in self.damaged and id not in self.broken:
                yield f"{_job(id)} stands in {' and '.join(found)} but has no head"

    def _list_entries(self) -> Iterator[tuple[bytes, bool]]:
        """The entries of the ready list, each with whether it counts."""
        seen: Counter[bytes] = Counter()
        for id in self.ready:
            seen[id] += 1
            yield id, seen[id] > self.dead[id]

    def _terminal(self) -> Iterator[str]:
        """Each terminal job in the group of its state and name, with the same score; each group of terminal jobs."""
        expected: dict[bytes, Column] = defaultdict(dict)
        for id, standing in self.heads.items():
            if not standing.waiting and id in self.columns[_TERMINAL[standing.letter]]:
                expected[_group(standing)][id] = self.columns[_TERMINAL[standing.letter]][id]
        for field, members in self.groups.items():
            if field not in self.columns["groups"]:
                yield f"group {shown(field)} is not listed"
            if not members:
                yield f"group {shown(field)} is listed but empty"
            for id in members.keys() | expected[field].keys():
                if members.get(id) != expected[field].get(id) and id not in self.broken:
                    yield f"{_job(id)} is not in group {shown(field)} as it is in its state"

    def _leases(self) -> Iterator[str]:
        for id in self.columns["lease"].keys() - self.columns["leased"].keys():
            yield f"{_job(id)} has a lease without an end: it would never lapse"
        for id in self.columns["leased"].keys() - self.columns["lease"].keys():
            yield f"{_job(id)} stands in leased but has no lease"
        for id, text in self.columns["lease"].items():
            try:
                lease(text)
            except ValueError:
                yield f"{_job(id)}: its lease is damaged"

    def _columns(self) -> Iterator[str]:
        """Each job with its payload; nothing left of a job that is gone."""
        for id in self.columns["head"].keys() - self.columns["body"].keys() - self.broken.keys():
            yield f"{_job(id)}: its payload is missing"
        for name in ("body", *_OWNED):
            for id in self.columns[name].keys() - self.columns["head"].keys() - self.broken.keys():
                yield f"{_job(id)} left something in {name}"

    def _ghosts(self) -> Iterator[str]:
        """The count of dead list entries per id, their sum, and the place of the live entry behind them."""
        total = self.dead.total()
        if self.ghosts != total:
            yield f"{self.ghosts} dead list entries are counted in sum, {total} one by one"
        positions: dict[bytes, list[int]] = defaultdict(list)
        for index, id in enumerate(self.ready):
            positions[id].append(self.first + index)
        for id, places in positions.items():
            count = self.dead[id]
            if len(places) > count + 1:
                yield f"{_job(id)} stands {len(places)} times in ready, {count} of them dead"
            mark = self.marks.get(id)
            if count and len(places) == count + 1 and mark != places[-1]:
                yield f"{_job(id)} has its live list entry marked at {mark}, not at {places[-1]}"
        for id, count in self.dead.items():
            if len(positions[id]) < count:
                found = len(positions[id])
                yield f"{_job(id)} is counted dead {count} times in ready, and stands there {found} times"

    def _memory(self) -> Iterator[str]:
        for id in self.columns["seen"].keys() & self.columns["head"].keys():
            yield f"{_job(id)} is remembered as removed, and there"
        for id in self.columns["aging"]:
            standing = self.heads.get(id)
            if (standing is None or standing.waiting) and id not in self.broken:
                yield f"{_job(id)} is to be removed by age, and is not finished"


def typed(hashes: Sequence[str], sets: Sequence[str]) -> list[tuple[str, str]]:
    return [*((name, "hash") for name in hashes), *((name, "zset") for name in sets)]


def foreign_types(core: Core, wanted: Sequence[tuple[str, str]]) -> Flow[list[str]]:
    """Keys of a foreign type among those `wanted`, and keys that would expire. The root has no name."""
    problems = []
    for name, kind in wanted:
        key = f"{core.root}:{name}" if name else core.root
        found, ttl = yield Commands(("TYPE", key), ("PTTL", key))
        if found.decode() not in ("none", kind):
            problems.append(f"key {key} holds a {found.decode()} where a {kind} belongs")
        elif ttl >= 0:
            problems.append(f"key {key} would expire in {ttl} ms: nothing of a queue may")
    return problems


def _expected_groups(columns: dict[str, Column]) -> set[bytes]:
    fields = set()
    for text in columns["head"].values():
        try:
            standing = head(text)
        except ValueError:
            continue
        if not standing.waiting:
            fields.add(_group(standing))
    return fields


def _group(standing: Head) -> bytes:
    return f"{_TERMINAL[standing.letter]}:{standing.fixed.name}".encode()


def scan(command: str, key: str | bytes) -> Flow[Column]:
    """A hash or a sorted set, read in steps."""
    found: Column = {}
    cursor = b"0"
    while True:
        ((cursor, flat),) = yield Commands((command, key, cursor, "COUNT", _STEP))
        # a compact set may write the same score with other digits than a large one
        values = map(float, flat[1::2]) if command == "ZSCAN" else flat[1::2]
        found.update(zip(flat[::2], values, strict=True))
        if cursor == b"0":
            return found


def _list(key: str) -> Flow[list[bytes]]:
    found: list[bytes] = []
    while True:
        (part,) = yield Commands(("LRANGE", key, len(found), len(found) + _STEP - 1))
        found += part
        if len(part) < _STEP:
            return found


def _job(id: bytes) -> str:
    return f"job {shown(id)}"


def shown(text: bytes) -> str:
    return ascii(text.decode(errors="replace"))[1:-1]
