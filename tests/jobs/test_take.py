"""Consuming: order, batches, poison and the shape of a take (SPEC 3.3)."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis

from redisq import Engine, InvalidInput, JobState, NewJob, Queue, QueuePolicy
from redisq.testing import ManualClock
from tests.jobs.steps import drained, ids, root_of, state_of, taken, values
from tests.support.fronts import OpenEngine


def test_a_missing_queue_answers_empty_and_is_not_created(queue: Queue[Any], keys: Callable[..., list[str]]) -> None:
    assert queue.take() is None
    assert queue.take_many(5) == []
    assert queue.exchange([], 5) == ([], [])
    assert queue.process_one(lambda delivery: None) is False
    assert queue.get("x") is None
    assert queue.attempts("x") == []
    assert queue.history("x").entries == []
    assert queue.jobs().items == []
    assert set(queue.counts().values()) == {0}
    assert queue.info().oldest_ms is None
    assert queue.cancel("x") == "unknown"
    assert not any((queue.retry("x"), queue.promote("x"), queue.remove("x")))
    assert queue.maintain().processed == 0
    assert keys() == []


@pytest.mark.every_server
def test_one_consumer_gets_a_b_c_in_the_order_offered(queue: Queue[Any]) -> None:
    """persistedqueue 4."""
    for value in "ABC":
        queue.offer(value)
    assert [taken(queue).value for _ in range(3)] == ["A", "B", "C"]
    assert queue.take() is None


def test_the_order_is_exact_whatever_the_ids(queue: Queue[Any]) -> None:
    chosen = [f"{number:03}" for number in range(200)]
    random.Random(7).shuffle(chosen)
    queue.offer_many([NewJob(number, id=id) for number, id in enumerate(chosen)])
    assert ids(drained(queue, 7)) == chosen


@pytest.mark.every_server
def test_a_take_claims_as_many_as_are_wanted_and_never_more(queue: Queue[Any]) -> None:
    """persistedqueue 3: m elements and n wanted, m > n: one call claims n."""
    queue.offer_many(range(10))
    assert values(queue.take_many(4)) == [0, 1, 2, 3]
    counts = queue.counts()
    assert (counts[JobState.LEASED], counts[JobState.READY]) == (4, 6)
    assert values(queue.take_many(1000)) == [4, 5, 6, 7, 8, 9]
    assert queue.take_many(1) == []


@pytest.mark.every_server
def test_tokens_are_unique_and_fences_rise_in_claim_order(
    queue: Queue[Any], open_engine: OpenEngine, clock: ManualClock
) -> None:
    other = open_engine(clock=clock).queue("jobs")
    queue.offer_many(range(30))
    claims = queue.take_many(10) + other.take_many(10) + [taken(queue) for _ in range(10)]
    again = []
    for each in claims[:5]:
        queue.release(each)
        again.append(taken(other))
    fences = [each.fence for each in claims + again]
    assert fences == sorted(fences)
    assert len(set(fences)) == 35
    assert len({each.token for each in claims + again}) == 35


def test_the_fence_grows_also_when_the_clock_stands_still_or_steps_back(
    open_engine: OpenEngine, clock: ManualClock
) -> None:
    now = open_engine(clock=clock).queue("jobs")
    past = open_engine(clock=ManualClock(clock.now_ms - 5000)).queue("jobs")
    now.offer_many(range(3))
    assert taken(now).fence < taken(past).fence < taken(now).fence


@pytest.mark.parametrize(("lease", "ms"), [(None, 45_000), (5, 5_000), (0.0004, 1), (2.5, 2_500)])
def test_the_lease_is_the_given_one_or_the_policy_s(engine: Engine, clock: ManualClock, lease: Any, ms: int) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(lease=45))
    queue.offer_many(range(2))
    assert taken(queue, lease=lease).expires_ms == clock.now_ms + ms
    assert queue.take_many(1, lease=lease)[0].expires_ms == clock.now_ms + ms


@pytest.mark.every_server
def test_each_of_many_jobs_goes_to_one_of_several_consumers(open_engine: OpenEngine) -> None:
    """effect-mq 6 and 25: consumers race; each job is claimed exactly once."""
    queues = [open_engine().queue("jobs") for _ in range(3)]
    queues[0].offer_many(range(60))
    found: list[Any] = []

    def consume(queue: Queue[Any]) -> None:
        while batch := queue.take_many(3):
            found.extend(values(batch))

    threads = [threading.Thread(target=consume, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(60))


@pytest.mark.every_server
def test_an_element_offered_later_reaches_the_waiting_taker(open_engine: OpenEngine) -> None:
    """persistedqueue 2: nothing is queued, a taker waits, another process offers."""
    taker, producer = open_engine().queue("jobs"), open_engine().queue("jobs")
    producer.offer("early")
    assert taken(taker).value == "early"
    thread = threading.Timer(0.1, producer.offer, ["late"])
    thread.start()
    try:
        assert taken(taker, wait=10).value == "late"
    finally:
        thread.join()


@pytest.mark.every_server
def test_due_jobs_go_to_the_tail_in_due_order_and_equal_times_in_byte_order_of_the_id(
    queue: Queue[Any], clock: ManualClock
) -> None:
    queue.offer_many(
        [
            NewJob("c", id="é", delay=2), NewJob("b", id="b", delay=2), NewJob("a", id="Z", delay=2),
            NewJob("first", delay=1), "ready before",
        ]
    )  # fmt: skip
    clock.advance(2)
    queue.offer("ready too")
    assert values(queue.take_many(10)) == ["ready before", "ready too", "first", "a", "b", "c"]


def test_equal_due_times_of_generated_ids_keep_the_offer_order(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer_many([NewJob(number, delay=3) for number in range(50)])
    for number in range(50, 60):
        queue.offer(number, delay=3)
    clock.advance(3)
    assert values(queue.take_many(100)) == list(range(60))


@pytest.mark.every_server
def test_one_take_recovers_then_promotes_then_claims(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(max_attempts=2))
    queue.offer("lapses")
    taken(queue, lease=1)
    queue.offer("due", delay=1)
    queue.offer("ready")
    clock.advance(1)
    assert values(queue.take_many(10)) == ["ready", "due"]
    assert queue.counts()[JobState.SCHEDULED] == 1  # the lapsed one, until its back-off has passed
    clock.advance(1)
    assert values(queue.take_many(10)) == ["lapses"]


@pytest.mark.every_server
def test_a_paused_take_hands_out_and_promotes_nothing(queue: Queue[Any], clock: ManualClock) -> None:
    """effect-mq 2, where SPEC 3.7 differs: while paused nothing is promoted either."""
    queue.offer("ready")
    due = queue.offer("due", delay=1).id
    queue.pause()
    clock.advance(1)
    assert queue.take() is None
    assert queue.take_many(5) == []
    assert state_of(queue, due) is JobState.SCHEDULED
    queue.resume()
    assert values(queue.take_many(5)) == ["ready", "due"]


@pytest.mark.every_server
def test_a_poison_element_is_set_aside_and_the_same_take_returns_the_good_one(
    queue: Queue[Any], open_engine: OpenEngine, clock: ManualClock, raw: redis.Redis
) -> None:
    """persistedqueue 36: a raw element violates the schema; never delivered again; raw bytes and reason preserved."""
    strict = open_engine(clock=clock).queue("jobs", int)
    poison = queue.offer({"not": "a number"}).id
    queue.offer(5)
    assert taken(strict).value == 5
    assert strict.take() is None
    job = strict.get(poison)
    assert job is not None
    assert (job.state, job.value, job.attempts) == (JobState.QUARANTINED, b'{"not":"a number"}', 1)
    assert job.error is not None
    assert "int" in job.error.message
    assert raw.hget(f"{root_of(queue)}:body", poison) == b'{"not":"a number"}'
    assert [attempt.outcome for attempt in strict.attempts(poison)] == ["quarantined"]


@pytest.mark.every_server
def test_an_element_that_is_no_json_is_set_aside_and_the_next_one_taken(queue: Queue[Any], raw: redis.Redis) -> None:
    """persistedqueue 37."""
    poison, _ = queue.offer("poison").id, queue.offer("good")
    for broken in (b"{not json", b"", b"\x00\xff"):
        raw.hset(f"{root_of(queue)}:body", poison, broken)
        assert values(queue.take_many(2)) == ["good"]
        job = queue.get(poison)
        assert job is not None
        assert (job.state, job.value) == (JobState.QUARANTINED, broken)
        queue.retry(poison)
        queue.offer("good")


def test_a_batch_of_poison_hides_nothing_behind_it(open_engine: OpenEngine, clock: ManualClock) -> None:
    loose, strict = open_engine(clock=clock).queue("jobs"), open_engine(clock=clock).queue("jobs", int)
    loose.offer_many(["poison"] * 25 + [1] + ["poison"] * 25 + [2, 3])
    assert values(strict.take_many(2)) == [1, 2]
    assert values(strict.take_many(2)) == [3]
    assert strict.counts()[JobState.QUARANTINED] == 50


def test_an_undecodable_job_has_no_further_attempt(open_engine: OpenEngine, clock: ManualClock) -> None:
    """persistedqueue a1: dead-lettered at once whatever the attempt count."""
    loose, strict = open_engine(clock=clock).queue("jobs"), open_engine(clock=clock).queue("jobs", int)
    id = loose.offer("poison", max_attempts=5).id
    assert strict.take() is None
    clock.advance(3600)
    assert strict.take() is None
    assert state_of(strict, id) is JobState.QUARANTINED


@pytest.mark.parametrize("limit", [0, 1001, True, "5", None, 1.0])
def test_the_limit_of_a_take_is_1_to_1000(queue: Queue[Any], limit: Any) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        queue.take_many(limit)
