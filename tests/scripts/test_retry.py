"""lib/retry: the scripts wait exactly as long as `Backoff` says."""

from __future__ import annotations

import pytest
import redis

from redisq import Backoff
from tests.scripts.direct import lua

CURVES = [
    Backoff.exponential(), Backoff.exponential(0.001, 1.37, 86_400, 0.5), Backoff.exponential(1, 1000, 10**9),
    Backoff.exponential(7, 0.5, 100, 1), Backoff.exponential(0, 2, 5), Backoff.fixed(0), Backoff.fixed(2, jitter=0.3),
    Backoff.delays(1, 5, 30), Backoff.delays(0.001, 0, 10**6, jitter=1),
]  # fmt: skip


@pytest.mark.every_server
@pytest.mark.parametrize("curve", CURVES, ids=str)
def test_both_sides_wait_alike(curve: Backoff, raw: redis.Redis) -> None:
    for attempt in (1, 2, 3, 4, 10, 64, 1000, 999_999, 10**6):
        for id in ("a", "é:☃"):
            code = 'return string.format("%.0f", M.delay(ARGV[1], ARGV[2], tonumber(ARGV[3])))'
            assert int(lua(raw, "retry", code, curve.wire, id, attempt)) == round(curve.delay(attempt, id) * 1000)
