"""lib/queue: what every script does before its own first step."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from redisq.calls.core import root
from tests.contract.heads import scripts
from tests.scripts.direct import contents, run

OPENING = [name for name in scripts() if name.startswith("jobs/")]


@pytest.mark.every_server
@pytest.mark.real_server
@pytest.mark.parametrize("name", OPENING)
def test_a_missing_queue_is_told_apart_and_not_made(name: str, raw: redis.Redis, namespace: str) -> None:
    with pytest.raises(redis.ResponseError, match="^NOQUEUE "):
        run(raw, name, root("jobs", namespace, "jobs"), slot="s", number=1)
    assert contents(raw, namespace) == {}


@pytest.mark.parametrize("name", OPENING)
def test_a_root_without_its_format_is_corrupt(name: str, raw: redis.Redis, namespace: str) -> None:
    key = root("jobs", namespace, "jobs")
    plants: list[dict[Any, Any]] = [{"some": "field"}, {"format": "0"}, {"format": "2"}, {"format": ""}]
    for planted in plants:
        raw.delete(key)
        raw.hset(key, mapping=planted)
        before = contents(raw, namespace)
        with pytest.raises(redis.ResponseError, match="^CORRUPT .*format"):
            run(raw, name, key, slot="s", number=1)
        assert contents(raw, namespace) == before
