"""The counting at the end: the file, the queue and the workers' ledgers, side by side. Pure: data in, checks out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from redisq import Ack, Job, JobState
from redisq.demo.expected import Expected, per_country
from redisq.demo.ledger import Line, Step


@dataclass(frozen=True)
class Check:
    """One line of the table. It holds when what was counted is what was expected: the same ids, not just as many."""

    title: str
    expected: Collection[str] | int
    counted: Collection[str] | int

    @property
    def holds(self) -> bool:
        return self.expected == self.counted


@dataclass(frozen=True)
class Section:
    """A part of the table. `columns` says where the two numbers of its checks come from."""

    title: str
    columns: tuple[str, str]
    checks: list[Check]


class Ledgers:
    """The lines of all workers, and what follows from them. A delivery is known by its fence, which no other has."""

    def __init__(self, lines: dict[str, list[Line]], killed: str) -> None:
        every = sorted((line for of_one in lines.values() for line in of_one), key=lambda line: line.fence)
        self.took = [line for line in every if line.step is Step.TOOK]
        self.done = [line for line in every if line.step is Step.DONE]
        settled = {line.fence for line in every if line.step is Step.SETTLED and line.note != Ack.LEASE_LOST}
        last_settled = {line.id: line.fence for line in every if line.fence in settled}
        held = {line.id: line.fence for line in lines[killed] if line.fence not in settled}
        self.held_by_killed = frozenset(held)
        self.recovered = frozenset(id for id, fence in held.items() if last_settled.get(id, 0) > fence)
        self.taken_over = frozenset(line.id for line in self.took if line.fence not in settled)
        self.done_unsettled = frozenset(line.id for line in self.done if line.fence not in settled)
        self.repeated = _twice(self.took)
        self.done_twice = _twice(self.done)

    def metres(self) -> dict[str, int]:
        """The result of each row: where two deliveries finished, the one with the higher fence counts."""
        return {line.id: line.metres for line in self.done}


def _twice(lines: list[Line]) -> frozenset[str]:
    return frozenset(id for id, count in Counter(line.id for line in lines).items() if count > 1)


def prove(expected: Expected, accepted: Iterable[str], jobs: Collection[Job], ledgers: Ledgers) -> list[Section]:
    """All that must hold after a run. `accepted` are the ids that the queue took from the producer."""
    by_state = {state: frozenset(job.id for job in jobs if job.state is state) for state in JobState}
    final = frozenset(job.id for job in jobs if job.state.terminal)
    kept = {job.id: job.result for job in jobs if job.state is JobState.COMPLETED}
    attempts = sum(job.attempts for job in jobs if job.id not in expected.cut_off)
    written = ledgers.metres()
    countries = per_country(expected.metres, expected.country)
    reasons = expected.flaky | ledgers.taken_over
    total = sum(expected.metres.values())
    return [
        Section(
            "Nothing was lost",
            ("file", "queue"),
            [
                Check("all rows: accepted as jobs", expected.all, frozenset(accepted)),
                Check("all rows: came to an end", expected.all, final),
                Check("good rows: completed", expected.good, by_state[JobState.COMPLETED]),
                Check("broken rows: dead", expected.broken, by_state[JobState.DEAD]),
                Check("cut-off rows: in quarantine", expected.cut_off, by_state[JobState.QUARANTINED]),
            ],
        ),
        Section(
            "The work is right",
            ("file", "results"),
            [
                Check("sum of the metres: results kept by the queue", total, sum(kept.values())),
                Check("sum of the metres: the workers' own files", total, sum(written.values())),
                Check("countries: the same sum there", countries.keys(), set(_agreeing(countries, written, expected))),
            ],
        ),
        Section(
            "What was delivered twice",
            ("expected", "counted"),
            [
                Check("attempts that the queue counted: deliveries", attempts, len(ledgers.took)),
                Check("rows that fail at first: delivered again", expected.flaky, expected.flaky & ledgers.repeated),
                Check("rows the killed worker held: settled later", ledgers.held_by_killed, ledgers.recovered),
                Check("these rows and no others: delivered again", reasons, ledgers.repeated),
                Check("rows done but not settled: done twice", ledgers.done_unsettled, ledgers.done_twice),
            ],
        ),
    ]


def _agreeing(countries: dict[str, int], written: dict[str, int], expected: Expected) -> Iterator[str]:
    counted = per_country(written, expected.country)
    return (country for country, metres in countries.items() if counted.get(country) == metres)
