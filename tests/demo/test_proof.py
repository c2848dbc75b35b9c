"""The counting must go red when something is wrong: each test spoils a good run in one way."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import pytest

from redisq import Job, JobState
from redisq.demo.expected import Expected
from redisq.demo.ledger import Line, Step
from redisq.demo.proof import Check, Ledgers, prove

EXPECTED = Expected(
    all=frozenset("ABCDXQ"),
    broken=frozenset("X"),
    cut_off=frozenset("Q"),
    flaky=frozenset("B"),
    country={"A": "DE", "B": "DE", "C": "FR", "D": "FR"},
    metres={"A": 10, "B": 20, "C": 30, "D": 40},
)


class Run:
    """A good run as it is left behind: `killed` finished C, held D, settled neither; `other` did the rest."""

    def __init__(self) -> None:
        self.accepted = list("ABCDXQ")
        self.jobs = {
            "A": _job("A", JobState.COMPLETED, 1, 10),
            "B": _job("B", JobState.COMPLETED, 2, 20),
            "C": _job("C", JobState.COMPLETED, 2, 30),
            "D": _job("D", JobState.COMPLETED, 2, 40),
            "X": _job("X", JobState.DEAD, 1),
            "Q": _job("Q", JobState.QUARANTINED, 1),
        }
        self.killed = [*_took("A", 1), *_took("C", 3), *_took("D", 4), _line(Step.DONE, "A", 1, 10), _settled("A", 1)]
        self.killed += [_line(Step.DONE, "C", 3, 30)]
        self.other = [*_took("B", 2), *_took("X", 5), _line(Step.FAILED, "B", 2), _line(Step.FAILED, "X", 5)]
        self.other += [_settled("B", 2, "scheduled"), _settled("X", 5, "dead")]
        for id, fence, metres in (("B", 6, 20), ("C", 7, 30), ("D", 8, 40)):
            self.other += [*_took(id, fence), _line(Step.DONE, id, fence, metres), _settled(id, fence)]

    def failed(self) -> list[str]:
        """The titles of the checks that don't hold."""
        ledgers = Ledgers({"killed": self.killed, "other": self.other}, "killed")
        sections = prove(EXPECTED, self.accepted, list(self.jobs.values()), ledgers)
        return [check.title for section in sections for check in section.checks if not check.holds]


def test_a_good_run_passes_and_its_repeats_are_counted() -> None:
    run = Run()
    assert run.failed() == []
    ledgers = Ledgers({"killed": run.killed, "other": run.other}, "killed")
    assert ledgers.held_by_killed == ledgers.recovered == {"C", "D"}
    assert ledgers.repeated == {"B", "C", "D"}
    assert ledgers.done_twice == {"C"}


def _drop(lines: list[Line], step: Step, id: str) -> None:
    lines[:] = [line for line in lines if (line.step, line.id) != (step, id)]


def _change(run: Run, id: str, **changes: object) -> None:
    run.jobs[id] = msgspec.structs.replace(run.jobs[id], **changes)


def _deliver_again(run: Run, id: str, fence: int) -> None:
    run.other += [*_took(id, fence), _settled(id, fence)]
    _change(run, id, attempts=run.jobs[id].attempts + 1)


SPOILED: dict[str, tuple[Callable[[Run], object], set[str]]] = {
    "not accepted": (lambda run: run.accepted.remove("A"), {"all rows: accepted as jobs"}),
    "job lost": (
        lambda run: run.jobs.pop("Q"),
        {"all rows: came to an end", "cut-off rows: in quarantine"},
    ),
    "job left waiting": (
        lambda run: _change(run, "X", state=JobState.SCHEDULED),
        {"all rows: came to an end", "broken rows: dead"},
    ),
    "good row dead": (
        lambda run: _change(run, "A", state=JobState.DEAD, result=None),
        {"good rows: completed", "broken rows: dead", "sum of the metres: results kept by the queue"},
    ),
    "wrong result": (lambda run: _change(run, "A", result=11), {"sum of the metres: results kept by the queue"}),
    "work not done": (
        lambda run: _drop(run.other, Step.DONE, "B"),
        {"sum of the metres: the workers' own files", "countries: the same sum there"},
    ),
    "delivery not counted": (
        lambda run: _change(run, "B", attempts=1),
        {"attempts that the queue counted: deliveries"},
    ),
    "delivered again without a reason": (
        lambda run: _deliver_again(run, "A", 9),
        {"these rows and no others: delivered again"},
    ),
    "killed worker's row not recovered": (
        lambda run: _drop(run.other, Step.SETTLED, "D"),
        {"rows the killed worker held: settled later", "rows done but not settled: done twice"},
    ),
    "finished twice without a reason": (
        lambda run: run.other.append(_line(Step.DONE, "A", 1, 10)),
        {"rows done but not settled: done twice"},
    ),
}


@pytest.mark.parametrize(("spoil", "red"), SPOILED.values(), ids=SPOILED.keys())
def test_a_spoiled_run_is_seen(spoil: Callable[[Run], object], red: set[str]) -> None:
    run = Run()
    spoil(run)
    assert set(run.failed()) == red


def test_the_later_fence_counts_whatever_the_order_of_the_files() -> None:
    first, second = _line(Step.DONE, "A", 1, 99), _line(Step.DONE, "A", 2, 10)
    for lines in ([first, second], [second, first]):
        assert Ledgers({"killed": lines}, "killed").metres() == {"A": 10}


def test_as_many_but_not_the_same_is_no_match() -> None:
    assert not Check("rows", {"A", "B"}, {"A", "C"}).holds


def _job(id: str, state: JobState, attempts: int, result: int | None = None) -> Job:
    return Job(
        id=id,
        queue="airports",
        name="",
        state=state,
        value=None,
        attempts=attempts,
        max_attempts=5,
        priority=0,
        created_ms=0,
        result=result,
    )


def _line(step: Step, id: str, fence: int, metres: int = 0) -> Line:
    return Line(step, id, fence, metres)


def _took(id: str, fence: int) -> Iterable[Line]:
    return [Line(Step.TOOK, id, fence)]


def _settled(id: str, fence: int, note: str = "acknowledged") -> Line:
    return Line(Step.SETTLED, id, fence, note=note)
