"""Field cases of custom ids: how long they block, on which ways a job may come back, and offers while one runs."""

from __future__ import annotations

from typing import Any

import pytest

from redisq import Cancel, Engine, JobState, Keep, Queue, QueuePolicy
from redisq.testing import ManualClock
from tests.jobs.steps import ENDINGS, end, taken

pytestmark = pytest.mark.every_server


@pytest.mark.parametrize("ending", ENDINGS)
def test_c20_one_rule_for_every_ending(ending: str, engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(age=10), dedup=60))
    other = engine.queue("other")
    end(queue, ending, "first", id="a")
    again = queue.offer("second", id="a")
    assert (again.duplicate, again.state) == (True, JobState(ending))
    job = queue.get("a")
    assert job is not None
    assert job.value == "first"
    assert other.offer("second", id="a").duplicate is False
    clock.advance(10)
    queue.maintain()
    assert queue.get("a") is None
    gone = queue.offer("third", id="a")
    assert (gone.duplicate, gone.state) == (True, None)
    clock.advance(50)
    assert queue.offer("fourth", id="a").duplicate is False
    assert taken(queue).value == "fourth"


def test_c22_a_job_is_never_refused_as_a_duplicate_of_itself(queue: Queue[Any], clock: ManualClock) -> None:
    def rival() -> None:
        assert queue.offer("rival", id="a").duplicate

    queue.offer("first", id="a", delay=60, max_attempts=2)
    rival()
    assert queue.promote("a")
    rival()
    delivery = taken(queue)
    rival()
    queue.release(delivery)
    rival()
    delivery = taken(queue)
    queue.fail(delivery, "no", retry_in=5)
    rival()
    clock.advance(5)
    rival()
    delivery = taken(queue)
    assert (delivery.value, delivery.attempt) == ("first", 2)
    queue.fail(delivery, "no")
    rival()
    assert queue.retry("a")
    rival()
    delivery = taken(queue)
    clock.advance(30)
    rival()
    clock.advance(60)
    assert taken(queue).value == "first"


def test_c23_an_offer_while_the_same_id_runs_is_a_duplicate_and_says_so(queue: Queue[Any]) -> None:
    queue.offer("first", id="a")
    delivery = taken(queue)
    for value in ("second", "third"):
        again = queue.offer(value, id="a")
        assert (again.duplicate, again.state) == (True, JobState.LEASED)
    assert queue.cancel("a") is Cancel.REQUESTED
    assert queue.offer("fourth", id="a").duplicate
    queue.fail(delivery, "stopped")
    assert queue.offer("fifth", id="a").state is JobState.CANCELLED
    assert queue.take() is None
