"""lib/head: the scripts and the client read the same heads, and take the same ones for damaged."""

from __future__ import annotations

import pytest
import redis
from hypothesis import given, settings, strategies as st

from redisq.calls import heads
from tests.scripts.direct import lua
from tests.support.servers import Server

READ = """
local job = M.parse("id", ARGV[1])
if not job then return false end
return { job.letter, tostring(job.attempts), tostring(job.earlier), tostring(job.folded),
  (M.created(job)), (select(2, M.created(job))), tostring(job.fixed.priority), job.fixed.name, M.format(job) }
"""
WHOLE = [
    b"w;1;;", b"W;1d;-5,3,9000,cm,1:2/3:4/5:/:6,5000;name", b"c3,2,5|a,2,c,,9-n,3,s,1,w;12;;a;b",
    b"w1!f,2,s,77,9-n,1,U,1,host%2C1;12;0,,,c;", b"d10;99;,,,,:/:/:/:;", b"w;5;,,,,;x\n\x00y", b"q1,0,7;5;1000;",
]  # fmt: skip
DAMAGED = [
    b"", b"w", b"w;", b"w;1", b"w;1;", b"z;1;;", b"w;;;", b"w;x;;", b"w;1;-;", b"w;1;0,,,0;", b"w|;1;;", b"w1|a;1;;",
    b"w1a,2,c,,9-n,3,s,1,w;1;;", b"w;1;0,,,c,1:2;", b"w;1;0,,,c,1:2/3:4/5:6;", b"w" + b"9" * 17 + b";1;;",
    b"w;" + b"9" * 17 + b";;", b"w;1;" + b"9" * 18 + b";", b"w1|a,2,c,,9-n,3,s,1,w,x;1;;",
]  # fmt: skip


def both(client: redis.Redis, text: bytes) -> tuple[object, object]:
    """What Lua and what Python reads; None for damage."""
    found = lua(client, "head", READ, text)
    try:
        read = heads.head(text)
    except ValueError:
        return found, None
    return found, read


@pytest.mark.every_server
@pytest.mark.real_server
@pytest.mark.parametrize("text", WHOLE)
def test_a_whole_head_reads_alike_and_is_written_back(text: bytes, raw: redis.Redis) -> None:
    found = lua(raw, "head", READ, text)
    read = heads.head(text)
    assert found[:7] == [
        str(part).encode()
        for part in (
            read.letter, read.attempts, read.earlier, read.folded, read.created_ms, "d" if read.delayed else "",
            read.fixed.priority,
        )
    ]  # fmt: skip
    assert found[7] == read.fixed.name.encode()
    # zeros at the end of the present are left out
    assert heads.head(found[8]) == read


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_head_is_damaged_for_both(text: bytes, raw: redis.Redis) -> None:
    assert both(raw, text) == (None, None)


def test_no_head_is_whole_for_the_scripts_and_damaged_for_the_client(server: Server) -> None:
    """A take hands out what the scripts read: the client must be able to read it, too."""
    client: redis.Redis = server.client()
    pieces = st.sampled_from(
        [b"", b"0", b"7", b",", b";", b"|", b"!", b"-", b":", b"/", b"w", b"d", b"a", b"s", b"9-n"]
    )

    @settings(max_examples=300, deadline=None)
    @given(st.sampled_from(WHOLE), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3), pieces), max_size=3))
    def holds(text: bytes, edits: list[tuple[int, int, bytes]]) -> None:
        for at, cut, piece in edits:
            text = text[:at] + piece + text[at + cut :]
        found, read = both(client, text)
        assert (found is None) == (read is None), text

    holds()
    client.close()
