"""Walks the keys of one event queue and names every broken invariant; reads in steps and writes nothing.

On a queue that others use meanwhile an event may move between two steps: what a second walk names again is real.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from redisq.calls import Commands, Flow
from redisq.calls.core import EventCore
from redisq.calls.events import members
from redisq.check import Column, Numbers, foreign_types, scan, shown, typed

_HASHES = ("ev", "body", "subs", "gens", "cursor", "roster", "refs", "was", "dropped", "broken")
_SETS = ("log", "deadlines", "archives", "retiring", "due", "mort", "seen")
_OWN_HASHES = ("lease", "error")
_OWN_SETS = ("leased", "parked", "dead")
_STEP = 200
_HEADER = re.compile(
    rb"([acxCX]),(\d{1,16}),\d{1,16},(\d{1,16}),(\d{0,16});(\d{1,16}),\d{1,16},(\d{0,16}),(|\d{1,16}\.\d{1,2}),\d{1,16}"
)
_FACTS = re.compile(rb"\d{1,16},\d{0,16},(\d{0,16}),(.*)", re.DOTALL)
_OUTCOME = re.compile(rb"a,\d{1,16},.*|p,.*|[wdxr],\d{1,16}(,\d{0,16}(,.*)?)?", re.DOTALL)
_EXACT = 2**53


class Header(NamedTuple):
    """What the header of an event says (see lua/lib/events/event.lua)."""

    status: str
    owed: int
    dead: int
    settled: int | None
    seq: int
    expires: int | None
    version: str


class Facts(NamedTuple):
    """What is known of a generation (see lua/lib/events/generation.lua)."""

    removed: int | None
    name: bytes


def walk(core: EventCore) -> Flow[list[str]]:
    """The broken invariants of an event queue, one sentence each; empty when all is well."""
    problems: list[str] = yield from foreign_types(core, [("", "hash"), ("idle", "set"), *typed(_HASHES, _SETS)])
    if problems:
        return problems
    columns = yield from _columns(core, _HASHES, _SETS)
    own: dict[bytes, dict[str, Column]] = {}
    for g in columns["gens"]:
        try:
            end = f":{g.decode()}"
        except UnicodeDecodeError:
            problems.append(f"generation {shown(g)} is in gens, and can be none")
            continue
        foreign = yield from foreign_types(core, [(name + end, kind) for name, kind in typed(_OWN_HASHES, _OWN_SETS)])
        problems += foreign
        if not foreign:
            found = yield from _columns(core, _OWN_HASHES, _OWN_SETS, end)
            own[g] = {name.partition(":")[0]: column for name, column in found.items()}
    outcomes: dict[bytes, Column] = {}
    ids = list(columns["ev"])
    for at in range(0, len(ids), _STEP):
        keys = [f"{core.root}:ob:".encode() + id for id in ids[at : at + _STEP]]
        kinds = yield Commands(*(("TYPE", key) for key in keys))
        for id, key, kind in zip(ids[at : at + _STEP], keys, kinds, strict=True):
            if kind == b"hash":
                outcomes[id] = yield from scan("HSCAN", key)
            elif kind != b"none":
                problems.append(f"{_event(id)}: its outcomes hold a {kind.decode()}")
    (block,) = yield Commands(("HGET", core.root, "block"))
    return [*problems, *_Snapshot(core, columns, own, outcomes, block).problems()]


def _columns(core: EventCore, hashes: Sequence[str], sets: Sequence[str], end: str = "") -> Flow[dict[str, Column]]:
    found: dict[str, Column] = {}
    for command, names in (("HSCAN", hashes), ("ZSCAN", sets)):
        for name in names:
            found[name + end] = yield from scan(command, f"{core.root}:{name}{end}")
    return found


class _Snapshot:
    """All columns of a queue as they were read."""

    def __init__(
        self,
        core: EventCore,
        columns: dict[str, Column],
        own: dict[bytes, dict[str, Column]],
        outcomes: dict[bytes, Column],
        block: bytes | None,
    ) -> None:
        self.columns = columns
        self.own = own
        self.numbers = Numbers(core)
        self.block = str(self.numbers.read("", b"block", block))
        self.refs = {shown(block): self.numbers.read("refs", block, text) for block, text in columns["refs"].items()}
        self.cursors = {g: self.numbers.pair("cursor", g, text)[0] for g, text in columns["cursor"].items()}
        self.broken = columns["broken"]
        self.damaged: list[str] = []
        self.headers: dict[bytes, Header] = {}
        self.facts: dict[bytes, Facts] = {}
        self.rows: dict[bytes, dict[bytes, str]] = {id: {} for id in outcomes}
        self._read_headers()
        self._read_generations()
        self._read_outcomes(outcomes)
        versions = {event.version for event in self.headers.values()}
        self.recipients = {version: self._recipients(version) for version in versions}

    def _read_headers(self) -> None:
        for id, text in self.columns["ev"].items():
            if found := _HEADER.fullmatch(text):
                status, owed, dead, settled, seq, expires, version = (part.decode() for part in found.groups())
                self.headers[id] = Header(
                    status, int(owed), int(dead), _optional(settled), int(seq), _optional(expires), version
                )
            elif id not in self.broken:
                self.damaged.append(f"{_event(id)}: its header is damaged")

    def _read_generations(self) -> None:
        for g, text in self.columns["gens"].items():
            if found := _FACTS.fullmatch(text):
                self.facts[g] = Facts(_optional(found[1].decode()), found[2])
            else:
                self.damaged.append(f"generation {shown(g)}: its facts are damaged")

    def _read_outcomes(self, outcomes: dict[bytes, Column]) -> None:
        for id, rows in outcomes.items():
            for g, row in rows.items():
                if _OUTCOME.fullmatch(row):
                    self.rows[id][g] = row[:1].decode()
                else:
                    self.damaged.append(f"{_event(id)}: its outcome for generation {shown(g)} is damaged")

    def _recipients(self, version: str) -> list[bytes] | None:
        """The generations of a roster; None when it is not known any more."""
        block, _, delta = version.partition(".")
        whole = self.columns["roster"].get(f"s{block}".encode())
        if whole is None:
            return None if version else []
        changes = (self.columns["roster"].get(f"d{block}.{n}".encode()) for n in range(1, int(delta) + 1))
        try:
            found = members([whole, *changes])
        except ValueError:
            found = None
        if found is None or b";" not in whole:
            self.damaged.append(f"roster {version} is damaged")
            return None
        return [generation for _, generation in found]

    def problems(self) -> Iterator[str]:
        for id, reason in self.broken.items():
            yield f"{_event(id)} was set aside: {reason.decode(errors='replace')}"
        yield from self.damaged
        yield from self.numbers.findings
        yield from self._indexes()
        yield from self._generations()
        for id, standing in self.headers.items():
            if id not in self.broken:
                yield from self._obligations(id, standing)
        for g in self.own:
            yield from self._hands(g)
        yield from self._rosters()

    def _indexes(self) -> Iterator[str]:
        """Each event in the indexes of its status, and nothing else there."""
        wanted: dict[str, dict[bytes, int]] = defaultdict(dict)
        for id, event in self.headers.items():
            if event.status == "a":
                wanted["log"][id] = event.seq
                if event.expires is not None:
                    wanted["deadlines"][id] = event.expires
            elif event.status in "cx" and event.settled is not None:
                wanted["archives"][id] = event.settled
            elif event.dead == 0:
                yield f"{_event(id)} is settled, not archived and not held, and still there"
            if id not in self.columns["body"] and id not in self.broken:
                yield f"{_event(id)}: its payload is gone"
        unknown = self.columns["ev"].keys() - self.headers.keys()
        for index in ("log", "deadlines", "archives"):
            found = {id: _whole(score) for id, score in self.columns[index].items()}
            for id in (found.keys() | wanted[index].keys()) - self.broken.keys() - unknown:
                if found.get(id) != wanted[index].get(id):
                    yield f"{_event(id)} is in {index} with {found.get(id)}, not with {wanted[index].get(id)}"
        for id in self.columns["body"].keys() - self.columns["ev"].keys():
            yield f"{_event(id)} has a payload and no header"
        for id in self.columns["seen"].keys() ^ self.columns["was"].keys():
            yield f"{_event(id)} is remembered by halves"

    def _generations(self) -> Iterator[str]:
        active = {g: facts.name for g, facts in self.facts.items() if facts.removed is None}
        named = {g: name for name, g in self.columns["subs"].items()}
        for g in active.keys() ^ named.keys():
            yield f"generation {shown(g)} is active for one of subs and gens alone"
        for g in self.columns["gens"].keys() ^ self.cursors.keys():
            yield f"generation {shown(g)} is in one of gens and cursor alone"
        for g in (self.facts.keys() - active.keys()) ^ self.columns["retiring"].keys():
            yield f"generation {shown(g)} is in retiring and active, or removed and not in retiring"
        for index, column in (("due", "leased"), ("mort", "dead")):
            for g in active:
                scores = self.own.get(g, {}).get(column, {}).values()
                if scores and self.columns[index].get(g, math.inf) > min(scores):
                    yield f"generation {shown(g)} is in {index} later than its first entry of {column}"

    def _obligations(self, id: bytes, event: Header) -> Iterator[str]:
        """Each obligation has an outcome, or is ahead of its cursor, or in hand; and the header counts them."""
        rows = self.rows.get(id, {})
        recipients = self.recipients[event.version]
        if recipients is not None:
            done = sum(rows.get(g, "p") in "awdxr" for g in recipients)
            if event.status == "a" and event.owed != len(recipients) - done:
                yield f"{_event(id)} says that {event.owed} are owed; it is {len(recipients) - done}"
        holding = sum(
            letter == "r" or (letter == "d" and id in self.own.get(g, {}).get("dead", {})) for g, letter in rows.items()
        )
        if event.dead != holding:
            yield f"{_event(id)} says that {event.dead} dead obligations hold it; it is {holding}"
        for g in recipients or ():
            facts, keys = self.facts.get(g), self.own.get(g)
            if facts is None or keys is None or event.status != "a" or rows.get(g, "p") in "awdx":
                continue
            ahead = event.seq > self.cursors.get(g, 0)
            places = ahead + (id in keys["leased"]) + (id in keys["parked"])
            # past its deadline it may be in nobody's hands any more
            if places > 1 or (places == 0 and event.expires is None):
                yield f"{_event(id)} is in {places} places of {shown(facts.name)}, not in one"

    def _hands(self, g: bytes) -> Iterator[str]:
        keys = self.own[g]
        for id in keys["leased"].keys() & keys["parked"].keys():
            yield f"{_event(id)} is both leased and parked by {shown(g)}"
        for id in keys["leased"].keys() | keys["parked"].keys() | keys["lease"].keys():
            event = self.headers.get(id)
            if event is None and id not in self.columns["ev"]:
                yield f"{_event(id)} is in the hands of {shown(g)}, and is not there"
            elif event is not None and event.status != "a" and self._row(id, g) != "r":
                yield f"{_event(id)} is settled, and in the hands of {shown(g)}"
        for id in (keys["leased"].keys() | keys["parked"].keys()) - keys["lease"].keys():
            yield f"{_event(id)} is in the hands of {shown(g)} without a row"
        for id in keys["dead"].keys() ^ keys["error"].keys():
            yield f"{_event(id)} is dead for {shown(g)} by halves"
        for id in keys["dead"]:
            if self._row(id, g) != "d" and id not in self.broken:
                yield f"{_event(id)} is listed as dead for {shown(g)}, and is not"

    def _rosters(self) -> Iterator[str]:
        kept = Counter(event.version.partition(".")[0] for event in self.headers.values() if event.version)
        for block in kept.keys() | self.refs.keys():
            if kept[block] != self.refs.get(block, 0) and not self.damaged and not self.broken:
                yield f"roster block {block} is kept for {self.refs.get(block, 0)} events, not for {kept[block]}"
        for field in self.columns["roster"]:
            block = shown(field[1:].partition(b".")[0])
            if block not in self.refs and block != self.block:
                yield f"roster field {shown(field)} is of no use"

    def _row(self, id: bytes, g: bytes) -> str | None:
        return self.rows.get(id, {}).get(g)


def _optional(text: str) -> int | None:
    return int(text) if text else None


def _whole(score: float) -> float:
    """A score without its fraction; as it is where that can't be told."""
    return int(score) if abs(score) < _EXACT else score


def _event(id: bytes) -> str:
    return f"event {shown(id)}"
