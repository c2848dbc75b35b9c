"""The ledger of attempts and the history of transitions (SPEC 3.6)."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from redisq import Engine, ErrorDetail, History, JobHistory, JobState, Outcome, Queue, QueuePolicy
from redisq.testing import ManualClock
from tests.jobs.steps import killed, root_of, taken
from tests.support.fronts import OpenEngine

SWITCH = "REDISQ_DISABLE_FAILURE_DETAIL"


def steps(queue: Queue[Any], id: str) -> list[tuple[int, str, int]]:
    return [(each.ordinal, each.state, each.attempt) for each in queue.history(id).entries]


def outcomes(queue: Queue[Any], id: str) -> list[tuple[int, str]]:
    return [(row.number, row.outcome) for row in queue.attempts(id)]


@pytest.mark.every_server
def test_a_job_that_succeeds_at_once_has_one_row_and_three_steps(open_engine: OpenEngine, clock: ManualClock) -> None:
    queue = open_engine(clock=clock, worker="w:1,2;3é").queue("jobs")
    offered = clock.now_ms
    id = queue.offer("x").id
    clock.advance(1)
    delivery = taken(queue)
    clock.advance(2)
    queue.ack(delivery)
    (row,) = queue.attempts(id)
    assert (row.number, row.started_ms, row.finished_ms, row.outcome, row.error, row.worker) == (
        1, offered + 1000, offered + 3000, Outcome.COMPLETED, None, "w:1,2;3é",
    )  # fmt: skip
    history = queue.history(id)
    assert (history.recorded, history.dropped) == (True, 0)
    assert [(each.ordinal, each.at_ms, each.state, each.attempt) for each in history.entries] == [
        (1, offered, "ready", 0), (2, offered + 1000, "leased", 1), (3, offered + 3000, "completed", 1),
    ]  # fmt: skip


@pytest.mark.every_server
def test_the_ledger_tells_how_every_attempt_ended(queue: Queue[Any], clock: ManualClock) -> None:
    """effect-mq 20: retried, retried, completed, with their errors."""
    id = queue.offer("x").id
    queue.fail(taken(queue), ValueError("one"))
    clock.advance(1)
    queue.release(taken(queue))  # no attempt, no row
    taken(queue, lease=1)
    clock.advance(1)
    queue.take()
    clock.advance(2)
    queue.ack(taken(queue))
    rows = queue.attempts(id)
    assert [(row.number, row.outcome) for row in rows] == [(1, "retried"), (2, "lapsed"), (3, "completed")]
    assert rows[0].error is not None
    assert rows[1].error is not None
    assert (rows[0].error.type, rows[0].error.message) == ("ValueError", "one")
    assert "lease" in rows[1].error.message
    assert rows[2].error is None
    assert steps(queue, id) == [
        (1, "ready", 0), (2, "leased", 1), (3, "scheduled", 1), (4, "leased", 2), (5, "ready", 2), (6, "leased", 2),
        (7, "scheduled", 2), (8, "leased", 3), (9, "completed", 3),
    ]  # fmt: skip


@pytest.mark.every_server
def test_the_running_claim_is_a_step_and_no_row_yet(queue: Queue[Any]) -> None:
    id = queue.offer("x").id
    taken(queue)
    assert queue.attempts(id) == []
    assert steps(queue, id) == [(1, "ready", 0), (2, "leased", 1)]


@pytest.mark.every_server
def test_a_due_promotion_is_no_step_and_a_manual_one_is(queue: Queue[Any], clock: ManualClock) -> None:
    due = queue.offer("due", delay=1).id
    manual = queue.offer("manual", delay=60).id
    clock.advance(1)
    queue.promote(manual)
    assert len(queue.take_many(2)) == 2
    assert steps(queue, due) == [(1, "scheduled", 0), (2, "leased", 1)]
    assert steps(queue, manual) == [(1, "scheduled", 0), (2, "ready", 0), (3, "leased", 1)]


@pytest.mark.every_server
def test_a_job_cancelled_before_any_claim_has_a_step_and_no_row(queue: Queue[Any]) -> None:
    """effect-mq 13, where SPEC 3.6 differs: one transition, no ledger row."""
    id = queue.offer("x").id
    queue.cancel(id)
    assert queue.attempts(id) == []
    assert steps(queue, id) == [(1, "ready", 0), (2, "cancelled", 0)]
    second = queue.offer("y", delay=5).id
    queue.cancel(second)
    assert steps(queue, second) == [(1, "scheduled", 0), (2, "cancelled", 0)]


def test_a_job_cancelled_after_a_failed_attempt_keeps_that_row(queue: Queue[Any]) -> None:
    id = queue.offer("x").id
    queue.fail(taken(queue), "broken")
    queue.cancel(id)
    assert outcomes(queue, id) == [(1, "retried")]
    assert steps(queue, id)[-1] == (4, "cancelled", 1)


@pytest.mark.every_server
def test_numbers_and_ordinals_go_on_over_a_manual_retry(queue: Queue[Any]) -> None:
    """effect-mq 18."""
    id = killed(queue)
    queue.retry(id)
    queue.quarantine(taken(queue), "poison")
    queue.retry(id)
    queue.ack(taken(queue))
    assert outcomes(queue, id) == [(1, "dead"), (2, "quarantined"), (3, "completed")]
    assert steps(queue, id) == [
        (1, "ready", 0), (2, "leased", 1), (3, "dead", 1), (4, "ready", 0), (5, "leased", 1), (6, "quarantined", 1),
        (7, "ready", 0), (8, "leased", 1), (9, "completed", 1),
    ]  # fmt: skip


@pytest.mark.every_server
def test_the_newest_rows_and_steps_up_to_the_caps_are_kept(engine: Engine) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(attempt_cap=3, transition_cap=4, max_attempts=100))
    id = queue.offer("x").id
    for number in range(1, 9):
        queue.fail(taken(queue), f"failure {number}", retry_in=0)
        rows = queue.attempts(id)
        assert [row.number for row in rows] == list(range(max(1, number - 2), number + 1))
        assert [row.error.message for row in rows if row.error] == [f"failure {row.number}" for row in rows]
        history = queue.history(id)
        last = 2 * number + 1
        first = max(1, last - 3)
        assert [each.ordinal for each in history.entries] == list(range(first, last + 1))
        assert history.dropped == first - 1


@pytest.mark.every_server
def test_what_a_cap_drops_is_not_stored_any_more(engine: Engine, raw: redis.Redis) -> None:
    """effect-mq c9: an unbounded ledger; here no row stays behind that nobody can read."""
    queue = engine.queue("jobs", policy=QueuePolicy(attempt_cap=3, transition_cap=4, max_attempts=100))
    id = queue.offer("x").id
    for number in range(12):
        queue.fail(taken(queue), f"failure {number}", retry_in=0)
    for column, most in (("attempts", 3), ("history", 2)):
        stored = raw.hget(f"{root_of(queue)}:{column}", id)
        assert isinstance(stored, bytes)
        assert 0 < stored.count(b"failure ") <= most


@pytest.mark.every_server
@pytest.mark.parametrize("rung", list(History))
def test_each_rung_records_its_share(engine: Engine, rung: History) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(history=rung))
    id = queue.offer("x", name="n").id
    queue.fail(taken(queue), ErrorDetail("Mine", "secret", "trace"), retry_in=0)
    kept = ErrorDetail("Mine", "secret", "trace") if rung is History.FULL else ErrorDetail("Mine")
    job = queue.get(id)
    assert job is not None
    assert job.error == kept
    assert [row.error for row in queue.attempts(id)] == [kept]
    history = queue.history(id)
    assert history.recorded is (rung is not History.OFF)
    assert len(history.entries) == (0 if rung is History.OFF else 3)
    queue.ack(taken(queue), {"kept": "whatever the rung"})
    job = queue.get(id)
    assert job is not None
    assert job.result == {"kept": "whatever the rung"}
    assert [row.error for row in queue.attempts(id)] == [kept, None]


@pytest.mark.parametrize("ends", ["ack", "cancel"], ids=["in the head alone", "in rows"])
def test_a_queue_that_came_to_record_none_shows_none(engine: Engine, ends: str) -> None:
    queue = engine.queue("jobs")
    id = queue.offer("x").id
    if ends == "ack":
        queue.ack(taken(queue))
    else:
        queue.cancel(id)
    assert queue.history(id).entries
    queue.alter(QueuePolicy(history="off"))
    assert queue.history(id) == JobHistory(entries=[], recorded=False)


@pytest.mark.parametrize("value", ["1", "true", "YES", " On ", "TRUE\n"])
def test_the_switch_keeps_the_type_of_a_failure_alone(
    queue: Queue[Any], monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(SWITCH, value)
    id = queue.offer("x").id
    queue.fail(taken(queue), ErrorDetail("Mine", "secret", "secret"))
    job = queue.get(id)
    assert job is not None
    assert job.error == ErrorDetail("Mine")
    assert [row.error for row in queue.attempts(id)] == [ErrorDetail("Mine")]
    assert len(queue.history(id).entries) == 3
    assert queue.history(id).recorded


@pytest.mark.parametrize("value", ["", "0", "false", "no", "off", "2", "si"])
def test_other_values_of_the_switch_change_nothing(
    queue: Queue[Any], monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(SWITCH, value)
    id = queue.offer("x").id
    queue.fail(taken(queue), "kept")
    job = queue.get(id)
    assert job is not None
    assert job.error == ErrorDetail("Error", "kept")


def test_the_switch_never_lowers_a_rung_further(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    queue = engine.queue("jobs", policy=QueuePolicy(history="off"))
    id = queue.offer("x").id
    queue.ack(taken(queue), "result")
    assert not queue.history(id).recorded
    job = queue.get(id)
    assert job is not None
    assert job.result == "result"


def test_a_failure_s_detail_is_cut_to_8_kib_between_characters(queue: Queue[Any]) -> None:
    id = queue.offer("x").id
    queue.fail(taken(queue), ErrorDetail("T" * 300, "ü" * 3000, "start" + "é" * 3000 + "end"))
    job = queue.get(id)
    assert job is not None
    error = job.error
    assert error is not None
    assert error.type == "T" * 256
    assert error.message == "ü" * 3000
    assert error.traceback.endswith("end")
    assert set(error.traceback[:-3]) == {"é"}
    size = len(error.type) + len(error.message.encode()) + len(error.traceback.encode())
    assert 8 * 1024 - 1 <= size <= 8 * 1024


def test_a_long_message_is_cut_at_its_end(queue: Queue[Any]) -> None:
    id = queue.offer("x").id
    queue.fail(taken(queue), ErrorDetail("E", "m" + "ü" * 9000, "lost"))
    job = queue.get(id)
    assert job is not None
    assert job.error is not None
    assert job.error.message == "m" + "ü" * ((8 * 1024 - 2) // 2)
    assert job.error.traceback in ("", "t")


@pytest.mark.every_server
def test_an_older_row_keeps_one_kib_of_its_error(queue: Queue[Any]) -> None:
    id = queue.offer("x").id
    detail = ErrorDetail("Mine", "m" + "ü" * 2000, "trace")
    queue.fail(taken(queue), detail, retry_in=0)
    queue.ack(taken(queue))
    error = queue.attempts(id)[0].error
    assert error is not None
    assert (error.type, error.message) == ("Mine", "m" + "ü" * 509)
    assert error.traceback in ("", "e")
    assert queue.history(id).entries[2].detail == detail


def test_the_newest_row_keeps_one_kib_of_its_error_too(queue: Queue[Any]) -> None:
    id = queue.offer("x").id
    queue.fail(taken(queue), ErrorDetail("Mine", "m" * 4000))
    error = queue.attempts(id)[0].error
    assert error is not None
    assert error == ErrorDetail("Mine", "m" * 1020)


def test_a_removed_job_has_no_past(queue: Queue[Any]) -> None:
    id = killed(queue, id="x")
    queue.retry(id)
    queue.fail(taken(queue), "again", final=True)
    queue.remove(id)
    assert queue.attempts(id) == []
    assert queue.history(id).entries == []
    queue.offer("new", id="x")
    taken(queue)
    assert queue.attempts("x") == []
    assert steps(queue, "x") == [(1, "ready", 0), (2, "leased", 1)]


def test_an_unknown_id_has_no_past(queue: Queue[Any]) -> None:
    queue.offer("x")
    assert queue.attempts("unknown") == []
    history = queue.history("unknown")
    assert (history.entries, history.recorded, history.dropped) == ([], True, 0)


def test_an_error_whose_own_text_fails_is_recorded(queue: Queue[Any]) -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    id = queue.offer("x").id
    assert queue.fail(taken(queue), Broken()).state is JobState.SCHEDULED
    job = queue.get(id)
    assert job is not None
    assert job.error is not None
    assert job.error.type == "Broken"


def test_the_worker_of_each_attempt_is_named(open_engine: OpenEngine, clock: ManualClock) -> None:
    first, second = (open_engine(clock=clock, worker=name).queue("jobs") for name in ("one", "two, the 2nd"))
    id = first.offer("x").id
    first.fail(taken(first), "broken", retry_in=0)
    second.ack(taken(second))
    assert [row.worker for row in first.attempts(id)] == ["one", "two, the 2nd"]
