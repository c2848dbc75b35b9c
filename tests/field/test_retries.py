"""Field case of a back-off that overflows."""

from __future__ import annotations

import math
from typing import Any

import pytest
import redis

from redisq import Backoff, Engine, InvalidInput, JobState, QueuePolicy
from redisq.testing import ManualClock
from tests.jobs.steps import root_of, taken

ATTEMPTS = [1, 31, 63, 64, 1024, 1100, 10**6]
CURVES = [
    Backoff.exponential(base=1, factor=2, cap=300),
    Backoff.exponential(base=1.5, factor=10, cap=300, jitter=1),
    Backoff.exponential(base=0, factor=2, cap=300),
    Backoff.exponential(base=300, factor=0.5, cap=300, jitter=0.3),
]


@pytest.mark.parametrize("curve", CURVES, ids=range(len(CURVES)))
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_c31_the_delay_is_never_negative_nor_over_the_cap(curve: Backoff, attempt: int) -> None:
    delay = curve.delay(attempt, "some id")
    assert math.isfinite(delay)
    assert 0 <= delay <= 300


@pytest.mark.parametrize("attempt", [31, 64, 1100, 999_998])
@pytest.mark.parametrize("curve", CURVES, ids=range(len(CURVES)))
def test_c31_a_job_of_many_attempts_fails_and_comes_back(
    curve: Backoff, attempt: int, engine: Engine, raw: redis.Redis, clock: ManualClock
) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(backoff=curve, max_attempts=1_000_000))
    queue.offer("x", id="a")
    raw.hset(f"{root_of(queue)}:head", "a", f"w{attempt};5;,,,c;")
    failure = queue.fail(taken(queue), "no")
    assert failure.state in (JobState.READY, JobState.SCHEDULED)
    assert failure.due_ms is None or 0 <= failure.due_ms - clock.now_ms <= 300_000
    clock.advance(300)
    assert taken(queue).attempt == attempt + 2


@pytest.mark.parametrize("wait", [float("nan"), float("inf"), -1, True, "5"])
def test_c31_a_wait_that_is_none_is_refused_and_the_job_is_still_held(wait: Any, queue: Any) -> None:
    queue.offer("x", id="a")
    delivery = taken(queue)
    with pytest.raises(InvalidInput, match="retry_in"):
        queue.fail(delivery, "no", retry_in=wait)
    assert queue.fail(delivery, "no", retry_in=0).state is JobState.READY
