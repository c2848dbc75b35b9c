"""lib/detail: failure detail cut to size, never inside a character."""

from __future__ import annotations

import redis
from hypothesis import given, settings, strategies as st

from redisq import ErrorDetail, detail
from tests.scripts.direct import lua
from tests.support.servers import Server


def test_a_cut_detail_keeps_its_type_the_messages_start_and_the_tracebacks_end(server: Server) -> None:
    client: redis.Redis = server.client()
    texts = st.text(alphabet="aé☃🎈:1", max_size=40)

    @settings(max_examples=100, deadline=None)
    @given(texts, texts, texts, st.integers(0, 120))
    def holds(kind: str, message: str, traceback: str, limit: int) -> None:
        whole = detail.to_wire(ErrorDetail(kind, message, traceback))
        cut = detail.from_wire(lua(client, "detail", "return M.cut(ARGV[1], tonumber(ARGV[2]))", whole, limit))
        parts = (cut.type, cut.message, cut.traceback)
        assert sum(len(part.encode()) for part in parts) <= limit
        assert kind.startswith(cut.type)
        assert message.startswith(cut.message)
        assert traceback.endswith(cut.traceback)
        assert "\ufffd" not in "".join(parts)

    holds()
    client.close()


def test_a_bare_detail_is_its_type(raw: redis.Redis) -> None:
    whole = detail.to_wire(ErrorDetail("Broken", "secret", "also secret"))
    assert detail.from_wire(lua(raw, "detail", "return M.bare(ARGV[1])", whole)) == ErrorDetail("Broken")


def test_garbage_is_cut_without_an_error(raw: redis.Redis) -> None:
    for garbage in (b"", b"x", b"9:", b"99:ab", b"1:a99:b", b"\xff\xfe"):
        assert isinstance(lua(raw, "detail", "return M.cut(ARGV[1], 1)", garbage), bytes)
