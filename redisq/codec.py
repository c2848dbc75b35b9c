"""Values to bytes and back, by msgspec: JSON by default, MessagePack by choice. Never pickle.

Stored bytes are untrusted: whatever a decoder raises on them becomes `Undecodable`, with a reason safe to print.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from redisq.errors import InvalidInput

CODECS = ("json", "msgpack")
MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_RESULT_BYTES = 64 * 1024


class Undecodable(Exception):
    """Stored bytes do not decode as the declared type; the message is the reason."""


class Codec:
    """Encodes any value and decodes bytes as one type."""

    __slots__ = ("_decode", "_encode", "name", "type")

    def __init__(self, name: str, type: Any) -> None:
        if name not in CODECS:
            raise InvalidInput(f"codec must be one of {', '.join(CODECS)}, not {name!r}")
        self.name = name
        self.type = type
        self._encode: Callable[[Any], bytes]
        self._decode: Callable[[bytes], Any]
        try:
            if name == "json":
                self._encode, self._decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(type).decode
            else:
                self._encode, self._decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(type).decode
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"type is not one that msgspec can decode: {error}") from error

    def encode(self, what: str, value: Any, *, limit: int, validate: bool = True) -> bytes:
        """The bytes of `value`, at most `limit` of them; with `validate` they are proven to decode as the type."""
        try:
            data = self._encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidInput(f"{what} can't be encoded as {self.name}: {error}") from error
        if len(data) > limit:
            raise InvalidInput(f"{what} is {len(data):,} bytes encoded; the limit is {limit:,}")
        if validate:
            try:
                self._decode(data)
            except Exception as error:  # see decode
                reason = f"{type(error).__name__}: {error}"
                raise InvalidInput(f"{what} does not decode as the type of this queue: {reason}") from error
        return data

    def decode(self, data: bytes) -> Any:
        """The value of stored bytes, or Undecodable with the reason."""
        try:
            return self._decode(data)
        except Exception as error:  # a type's own hooks may raise anything about stored bytes
            raise Undecodable(f"{type(error).__name__}: {error}") from error
