"""The wait after attempt n: the client's and the scripts' arithmetic are one (SPEC 3.5)."""

from __future__ import annotations

import random
from typing import Any

import pytest
import redis

from redisq import Backoff, Engine, Failed, Failure, InvalidInput, NewJob, Queue, QueuePolicy
from redisq.testing import ManualClock
from tests.jobs.steps import root_of, taken

ATTEMPTS = [1, 2, 3, 4, 5, 7, 10, 31, 32, 33, 63, 64, 65, 100, 1023, 1024, 1025, 5000, 99_999, 999_999]
CURVES = [
    Backoff.exponential(),
    Backoff.exponential(base=0.001, factor=1.0001, cap=10_000, jitter=0.3),
    Backoff.exponential(base=0.333, factor=1.5, cap=86_400),
    Backoff.exponential(base=7, factor=3.7, cap=1e9, jitter=1),
    Backoff.exponential(base=100, factor=0.5, cap=60, jitter=0.25),
    Backoff.exponential(base=100, factor=0.001),
    Backoff.exponential(base=0, factor=1000),
    Backoff.exponential(base=5, factor=1000, cap=0),
    Backoff.exponential(base=5, factor=1, jitter=0.999),
    Backoff.exponential(base=1, factor=2, cap=100 * 365 * 86_400),
    Backoff.fixed(0),
    Backoff.fixed(12.345, jitter=0.5),
    Backoff.delays(1, 5, 30),
    Backoff.delays(3, 0, 2.5, 0, jitter=0.1),
    Backoff.delays(*range(64), jitter=0.01),
]


def with_attempts_so_far(raw: redis.Redis, queue: Queue[Any], id: str, count: int) -> None:
    """As if `count` attempts had failed before (the head's form: lua/lib/head.lua)."""
    key = f"{root_of(queue)}:head"
    head: Any = raw.hget(key, id)
    letter, rest = head.split(b";", 1)
    raw.hset(key, id, letter + (b"%d" % count if count else b"") + b";" + rest)


@pytest.mark.every_server
@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.wire[:30])
def test_the_scripts_and_the_client_wait_alike(
    engine: Engine, clock: ManualClock, raw: redis.Redis, curve: Backoff
) -> None:
    """persistedqueue 19, for many n, ids and jitters; nothing overflows."""
    queue = engine.queue("jobs", policy=QueuePolicy(backoff=curve, max_attempts=1_000_000))
    rng = random.Random(repr(curve))
    ids = [f"{rng.getrandbits(32)}:é{number}" for number in ATTEMPTS]
    queue.offer_many([NewJob(0, id=id) for id in ids])
    for id, attempt in zip(ids, ATTEMPTS, strict=True):
        with_attempts_so_far(raw, queue, id, attempt - 1)
    deliveries = queue.take_many(100)
    assert [each.attempt for each in deliveries] == ATTEMPTS
    answers, _ = queue.exchange([Failed(each, "x") for each in deliveries], 0)
    waits = []
    for answer in answers:
        assert isinstance(answer, Failure)
        waits.append(0 if answer.due_ms is None else answer.due_ms - clock.now_ms)
    assert waits == [round(curve.delay(attempt, id) * 1000) for id, attempt in zip(ids, ATTEMPTS, strict=True)]


def test_a_lapse_waits_like_a_failure(engine: Engine, clock: ManualClock) -> None:
    curve = Backoff.exponential(base=3, factor=2, jitter=0.7)
    queue = engine.queue("jobs", policy=QueuePolicy(backoff=curve))
    queue.offer("x", id="one")
    for attempt in (1, 2, 3):
        end = taken(queue, lease=1).expires_ms
        clock.advance(1)
        queue.maintain()
        job = queue.get("one")
        assert job is not None
        assert job.due_ms == end + round(curve.delay(attempt, "one") * 1000)
        clock.advance(60)


def test_the_default_curve() -> None:
    """persistedqueue 16."""
    curve = QueuePolicy().backoff
    assert [curve.delay(attempt) for attempt in range(1, 12)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert curve.delay(10**6) == curve.delay(2**53) == 300


def test_a_fraction_of_a_millisecond_is_rounded_up() -> None:
    """effect-mq 20: 333 ms with factor 1.5: 500 ms after the second attempt."""
    assert Backoff.exponential(base=0.333, factor=1.5).delay(2) == 0.5
    assert Backoff.exponential(base=0.001, factor=1.5).delay(2) == 0.002


def test_no_attempt_overflows() -> None:
    for factor in (1000, 1.0000001, 0.001, 2):
        delays = [Backoff.exponential(base=1, factor=factor, cap=3e9).delay(n) for n in (1, 10**3, 10**6, 2**53)]
        assert all(0 <= delay <= 3e9 for delay in delays)
    assert Backoff.exponential(base=0, factor=1000).delay(10**6) == 0
    assert Backoff.exponential(base=0, factor=1000, jitter=1).delay(10**6) == 0


def test_a_factor_below_one_shrinks_towards_nothing() -> None:
    curve = Backoff.exponential(base=8, factor=0.5)
    assert [curve.delay(attempt) for attempt in (1, 2, 3, 4)] == [8, 4, 2, 1]
    assert curve.delay(10**6) in (0, 0.001)


def test_jitter_shortens_by_up_to_its_share_and_spreads() -> None:
    curve = Backoff.fixed(100, jitter=0.3)
    delays = [curve.delay(1, f"id{number}") for number in range(500)]
    assert all(70 <= delay <= 100 for delay in delays)
    assert min(delays) < 75
    assert max(delays) > 95
    assert len(set(delays)) > 450
    assert delays == [curve.delay(1, f"id{number}") for number in range(500)]


def test_the_last_of_the_delays_repeats() -> None:
    curve = Backoff.delays(1, 5, 30)
    assert [curve.delay(attempt) for attempt in (1, 2, 3, 4, 10**6)] == [1, 5, 30, 30, 30]


def test_curves_compare_by_value() -> None:
    assert Backoff.fixed(1) == Backoff.delays(1)
    assert Backoff.exponential(base=1) != Backoff.exponential(base=2)
    assert len({Backoff.fixed(1), Backoff.fixed(1.0)}) == 1


@pytest.mark.parametrize("number", [0, 65])
def test_delays_takes_1_to_64(number: int) -> None:
    with pytest.raises(InvalidInput, match="delays"):
        Backoff.delays(*[1] * number)
