"""Checks of arguments that every public call shares: text, numbers, durations and times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from redisq.errors import InvalidInput

Duration: TypeAlias = int | float | timedelta
"""Seconds (`int`, `float`) or a `timedelta`; kept as whole milliseconds, rounded up."""

MAX_DURATION_MS = 100 * 365 * 86_400_000
MAX_TEXT_BYTES = 256
MAX_METADATA_BYTES = 16 * 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def text(name: str, value: Any, *, empty: bool = False, limit: int = MAX_TEXT_BYTES) -> str:
    """`value` when it is 1 (0 with `empty`) to `limit` bytes of valid UTF-8, else InvalidInput naming the argument."""
    if not isinstance(value, str):
        raise InvalidInput(f"{name} must be a str, not {type(value).__name__}")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise InvalidInput(f"{name} is not valid Unicode text: it holds a lone surrogate") from None
    if size > limit or (size == 0 and not empty):
        raise InvalidInput(f"{name} must be {0 if empty else 1} to {limit} bytes long, not {size}")
    return value


def integer(name: str, value: Any, low: int, high: int) -> int:
    """`value` when it is an int (no bool) in low…high."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{name} must be an int, not {_shown(value)}")
    if not low <= value <= high:
        raise InvalidInput(f"{name} must be {low:,} to {high:,}, not {_shown(value)}")
    return value


def boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{name} must be True or False, not {_shown(value)}")
    return value


def number(name: str, value: Any, low: float, high: float) -> float:
    """`value` as a finite float in low…high."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"{name} must be a number, not {_shown(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"{name} must be a finite number, not {value}")
    if not low <= value <= high:
        raise InvalidInput(f"{name} must be {low:g} to {high:g}, not {_shown(value)}")
    return float(value)


def duration_ms(name: str, value: Any, *, least: int = 0) -> int:
    """A `Duration` in whole milliseconds, rounded up, `least` ms to 100 years."""
    if isinstance(value, timedelta):
        micros = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
        ms = -(-micros // 1000)
    else:
        seconds = value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidInput(f"{name} must be seconds or a timedelta, not {_shown(value)}")
        if isinstance(value, float):
            if not math.isfinite(value):
                raise InvalidInput(f"{name} must be a finite duration, not {value}")
            seconds = min(max(value, -1.0), MAX_DURATION_MS / 1000 + 1)
            # 0.3 s is 300 ms and not 301: half a nanosecond below the next millisecond counts as that millisecond
            ms = math.ceil(round(seconds * 1000, 6))
            if seconds > 0 and ms == 0:
                ms = 1
        else:
            ms = seconds * 1000
    if ms < 0 or ms < least:
        raise InvalidInput(f"{name} must be at least {least} ms, not {_shown(value)}")
    if ms > MAX_DURATION_MS:
        raise InvalidInput(f"{name} must be at most 100 years, not {_shown(value)}")
    return ms


def time_ms(name: str, value: Any) -> int:
    """An aware `datetime` as Unix milliseconds, rounded up. A naive one is refused: it could mean two times."""
    if not isinstance(value, datetime):
        raise InvalidInput(f"{name} must be an aware datetime, not {_shown(value)}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidInput(f"{name} must be an aware datetime: give {value!r} a timezone")
    passed = value - _EPOCH
    micros = (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
    ms = -(-micros // 1000)
    if ms > 2 * MAX_DURATION_MS:
        raise InvalidInput(f"{name} must be at most 100 years ahead, not {value!r}")
    return max(ms, 0)


def at_from_ms(ms: int | None) -> datetime | None:
    """Unix milliseconds as an aware UTC datetime; None stays None."""
    return None if ms is None else _EPOCH + timedelta(milliseconds=ms)


def metadata(value: Any) -> dict[str, str]:
    """A str → str mapping of at most 16 KiB of keys and values."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"metadata must be a mapping of str to str, not {_shown(value)}")
    size = 0
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str):
            raise InvalidInput(f"metadata must map str to str, not {_shown(key)} to {_shown(item)}")
        try:
            size += len(key.encode()) + len(item.encode())
        except UnicodeEncodeError:
            raise InvalidInput("metadata is not valid Unicode text: it holds a lone surrogate") from None
    if size > MAX_METADATA_BYTES:
        raise InvalidInput(f"metadata must be at most {MAX_METADATA_BYTES:,} bytes, not {size:,}")
    return dict(value)


def _shown(value: Any) -> str:
    shown = ascii(value) if isinstance(value, int | float | str | bytes | timedelta | None) else type(value).__name__
    return shown if len(shown) <= 60 else shown[:57] + "..."
