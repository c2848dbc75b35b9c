"""The model on its own: one test per sentence of the contract that is easily got wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redisq.errors import ConfigurationConflict, InvalidInput, LeaseLost, QueueNotEmpty
from redisq.model import (
    Ack,
    Attempt,
    Bulk,
    Cancel,
    Delivery,
    Done,
    ErrorDetail,
    Failed,
    Failure,
    History,
    Job,
    JobState,
    NewJob,
    Offer,
    Outcome,
    Released,
    Renewal,
)
from redisq.policy import Backoff, Keep, QueuePolicy
from redisq.testing import ManualClock, ReferenceQueue

START = 1_000_000
BAD = ErrorDetail("ValueError", "bad", "trace")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


def queue_with(clock: ManualClock, **policy: Any) -> ReferenceQueue:
    """A queue with attempts without back-off and a lease of 10 s, unless told otherwise."""
    options = {"max_attempts": 3, "backoff": Backoff.fixed(0), "lease": 10, "keep": Keep(), **policy}
    return ReferenceQueue("jobs", clock, QueuePolicy(**options), worker="w")


@pytest.fixture
def queue(clock: ManualClock) -> ReferenceQueue:
    return queue_with(clock)


def claim(queue: ReferenceQueue, **options: Any) -> Delivery:
    delivery = queue.take(**options)
    assert delivery is not None
    return delivery


def job(queue: ReferenceQueue, id: str) -> Job:
    found = queue.get(id)
    assert found is not None
    return found


def offer(queue: ReferenceQueue, *ids: str, **options: Any) -> None:
    queue.offer_many([NewJob(id, id=id, **options) for id in ids])


def take_order(queue: ReferenceQueue) -> list[str]:
    return [delivery.id for delivery in queue.take_many(1000)]


def finish(queue: ReferenceQueue, *ids: str) -> None:
    """Offers and completes the jobs, one after the other."""
    for id in ids:
        offer(queue, id)
        queue.ack(claim(queue))


def outcomes(queue: ReferenceQueue, id: str) -> list[tuple[int, Outcome]]:
    return [(row.number, row.outcome) for row in queue.attempts(id)]


def states(queue: ReferenceQueue, id: str) -> list[JobState]:
    return [row.state for row in queue.history(id).entries]


# producing


def test_the_first_offer_of_an_id_wins(queue: ReferenceQueue) -> None:
    assert queue.offer(1, id="a", delay=5) == Offer("a", False, JobState.SCHEDULED)
    assert queue.offer(2, id="a") == Offer("a", True, JobState.SCHEDULED)
    assert job(queue, "a").value == 1


def test_the_memory_of_a_removed_id_ends_when_dedup_has_passed_since_the_finish(clock: ManualClock) -> None:
    queue = queue_with(clock, dedup=10, keep=Keep(age=3))
    finish(queue, "a")
    clock.advance(3)
    assert queue.maintain().by_category["retention"] == 1
    clock.advance(6.999)
    assert queue.offer(2, id="a") == Offer("a", True, None)
    clock.advance(0.001)
    assert queue.offer(2, id="a") == Offer("a", False, JobState.READY)


def test_remove_frees_the_id_and_purge_does_not(queue: ReferenceQueue) -> None:
    finish(queue, "a", "b")
    assert queue.remove("a")
    assert queue.purge(JobState.COMPLETED) == Bulk(done=1, vanished=0)
    assert queue.offer(1, id="a").duplicate is False
    assert queue.offer(1, id="b") == Offer("b", True, None)


def test_purging_what_never_finished_starts_its_memory_then(clock: ManualClock) -> None:
    queue = queue_with(clock, dedup=10)
    offer(queue, "a")
    clock.advance(100)
    queue.purge(JobState.READY)
    clock.advance(9)
    assert queue.offer(1, id="a").duplicate
    clock.advance(1)
    assert not queue.offer(1, id="a").duplicate


def test_a_past_time_is_now(queue: ReferenceQueue, clock: ManualClock) -> None:
    now = datetime.fromtimestamp(clock.now_ms / 1000, UTC)
    assert queue.offer(1, at=now - timedelta(days=1)).state is JobState.READY
    assert queue.offer(1, at=now + timedelta(milliseconds=1)).state is JobState.SCHEDULED


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 1001},
        {"priority": True},
        {"delay": -1},
        {"delay": float("nan")},
        {"delay": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)},
        {"at": datetime(2030, 1, 1)},
        {"max_attempts": 0},
        {"id": ""},
        {"name": "\ud800"},
        {"timeout": 0},
        {"keep": 3},
        {"metadata": {"k": 1}},
    ],
)
def test_nonsense_is_refused_and_offers_nothing(queue: ReferenceQueue, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        queue.offer_many([NewJob(1), NewJob(1, **options)])
    assert sum(queue.counts().values()) == 0


def test_a_value_of_another_type_is_refused(queue: ReferenceQueue) -> None:
    with pytest.raises(InvalidInput):
        queue.client(type=int).offer("text")


# the order of takes


def test_higher_priority_first_then_first_in_first_out(queue: ReferenceQueue) -> None:
    offer(queue, "z", "a")
    offer(queue, "y", "b", priority=5)
    offer(queue, "c", priority=-5)
    assert take_order(queue) == ["y", "b", "z", "a", "c"]


def test_due_jobs_go_to_the_tail_by_time_then_by_id(queue: ReferenceQueue, clock: ManualClock) -> None:
    offer(queue, "late", delay=2)
    offer(queue, "b", "a", delay=1)
    clock.advance(3)
    offer(queue, "new")
    assert take_order(queue) == ["new", "a", "b", "late"]


def test_releases_of_one_call_go_to_the_head_as_one_block(queue: ReferenceQueue) -> None:
    offer(queue, "a", "b", "c")
    first, second = queue.take_many(2)
    answers, _ = queue.exchange([Released(second), Released(first)], 0)
    assert answers == [Failure(JobState.READY)] * 2
    assert take_order(queue) == ["b", "a", "c"]


def test_fail_and_promote_go_to_the_tail(queue: ReferenceQueue) -> None:
    offer(queue, "a", "b")
    offer(queue, "later", delay=100)
    queue.fail(claim(queue), BAD)
    assert queue.promote("later")
    assert take_order(queue) == ["b", "a", "later"]


def test_a_paused_take_promotes_nothing(queue: ReferenceQueue, clock: ManualClock) -> None:
    offer(queue, "a", delay=1)
    queue.pause()
    clock.advance(1)
    assert queue.take() is None
    assert job(queue, "a").state is JobState.SCHEDULED
    queue.resume()
    assert claim(queue).id == "a"


def test_an_undecodable_payload_is_quarantined_and_the_take_goes_on(queue: ReferenceQueue) -> None:
    typed = queue.client(type=int)
    queue.offer("text", id="bad")
    queue.offer(7, id="good")
    assert [each.id for each in typed.take_many(1)] == ["good"]
    bad = typed.get("bad")
    assert bad is not None
    assert (bad.state, bad.value, bad.attempts) == (JobState.QUARANTINED, b'"text"', 1)
    assert outcomes(queue, "bad") == [(1, Outcome.QUARANTINED)]


# settling


def test_the_life_of_a_job_that_fails_once(clock: ManualClock) -> None:
    queue = queue_with(clock, backoff=Backoff.exponential(base=2))
    offer(queue, "a")
    delivery = claim(queue)
    assert (delivery.attempt, delivery.max_attempts, delivery.expires_ms) == (1, 3, START + 10_000)
    clock.advance(1)
    assert queue.fail(delivery, BAD) == Failure(JobState.SCHEDULED, START + 3_000)
    clock.advance(2)
    assert queue.ack(claim(queue), "done") is Ack.ACKNOWLEDGED
    done = job(queue, "a")
    assert (done.state, done.attempts, done.result, done.finished_ms) == (JobState.COMPLETED, 2, "done", START + 3_000)
    assert queue.attempts("a") == [
        Attempt(number=1, started_ms=START, finished_ms=START + 1_000, outcome=Outcome.RETRIED, error=BAD, worker="w"),
        Attempt(number=2, started_ms=START + 3_000, finished_ms=START + 3_000, outcome=Outcome.COMPLETED, worker="w"),
    ]
    rows = [(row.ordinal, row.at_ms - START, row.state, row.attempt) for row in queue.history("a").entries]
    assert rows == [
        (1, 0, JobState.READY, 0),
        (2, 0, JobState.LEASED, 1),
        (3, 1_000, JobState.SCHEDULED, 1),
        (4, 3_000, JobState.LEASED, 2),
        (5, 3_000, JobState.COMPLETED, 2),
    ]


def test_the_last_attempt_dies_whatever_retry_in_says(queue: ReferenceQueue) -> None:
    offer(queue, "a", max_attempts=1)
    assert queue.fail(claim(queue), BAD, retry_in=5) == Failure(JobState.DEAD)
    offer(queue, "b")
    assert queue.fail(claim(queue), BAD, final=True) == Failure(JobState.DEAD)


def test_a_release_counts_no_attempt(queue: ReferenceQueue) -> None:
    offer(queue, "a")
    queue.release(claim(queue))
    assert (job(queue, "a").attempts, queue.attempts("a")) == (0, [])
    assert claim(queue).attempt == 1


def test_repeating_a_verb_repeats_its_answer_and_changes_nothing(queue: ReferenceQueue, clock: ManualClock) -> None:
    offer(queue, "a")
    delivery = claim(queue)
    first = queue.fail(delivery, BAD, retry_in=5)
    clock.advance(100)
    assert queue.fail(delivery, BAD, final=True) == first
    for verb in (queue.ack, queue.renew, queue.release):
        with pytest.raises(LeaseLost):
            verb(delivery)
    assert job(queue, "a").state is JobState.SCHEDULED


def test_a_newer_claim_leaves_a_settled_token_its_answer_and_a_newer_settle_does_not(queue: ReferenceQueue) -> None:
    offer(queue, "a")
    old = claim(queue)
    queue.release(old)
    new = claim(queue)
    queue.release(old)
    assert job(queue, "a").state is JobState.LEASED
    queue.ack(new)
    with pytest.raises(LeaseLost):
        queue.release(old)
    assert queue.ack(new) is Ack.ALREADY_ACKNOWLEDGED


def test_a_recovered_lapse_and_a_cancel_of_the_waiting_job_settle_older_tokens(
    queue: ReferenceQueue, clock: ManualClock
) -> None:
    offer(queue, "a", "b")
    a, b = queue.take_many(2)
    queue.exchange([Released(a), Released(b)], 0)
    queue.cancel("b")
    with pytest.raises(LeaseLost):
        queue.release(b)
    claim(queue)
    clock.advance(10)
    queue.release(a)
    queue.maintain()
    with pytest.raises(LeaseLost):
        queue.release(a)


def test_retry_and_promote_do_not_settle_older_tokens(queue: ReferenceQueue) -> None:
    offer(queue, "a", max_attempts=1)
    delivery = claim(queue)
    queue.fail(delivery, BAD)
    queue.retry("a")
    assert queue.fail(delivery, BAD) == Failure(JobState.DEAD)
    assert job(queue, "a").state is JobState.READY


def test_at_its_end_a_lease_is_lost_even_when_nobody_took_the_job(queue: ReferenceQueue, clock: ManualClock) -> None:
    offer(queue, "a")
    delivery = claim(queue)
    clock.advance(9.999)
    assert queue.renew(delivery, 0.001) == Renewal(START + 10_000)
    clock.advance(0.001)
    with pytest.raises(LeaseLost):
        queue.ack(delivery)
    assert job(queue, "a").state is JobState.LEASED
    assert queue.ack_many([delivery]) == [Ack.LEASE_LOST]


def test_of_a_removed_job_ack_and_every_batch_say_gone(queue: ReferenceQueue) -> None:
    offer(queue, "a")
    delivery = claim(queue)
    queue.ack(delivery)
    queue.remove("a")
    assert queue.ack(delivery) is Ack.GONE
    assert queue.exchange([delivery, Failed(delivery, BAD)], 0)[0] == [Ack.GONE, Ack.GONE]
    for verb in (queue.renew, queue.release):
        with pytest.raises(LeaseLost):
            verb(delivery)
    offer(queue, "a")
    with pytest.raises(LeaseLost):
        queue.ack(delivery)


def test_a_delivery_of_another_queue_is_invalid(queue: ReferenceQueue, clock: ManualClock) -> None:
    other = ReferenceQueue("other", clock)
    other.offer(1)
    with pytest.raises(InvalidInput):
        queue.ack(claim(other))


def test_exchange_settles_first_so_a_released_job_may_come_straight_back(queue: ReferenceQueue) -> None:
    offer(queue, "a", "b")
    a, b = queue.take_many(2)
    answers, taken = queue.exchange([Done(b, 1), Released(a), b], 5)
    assert answers == [Ack.ACKNOWLEDGED, Failure(JobState.READY), Ack.ALREADY_ACKNOWLEDGED]
    assert [each.id for each in taken] == ["a"]


# cancelling


def test_a_cancel_of_a_leased_job_waits_for_its_holder(queue: ReferenceQueue) -> None:
    offer(queue, "a", "b", "c")
    a, b, c = queue.take_many(3)
    assert [queue.cancel(id) for id in ("a", "a", "b", "c")] == [Cancel.REQUESTED] * 4
    assert queue.renew(a).cancel_requested
    assert queue.ack(a) is Ack.ACKNOWLEDGED
    assert queue.fail(b, BAD, retry_in=5) == Failure(JobState.CANCELLED)
    assert queue.quarantine(c, "odd") == Failure(JobState.QUARANTINED)
    assert [job(queue, id).cancel_requested for id in "abc"] == [False] * 3
    assert [queue.cancel(id) for id in ("a", "b", "x")] == [Cancel.TOO_LATE, Cancel.TOO_LATE, Cancel.UNKNOWN]


def test_a_cancel_of_a_lapsed_lease_is_a_request(queue: ReferenceQueue, clock: ManualClock) -> None:
    offer(queue, "a")
    claim(queue)
    clock.advance(50)
    assert queue.cancel("a") is Cancel.REQUESTED
    assert queue.remove("a") is False
    queue.maintain()
    assert job(queue, "a").state is JobState.CANCELLED


def test_a_job_cancelled_before_any_claim_has_a_transition_and_no_attempt(queue: ReferenceQueue) -> None:
    offer(queue, "a")
    assert queue.cancel("a") is Cancel.CANCELLED
    assert queue.attempts("a") == []
    assert states(queue, "a") == [JobState.READY, JobState.CANCELLED]


# lapses


def test_a_lapse_counts_and_backs_off_from_the_end_of_the_lease(clock: ManualClock) -> None:
    queue = queue_with(clock, backoff=Backoff.fixed(5))
    offer(queue, "a")
    claim(queue)
    clock.advance(12)
    assert queue.take() is None
    assert job(queue, "a").due_ms == START + 15_000
    assert outcomes(queue, "a") == [(1, Outcome.LAPSED)]
    clock.advance(3)
    assert claim(queue).attempt == 2


def test_the_last_lapse_is_dead_since_the_end_of_the_lease(queue: ReferenceQueue, clock: ManualClock) -> None:
    offer(queue, "a", max_attempts=1)
    claim(queue)
    clock.advance(100)
    queue.maintain()
    dead = job(queue, "a")
    assert (dead.state, dead.finished_ms) == (JobState.DEAD, START + 10_000)
    assert dead.error is not None
    assert outcomes(queue, "a") == [(1, Outcome.LAPSED)]


def test_an_unstarted_lapse_goes_to_the_head_and_counts_nothing(queue: ReferenceQueue, clock: ManualClock) -> None:
    offer(queue, "a", "b", "c", "d")
    _, taken = queue.exchange([], 3, started=False)
    queue.start(taken[:1])
    clock.advance(10)
    assert take_order(queue) == ["b", "c", "d", "a"]
    assert [outcomes(queue, id) for id in "ab"] == [[(1, Outcome.LAPSED)], []]


# retry, and the ledger


def test_retry_starts_attempts_again_and_keeps_the_numbers(queue: ReferenceQueue) -> None:
    offer(queue, "a", max_attempts=2)
    queue.fail(claim(queue), BAD)
    queue.fail(claim(queue), BAD)
    assert queue.retry("a")
    assert not queue.retry("a")
    assert job(queue, "a").attempts == 0
    delivery = claim(queue)
    assert delivery.attempt == 1
    queue.ack(delivery)
    assert outcomes(queue, "a") == [(1, Outcome.RETRIED), (2, Outcome.DEAD), (3, Outcome.COMPLETED)]


def test_the_newest_rows_are_kept_and_ordinals_go_on(clock: ManualClock) -> None:
    queue = queue_with(clock, max_attempts=9, attempt_cap=2, transition_cap=3)
    offer(queue, "a")
    for _ in range(4):
        queue.fail(claim(queue), BAD)
    assert [row.number for row in queue.attempts("a")] == [3, 4]
    history = queue.history("a")
    assert [row.ordinal for row in history.entries] == [7, 8, 9]
    assert (history.dropped, history.recorded) == (6, True)


@pytest.mark.parametrize(
    ("rung", "hidden", "message", "rows"),
    [
        (History.FULL, "", "bad", 3),
        (History.FULL, " YES ", "", 3),
        (History.TRANSITIONS, "", "", 3),
        (History.OFF, "", "", 0),
        (History.OFF, "1", "", 0),
    ],
)
def test_the_history_ladder(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, rung: History, hidden: str, message: str, rows: int
) -> None:
    monkeypatch.setenv("REDISQ_DISABLE_FAILURE_DETAIL", hidden)
    queue = queue_with(clock, history=rung)
    offer(queue, "a")
    queue.fail(claim(queue), BAD, final=True)
    error = job(queue, "a").error
    assert error is not None
    assert (error.type, error.message, error.traceback == "trace") == ("ValueError", message, bool(message))
    assert queue.attempts("a")[0].error == error
    history = queue.history("a")
    assert (len(history.entries), history.recorded) == (rows, rows > 0)


def test_details_are_cut(queue: ReferenceQueue) -> None:
    offer(queue, "a")
    queue.fail(claim(queue), ErrorDetail("E", "é" * 500, "-" * 9000 + "end"), final=True)
    error, row = job(queue, "a").error, queue.attempts("a")[0].error
    assert error is not None
    assert row is not None
    assert len(error.type + error.traceback) + len(error.message.encode()) == 8192
    assert error.traceback.endswith("end")
    assert len(row.type + row.traceback) + len(row.message.encode()) <= 1024


# retention


def test_the_newest_count_by_finish_time_is_kept_per_name(clock: ManualClock) -> None:
    queue = queue_with(clock, keep=Keep(count=1))
    finish(queue, "a", "b")
    offer(queue, "c", name="other")
    queue.ack(claim(queue))
    assert [each.id for each in queue.jobs().items] == ["c", "b"]


def test_the_rule_of_the_job_that_finishes_prunes_its_siblings(clock: ManualClock) -> None:
    queue = queue_with(clock)
    finish(queue, "a", "b")
    offer(queue, "c", keep=Keep(count=0))
    queue.ack(claim(queue))
    assert sum(queue.counts().values()) == 0


def test_one_settle_prunes_at_most_twelve(clock: ManualClock) -> None:
    queue = queue_with(clock)
    finish(queue, *(f"{number:02}" for number in range(20)))
    offer(queue, "last", keep=Keep(count=0))
    queue.ack(claim(queue))
    assert [each.id for each in queue.jobs().items][-1] == "12"
    assert queue.counts()[JobState.COMPLETED] == 21 - 12


def test_a_record_at_exactly_its_age_goes_and_reads_as_present_until_then(clock: ManualClock) -> None:
    queue = queue_with(clock, keep=Keep(age=3))
    finish(queue, "a")
    clock.advance(2.999)
    assert queue.maintain().processed == 0
    clock.advance(0.001)
    assert queue.get("a") is not None
    assert queue.maintain().by_category == {"due": 0, "lapsed": 0, "retention": 1, "dedup": 0}
    assert queue.get("a") is None


def test_an_own_keep_without_an_age_has_none(clock: ManualClock) -> None:
    queue = queue_with(clock, keep=Keep(age=3))
    offer(queue, "a", keep=None)
    queue.ack(claim(queue))
    clock.advance(1000)
    assert queue.maintain().processed == 0


def test_the_ceiling_is_over_every_age(clock: ManualClock) -> None:
    queue = queue_with(clock, keep=Keep(age=5), history_ttl={"completed": 2})
    finish(queue, "a")
    offer(queue, "b", keep=None)
    queue.ack(claim(queue))
    clock.advance(2)
    assert queue.maintain().by_category["retention"] == 2


def test_the_sweep_enforces_a_count_lowered_by_alter(clock: ManualClock) -> None:
    queue = queue_with(clock)
    finish(queue, "a", "b", "c")
    assert queue.alter(QueuePolicy(keep=Keep(count=1))).keep == Keep()
    swept = queue.maintain(1)
    assert (swept.processed, swept.pending) == (1, True)
    assert queue.maintain(1).pending is False
    assert [each.id for each in queue.jobs().items] == ["c"]


# operating


def test_bulk_operations_and_errors(queue: ReferenceQueue) -> None:
    offer(queue, "a", "b", name="n", max_attempts=1)
    offer(queue, "c", max_attempts=1)
    for delivery in queue.take_many(3):
        queue.fail(delivery, BAD if delivery.id != "b" else ErrorDetail("OSError"))
    groups = {(group.name, group.type): group.count for group in queue.errors(JobState.DEAD)}
    assert groups == {("n", "ValueError"): 1, ("n", "OSError"): 1, ("", "ValueError"): 1}
    assert queue.retry_many(JobState.DEAD, name="n", error="ValueError") == Bulk(done=1, vanished=0)
    assert queue.purge(JobState.DEAD, error="OSError") == Bulk(done=1, vanished=0)
    assert [each.id for each in queue.jobs().items] == ["a", "c"]
    for verb, state in ((queue.retry_many, JobState.COMPLETED), (queue.purge, JobState.LEASED)):
        with pytest.raises(InvalidInput):
            verb(state)


def test_listings_are_newest_first_and_show_what_stayed_once(queue: ReferenceQueue) -> None:
    offer(queue, "a", "b", "c")
    offer(queue, "p", priority=1)
    page = queue.jobs(limit=2)
    assert [each.id for each in page.items] == ["c", "b"]
    queue.cancel("b")
    offer(queue, "d")
    rest = queue.jobs(limit=10, cursor=page.cursor)
    assert [each.id for each in rest.items] == ["d", "a", "p"]
    assert rest.cursor is None


def test_delete_refuses_while_anything_is_live(queue: ReferenceQueue) -> None:
    offer(queue, "a")
    delivery = claim(queue)
    with pytest.raises(QueueNotEmpty):
        queue.delete()
    queue.delete(force=True)
    assert queue.ack(delivery) is Ack.GONE
    assert queue.client().alter(QueuePolicy()).max_attempts == 10


def test_a_missing_queue_reads_empty_and_is_created_by_few(queue: ReferenceQueue) -> None:
    assert (queue.get("a"), queue.take(), queue.cancel("a")) == (None, None, Cancel.UNKNOWN)
    other = queue.client(policy=QueuePolicy(max_attempts=9))
    other.offer(1)
    with pytest.raises(ConfigurationConflict, match="max_attempts"):
        queue.offer(1)


def test_a_later_client_is_held_to_the_fields_that_it_declares(queue: ReferenceQueue) -> None:
    offer(queue, "a")
    assert queue.client(policy=QueuePolicy(max_attempts=3)).counts()[JobState.READY] == 1
    with pytest.raises(ConfigurationConflict, match="lease"):
        queue.client(policy=QueuePolicy(lease=11, max_attempts=3)).get("a")


def test_running_clients_adopt_an_altered_policy_and_later_ones_conflict(queue: ReferenceQueue) -> None:
    offer(queue, "a")
    queue.alter(QueuePolicy(lease=20))
    assert claim(queue).expires_ms == START + 20_000
    with pytest.raises(ConfigurationConflict):
        queue.client(policy=QueuePolicy(lease=10)).take()
