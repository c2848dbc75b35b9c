"""Field case of packing priority and arrival into one score."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from redisq import InvalidInput, Queue
from tests.jobs.steps import ids, root_of

ORDER = ["z", "m", "a", "10", "9"]


@pytest.mark.parametrize("priority", [-1000, -1, 0, 1, 1000])
@pytest.mark.parametrize("near_the_limit", [False, True])
def test_c18_arrival_order_in_each_priority(
    priority: int, near_the_limit: bool, queue: Queue[Any], raw: redis.Redis
) -> None:
    queue.pause()
    queue.resume()
    if near_the_limit:
        # counters of a queue that has run for very long
        raw.hset(root_of(queue), mapping={"rank_tail": 2**41 - 10, "rank_head": -(2**41) + 10})
    for id in ORDER:
        queue.offer(id, id=id, priority=priority)
    queue.offer("lower", id="lower", priority=priority - 1 if priority > -1000 else priority)
    assert ids(queue.take_many(9)) == [*ORDER, "lower"]


@pytest.mark.parametrize("priority", [1001, -1001, 1.5, float("nan"), True, "5", None])
def test_c18_a_priority_out_of_range_is_refused_before_anything_is_written(
    priority: Any, queue: Queue[Any], raw: redis.Redis, namespace: str
) -> None:
    with pytest.raises(InvalidInput, match="priority"):
        queue.offer("x", priority=priority)
    assert list(raw.scan_iter(match=f"*{namespace}*", count=1000)) == []
