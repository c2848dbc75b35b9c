"""Judges a recorded run: does any order of what the clients saw, and of what was there in the end, keep the promises?

It knows nothing of the engine; what one job may go through stands in `life`, the search for an order in `search`.
Every job, and what every subscription owes of every event, is judged by itself; then what holds across them: tokens are
unique, fences grow in real time, and no more leases were claimed unseen than takes went unanswered.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.history.broken import DOUBLED, OTHER, STUCK, Broken, rule_of, story_of
from tests.history.life import NEVER, Step, Terms
from tests.history.record import Call, Claim, Fault, Found, Put, Record, Reply, Setup, read
from tests.history.search import Search, Source, Unexplained

MS = 1_000_000
SLACK = 5 * MS
"""How far a server's whole milliseconds and its clock may be from ours, beside the error of the measured offset."""

EXPECTED = ("", "IndeterminateWrite", "Unavailable", "OutOfMemory")

Thing = tuple[str, str, str]
"""Queue, subscription ("" for a job), key."""


@dataclass
class Verdict:
    """What a run came to. undone: things with writes that only a fault's window explains; lost: those put in for
    nothing. refused: settlements with a stale token. unanswered: calls without a known outcome."""

    calls: int = 0
    jobs: int = 0
    obligations: int = 0
    unanswered: int = 0
    refused: int = 0
    unseen: int = 0
    lost: int = 0
    undone: int = 0
    broken: list[Broken] = field(default_factory=list)

    def count(self, kind: str) -> int:
        return sum(each.kind == kind for each in self.broken)

    def __str__(self) -> str:
        return (
            f"{self.calls:,} calls, {self.jobs:,} jobs, {self.obligations:,} obligations, {self.unanswered:,} calls "
            f"unanswered, {self.refused:,} settlements refused, {self.unseen:,} claims unseen; in the windows "
            f"{self.lost:,} lost and {self.undone:,} undone; {len(self.broken):,} promises broken"
        )


def judge(folder: Path) -> Verdict:
    """The verdict on the files of a run."""
    return judge_records(read(folder))


def judge_records(records: Iterable[tuple[str, Record]]) -> Verdict:
    return _Trial(records).verdict()


@dataclass
class _Made:
    """A call and what came of it; `end` is NEVER for one that may still be applied."""

    call: Call
    reply: Reply | None

    @property
    def unknown(self) -> bool:
        return self.reply is None or self.reply.error == "IndeterminateWrite"

    @property
    def end(self) -> int:
        return NEVER if self.unknown or self.reply is None else self.reply.at

    @property
    def claims(self) -> list[Claim]:
        return [] if self.reply is None else self.reply.claimed


class _Trial:
    def __init__(self, records: Iterable[tuple[str, Record]]) -> None:
        self.setup: Setup | None = None
        self.faults: list[Fault] = []
        self.found: list[Found] = []
        self.made: list[_Made] = []
        open_: dict[tuple[str, int], _Made] = {}
        for file, record in records:
            if isinstance(record, Call):
                open_[file, record.n] = made = _Made(record, None)
                self.made.append(made)
            elif isinstance(record, Reply):
                open_[file, record.n].reply = record
            elif isinstance(record, Fault):
                self.faults.append(record)
            elif isinstance(record, Found):
                self.found.append(record)
            else:
                self.setup = record
        self.result = Verdict(calls=len(self.made))
        self.steps: dict[Thing, list[Step]] = defaultdict(list)
        self.terms: dict[Thing, Put] = {}
        self.unseen: Counter[tuple[str, str]] = Counter()

    def verdict(self) -> Verdict:
        if self.setup is None:
            raise ValueError("the history has no setup: it was not recorded to its end")
        for made in self.made:
            self._count(made)
            for thing, step in self._parts(made, self.setup):
                self.steps[thing].append(step)
        self._close(self.setup)
        sources = self._sources(self.setup)
        for thing in sorted(self.steps):
            self._search(thing, self.setup, sources[thing[:2]])
        self._tokens()
        self._fences()
        self._claimed_unseen(sources)
        return self.result

    def _count(self, made: _Made) -> None:
        self.result.unanswered += made.unknown
        if made.reply is not None:
            words = [answer.word for answer in made.reply.settled]
            self.result.refused += sum(word in ("lease-lost", "gone", "not-active") for word in words)
            if made.reply.error not in EXPECTED or (made.reply.error == "OutOfMemory" and not made.call.puts):
                self._break(OTHER, f"an unexpected {made.reply.error}", f"{made.call.verb} of {made.call.client}")

    def _parts(self, made: _Made, setup: Setup) -> Iterator[tuple[Thing, Step]]:
        """The steps that a call made of each thing; none when it certainly did nothing."""
        call, reply = made.call, made.reply
        if reply is not None and reply.error not in ("", "IndeterminateWrite"):
            for put in call.puts:
                self._about(call, put, setup, made, None)
            return
        for at, put in enumerate(call.puts):
            yield from self._about(call, put, setup, made, reply.added[at] if reply and not made.unknown else None)
        for at, settle in enumerate(call.settles):
            answer = None if made.unknown or reply is None else reply.settled[at]
            number = None if answer is None or answer.ms is None else answer.ms * MS - setup.offset
            word = None if answer is None else answer.word
            yield (
                (call.queue, call.sub, settle.key),
                Step(settle.verb, call.at, made.end, call.client, word, settle.token, number, settle.ms * MS,
                     final=settle.final),
            )  # fmt: skip
        for claim in made.claims:
            ends = claim.expires_ms * MS - setup.offset
            yield (
                (call.queue, call.sub, claim.key),
                Step("take", call.at, made.end, call.client, "taken", claim.token, ends, call.lease_ms * MS,
                     claim.attempt),
            )  # fmt: skip

    def _about(self, call: Call, put: Put, setup: Setup, made: _Made, word: str | None) -> list[tuple[Thing, Step]]:
        """What a put means to each subscription; it also sets the terms."""
        step = Step("put", call.at, made.end, call.client, word, span=put.delay_ms * MS)
        things = [(call.queue, sub, put.key) for sub in setup.subs.get(call.queue, [""])]
        for thing in things:
            self.terms.setdefault(thing, put)
        return [(thing, step) for thing in things]

    def _close(self, setup: Setup) -> None:
        """Adds what was found in the end. What was not found is absent."""
        ends = [made.call.at if made.end == NEVER else made.end for made in self.made]
        end = 1 + max([*ends, *(fault.end for fault in self.faults)], default=0)
        seen: dict[Thing, list[str]] = defaultdict(list)
        for found in self.found:
            seen[found.queue, found.sub, found.key].append(found.state)
        for thing in {*self.terms, *self.steps, *seen}:
            states = seen[thing] or ["absent"]
            if len(states) > 1:
                self._break(DOUBLED, f"there are {len(states)} records of it: {', '.join(states)}", _name(thing))
            self.steps[thing].append(Step("found", end, end, "the end", states[0]))

    def _sources(self, setup: Setup) -> dict[tuple[str, str], list[Source]]:
        """Takes that may have claimed what nobody saw."""
        sources: dict[tuple[str, str], list[Source]] = defaultdict(list)
        for made in self.made:
            call = made.call
            if not call.limit:
                continue
            lease = call.lease_ms * MS
            failed = made.reply is None or made.reply.error
            end = NEVER if made.reply is None or made.unknown else made.reply.at
            if failed or end - call.at >= lease:
                sources[call.queue, call.sub].append(Source(call.at, end, lease, call.limit))
        return sources

    def _search(self, thing: Thing, setup: Setup, sources: list[Source]) -> None:
        queue, sub, _ = thing
        put = self.terms.get(thing, Put(""))
        backoff = setup.backoff_ms.get(queue, 0) * MS
        steps = self.steps[thing]
        safe = put.safe and any(step.verb == "put" and not step.unknown for step in steps)
        terms = Terms(put.most, put.brief or queue in setup.brief, backoff, SLACK + setup.error, safe)
        first = min(step.start for step in steps)
        faults = [fault for fault in self.faults if fault.end >= first]
        steps += [
            Step("fault", fault.start, fault.end, fault.name, "", reach=(fault.kept, fault.undone)) for fault in faults
        ]
        self.result.jobs += not sub
        self.result.obligations += bool(sub)
        try:
            cost = Search(steps, terms, _useful(sources, first)).run()
        except Unexplained as reason:
            kind, rule = rule_of(reason.step, reason.states)
            self._break(kind, rule, _name(thing), story_of(steps, reason))
            return
        if _end_of(steps) in ("waiting", "leased"):
            self._break(STUCK, f"it is still {_end_of(steps)}", _name(thing), story_of(steps))
        self.unseen[queue, sub] += cost.unseen
        self.result.unseen += cost.unseen
        self.result.undone += cost.undone > 0
        self.result.lost += cost.undone > 0 and _end_of(steps) == "absent" and not terms.brief

    def _break(self, kind: str, rule: str, what: str, lines: list[str] | None = None) -> None:
        self.result.broken.append(Broken(kind, rule, what, lines or []))

    def _tokens(self) -> None:
        tokens = Counter(claim.token for made in self.made for claim in made.claims)
        for token, times in tokens.items():
            if times > 1:
                self._break(OTHER, f"the token was given {times} times", token)

    def _fences(self) -> None:
        """A claim that began after another one had returned has the greater fence."""
        queues: dict[str, list[_Made]] = defaultdict(list)
        for made in self.made:
            if made.claims:
                queues[made.call.queue].append(made)
        for queue, takes in queues.items():
            ended = sorted(takes, key=lambda made: made.end)
            at = highest = 0
            for made in sorted(takes, key=lambda made: made.call.at):
                while ended[at].end < made.call.at:
                    highest = max(highest, *(claim.fence for claim in ended[at].claims))
                    at += 1
                lowest = min(made.claims, key=lambda claim: claim.fence)
                if lowest.fence <= highest:
                    self._break(OTHER, f"fence {lowest.fence} came after {highest}", f"{queue} {lowest.key}")
                fences = [claim.fence for claim in made.claims]
                if fences != sorted(set(fences)):
                    self._break(OTHER, f"the fences of one call do not rise: {fences}", f"{queue} {lowest.key}")

    def _claimed_unseen(self, sources: dict[tuple[str, str], list[Source]]) -> None:
        for where, unseen in self.unseen.items():
            most = sum(source.limit for source in sources[where])
            if unseen > most:
                rule = f"{unseen} leases that nobody saw, and takes that were not answered asked for {most} at most"
                self._break(DOUBLED, rule, " ".join(where))


def _useful(sources: list[Source], first: int) -> list[Source]:
    """What matters to a thing from then on: as far as one thing goes, takes that overlap are like one."""
    merged: list[Source] = []
    for source in sorted(sources, key=lambda source: (source.lease, source.start)):
        if source.end < first:
            continue
        last = merged[-1] if merged else None
        if last is not None and last.lease == source.lease and source.start <= last.end:
            merged[-1] = Source(last.start, max(last.end, source.end), last.lease, last.limit + source.limit)
        else:
            merged.append(source)
    return merged


def _end_of(steps: list[Step]) -> str | None:
    return next(step.answer for step in steps if step.verb == "found")


def _name(thing: Thing) -> str:
    return " ".join(part for part in thing if part)
