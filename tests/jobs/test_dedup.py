"""First offer wins: ids while the record lives, and the memory of them after it (SPEC 3.2, 3.6)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redisq import Engine, JobState, Keep, NewJob, Offer, Queue, QueuePolicy
from redisq.testing import ManualClock
from tests.jobs.steps import drained, finished, killed, state_of, taken, values
from tests.support.fronts import OpenEngine


def again(queue: Queue[Any], id: str = "x") -> Offer:
    """A later offer of the id, with everything different."""
    return queue.offer("second", id=id, name="other", priority=9, max_attempts=1, metadata={"second": "1"})


@pytest.mark.every_server
def test_the_same_id_offered_twice_is_delivered_once(queue: Queue[Any]) -> None:
    """persistedqueue 27 and effect-mq 3: duplicate=true, payload and priority untouched, count 1."""
    assert queue.offer("first", id="x") == Offer("x", False, JobState.READY)
    assert again(queue) == Offer("x", True, JobState.READY)
    assert queue.counts()[JobState.READY] == 1
    delivery = taken(queue)
    assert (delivery.value, delivery.priority, delivery.name, delivery.metadata) == ("first", 0, "", {})
    assert queue.take() is None


@pytest.mark.every_server
def test_a_duplicate_tells_the_state_of_the_first(queue: Queue[Any], clock: ManualClock) -> None:
    """persistedqueue 28: not delivered in flight, while it waits for a retry, when delayed, or when it finished."""
    queue.offer("first", id="x", delay=1, max_attempts=2)
    states = [again(queue).state]
    clock.advance(1)
    states.append(again(queue).state)  # due, and still where it lies
    queue.maintain()
    states.append(again(queue).state)
    delivery = taken(queue)
    states.append(again(queue).state)
    queue.fail(delivery, "broken")
    states.append(again(queue).state)
    clock.advance(1)
    queue.fail(taken(queue), "broken")
    states.append(again(queue).state)
    queue.retry("x")
    queue.quarantine(taken(queue), "poison")
    states.append(again(queue).state)
    queue.retry("x")
    queue.ack(taken(queue))
    states.append(again(queue).state)
    assert states == [
        "scheduled", "scheduled", "ready", "leased", "scheduled", "dead", "quarantined", "completed",
    ]  # fmt: skip
    queue.offer("first", id="y")
    queue.cancel("y")
    assert again(queue, "y") == Offer("y", True, JobState.CANCELLED)
    clock.advance(1000)
    assert drained(queue) == []


@pytest.mark.every_server
def test_the_same_id_in_two_queues_is_delivered_in_both(engine: Engine) -> None:
    """persistedqueue 29."""
    here, there = engine.queue("here"), engine.queue("there")
    assert not here.offer("h", id="x").duplicate
    assert not there.offer("t", id="x").duplicate
    assert (taken(here).value, taken(there).value) == ("h", "t")


def test_the_delay_of_a_duplicate_is_ignored(queue: Queue[Any], clock: ManualClock) -> None:
    """persistedqueue 30: both ways, the original timing stands."""
    queue.offer("now", id="now")
    queue.offer("later", id="now", delay=20)
    queue.offer("delayed", id="delayed", delay=20)
    queue.offer("at once", id="delayed")
    assert values(drained(queue)) == ["now"]
    clock.advance(20)
    assert values(drained(queue)) == ["delayed"]


def test_duplicates_stand_among_new_jobs_of_a_batch(queue: Queue[Any]) -> None:
    queue.offer("first", id="x")
    offers = queue.offer_many([NewJob("new", id="y"), NewJob("second", id="x"), "plain"])
    assert [offer.duplicate for offer in offers] == [False, True, False]
    assert values(drained(queue)) == ["first", "new", "plain"]


@pytest.mark.every_server
def test_an_exhausted_id_stays_blocked_while_its_record_lives(queue: Queue[Any], clock: ManualClock) -> None:
    """persistedqueue 31 and 39: dead ones are kept for ever by default, and so is the block."""
    killed(queue, id="x")
    for _ in range(3):
        clock.advance(timedelta(days=400))
        queue.maintain()
    assert again(queue) == Offer("x", True, JobState.DEAD)


@pytest.mark.every_server
def test_the_memory_of_a_completed_id_lasts_until_dedup_has_passed(engine: Engine, clock: ManualClock) -> None:
    """persistedqueue 38 and 41: within the time it blocks, afterwards the id is new and the third value delivered."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=10), dedup=100))
    finished(queue, "first", id="x")
    clock.advance(10)
    assert again(queue) == Offer("x", True, JobState.COMPLETED)  # past its age, and still there
    queue.maintain()
    assert queue.get("x") is None
    assert again(queue) == Offer("x", True, None)
    clock.advance(89.999)
    assert again(queue) == Offer("x", True, None)
    clock.advance(0.001)
    assert queue.offer("third", id="x") == Offer("x", False, JobState.READY)
    assert taken(queue).value == "third"


def test_the_memory_ends_with_or_without_a_sweep(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(count=0), dedup=100))
    for id in "xy":
        finished(queue, id=id)
    clock.advance(100)
    assert not queue.offer("third", id="x").duplicate
    assert queue.maintain().by_category["dedup"] == 1
    assert not queue.offer("third", id="y").duplicate
    assert values(drained(queue)) == ["third", "third"]


@pytest.mark.every_server
@pytest.mark.parametrize("ending", ["ack", "dead", "cancel", "quarantine", "lapse"])
def test_the_memory_is_the_same_for_every_ending(engine: Engine, clock: ManualClock, ending: str) -> None:
    """SPEC 3.6; persistedqueue 39: with a time for failed ones, their ids become free as well."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(count=0), dedup=50, max_attempts=1))
    queue.offer("first", id="x")
    if ending == "cancel":
        queue.cancel("x")
    else:
        delivery = taken(queue, lease=1)
        if ending == "ack":
            queue.ack(delivery)
        elif ending == "dead":
            queue.fail(delivery, "broken")
        elif ending == "quarantine":
            queue.quarantine(delivery, "poison")
        else:
            clock.advance(1)
            queue.maintain()
    assert queue.get("x") is None
    assert again(queue) == Offer("x", True, None)
    clock.advance(50)
    assert not again(queue).duplicate


def test_without_dedup_an_id_blocks_only_while_its_record_lives(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=5), dedup=0))
    finished(queue, id="x")
    assert again(queue).duplicate
    clock.advance(5)
    queue.maintain()
    assert not again(queue).duplicate


@pytest.mark.every_server
@pytest.mark.parametrize("state", ["ready", "scheduled", "completed", "dead"])
def test_removing_a_job_frees_its_id_at_once(queue: Queue[Any], state: str) -> None:
    """effect-mq 35: no duplicate of an id that no longer exists."""
    if state == "completed":
        finished(queue, id="x")
    elif state == "dead":
        killed(queue, id="x")
    else:
        queue.offer("first", id="x", delay=60 if state == "scheduled" else None)
    assert state_of(queue, "x") == state
    assert queue.remove("x") is True
    assert not queue.offer("second", id="x").duplicate
    assert values(drained(queue)) == ["second"]


def test_generated_ids_leave_no_memory(engine: Engine) -> None:
    """persistedqueue a1: automatic ids are not entered in the index of ids."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(count=0)))
    id = finished(queue)
    assert not queue.offer("again", id=id).duplicate


def test_unfinished_work_older_than_every_time_keeps_its_record_and_its_block(
    engine: Engine, clock: ManualClock
) -> None:
    """persistedqueue 40: unprocessed older than the time to live: element and dedup stay; the duplicate is dropped."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=1), history_ttl=1, dedup=1))
    queue.offer("original", id="x")
    clock.advance(timedelta(days=900))
    assert queue.maintain().processed == 0
    assert again(queue) == Offer("x", True, JobState.READY)
    assert taken(queue).value == "original"


def test_a_queue_never_cleans_up_another_one(engine: Engine, open_engine: OpenEngine, namespace: str) -> None:
    """persistedqueue 42: prefix `cleanup:` does not clean prefix `other:` whose queue is named `cleanup:jobs`."""
    policy = QueuePolicy(keep=Keep(count=0), dedup=0)
    clock = ManualClock()
    mine = open_engine(f"{namespace}-cleanup:", clock).queue("jobs", policy=policy)
    theirs = open_engine(f"{namespace}-other:", clock).queue("cleanup:jobs")
    finished(theirs, id="x")
    finished(mine, id="x")
    clock.advance(60)
    mine.maintain()
    assert state_of(theirs, "x") is JobState.COMPLETED
    assert mine.get("x") is None
    assert theirs.offer("again", id="x").duplicate


def test_a_client_with_another_policy_object_sees_the_same_memory(open_engine: OpenEngine, clock: ManualClock) -> None:
    first = open_engine(clock=clock).queue("jobs", policy=QueuePolicy(keep=Keep(count=0)))
    finished(first, id="x")
    assert again(open_engine(clock=clock).queue("jobs")) == Offer("x", True, None)


def test_a_shorter_dedup_time_holds_for_ids_remembered_before(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(count=0), dedup=100))
    finished(queue, id="x")
    clock.advance(10)
    queue.alter(QueuePolicy(dedup=5))
    assert not again(queue).duplicate
