"""maintain (SPEC 3.4, 3.7): separate budgets, an exact `pending`, and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from redisq import Backoff, Engine, JobState, Keep, NewJob, Queue, QueuePolicy
from redisq.testing import ManualClock
from tests.jobs.steps import ENDINGS, drained, end, finished, root_of, taken
from tests.scripts.direct import contents
from tests.support.fronts import OpenEngine

NOTHING = {"due": 0, "lapsed": 0, "retention": 0, "dedup": 0}


def some_due(queue: Queue[Any], clock: ManualClock, count: int) -> None:
    queue.offer_many([NewJob(number, delay=1) for number in range(count)])
    clock.advance(1)


def some_lapsed(queue: Queue[Any], clock: ManualClock, count: int) -> None:
    queue.offer_many(range(count))
    queue.take_many(count, lease=1)
    clock.advance(1)


def some_past_age(queue: Queue[Any], clock: ManualClock, count: int) -> None:
    queue.offer_many(range(count))
    queue.ack_many(drained(queue))
    clock.advance(10)


def some_past_their_own_age(queue: Queue[Any], clock: ManualClock, count: int) -> None:
    queue.offer_many([NewJob(number, keep=Keep(age=1)) for number in range(count)])
    queue.ack_many(drained(queue))
    clock.advance(1)


def some_past_the_ceiling(queue: Queue[Any], clock: ManualClock, count: int) -> None:
    queue.offer_many([NewJob(number, keep=None) for number in range(count)])
    queue.ack_many(drained(queue))
    queue.alter(QueuePolicy(history_ttl=1))
    clock.advance(1)


def some_uncounted(queue: Queue[Any], clock: ManualClock, count: int) -> None:
    queue.offer_many(range(count + 3))
    queue.ack_many(drained(queue))
    queue.alter(QueuePolicy(keep=Keep(count=3)))


def some_remembered(queue: Queue[Any], clock: ManualClock, count: int) -> None:
    queue.offer_many([NewJob(number, id=str(number), keep=Keep(count=0)) for number in range(count)])
    queue.ack_many(drained(queue))
    clock.advance(5)


BACKLOGS: dict[str, tuple[str, Callable[[Queue[Any], ManualClock, int], None]]] = {
    "due": ("due", some_due),
    "lapsed": ("lapsed", some_lapsed),
    "age": ("retention", some_past_age),
    "own age": ("retention", some_past_their_own_age),
    "ceiling": ("retention", some_past_the_ceiling),
    "count": ("retention", some_uncounted),
    "dedup": ("dedup", some_remembered),
}


@pytest.fixture
def swept_queue(engine: Engine) -> Queue[Any]:
    return engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=10), dedup=5, lease=1000))


@pytest.mark.every_server
@pytest.mark.parametrize("backlog", BACKLOGS)
@pytest.mark.parametrize(("limit", "passes"), [(5, [5, 5, 2]), (4, [4, 4, 4]), (12, [12]), (11, [11, 1]), (13, [12])])
def test_pending_is_true_exactly_while_something_is_due(
    swept_queue: Queue[Any], clock: ManualClock, backlog: str, limit: int, passes: list[int]
) -> None:
    """Also when a pass came to its limit with the last one."""
    category, build = BACKLOGS[backlog]
    build(swept_queue, clock, 12)
    for place, expected in enumerate(passes, 1):
        done = swept_queue.maintain(limit)
        assert done.by_category == {**NOTHING, category: expected}
        assert (done.processed, done.pending) == (expected, place < len(passes))
    idle = swept_queue.maintain(limit)
    assert (idle.processed, idle.pending) == (0, False)


@pytest.mark.every_server
def test_a_backlog_of_one_category_starves_no_other(swept_queue: Queue[Any], clock: ManualClock) -> None:
    some_past_age(swept_queue, clock, 40)
    some_lapsed(swept_queue, clock, 3)
    some_remembered(swept_queue, clock, 4)
    swept_queue.offer_many([NewJob("late", delay=1) for _ in range(2)])
    clock.advance(1)
    # the takes of the setting recovered the lapses, with a back-off of a second
    first = swept_queue.maintain(10)
    assert first.by_category == {"due": 2 + 3, "lapsed": 0, "retention": 10, "dedup": 4}
    assert first.pending


@pytest.mark.every_server
@pytest.mark.parametrize("limit", [1, 3, 50])
def test_the_limit_holds_for_a_category_as_a_whole(engine: Engine, clock: ManualClock, limit: int) -> None:
    """However many states, ages, ceilings and names there are."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=10), max_attempts=1))
    for state in ENDINGS:
        for number in range(4):
            end(queue, state, name=f"n{number}")
            end(queue, state, keep=Keep(age=3))
            end(queue, state, keep=None)
    clock.advance(10)
    queue.alter(QueuePolicy(history_ttl={"dead": 10}))
    total, calls = 0, 0
    while True:
        done = queue.maintain(limit)
        assert done.by_category["retention"] <= limit
        total, calls = total + done.processed, calls + 1
        if not done.pending:
            break
    assert total == 4 * 8 + 4
    assert calls == -(-total // limit)
    counts = queue.counts()
    assert [counts[JobState(state)] for state in ENDINGS] == [4, 0, 4, 4]


def test_a_state_that_keeps_the_sweep_busy_starves_no_other(engine: Engine, clock: ManualClock) -> None:
    """While hundreds of older completed ones wait, dead, cancelled and quarantined ones go all the same."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=10), history_ttl={"completed": 100}))
    some_past_age(queue, clock, 200)
    for state in ENDINGS[1:]:
        end(queue, state)
        end(queue, state, keep=Keep(age=5))
    clock.advance(10)
    assert all(queue.maintain(1).pending for _ in range(30))
    counts = queue.counts()
    assert [counts[JobState(state)] for state in ENDINGS] == [200 - 24, 0, 0, 0]


@pytest.mark.every_server
def test_counts_stay_exact_through_everything(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=50, count=20), max_attempts=2, history_ttl=70))

    def exact() -> None:
        counts, listed = queue.counts(), dict.fromkeys(JobState, 0)
        for state in JobState:
            cursor = None
            while True:
                page = queue.jobs(state=state, limit=50, cursor=cursor)
                listed[state] += len(page.items)
                cursor = page.cursor
                if cursor is None:
                    break
        assert counts == listed

    for round in range(6):
        queue.offer_many(
            [NewJob(number, name=f"n{number % 3}", priority=number % 3 - 1, delay=number % 2) for number in range(30)]
        )
        clock.advance(1)
        held = queue.take_many(20, lease=2)
        queue.ack_many(held[:5])
        for each in held[5:9]:
            queue.fail(each, "broken", retry_in=0, final=each.value % 2 == 0)
        queue.quarantine(held[9], "poison")
        for each in held[10:12]:
            queue.cancel(each.id)
        queue.release(held[12])
        exact()
        clock.advance(3)
        queue.maintain(10)
        exact()
        queue.retry_many("dead", name="n1")
        queue.purge("ready" if round % 2 else "scheduled", name="n0")
        for job in queue.jobs(state="ready", limit=3).items:
            queue.cancel(job.id)
        exact()
        clock.advance(20)
        while queue.maintain(7).pending:
            exact()
        exact()


@pytest.mark.every_server
def test_nothing_but_configuration_is_left_of_a_thousand_jobs_that_are_not_kept(
    engine: Engine, keys: Callable[..., list[str]], namespace: str
) -> None:
    """Custom ids as well, without dedup; the ring that nobody needed goes with the next sweep."""
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(count=0), dedup=0, backoff=Backoff.fixed(0)))
    jobs = [
        NewJob({"n": number}, id=str(number), name=f"n{number % 7}", priority=number % 3, metadata={"a": "b"})
        for number in range(1000)
    ]
    queue.offer_many(jobs)
    for each in queue.take_many(100):
        queue.fail(each, "once")
    for number in range(200, 220):
        queue.cancel(str(number))
    while batch := queue.take_many(200):
        queue.ack_many(batch)
    queue.maintain()
    assert keys() == sorted([root_of(queue), f"{namespace}:queues"])


@pytest.mark.every_server
def test_a_ring_is_kept_while_there_is_work_to_wake_for(queue: Queue[Any], raw: redis.Redis) -> None:
    bell = f"{root_of(queue)}:bell"
    for job in (NewJob("x"), NewJob("x", priority=1), NewJob("x", delay=1)):
        queue.offer_many([job])
        assert queue.maintain().processed == 0
        assert raw.exists(bell)
        queue.purge("ready")
        queue.purge("scheduled")
        queue.maintain()
        assert not raw.exists(bell)
    queue.offer("x")
    held = taken(queue)
    queue.maintain()
    assert raw.exists(bell)
    queue.ack(held)
    queue.maintain()
    assert not raw.exists(bell)


def test_a_sweep_of_a_queue_that_is_not_there_makes_none(queue: Queue[Any], keys: Callable[..., list[str]]) -> None:
    done = queue.maintain()
    assert (done.processed, done.pending, done.by_category) == (0, False, NOTHING)
    assert keys() == []


@pytest.mark.every_server
def test_an_idle_sweep_writes_nothing(queue: Queue[Any], raw: redis.Redis, namespace: str) -> None:
    finished(queue)
    queue.maintain()
    before = contents(raw, namespace)
    assert queue.maintain().processed == 0
    assert contents(raw, namespace) == before


def test_two_clients_that_sweep_at_once_share_the_work(open_engine: OpenEngine, clock: ManualClock) -> None:
    policy = QueuePolicy(keep=Keep(age=10))
    queue, other = (open_engine(clock=clock).queue("jobs", policy=policy) for _ in range(2))
    some_past_age(queue, clock, 30)
    assert [each.maintain(10).by_category["retention"] for each in (queue, other, queue, other)] == [10, 10, 10, 0]
