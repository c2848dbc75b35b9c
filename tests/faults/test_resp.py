"""Where frames of the protocol end."""

from __future__ import annotations

import pytest

from tests.faults.resp import frame_end, words


@pytest.mark.parametrize(
    "frame",
    [
        b"+OK\r\n", b"-ERR no\r\n", b":12\r\n", b"$-1\r\n", b"$0\r\n\r\n", b"$4\r\na\r\nb\r\n", b"*-1\r\n", b"*0\r\n",
        b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n", b"%1\r\n+k\r\n*0\r\n", b"_\r\n", b"#t\r\n", b",1.5\r\n", b"(12\r\n",
        b"=5\r\ntxt:a\r\n", b"~1\r\n:1\r\n", b">1\r\n+x\r\n", b"|1\r\n+a\r\n:1\r\n*1\r\n:2\r\n",
    ],
)  # fmt: skip
def test_a_frame_ends_where_the_next_one_starts(frame: bytes) -> None:
    assert frame_end(frame + b"+next\r\n") == len(frame)
    assert all(frame_end(frame[:size]) is None for size in range(len(frame)))


def test_words_of_a_request() -> None:
    assert words(b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\n\r\n\r\n\r\n") == [b"SET", b"", b"\r\n\r\n"]
