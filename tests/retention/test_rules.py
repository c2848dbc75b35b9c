"""Rules that go on holding (SPEC 3.6, 3.7): after alter, for records with a keep of their own, and over any number."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import redis

from redisq import Engine, JobState, Keep, NewJob, Queue, QueuePolicy
from redisq.testing import ManualClock
from tests.jobs.steps import ENDINGS, drained, end, finished, killed, root_of, state_of, swept, taken, values, walked


def acked(queue: Queue[Any], jobs: list[Any]) -> None:
    queue.offer_many(jobs)
    while batch := queue.take_many(1000):
        queue.ack_many(batch)


# alter


@pytest.mark.every_server
@pytest.mark.parametrize("state", ENDINGS)
def test_an_altered_age_holds_for_the_records_that_are_there(engine: Engine, clock: ManualClock, state: str) -> None:
    """Shorter, longer, none at all, and one again; what is gone stays gone."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=100), max_attempts=1))
    for number in range(6):
        end(queue, state, number)
        clock.advance(10)
    assert swept(queue) == 0
    queue.alter(QueuePolicy(keep=Keep(age=45)))
    assert swept(queue) == 2
    queue.alter(QueuePolicy(keep=Keep(age=1000)))
    clock.advance(900)
    assert swept(queue) == 0
    queue.alter(QueuePolicy(keep=None))
    clock.advance(timedelta(days=10_000))
    assert swept(queue) == 0
    assert values(walked(queue, state=state)) == [5, 4, 3, 2]
    queue.alter(QueuePolicy(keep=Keep(age=10)))
    assert swept(queue) == 4


@pytest.mark.every_server
def test_an_altered_count_holds_without_traffic(engine: Engine) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(count=20)))
    acked(queue, [NewJob(number, name="mail" if number % 2 else "") for number in range(60)])
    assert queue.counts()[JobState.COMPLETED] == 40
    queue.alter(QueuePolicy(keep=Keep(count=30)))
    assert swept(queue) == 0
    queue.alter(QueuePolicy(keep=Keep(completed=Keep(count=5), dead=Keep(count=0))))
    assert swept(queue) == 30
    assert values(walked(queue, state="completed", name="mail")) == [59, 57, 55, 53, 51]
    queue.alter(QueuePolicy(keep=Keep(completed=Keep(count=0))))
    assert swept(queue) == 10


@pytest.mark.every_server
def test_an_altered_rule_of_one_state_leaves_the_others_alone(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=None))
    for state in ENDINGS:
        for _ in range(3):
            end(queue, state)
    clock.advance(60)
    queue.alter(QueuePolicy(keep=Keep(dead=Keep(count=1), cancelled=Keep(age=30))))
    assert swept(queue) == 2 + 3
    counts = queue.counts()
    assert [counts[JobState(state)] for state in ENDINGS] == [3, 1, 0, 3]


@pytest.mark.every_server
def test_an_altered_ceiling_holds_for_every_record(engine: Engine, clock: ManualClock) -> None:
    """Those with a keep of their own, too; a ceiling taken away gives nothing back."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=None))
    for state in ENDINGS:
        end(queue, state, "plain")
        end(queue, state, "own", keep=Keep(age=1_000_000))
    clock.advance(100)
    queue.alter(QueuePolicy(history_ttl={"dead": 100, "cancelled": 101}))
    assert swept(queue) == 2
    clock.advance(1)
    assert swept(queue) == 2
    queue.alter(QueuePolicy(history_ttl=None))
    clock.advance(999_000)
    assert swept(queue) == 0
    clock.advance(899)
    assert swept(queue) == 2
    assert values(walked(queue)) == ["plain"] * 2
    queue.alter(QueuePolicy(history_ttl=timedelta(seconds=1)))
    assert swept(queue) == 2


def test_an_age_of_zero_removes_at_the_next_sweep(engine: Engine) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=0)))
    for state in ENDINGS:
        end(queue, state)
    assert [queue.counts()[JobState(state)] for state in ENDINGS] == [0, 0, 0, 0]
    queue.alter(QueuePolicy(keep=None, history_ttl=0))
    for state in ENDINGS:
        end(queue, state)
    assert swept(queue) == 4


# records with a keep of their own


@pytest.mark.every_server
@pytest.mark.parametrize("limit", [1, 2, 7, 1000])
def test_records_that_the_queue_s_age_does_not_reach_hold_up_nobody(
    engine: Engine, clock: ManualClock, limit: int
) -> None:
    """Many of one instant stand before the one that is due, for any limit."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=10)))
    acked(queue, [NewJob(number, keep=None) for number in range(230)])
    clock.advance(0.001)
    due = finished(queue, "due")
    acked(queue, [NewJob(number, keep=Keep(count=1000)) for number in range(3)])
    clock.advance(10)
    assert swept(queue, limit) == 1
    assert state_of(queue, due) is None
    assert swept(queue, limit) == 0
    assert queue.counts()[JobState.COMPLETED] == 233


def test_more_arrivals_in_one_millisecond_than_an_index_tells_apart_are_all_looked_at(
    engine: Engine, clock: ManualClock
) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=10)))
    own = [NewJob(number, keep=None if number % 10 else Keep(age=10)) for number in range(3000)]
    acked(queue, own + ["plain"] * 30)
    clock.advance(10)
    assert swept(queue, 60) == 330
    assert queue.counts()[JobState.COMPLETED] == 2700


@pytest.mark.every_server
def test_an_own_age_stands_whatever_becomes_of_the_queue_s(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=10, count=100)))
    own = {state: end(queue, state, keep=Keep(age=50)) for state in ENDINGS}
    without = {state: end(queue, state, keep=Keep(count=7)) for state in ENDINGS}
    queue.alter(QueuePolicy(keep=Keep(age=1, count=100)))
    clock.advance(49.999)
    assert swept(queue) == 0
    queue.alter(QueuePolicy(keep=None))
    clock.advance(0.001)
    assert swept(queue) == 4
    assert [state_of(queue, id) for id in own.values()] == [None] * 4
    queue.alter(QueuePolicy(keep=Keep(age=1)))
    clock.advance(timedelta(days=900))
    assert swept(queue) == 0
    assert [state_of(queue, id) for id in without.values()] == ENDINGS


@pytest.mark.every_server
def test_a_retried_job_s_own_age_starts_again(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=None))
    id = killed(queue, keep=Keep(age=10))
    clock.advance(9)
    queue.retry_many("dead")
    clock.advance(100)
    assert swept(queue) == 0
    queue.fail(taken(queue), "again", final=True)
    clock.advance(9.999)
    assert swept(queue) == 0
    clock.advance(0.001)
    assert swept(queue) == 1
    assert queue.get(id) is None


def test_a_lapse_into_the_past_is_found_before_records_that_were_passed_over(
    engine: Engine, clock: ManualClock
) -> None:
    """It finished before the place that the sweep had come to, and its own call pruned others."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=10), max_attempts=1))
    for _ in range(40):
        killed(queue, "old", keep=None)
    queue.offer_many(["lapses first", "lapses", NewJob("passed over", keep=None)])
    first, second, third = (taken(queue, lease=lease) for lease in (1, 2, 100))
    clock.advance(5)
    queue.fail(third, "broken")
    clock.advance(50)
    assert queue.maintain(1).by_category == {"due": 0, "lapsed": 1, "retention": 1, "dedup": 0}
    assert (state_of(queue, first.id), state_of(queue, second.id)) == (None, JobState.LEASED)
    assert swept(queue, 1) == 1
    assert [state_of(queue, each.id) for each in (first, second, third)] == [None, None, JobState.DEAD]


# what a bounded prune left over


def test_leftovers_of_many_names_are_drained(engine: Engine) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(count=4)))
    acked(queue, [NewJob(number, name=f"n{number % 300}") for number in range(1200)])
    assert swept(queue) == 0
    queue.alter(QueuePolicy(keep=Keep(count=1)))
    assert swept(queue, 77) == 900
    assert queue.counts()[JobState.COMPLETED] == 300
    assert sorted(values(walked(queue, state="completed"))) == list(range(900, 1200))


def test_what_several_names_left_over_in_one_call_is_drained(engine: Engine) -> None:
    """The first name uses up what a call may prune; the sweep hears of the second one, too."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=None))
    acked(queue, [NewJob(number, name=f"n{number % 2}") for number in range(28)])
    for name in ("n0", "n1"):
        queue.offer("own", name=name, keep=Keep(count=1))
    # 2 transitions prune 14 records: all 14 of the first name, and none of the second
    queue.ack_many(drained(queue))
    assert queue.counts()[JobState.COMPLETED] == 16
    assert swept(queue) == 0  # the queue itself keeps all
    queue.offer_many([NewJob("more", name=name, keep=None) for name in ("n0", "n1")])
    queue.ack_many(drained(queue))
    queue.alter(QueuePolicy(keep=Keep(count=3)))
    assert swept(queue) == 13


def test_a_leftover_behind_a_sweep_that_is_under_way_is_not_forgotten(engine: Engine, raw: redis.Redis) -> None:
    """The sweep passed its name before it was left over, and has not come to the end yet."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=None))
    acked(queue, [NewJob(number, name=f"n{number}") for number in range(900)])
    acked(queue, [NewJob(number, name="big") for number in range(100)])
    queue.alter(QueuePolicy(keep=Keep(count=50)))
    root = root_of(queue)
    for _ in range(50):
        queue.maintain()
        cursor = raw.hget(root, "group_scan")
        if raw.zcard(f"{root}:group:completed:big") == 50 and cursor != b"0":
            break
    else:
        pytest.skip("the name came last in the server's order of names")
    # its finish leaves more than it may prune: the rule of this call is much stricter
    acked(queue, [NewJob(number, name="big", keep=None) for number in range(100)])
    finished(queue, name="big", keep=Keep(count=1))
    assert raw.zcard(f"{root}:group:completed:big") == 151 - 12
    assert swept(queue) == 139 - 50


@pytest.mark.every_server
def test_an_excess_that_no_rule_left_over_is_not_the_sweep_s(engine: Engine) -> None:
    """Records of an own keep that keeps all; the next plain job of the name prunes them."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(count=2)))
    acked(queue, [NewJob(number, keep=None) for number in range(5)])
    assert swept(queue) == 0
    acked(queue, ["plain"])
    assert values(walked(queue, state="completed")) == ["plain", 4]
