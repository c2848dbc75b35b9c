"""Whether some order of the steps of one thing explains all that was seen of it.

Steps overlap: each happened at some moment between its start and its end, and one without an end at any time after its
start, or not at all. The steps are gone through in the order of their ends. At each end, `Way`s are all the courses
that things can have taken so far: the state that they led to, and which steps they used that had not ended yet. When a
step's end finds no way on which it happened, nothing explains the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.history.life import ABSENT, NEVER, State, Step, Terms, apply, claimed_unseen, passing


@dataclass(frozen=True)
class Source:
    """A take whose answer is not known, or that lasted longer than its lease: it can have claimed anything."""

    start: int
    end: int
    lease: int
    limit: int


class Way(NamedTuple):
    """A course of things. past: the states that the next fault may bring back. used: of the steps that did not end."""

    state: State
    used: frozenset[int] = frozenset()
    past: frozenset[State] = frozenset()


class Cost(NamedTuple):
    """What a way takes: the earliest moment that it has come to, and that its state began; claims that nobody saw, and
    undone writes."""

    now: int = 0
    since: int = 0
    unseen: int = 0
    undone: int = 0


class Unexplained(Exception):
    """No order explains `step`; before it, things stood in one of `states`."""

    def __init__(self, step: Step, states: Sequence[State]) -> None:
        super().__init__(f"nothing explains {step.verb} of {step.client}")
        self.step = step
        self.states = states


class Ways:
    """Ways, each with its costs; one that costs more in everything is not kept."""

    def __init__(self) -> None:
        self.costs: dict[Way, list[Cost]] = {}

    def add(self, way: Way, cost: Cost) -> bool:
        """Whether this is a new way, or a cheaper one."""
        known = self.costs.setdefault(way, [])
        if any(all(a <= b for a, b in zip(other, cost, strict=True)) for other in known):
            return False
        known[:] = [other for other in known if not all(a <= b for a, b in zip(cost, other, strict=True))]
        known.append(cost)
        return True

    def __iter__(self) -> Iterator[tuple[Way, Cost]]:
        return ((way, cost) for way, costs in self.costs.items() for cost in costs)


MOST_UNSEEN = 6
"""How many claims of one thing are believed to have been seen by nobody."""


@dataclass
class Search:
    """The search through the steps of one thing."""

    steps: list[Step]
    terms: Terms
    sources: Sequence[Source] = ()
    most_unseen: int = 0

    def run(self) -> Cost:
        """What the cheapest explanation takes; Unexplained when there is none."""
        self.steps.sort(key=lambda step: (step.end, step.start))
        most = MOST_UNSEEN if self.sources else 0
        while True:
            try:
                return self._within()
            except Unexplained:
                if self.most_unseen == most:
                    raise
            self.most_unseen += 1

    def _within(self) -> Cost:
        """The cheapest explanation that takes no more unseen claims than are believed now."""
        ways = Ways()
        ways.add(Way(ABSENT), Cost())
        for number, step in enumerate(self.steps):
            if step.end == NEVER:
                break
            ways = self._through(ways, number)
        return min((cost for _, cost in ways), key=lambda cost: (cost.undone, cost.unseen))

    def _through(self, ways: Ways, number: int) -> Ways:
        """The ways on which step `number` has happened, by its end."""
        end = self.steps[number].end
        open_ = [at for at in range(number, len(self.steps)) if self.steps[at].start <= end]
        fault = self._next_fault(number)
        found, seen = Ways(), Ways()
        stack = list(ways)
        for way, cost in stack:
            seen.add(way, cost)
        while stack:
            way, cost = stack.pop()
            if number in way.used:
                found.add(way._replace(used=way.used - {number}), cost)
                continue
            for following, price in self._onward(way, cost, open_, end, fault):
                if seen.add(following, price):
                    stack.append((following, price))
        if not found.costs:
            raise Unexplained(self.steps[number], sorted({way.state for way, _ in ways}, key=str))
        return found

    def _onward(
        self, way: Way, cost: Cost, open_: list[int], end: int, fault: int | None
    ) -> Iterable[tuple[Way, Cost]]:
        """Every way that is one step longer."""
        for at in open_:
            if at in way.used:
                continue
            used = way.used | {at}
            if self.steps[at].verb == "fault":
                yield from self._undone(way, cost, at, used)
                continue
            until = min(end, self.steps[at].end)
            for state, now in apply(way.state, self.steps[at], cost.now, self.terms):
                yield self._moved(way, cost, state, now, used, until, fault)
        for state, now in passing(way.state, cost.now, self.terms):
            if now <= end + self.terms.slack:
                yield self._moved(way, cost, state, now, way.used, end, fault)
        for source in self.sources if cost.unseen < self.most_unseen else ():
            if cost.now <= source.end and way.state.kind == "waiting":
                began = max(cost.now, source.start)
                for state, now in claimed_unseen(way.state, began, source.lease, self.terms):
                    if now <= min(end, source.end) + self.terms.slack:
                        price = cost._replace(unseen=cost.unseen + 1)
                        yield self._moved(way, price, state, now, way.used, end, fault)

    def _undone(self, way: Way, cost: Cost, at: int, used: frozenset[int]) -> Iterable[tuple[Way, Cost]]:
        """What a fault leaves: the state as it was at some moment within its reach.

        A put that is still being made when it is undone is made again: its client repeats it until it has an answer.
        """
        now = max(cost.now, self.steps[at].start)
        following = self._next_fault(at + 1)
        # what was before this fault can also be what the next one brings back, when they are close
        near = following is not None and self._keeps(following) <= self.steps[at].end
        past = way.past if near else frozenset()
        if cost.since <= self._undoes(at):
            yield Way(way.state, used, past), Cost(now, 0, cost.unseen, cost.undone)
        puts = {number for number in used if self.steps[number].verb == "put"}
        for state in way.past:
            price = Cost(now, 0, cost.unseen, cost.undone + (state != way.state))
            if state == ABSENT and puts:
                yield Way(state, used - puts, past), price
            if state != ABSENT or not self.terms.safe:
                yield Way(state, used, past), price

    def _moved(
        self, way: Way, cost: Cost, state: State, now: int, used: frozenset[int], until: int, fault: int | None
    ) -> tuple[Way, Cost]:
        """`way` in a state that it came to by `until`, at `now` or later."""
        past, since = way.past, cost.since
        if state != way.state:
            since = now
            if fault is not None and self._keeps(fault) <= until and cost.since <= self._undoes(fault):
                past |= {way.state}
        return Way(state, used, past), cost._replace(now=now, since=since)

    def _next_fault(self, number: int) -> int | None:
        return next((at for at in range(number, len(self.steps)) if self.steps[at].verb == "fault"), None)

    def _keeps(self, fault: int) -> int:
        """Until when nothing was undone by it."""
        return self.steps[fault].reach[0] - self.terms.slack

    def _undoes(self, fault: int) -> int:
        """From when all was undone by it."""
        return self.steps[fault].reach[1] + self.terms.slack
