"""Ack, fail, release, quarantine and renew of a live lease (SPEC 3.1, 3.3). Stale tokens are in test_stale.py."""

from __future__ import annotations

from typing import Any

import pytest

from redisq import (
    Ack,
    Cancel,
    Engine,
    ErrorDetail,
    Failure,
    InvalidInput,
    JobState,
    Queue,
    QueuePolicy,
    Released,
    Renewal,
    SchemaMismatch,
)
from redisq.testing import ManualClock
from tests.jobs.steps import ids, state_of, taken, values
from tests.support.fronts import OpenEngine

KIB_64 = 64 * 1024


@pytest.mark.every_server
def test_an_ack_completes_the_job_and_keeps_its_result(queue: Queue[Any], clock: ManualClock) -> None:
    id = queue.offer("x").id
    delivery = taken(queue)
    clock.advance(2)
    assert queue.ack(delivery, {"sum": 2**53 + 1}) is Ack.ACKNOWLEDGED
    job = queue.get(id)
    assert job is not None
    assert (job.state, job.result, job.finished_ms, job.attempts) == ("completed", {"sum": 2**53 + 1}, clock.now_ms, 1)
    assert (job.due_ms, job.lease_expires_ms, job.error, job.cancel_requested) == (None, None, None, False)
    assert queue.take() is None


def test_no_result_and_a_result_of_none_read_alike(queue: Queue[Any]) -> None:
    id = queue.offer("x").id
    queue.ack(taken(queue), None)
    job = queue.get(id)
    assert job is not None
    assert job.result is None


def test_a_result_has_its_own_type(open_engine: OpenEngine, clock: ManualClock) -> None:
    queue = open_engine(clock=clock).queue("jobs", str, result_type=int)
    id = queue.offer("x").id
    delivery = taken(queue)
    with pytest.raises(InvalidInput, match="result"):
        queue.ack(delivery, "no number")
    assert state_of(queue, id) is JobState.LEASED
    queue.ack(delivery, 7)
    job = queue.get(id)
    assert job is not None
    assert job.result == 7
    stranger = open_engine(clock=clock).queue("jobs", str, result_type=list[str])
    with pytest.raises(SchemaMismatch, match=id):
        stranger.get(id)


@pytest.mark.every_server
def test_a_result_of_64_kib_is_kept_and_one_byte_more_applies_nothing(queue: Queue[Any]) -> None:
    id = queue.offer("x").id
    delivery = taken(queue)
    for result in ("r" * (KIB_64 - 1), object()):
        with pytest.raises(InvalidInput, match="result"):
            queue.ack(delivery, result)
        assert state_of(queue, id) is JobState.LEASED
    assert queue.ack(delivery, "r" * (KIB_64 - 2)) is Ack.ACKNOWLEDGED
    job = queue.get(id)
    assert job is not None
    assert len(job.result) == KIB_64 - 2


@pytest.mark.every_server
def test_a_failure_schedules_the_next_attempt_after_the_back_off(queue: Queue[Any], clock: ManualClock) -> None:
    """persistedqueue 12 and 13: nothing before the delay; then it is delivered with attempt 2."""
    id = queue.offer("x").id
    failure = queue.fail(taken(queue), ValueError("broken"))
    assert failure == Failure(JobState.SCHEDULED, clock.now_ms + 1000)
    job = queue.get(id)
    assert job is not None
    assert (job.state, job.due_ms, job.attempts, job.lease_expires_ms) == ("scheduled", failure.due_ms, 1, None)
    assert job.error is not None
    assert (job.error.type, job.error.message) == ("ValueError", "broken")
    clock.advance(0.999)
    assert queue.take() is None
    clock.advance(0.001)
    assert taken(queue).attempt == 2


@pytest.mark.every_server
def test_a_failure_without_a_wait_goes_to_the_tail(queue: Queue[Any]) -> None:
    queue.offer_many(["a", "b"])
    assert queue.fail(taken(queue), "broken", retry_in=0) == Failure(JobState.READY, None)
    assert [(each.value, each.attempt) for each in queue.take_many(2)] == [("b", 1), ("a", 2)]


def test_a_wait_of_its_own_replaces_the_back_off(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer("x")
    assert queue.fail(taken(queue), "broken", retry_in=77) == Failure(JobState.SCHEDULED, clock.now_ms + 77_000)


@pytest.mark.every_server
def test_a_final_failure_is_dead_whatever_attempts_are_left(queue: Queue[Any], clock: ManualClock) -> None:
    """effect-mq 22: unrecoverable means failed after 1 of 5."""
    id = queue.offer("x", max_attempts=5).id
    assert queue.fail(taken(queue), "broken", final=True, retry_in=5) == Failure(JobState.DEAD, None)
    job = queue.get(id)
    assert job is not None
    assert (job.state, job.attempts, job.finished_ms, job.error) == (
        "dead", 1, clock.now_ms, ErrorDetail("Error", "broken"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ErrorDetail("Mine", "m", "t"), "Mine", "m"),
        ("text", "Error", "text"),
        (KeyError("k"), "KeyError", "'k'"),
        (ErrorDetail("ü" * 300, "m"), "ü" * 128, "m"),
        (ErrorDetail(""), "", ""),
    ],
)
def test_an_error_is_an_exception_a_text_or_a_detail(queue: Queue[Any], error: Any, kind: str, message: str) -> None:
    id = queue.offer("x").id
    queue.fail(taken(queue), error)
    job = queue.get(id)
    assert job is not None
    assert job.error is not None
    assert (job.error.type, job.error.message) == (kind, message)


def test_an_exception_brings_its_traceback(queue: Queue[Any]) -> None:
    id = queue.offer("x").id
    try:
        raise ZeroDivisionError("by zero")
    except ZeroDivisionError as error:
        queue.fail(taken(queue), error)
    job = queue.get(id)
    assert job is not None
    assert job.error is not None
    assert "test_an_exception_brings_its_traceback" in job.error.traceback


@pytest.mark.parametrize("error", [None, 5, b"bytes", ValueError])
def test_an_error_of_another_kind_is_refused(queue: Queue[Any], error: Any) -> None:
    id = queue.offer("x").id
    delivery = taken(queue)
    with pytest.raises(InvalidInput, match="error"):
        queue.fail(delivery, error)
    assert state_of(queue, id) is JobState.LEASED


@pytest.mark.every_server
def test_a_release_goes_to_the_head_and_costs_no_attempt(queue: Queue[Any]) -> None:
    """effect-mq 7: back to its place, attempt count 0, empty ledger; persistedqueue 5 and 6."""
    queue.offer_many(["a", "b"])
    first = taken(queue)
    queue.release(first)
    job = queue.get(first.id)
    assert job is not None
    assert (job.state, job.attempts, queue.attempts(first.id)) == ("ready", 0, [])
    assert [(each.value, each.attempt) for each in queue.take_many(2)] == [("a", 1), ("b", 1)]


@pytest.mark.every_server
def test_a_release_with_a_delay_is_scheduled_and_costs_no_attempt(queue: Queue[Any], clock: ManualClock) -> None:
    id = queue.offer("x").id
    queue.release(taken(queue), delay=5)
    job = queue.get(id)
    assert job is not None
    assert (job.state, job.due_ms, job.attempts) == ("scheduled", clock.now_ms + 5000, 0)
    clock.advance(5)
    assert taken(queue).attempt == 1


def test_a_job_of_one_attempt_that_is_released_is_delivered_again(queue: Queue[Any]) -> None:
    """persistedqueue 7: maxAttempts 1 and an interrupted first delivery: delivered again, not failed."""
    queue.offer("x", max_attempts=1)
    for _ in range(3):
        delivery = taken(queue)
        assert delivery.attempt == 1
        queue.release(delivery)
    assert queue.fail(taken(queue), "broken").state is JobState.DEAD


def test_a_block_of_releases_is_taken_in_its_own_order(queue: Queue[Any]) -> None:
    queue.offer_many(list("abcd"))
    batch = queue.take_many(3)
    queue.exchange([Released(each) for each in batch], 0)
    assert values(queue.take_many(4)) == ["a", "b", "c", "d"]


@pytest.mark.every_server
def test_a_quarantined_job_is_set_aside_with_the_reason(queue: Queue[Any], clock: ManualClock) -> None:
    id = queue.offer("x", max_attempts=5).id
    assert queue.quarantine(taken(queue), "no such customer") == Failure(JobState.QUARANTINED, None)
    job = queue.get(id)
    assert job is not None
    assert (job.state, job.attempts, job.finished_ms, job.value) == ("quarantined", 1, clock.now_ms, "x")
    assert job.error == ErrorDetail("Quarantined", "no such customer")
    clock.advance(86_400)
    assert queue.take() is None


@pytest.mark.every_server
def test_a_renewal_counts_from_now_and_never_shortens(queue: Queue[Any], clock: ManualClock) -> None:
    """effect-mq 8: the renewed one survives past its original expiry."""
    id = queue.offer("x").id
    delivery = taken(queue, lease=10)
    clock.advance(4)
    end = clock.now_ms + 20_000
    assert queue.renew(delivery, 20) == Renewal(end, False)
    assert queue.renew(delivery, 1) == Renewal(end, False)
    clock.advance(6.001)
    assert queue.take() is None
    job = queue.get(id)
    assert job is not None
    assert (job.state, job.lease_expires_ms) == ("leased", end)
    assert queue.renew(delivery).expires_ms == clock.now_ms + 30_000
    assert queue.ack(delivery) is Ack.ACKNOWLEDGED


@pytest.mark.every_server
def test_a_batch_of_renewals_answers_each_for_itself(queue: Queue[Any], clock: ManualClock) -> None:
    """effect-mq 8: one live and one ghost: the ghost is lost, the live one survives."""
    queue.offer_many(list("abcd"))
    live, lost, gone, asked = queue.take_many(4)
    queue.release(lost)
    queue.ack(gone)
    queue.remove(gone.id)
    queue.cancel(asked.id)
    clock.advance(20)
    end = clock.now_ms + 30_000
    assert queue.renew_many([live, lost, gone, asked]) == [Renewal(end), Ack.LEASE_LOST, Ack.GONE, Renewal(end, True)]
    assert queue.renew_many([]) == []


@pytest.mark.every_server
def test_a_batch_of_acks_answers_each_for_itself(queue: Queue[Any]) -> None:
    queue.offer_many(list("abcde"))
    a, b, c, d, e = queue.take_many(5)
    queue.ack(b)
    queue.release(c)
    queue.ack(d)
    queue.remove(d.id)
    assert queue.ack_many([a, b, c, d, e, a]) == [
        "acknowledged", "already-acknowledged", "lease-lost", "gone", "acknowledged", "already-acknowledged",
    ]  # fmt: skip
    assert queue.counts()[JobState.COMPLETED] == 3
    assert queue.ack_many([]) == []


def test_more_than_a_thousand_acks_go_in_several_calls(queue: Queue[Any]) -> None:
    queue.offer_many(range(1500))
    claims = queue.take_many(1000) + queue.take_many(1000)
    assert len(queue.renew_many(claims)) == 1500
    assert set(queue.ack_many(claims)) == {Ack.ACKNOWLEDGED}
    assert queue.counts()[JobState.COMPLETED] == 1500


@pytest.mark.every_server
def test_a_pending_cancel_is_told_by_renew_and_ends_with_what_it_meets(queue: Queue[Any], clock: ManualClock) -> None:
    """effect-mq 14 to 16: flagged; fail, release and lapse end cancelled; a completion beats it."""
    queue.offer_many(["ack", "fail", "final", "release", "delay", "quarantine", "lapse"])
    by = {each.value: each for each in queue.take_many(7, lease=60)}
    for each in by.values():
        assert queue.cancel(each.id) is Cancel.REQUESTED
        assert queue.cancel(each.id) is Cancel.REQUESTED
        assert queue.renew(each).cancel_requested
        job = queue.get(each.id)
        assert job is not None
        assert (job.state, job.cancel_requested) == ("leased", True)
    assert queue.ack(by["ack"]) is Ack.ACKNOWLEDGED
    assert queue.fail(by["fail"], "broken") == Failure(JobState.CANCELLED)
    assert queue.fail(by["final"], "broken", final=True) == Failure(JobState.CANCELLED)
    queue.release(by["release"])
    queue.release(by["delay"], delay=5)
    assert queue.quarantine(by["quarantine"], "poison") == Failure(JobState.QUARANTINED)
    clock.advance(60)
    assert queue.take() is None
    states = {value: state_of(queue, each.id) for value, each in by.items()}
    assert states == {
        "ack": "completed", "fail": "cancelled", "final": "cancelled", "release": "cancelled", "delay": "cancelled",
        "quarantine": "quarantined", "lapse": "cancelled",
    }  # fmt: skip
    outcomes = {value: [row.outcome for row in queue.attempts(each.id)] for value, each in by.items()}
    assert outcomes == {
        "ack": ["completed"], "fail": ["cancelled"], "final": ["cancelled"], "release": ["cancelled"],
        "delay": ["cancelled"], "quarantine": ["quarantined"], "lapse": ["cancelled"],
    }  # fmt: skip
    for value in by:
        job = queue.get(by[value].id)
        assert job is not None
        assert not job.cancel_requested
    lapsed = queue.get(by["lapse"].id)
    assert lapsed is not None
    assert lapsed.finished_ms == by["lapse"].expires_ms


@pytest.mark.parametrize("verb", ["ack", "renew", "release"])
@pytest.mark.parametrize("thing", [None, "token", 5, b"x"])
def test_only_a_delivery_can_be_settled(queue: Queue[Any], verb: str, thing: Any) -> None:
    with pytest.raises(InvalidInput, match="delivery"):
        getattr(queue, verb)(thing)


def test_a_delivery_of_another_queue_is_refused(engine: Engine) -> None:
    """SPEC 3.3; and persistedqueue 29: an id in two queues is two jobs."""
    here, there = engine.queue("here"), engine.queue("there")
    here.offer("here", id="same")
    there.offer("there", id="same")
    delivery, other = taken(here), taken(there)
    for call in (
        lambda: there.ack(delivery), lambda: there.ack_many([other, delivery]), lambda: there.renew(delivery),
        lambda: there.renew_many([delivery]), lambda: there.release(delivery), lambda: there.fail(delivery, "x"),
        lambda: there.quarantine(delivery, "x"), lambda: there.exchange([delivery], 1),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match="here"):
            call()
    assert (state_of(here, "same"), state_of(there, "same")) == (JobState.LEASED, JobState.LEASED)
    assert there.ack(other) is Ack.ACKNOWLEDGED


def test_a_lease_of_the_policy_changes_with_the_policy(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(lease=10))
    queue.offer("x")
    delivery = taken(queue)
    queue.alter(QueuePolicy(lease=50))
    assert queue.renew(delivery).expires_ms == clock.now_ms + 50_000


def test_a_batch_takes_lists_and_tuples_alone(queue: Queue[Any]) -> None:
    queue.offer_many(list("ab"))
    batch = queue.take_many(2)
    wrongs: list[Any] = [iter(batch), batch[0], "ab", None, {"a": 1}]
    for wrong in wrongs:
        for verb in (queue.ack_many, queue.renew_many, lambda items: queue.exchange(items, 1)):
            with pytest.raises(InvalidInput):
                verb(wrong)
    assert queue.ack_many(tuple(batch)) == ["acknowledged", "acknowledged"]
    assert ids(queue.jobs(state="completed").items) == ids(batch)[::-1]
