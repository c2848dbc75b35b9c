"""Looking and operating: get, cancel, promote, remove, pause, counts and info (SPEC 3.4). Listings: test_listing.py."""

from __future__ import annotations

from typing import Any

import pytest

from redisq import Cancel, Engine, InvalidInput, JobState, Keep, NewJob, Queue, QueuePolicy
from redisq.testing import ManualClock
from tests.jobs.steps import drained, finished, ids, killed, state_of, taken, values
from tests.support.fronts import OpenEngine

STATES = ["ready", "scheduled", "leased", "completed", "dead", "cancelled", "quarantined"]


def bring(queue: Queue[Any], state: str, id: str = "x", **options: Any) -> None:
    """Offers a job and brings it to a state."""
    queue.offer("x", id=id, delay=60 if state == "scheduled" else None, **options)
    if state == "cancelled":
        queue.cancel(id)
    if state in ("leased", "completed", "dead", "quarantined"):
        delivery = taken(queue)
        assert delivery.id == id
        if state == "completed":
            queue.ack(delivery)
        elif state == "dead":
            queue.fail(delivery, "broken", final=True)
        elif state == "quarantined":
            queue.quarantine(delivery, "poison")
    assert state_of(queue, id) == state


@pytest.mark.every_server
@pytest.mark.parametrize("state", STATES)
def test_cancel_ends_what_waits_and_asks_who_holds(queue: Queue[Any], clock: ManualClock, state: str) -> None:
    """effect-mq 13 and 14: waiting and delayed: terminal at once; active: asked; a second cancel is too late."""
    bring(queue, state)
    before = queue.get("x")
    clock.advance(1)
    first = {"ready": "cancelled", "scheduled": "cancelled", "leased": "requested"}.get(state, "too-late")
    assert queue.cancel("x") is Cancel(first)
    assert queue.cancel("x") is Cancel("requested" if state == "leased" else "too-late")
    job = queue.get("x")
    assert job is not None
    if first == "cancelled":
        assert (job.state, job.finished_ms, job.due_ms) == ("cancelled", clock.now_ms, None)
        assert drained(queue) == []
    elif first == "too-late":
        assert job == before
    else:
        assert (job.state, job.cancel_requested) == ("leased", True)


def test_cancel_of_an_unknown_id_says_so(queue: Queue[Any]) -> None:
    queue.offer("x")
    assert queue.cancel("unknown") is Cancel.UNKNOWN


@pytest.mark.every_server
def test_a_cancelled_job_in_the_middle_leaves_the_others_in_order(queue: Queue[Any]) -> None:
    queue.offer_many([NewJob(number, id=str(number), priority=number % 2) for number in range(10)])
    for id in ("0", "3", "6", "9"):
        assert queue.cancel(id) is Cancel.CANCELLED
    assert values(drained(queue)) == [1, 5, 7, 2, 4, 8]


@pytest.mark.every_server
def test_promote_of_a_job_an_hour_away_runs_now_without_any_clock(queue: Queue[Any]) -> None:
    """effect-mq 19."""
    id = queue.offer("later", delay=3600).id
    queue.offer("ready")
    assert queue.promote(id) is True
    job = queue.get(id)
    assert job is not None
    assert (job.state, job.due_ms, job.attempts) == ("ready", None, 0)
    assert values(drained(queue)) == ["ready", "later"]


@pytest.mark.every_server
@pytest.mark.parametrize("state", [state for state in STATES if state != "scheduled"])
def test_only_a_scheduled_job_can_be_promoted(queue: Queue[Any], state: str) -> None:
    """effect-mq 19: promote of an active one is refused."""
    bring(queue, state)
    before = queue.get("x")
    assert queue.promote("x") is False
    assert queue.promote("unknown") is False
    assert queue.get("x") == before


def test_promote_ends_the_wait_for_a_retry_and_keeps_its_attempts(queue: Queue[Any]) -> None:
    queue.offer("x")
    failed = taken(queue)
    queue.fail(failed, "broken")
    assert queue.promote(failed.id) is True
    assert taken(queue).attempt == 2


@pytest.mark.every_server
@pytest.mark.parametrize("state", STATES)
def test_remove_deletes_all_but_a_leased_job(queue: Queue[Any], state: str) -> None:
    bring(queue, state, metadata={"k": "v"}, priority=1)
    assert queue.remove("x") is (state != "leased")
    if state == "leased":
        assert state_of(queue, "x") is JobState.LEASED
        return
    assert queue.get("x") is None
    assert queue.attempts("x") == []
    assert queue.remove("x") is False
    assert drained(queue) == []
    assert set(queue.counts().values()) == {0}


@pytest.mark.every_server
@pytest.mark.parametrize("again", ["ready", "scheduled", "leased", "completed"])
@pytest.mark.parametrize("priority", [0, 2])
def test_an_id_offered_again_after_its_removal_is_a_job_of_its_own(
    queue: Queue[Any], again: str, priority: int
) -> None:
    queue.offer("old", id="x", name="old", metadata={"k": "v"}, priority=priority)
    queue.offer("between", id="between", priority=priority)
    queue.remove("x")
    queue.offer("new", id="x", delay=60 if again == "scheduled" else None, priority=priority)
    job = queue.get("x")
    assert job is not None
    assert (job.value, job.name, job.metadata) == ("new", "", {})
    if again == "scheduled":
        assert values(drained(queue)) == ["between"]
        return
    assert [taken(queue).value for _ in range(2)] == ["between", "new"]
    assert queue.take() is None


@pytest.mark.every_server
def test_an_id_removed_and_offered_many_times_is_taken_once_at_its_last_place(queue: Queue[Any]) -> None:
    for number in range(6):
        queue.offer(number, id="x")
        queue.offer(f"after {number}")
        if number < 5:
            queue.remove("x")
    assert queue.counts()[JobState.READY] == 7
    assert values(drained(queue, 2)) == ["after 0", "after 1", "after 2", "after 3", "after 4", 5, "after 5"]
    assert queue.counts()[JobState.READY] == 0


@pytest.mark.every_server
def test_a_released_job_before_its_own_ghost_is_taken_once(queue: Queue[Any]) -> None:
    queue.offer("old", id="x")
    queue.offer("between")
    queue.remove("x")
    queue.offer("new", id="x")
    queue.ack(taken(queue))
    queue.release(taken(queue))
    queue.offer("last")
    assert values(drained(queue)) == ["new", "last"]


@pytest.mark.every_server
def test_a_job_released_to_the_head_before_the_ghost_of_its_id(queue: Queue[Any]) -> None:
    """The live entry stands before dead ones of the same id: the dead ones are the ones to skip."""
    queue.offer("first")
    holder = taken(queue)
    queue.offer("old", id="x")
    queue.offer("other")
    queue.remove("x")
    queue.offer("new", id="x", delay=5)
    queue.release(holder)
    queue.promote("x")
    assert values(drained(queue, 1)) == ["first", "other", "new"]


@pytest.mark.every_server
def test_a_pause_holds_for_every_client_and_settling_goes_on(
    queue: Queue[Any], open_engine: OpenEngine, clock: ManualClock
) -> None:
    other = open_engine(clock=clock).queue("jobs")
    queue.offer_many(range(4))
    held, failed = queue.take_many(2)
    other.pause()
    assert queue.info().paused
    assert queue.take() is None
    assert queue.exchange([held], 5) == (["acknowledged"], [])
    assert queue.fail(failed, "broken", retry_in=0).state is JobState.READY
    assert not queue.offer("more").duplicate
    queue.pause()
    other.resume()
    assert not queue.info().paused
    assert values(drained(queue)) == [2, 3, 1, "more"]


def test_a_pause_of_a_missing_queue_creates_it_paused(queue: Queue[Any]) -> None:
    queue.pause()
    queue.offer("x")
    assert queue.take() is None
    queue.resume()
    assert taken(queue).value == "x"


@pytest.mark.every_server
def test_counts_are_exact_through_every_step(queue: Queue[Any], clock: ManualClock) -> None:
    """effect-mq 42: exact through cancel, retry, prune and remove."""
    assert queue.counts() == dict.fromkeys(JobState, 0)
    queue.offer_many([NewJob(number, priority=number % 2) for number in range(10)] + [NewJob("s", delay=5)])
    expect(queue, ready=10, scheduled=1)
    batch = queue.take_many(6)
    expect(queue, ready=4, scheduled=1, leased=6)
    queue.ack(batch[0])
    queue.fail(batch[1], "broken")
    queue.fail(batch[2], "broken", final=True)
    queue.quarantine(batch[3], "poison")
    queue.release(batch[4])
    queue.cancel(batch[4].id)
    queue.cancel(batch[5].id)
    queue.release(batch[5])
    expect(queue, ready=4, scheduled=2, completed=1, dead=1, quarantined=1, cancelled=2)
    queue.retry(batch[2].id)
    queue.remove(batch[0].id)
    expect(queue, ready=5, scheduled=2, quarantined=1, cancelled=2)
    clock.advance(5)
    expect(queue, ready=5, scheduled=2, quarantined=1, cancelled=2)  # due, and counted where they lie
    assert queue.maintain().by_category["due"] == 2
    expect(queue, ready=7, quarantined=1, cancelled=2)


def expect(queue: Queue[Any], **numbers: int) -> None:
    assert {state.value: number for state, number in queue.counts().items() if number} == numbers
    assert queue.info().counts == queue.counts()


@pytest.mark.every_server
def test_info_tells_the_age_of_the_job_that_a_take_would_hand_out_next(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer("scheduled", delay=60)
    assert queue.info().oldest_ms is None
    clock.advance(1)
    old = clock.now_ms
    queue.offer("old", id="old")
    clock.advance(1)
    queue.offer("young", priority=1)
    info = queue.info()
    assert (info.kind, info.name, info.paused, info.dead, info.oldest_ms) == ("jobs", "jobs", False, 0, clock.now_ms)
    taken(queue)
    assert queue.info().oldest_ms == old
    queue.cancel("old")
    assert queue.info().oldest_ms is None


def test_info_counts_the_dead(queue: Queue[Any]) -> None:
    killed(queue)
    killed(queue)
    assert queue.info().dead == 2


@pytest.mark.every_server
def test_all_queues_of_a_namespace_are_listed_by_name(engine: Engine, open_engine: OpenEngine) -> None:
    assert engine.queues() == []
    for name in ("b", "a:b", "ü", "{x}"):
        engine.queue(name).offer("x")
    engine.queue("never written").take()
    found = open_engine().queues()
    assert [(info.kind, info.name) for info in found] == [("jobs", name) for name in ("a:b", "b", "{x}", "ü")]
    assert all(info.counts == {**dict.fromkeys(JobState, 0), JobState.READY: 1} for info in found)


@pytest.mark.every_server
def test_a_due_job_reads_as_it_lies_until_something_moves_it(queue: Queue[Any], clock: ManualClock) -> None:
    id = queue.offer("x", delay=1).id
    clock.advance(100)
    job = queue.get(id)
    assert job is not None
    assert (job.state, job.due_ms) == ("scheduled", clock.now_ms - 99_000)
    assert ids(queue.jobs(state="scheduled").items) == [id]
    assert queue.info().oldest_ms is None
    queue.maintain()
    assert state_of(queue, id) is JobState.READY


@pytest.mark.every_server
def test_maintain_moves_what_is_due_in_bounded_steps(queue: Queue[Any], clock: ManualClock) -> None:
    """persistedqueue 34: more than 100 due at once: 100 a pass, and all of them in the end."""
    queue.offer_many([NewJob(number, delay=1) for number in range(250)])
    clock.advance(1)
    passes = [queue.maintain() for _ in range(3)]
    assert [each.by_category["due"] for each in passes] == [100, 100, 50]
    assert [each.pending for each in passes] == [True, True, False]
    assert [each.processed for each in passes] == [100, 100, 50]
    assert values(drained(queue)) == list(range(250))


def test_maintain_of_an_idle_queue_does_nothing(queue: Queue[Any]) -> None:
    finished(queue)
    done = queue.maintain()
    assert (done.processed, done.pending) == (0, False)
    assert done.by_category == {"due": 0, "lapsed": 0, "retention": 0, "dedup": 0}


def test_the_times_of_a_record_are_shown_as_datetimes_too(queue: Queue[Any], clock: ManualClock) -> None:
    id = queue.offer("x", delay=1).id
    job = queue.get(id)
    assert job is not None
    assert job.due_at is not None
    assert job.due_at.timestamp() * 1000 == job.due_ms
    assert job.created_at.utcoffset() is not None
    assert (job.finished_at, job.lease_expires_at) == (None, None)


def test_a_past_retention_job_reads_as_present_until_it_is_removed(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=1)))
    id = finished(queue)
    clock.advance(100)
    assert state_of(queue, id) is JobState.COMPLETED
    assert queue.maintain().by_category["retention"] == 1
    assert queue.get(id) is None


@pytest.mark.parametrize("verb", ["get", "attempts", "history", "cancel", "retry", "promote", "remove"])
@pytest.mark.parametrize("id", ["", "x" * 257, 5, None, b"x", "\ud800"])
def test_an_id_is_1_to_256_bytes_of_text(queue: Queue[Any], verb: str, id: Any) -> None:
    with pytest.raises(InvalidInput, match="id"):
        getattr(queue, verb)(id)
