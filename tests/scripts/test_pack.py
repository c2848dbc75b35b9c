"""lib/pack: a list of byte strings as one, and back."""

from __future__ import annotations

import redis
from hypothesis import given, settings, strategies as st

from tests.scripts.direct import lua
from tests.support.servers import Server


def test_what_is_packed_is_unpacked(server: Server) -> None:
    client: redis.Redis = server.client()

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.binary(max_size=20), max_size=8))
    def holds(items: list[bytes]) -> None:
        assert lua(client, "pack", "return M.unlist(M.list(ARGV))", *items) == items

    holds()
    client.close()


def test_a_list_is_read_from_a_place_on(raw: redis.Redis) -> None:
    assert lua(raw, "pack", "return M.unlist('12|3:abc0:1:;', 4)") == [b"abc", b"", b";"]
