"""Ids that a client makes: 128 bits, time-ordered, in bytes that sort as they were made."""

from __future__ import annotations

import binascii
import os
import time
from threading import Lock

_STANDARD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_SORTABLE = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~"
_TO_SORTABLE = bytes.maketrans(_STANDARD, _SORTABLE)
_RANDOM_BITS = 80


class IdMaker:
    """Makes ids of 22 characters: 48 bits of Unix milliseconds, then 80 random bits.

    Ids of one maker rise strictly, also inside one millisecond and when the clock steps back.
    """

    def __init__(self) -> None:
        self._last = 0
        self._lock = Lock()

    def make(self, count: int = 1) -> list[str]:
        """`count` new ids in rising order."""
        with self._lock:
            first = (time.time_ns() // 1_000_000) << _RANDOM_BITS | int.from_bytes(os.urandom(10)) >> 1
            if first >> _RANDOM_BITS <= self._last >> _RANDOM_BITS:
                first = self._last + 1
            self._last = first + count - 1
        return _texts(first, count)


def nonce() -> str:
    """64 random bits as 11 characters: the part of a token that no server can repeat."""
    return binascii.b2a_base64(os.urandom(8), newline=False)[:11].translate(_TO_SORTABLE).decode()


def _texts(first: int, count: int) -> list[str]:
    """`count` numbers of 128 bits as text, encoded at once: padded to 144 bits each is 24 characters, of which the last
    two say nothing."""
    padded = range(first << 16, first + count << 16, 1 << 16)
    encoded = binascii.b2a_base64(b"".join([number.to_bytes(18) for number in padded]), newline=False)
    text = encoded.translate(_TO_SORTABLE).decode()
    return [text[at : at + 22] for at in range(0, len(text), 24)]
