from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from redisq.errors import InvalidInput
from redisq.testing import ManualClock


def test_starts_at_an_aware_datetime_in_any_zone() -> None:
    utc = datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert ManualClock(utc).now_ms == 1_714_564_800_000
    assert ManualClock(utc.astimezone(timezone(timedelta(hours=5)))).now_ms == 1_714_564_800_000


def test_starts_at_unix_milliseconds() -> None:
    assert ManualClock(1_500).now_ms == 1_500
    assert ManualClock(0).now_ms == 0


def test_starts_at_the_present_without_a_start() -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    now_ms = ManualClock().now_ms
    assert before.timestamp() * 1000 <= now_ms <= datetime.now(UTC).timestamp() * 1000


def test_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock(1_000)
    assert clock.now_ms == clock.now_ms == 1_000
    clock.advance(2)
    assert clock.now_ms == 3_000
    clock.advance(0.5)
    assert clock.now_ms == 3_500
    clock.advance(timedelta(days=1, milliseconds=1))
    assert clock.now_ms == 3_500 + 86_400_001


def test_rounds_up_to_whole_milliseconds() -> None:
    clock = ManualClock(0)
    clock.advance(0.0001)
    assert clock.now_ms == 1
    clock.advance(0)
    assert clock.now_ms == 1
    clock.advance(0.3)
    assert clock.now_ms == 301


@pytest.mark.parametrize("seconds", [-1, -0.001, timedelta(seconds=-1), float("nan"), float("inf"), True, "1", None])
def test_refuses_what_is_no_duration(seconds: Any) -> None:
    clock = ManualClock(7)
    with pytest.raises(InvalidInput, match="seconds"):
        clock.advance(seconds)
    assert clock.now_ms == 7


@pytest.mark.parametrize("start", [-1, True, 1.5, "now", datetime(2024, 5, 1)])
def test_refuses_what_is_no_start(start: Any) -> None:
    with pytest.raises(InvalidInput, match="start"):
        ManualClock(start)


def test_loses_no_step_between_threads() -> None:
    clock = ManualClock(0)
    with ThreadPoolExecutor(8) as threads:
        for _ in range(8):
            threads.submit(lambda: [clock.advance(0.001) for _ in range(2_000)])  # type: ignore[func-returns-value]
    assert clock.now_ms == 16_000
