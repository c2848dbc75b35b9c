"""Field cases of time: naive datetimes and units, and whose clock decides."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from unittest import mock

import pytest

from redisq import Backoff, InvalidInput, JobState, QueuePolicy
from redisq.testing import ManualClock
from tests.jobs.steps import state_of
from tests.support.fronts import OpenEngine

KOLKATA = timezone(timedelta(hours=5, minutes=30))


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process lives in Shanghai."""
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("elsewhere")
def test_c28_a_time_has_one_meaning(queue: Any, clock: ManualClock) -> None:
    for wrong in (datetime(2030, 1, 1), 1_893_456_000, 1_893_456_000_000, "2030-01-01"):
        with pytest.raises(InvalidInput, match="at"):
            queue.offer("x", at=wrong)
    at = datetime.fromtimestamp(clock.now_ms / 1000, KOLKATA) + timedelta(hours=1)
    queue.offer("x", id="aware", at=at)
    job = queue.get("aware")
    assert job.due_ms == clock.now_ms + 3_600_000
    assert job.due_at == at
    assert queue.offer("x", at=at - timedelta(days=1)).state is JobState.READY
    queue.offer("x", id="delta", delay=timedelta(minutes=1))
    queue.offer("x", id="short", delay=0.0001)
    assert queue.get("delta").due_ms == clock.now_ms + 60_000
    # part of a millisecond is a whole one: neither nothing nor never
    assert queue.get("short").due_ms == clock.now_ms + 1


@pytest.mark.every_server
@pytest.mark.real_server
@pytest.mark.parametrize("off", [-600.0, 600.0])
def test_c30_only_the_servers_clock_decides(off: float, open_engine: OpenEngine) -> None:
    true_time, true_ns = time.time, time.time_ns
    with (
        mock.patch("time.time", side_effect=lambda: true_time() + off),
        mock.patch("time.time_ns", side_effect=lambda: int(true_ns() + off * 1e9)),
    ):
        queue = open_engine().queue("jobs", policy=QueuePolicy(backoff=Backoff.fixed(60), lease=60))
        queue.offer("now", id="now")
        queue.offer("later", id="later", delay=60)
        delivery = queue.take()
        assert delivery is not None
        server_ms = true_time() * 1000
        assert abs(delivery.expires_ms - 60_000 - server_ms) < 30_000
        assert queue.renew(delivery).expires_ms >= delivery.expires_ms
        failure = queue.fail(delivery, "no")
        assert failure.due_ms is not None
        assert abs(failure.due_ms - 60_000 - server_ms) < 30_000
        assert queue.take() is None
        assert state_of(queue, "later") is JobState.SCHEDULED
        past = datetime.fromtimestamp(true_time() - 5, UTC)
        assert queue.offer("x", at=past).state is JobState.READY
