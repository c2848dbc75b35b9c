"""How long finished jobs stay (SPEC 3.6, 3.7)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from redisq import Engine, JobState, Keep, NewJob, Queue, QueuePolicy
from redisq.testing import ManualClock
from tests.jobs.steps import ENDINGS, end, finished, ids, killed, state_of, swept, taken, values, walked


@pytest.mark.every_server
@pytest.mark.parametrize("state", ENDINGS)
def test_a_count_keeps_the_newest_of_the_state(engine: Engine, clock: ManualClock, state: str) -> None:
    """effect-mq 38 and 40: count 2 over 4: the newest 2, cancelled ones alike."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(count=2)))
    for number in range(4):
        end(queue, state, number)
        clock.advance(1)
    assert values(walked(queue, state=state)) == [3, 2]
    assert queue.counts()[JobState(state)] == 2


@pytest.mark.every_server
def test_ties_go_by_the_arrival_at_the_terminal_state(engine: Engine) -> None:
    """effect-mq 38: equal finish times are resolved by sequence, not by id."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(count=3)))
    queue.offer_many([NewJob(number, id=f"{9 - number}") for number in range(6)])
    batch = queue.take_many(6)
    for each in (batch[3], batch[0], batch[5], batch[1], batch[4], batch[2]):
        queue.ack(each)
    assert values(walked(queue, state="completed")) == [2, 4, 1]


@pytest.mark.every_server
def test_groups_are_of_one_name_and_state(engine: Engine) -> None:
    """effect-mq 38: the failed group is untouched; SPEC 3.6: same queue, name and state."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(count=1)))
    for name in ("a", "b", "", "a:b"):
        for state in ("completed", "dead"):
            for number in range(3):
                end(queue, state, f"{name}-{state}-{number}", name=name)
    for name in ("a", "b", "", "a:b"):
        for state in ("completed", "dead"):
            assert values(walked(queue, state=state, name=name)) == [f"{name}-{state}-2"]


@pytest.mark.every_server
def test_a_split_rule_holds_for_its_states_and_an_absent_state_keeps(engine: Engine) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(completed=Keep(count=1), dead=Keep(count=2))))
    for state in ENDINGS:
        for _ in range(4):
            end(queue, state)
    counts = queue.counts()
    assert [counts[JobState(state)] for state in ENDINGS] == [1, 2, 4, 4]


@pytest.mark.every_server
@pytest.mark.parametrize("state", ENDINGS)
def test_a_count_of_zero_keeps_nothing_and_leaves_no_key_behind(
    engine: Engine, keys: Callable[..., list[str]], state: str
) -> None:
    """SPEC 3.6: a removed job is gone whole: payload, result, attempts, history."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(count=0), dedup=0))
    queue.pause()
    queue.resume()
    before = keys()
    id = queue.offer({"p": 1}, id="x", name="n", metadata={"k": "v"}, priority=1).id
    for _ in range(2):  # a past that stands in every column
        queue.fail(taken(queue), "broken", retry_in=0)
    if state == "cancelled":
        queue.cancel(id)
    elif state == "completed":
        queue.ack(taken(queue), {"r": 1})
    elif state == "dead":
        queue.fail(taken(queue), "broken", final=True)
    else:
        queue.quarantine(taken(queue), "poison")
    assert queue.get(id) is None
    assert (queue.attempts(id), queue.history(id).entries) == ([], [])
    assert set(queue.counts().values()) == {0}
    assert set(keys()) - set(before) <= {key for key in keys() if key.endswith(":bell")}


def test_a_count_of_zero_holds_in_the_first_call_that_writes_a_column(
    engine: Engine, keys: Callable[..., list[str]]
) -> None:
    """Nothing of a job that is not kept may stay, also when its last call is the first to fill a column."""
    for verb in ("fail", "quarantine", "ack", "retried"):
        queue = engine.queue(verb, policy=QueuePolicy(keep=Keep(count=0)))
        id = queue.offer("x").id
        delivery = taken(queue)
        if verb == "fail":
            queue.fail(delivery, "broken", final=True)
        elif verb == "quarantine":
            queue.quarantine(delivery, "poison")
        elif verb == "ack":
            queue.ack(delivery, "result")
        else:
            queue.release(delivery)
            queue.ack(taken(queue), "result")
        assert queue.get(id) is None
        left = [key for key in keys() if f":{verb}}}:" in key and not key.endswith(":bell")]
        assert left == []


@pytest.mark.every_server
@pytest.mark.parametrize("keep", [None, Keep()])
def test_without_a_rule_all_are_kept(engine: Engine, clock: ManualClock, keep: Any) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=keep))
    for state in ENDINGS:
        end(queue, state)
    clock.advance(timedelta(days=36_000))
    assert swept(queue) == 0
    assert [queue.counts()[JobState(state)] for state in ENDINGS] == [1, 1, 1, 1]


def test_the_default_keeps_completed_and_cancelled_for_a_day_and_the_others_for_ever(
    queue: Queue[Any], clock: ManualClock
) -> None:
    """persistedqueue 31 and 39: a failed one is kept without a time to live."""
    for state in ENDINGS:
        end(queue, state)
    clock.advance(86_399.999)
    assert swept(queue) == 0
    clock.advance(0.001)
    assert swept(queue) == 2
    clock.advance(timedelta(days=36_000))
    assert swept(queue) == 0
    counts = queue.counts()
    assert [counts[JobState(state)] for state in ENDINGS] == [0, 1, 0, 1]


@pytest.mark.every_server
def test_count_and_age_act_independently(engine: Engine, clock: ManualClock) -> None:
    """effect-mq 38: 3 jobs 6 s apart, age 10 s, count 2: the oldest is gone; and of two, one that is too old goes."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(count=2, age=10)))
    for number in range(3):
        finished(queue, number)
        clock.advance(6)
    assert values(walked(queue, state="completed")) == [2, 1]
    finished(queue, 3)  # 12 s after number 1 and 6 s after number 2
    assert values(walked(queue, state="completed")) == [3, 2]
    clock.advance(4)
    finished(queue, 4)  # number 2 is exactly 10 s old
    assert values(walked(queue, state="completed")) == [4, 3]


@pytest.mark.every_server
def test_an_age_is_enforced_by_the_sweep_without_traffic(engine: Engine, clock: ManualClock) -> None:
    """effect-mq 39, where SPEC differs: quiet names are pruned, too. A record at exactly its age goes."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=10)))
    id = finished(queue, name="quiet")
    clock.advance(9.999)
    assert swept(queue) == 0
    clock.advance(0.001)
    assert swept(queue) == 1
    assert queue.get(id) is None


@pytest.mark.every_server
def test_an_own_keep_replaces_the_queue_s_whole(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=10)))
    longer = finished(queue, "longer", keep=Keep(age=100))
    for_ever = finished(queue, "for ever", keep=None)
    no_age = finished(queue, "no age", keep=Keep(count=5))
    other_state = finished(queue, "other state", keep=Keep(dead=Keep(count=0)))
    shorter = finished(queue, "shorter", keep=Keep(age=1))
    plain = finished(queue, "plain")
    clock.advance(1)
    assert swept(queue) == 1
    assert queue.get(shorter) is None
    clock.advance(9)
    assert swept(queue) == 1
    assert queue.get(plain) is None
    clock.advance(90)
    assert swept(queue) == 1
    assert queue.get(longer) is None
    clock.advance(timedelta(days=9000))
    assert swept(queue) == 0
    assert {state_of(queue, id) for id in (for_ever, no_age, other_state)} == {JobState.COMPLETED}


@pytest.mark.every_server
def test_the_finishing_job_s_rule_prunes_its_siblings(engine: Engine) -> None:
    """SPEC 3.6, as in effect-mq c14: the last finisher's own rule prunes the records of its group."""
    queue = engine.queue("jobs")
    old = [finished(queue, number) for number in range(4)]
    finished(queue, "other name", name="other")
    last = finished(queue, "last", keep=Keep(count=2))
    assert ids(walked(queue, state="completed", name="")) == [last, old[3]]
    assert len(walked(queue, state="completed", name="other")) == 1
    kept_nothing = finished(queue, "nothing", keep=Keep(count=0))
    assert queue.get(kept_nothing) is None


@pytest.mark.every_server
def test_one_call_prunes_at_most_twice_its_transitions_and_ten(engine: Engine) -> None:
    """SPEC 3.6: 2n + 10 records for the n transitions of a call, the rest is left to the sweep."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep()))
    queue.offer_many(range(100))
    queue.ack_many(queue.take_many(100))
    queue.alter(QueuePolicy(keep=Keep(count=1)))
    finished(queue)
    assert queue.counts()[JobState.COMPLETED] == 101 - 12
    queue.offer_many(range(5))
    queue.ack_many(queue.take_many(5))
    assert queue.counts()[JobState.COMPLETED] == 89 + 5 - 20
    assert swept(queue) == 73
    assert queue.counts()[JobState.COMPLETED] == 1


@pytest.mark.every_server
def test_what_a_call_left_over_is_pruned_by_the_sweep(engine: Engine) -> None:
    """The rule of a job's own is what its call goes by; the sweep goes by the queue's."""
    queue = engine.queue("jobs")
    queue.offer_many([NewJob(number, name=str(number % 3)) for number in range(90)])
    queue.ack_many(queue.take_many(90))
    assert swept(queue) == 0
    queue.alter(QueuePolicy(keep=Keep(count=2)))
    first = queue.maintain(10)
    assert first.by_category["retention"] <= 10
    assert first.pending
    assert first.by_category["retention"] + swept(queue, 10) == 84
    for name in "012":
        assert len(walked(queue, state="completed", name=name)) == 2


@pytest.mark.every_server
def test_a_shorter_age_by_alter_holds_for_records_of_before(engine: Engine, clock: ManualClock) -> None:
    """The age of a record is the queue's as it stands now."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=100)))
    for number in range(20):
        finished(queue, number)
    clock.advance(20)
    assert swept(queue) == 0
    queue.alter(QueuePolicy(keep=Keep(age=10)))
    assert swept(queue, 7) == 20
    late = finished(queue)
    clock.advance(9)
    queue.alter(QueuePolicy(keep=Keep(age=50)))
    clock.advance(2)
    assert swept(queue) == 0
    clock.advance(39)
    assert swept(queue) == 1
    assert queue.get(late) is None


@pytest.mark.every_server
def test_a_sweep_passes_over_records_with_a_keep_of_their_own(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=10)))
    queue.offer_many([NewJob(number, keep=None if number % 2 else Keep(age=1000)) for number in range(30)] + ["plain"])
    queue.ack_many(queue.take_many(31))
    clock.advance(10)
    assert swept(queue, 4) == 1
    assert queue.counts()[JobState.COMPLETED] == 30
    clock.advance(990)
    assert swept(queue, 4) == 15


@pytest.mark.every_server
def test_a_ceiling_holds_for_every_record_inclusive(engine: Engine, clock: ManualClock) -> None:
    """effect-mq 41 and persistedqueue 39: each goes at the earlier of its own age and the ceiling."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=None, history_ttl=50))
    own = killed(queue, "own", keep=Keep(age=10))
    longer = killed(queue, "longer", keep=Keep(age=1000))
    plain = killed(queue, "plain")
    clock.advance(10)
    assert swept(queue) == 1
    assert queue.get(own) is None
    clock.advance(39.999)
    assert swept(queue) == 0
    clock.advance(0.001)
    assert swept(queue) == 2
    assert queue.get(longer) is None
    assert queue.get(plain) is None


@pytest.mark.every_server
def test_a_ceiling_per_state_leaves_an_absent_state_to_its_own_ages(engine: Engine, clock: ManualClock) -> None:
    """effect-mq 41: a state absent from the ceiling: only rows with their own age."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=None, history_ttl={"completed": 5, "cancelled": timedelta(1)}))
    for state in ENDINGS:
        end(queue, state)
    own = killed(queue, keep=Keep(age=7))
    clock.advance(5)
    assert swept(queue) == 1
    clock.advance(2)
    assert swept(queue) == 1
    assert queue.get(own) is None
    clock.advance(timedelta(days=300))
    assert swept(queue) == 1
    counts = queue.counts()
    assert [counts[JobState(state)] for state in ENDINGS] == [0, 1, 0, 1]


def test_the_sweep_removes_the_oldest_first_and_at_most_its_limit(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=None, history_ttl=5))
    for number in range(9):
        finished(queue, number)
        clock.advance(0.001)
    clock.advance(10)
    done = queue.maintain(4)
    assert (done.by_category["retention"], done.pending) == (4, True)
    assert values(walked(queue, state="completed")) == [8, 7, 6, 5, 4]
    assert swept(queue, 4) == 5


@pytest.mark.every_server
def test_unfinished_work_is_never_swept_however_old(engine: Engine, clock: ManualClock) -> None:
    """persistedqueue 40 and effect-mq 41: live jobs never."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=1, count=1), history_ttl=1, dedup=1))
    queue.offer("leased", id="leased")
    taken(queue, lease=timedelta(days=30_000))
    queue.offer("retrying", id="retrying")
    queue.fail(taken(queue), "broken", retry_in=timedelta(days=30_000))
    queue.offer("ready", id="ready")
    queue.offer("scheduled", id="scheduled", delay=timedelta(days=30_000))
    clock.advance(timedelta(days=20_000))
    assert queue.maintain().processed == 0
    assert [state_of(queue, id) for id in ("leased", "retrying", "ready", "scheduled")] == [
        "leased", "scheduled", "ready", "scheduled",
    ]  # fmt: skip


def test_no_key_of_a_live_job_has_a_ttl(queue: Queue[Any], keys: Callable[..., list[str]], raw: Any) -> None:
    queue.offer("x", id="x", metadata={"k": "v"}, priority=1)
    queue.fail(taken(queue), "broken", retry_in=0)
    queue.offer("y", delay=5)
    taken(queue)
    found = [key for key in keys() if not key.endswith(":bell")]
    assert len(found) > 5
    assert {raw.pttl(key) for key in found} == {-1}


@pytest.mark.every_server
def test_a_retry_takes_a_job_out_of_the_reach_of_the_sweep(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=10)))
    plain, own = killed(queue), killed(queue, keep=Keep(age=10))
    for id in (plain, own):
        queue.retry(id)
    clock.advance(100)
    assert swept(queue) == 0
    assert len(queue.take_many(5)) == 2


def test_a_lapse_into_the_past_is_not_missed_by_the_sweep(engine: Engine, clock: ManualClock) -> None:
    """A final lapse finished at its lease's end, which may lie before what the sweep has passed already."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=10), max_attempts=1))
    queue.offer("lapses")
    taken(queue, lease=1)
    clock.advance(5)
    finished(queue, "later")
    clock.advance(10)
    # the sweep recovers the lapse and passes both
    assert swept(queue) == 2
    assert set(queue.counts().values()) == {0}


@pytest.mark.every_server
def test_lapses_and_cancels_apply_the_rule_like_acks(engine: Engine, clock: ManualClock) -> None:
    """effect-mq 40, where Redis upstream differs: a stall-exhausted failure applies keep at once."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(count=1), max_attempts=1))
    queue.offer_many(range(3))
    queue.take_many(3, lease=1)
    clock.advance(1)
    queue.take()
    assert queue.counts()[JobState.DEAD] == 1
    for _ in range(3):
        queue.cancel(queue.offer("x").id)
    assert queue.counts()[JobState.CANCELLED] == 1


@pytest.mark.every_server
def test_dedup_memory_is_drained_in_bounded_steps(engine: Engine, clock: ManualClock, keys: Any) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(count=0), dedup=10))
    queue.offer_many([NewJob(number, id=str(number)) for number in range(25)])
    queue.ack_many(queue.take_many(25))
    clock.advance(9.999)
    assert queue.maintain(10).by_category["dedup"] == 0
    clock.advance(0.001)
    passes = [queue.maintain(10) for _ in range(3)]
    assert [each.by_category["dedup"] for each in passes] == [10, 10, 5]
    assert [each.pending for each in passes] == [True, True, False]
    assert not any(key.endswith(":seen") for key in keys())


def test_several_sweeps_at_once_are_harmless(engine: Engine, clock: ManualClock) -> None:
    """persistedqueue a1: several instances racing is harmless: each record is counted by one of them."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=1)))
    queue.offer_many(range(40))
    queue.ack_many(queue.take_many(40))
    clock.advance(1)
    assert sum(queue.maintain(7).by_category["retention"] for _ in range(12)) == 40


def test_everything_finished_goes_in_the_end(
    engine: Engine, clock: ManualClock, keys: Callable[..., list[str]]
) -> None:
    """effect-mq c11: no dead entry, no memory and no index is left behind."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=5, count=50), dedup=20))
    queue.pause()
    queue.resume()
    before = keys()
    for round in range(3):
        for state in ENDINGS:
            end(queue, state, id=f"{state}{round}", name=f"n{round}", priority=round - 1, metadata={"k": "v"})
        clock.advance(1)
    clock.advance(30)
    queue.take()
    swept(queue)
    swept(queue)
    assert [key for key in keys() if key not in before and not key.endswith(":bell")] == []
