"""Failure detail on the wire: an exception, a text or an `ErrorDetail` as bytes of at most 8 KiB, and back."""

from __future__ import annotations

import os
import traceback
from typing import Any

from redisq.errors import InvalidInput
from redisq.model import ErrorDetail

LIMIT = 8 * 1024
TYPE_LIMIT = 256
SWITCH = "REDISQ_DISABLE_FAILURE_DETAIL"


def to_wire(error: Any) -> bytes:
    """length ":" type length ":" message traceback; cut to 8 KiB in all, the traceback's end kept."""
    detail = _detail(error)
    kind = _start(detail.type.encode(errors="replace"), TYPE_LIMIT)
    if disabled():
        return b"%d:%s0:" % (len(kind), kind)
    message = _start(detail.message.encode(errors="replace"), LIMIT - len(kind))
    trace = _end(detail.traceback.encode(errors="replace"), LIMIT - len(kind) - len(message))
    return b"%d:%s%d:%s%s" % (len(kind), kind, len(message), message, trace)


def from_wire(data: bytes) -> ErrorDetail:
    """The detail of stored bytes; raises ValueError when they are not of that shape."""
    kind, rest = _counted(data)
    message, trace = _counted(rest)
    return ErrorDetail(*(part.decode(errors="replace") for part in (kind, message, trace)))


def disabled() -> bool:
    """Whether the environment forbids to store messages and tracebacks (they may hold secrets)."""
    return os.environ.get(SWITCH, "").strip().lower() in ("1", "true", "yes", "on")


def _detail(error: Any) -> ErrorDetail:
    if isinstance(error, ErrorDetail):
        return error
    if isinstance(error, BaseException):
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        return ErrorDetail(type(error).__name__, _text_of(error), "".join(lines))
    if isinstance(error, str):
        return ErrorDetail("Error", error)
    raise InvalidInput(f"error must be an exception, a str or an ErrorDetail, not {type(error).__name__}")


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - an exception whose own __str__ fails is recorded all the same
        return f"(its message can't be read: {type(broken).__name__})"


def _start(data: bytes, limit: int) -> bytes:
    """The first bytes, less a character cut in two."""
    if len(data) <= limit:
        return data
    return data[:limit].decode(errors="ignore").encode()


def _end(data: bytes, limit: int) -> bytes:
    if len(data) <= limit:
        return data
    return data[len(data) - limit :].decode(errors="ignore").encode() if limit else b""


def _counted(data: bytes) -> tuple[bytes, bytes]:
    size, colon, rest = data.partition(b":")
    if not colon or not size.isdigit() or int(size) > len(rest):
        raise ValueError("failure detail is cut short")
    return rest[: int(size)], rest[int(size) :]
