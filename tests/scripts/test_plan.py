"""lib/plan: what is planned is written as few variadic commands, however much it is."""

from __future__ import annotations

import pytest
import redis

from tests.scripts.direct import lua

FILL = """
for i = 1, tonumber(ARGV[2]) do M.add("HSET", ARGV[1], "f" .. i, "v" .. i) end
M.commit()
return redis.call("HLEN", ARGV[1])
"""


@pytest.mark.every_server
@pytest.mark.real_server
def test_more_than_one_command_can_carry(raw: redis.Redis, namespace: str) -> None:
    assert lua(raw, "plan", FILL, namespace, 20_000) == 20_000
    assert raw.hget(namespace, "f20000") == b"v20000"


def test_a_growing_hash_becomes_a_table_and_keeps_what_it_holds(raw: redis.Redis, namespace: str) -> None:
    lua(raw, "plan", FILL, namespace, 60)
    assert raw.object("encoding", namespace) == b"listpack"
    lua(raw, "plan", FILL, namespace, 65)
    assert raw.object("encoding", namespace) == b"hashtable"
    assert raw.hlen(namespace) == 65
    assert raw.hget(namespace, "") is None


def test_fields_are_deleted_last(raw: redis.Redis, namespace: str) -> None:
    code = """
    M.add("HDEL", ARGV[1], "a")
    M.add("HSET", ARGV[1], "a", "1", "b", "2")
    M.commit()
    M.commit()
    return redis.call("HGETALL", ARGV[1])
    """
    assert lua(raw, "plan", code, namespace) == [b"b", b"2"]


@pytest.mark.every_server
@pytest.mark.real_server
@pytest.mark.parametrize("count", [65, 200])
def test_a_column_that_is_made_by_a_large_batch_is_a_table_at_once(
    count: int, raw: redis.Redis, namespace: str
) -> None:
    lua(raw, "plan", FILL, namespace, count)
    assert raw.object("encoding", namespace) == b"hashtable"
    assert raw.hlen(namespace) == count
    code = """
    for i = 1, tonumber(ARGV[2]) do M.add("ZADD", ARGV[1], tostring(i), "m" .. i) end
    M.commit()
    """
    scores = f"{namespace}:scores"
    lua(raw, "plan", code, scores, count)
    assert raw.object("encoding", scores) == b"skiplist"
    assert raw.zrange(scores, 0, 0, withscores=True) == [(b"m1", 1.0)]
    assert raw.zcard(scores) == count
