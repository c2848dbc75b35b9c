"""Durations and times as they are written on a command line."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import click

_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
NONE = "none"


class DurationType(click.ParamType):  # type: ignore[type-arg]
    """`10s`, `5m`, `2h`, `1d`, also `500ms`, in seconds. `none` where the option says so, as None."""

    name = "duration"

    def __init__(self, *, none: bool = False) -> None:
        self._none = none

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002
        return f"DURATION|{NONE}" if self._none else "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value  # a default
        if self._none and value == NONE:
            return NONE  # click takes None for an option that was not given
        seconds = duration(value)
        if seconds is None:
            also = f", or {NONE}" if self._none else ""
            self.fail(f"{value!r} is not a duration: write 10s, 5m, 2h or 1d{also}", param, ctx)
        return seconds


class TimeType(click.ParamType):  # type: ignore[type-arg]
    """A time with its zone, ISO 8601."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, datetime):
            return value
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a time: write 2031-05-04T12:00:00Z", param, ctx)
        if at.tzinfo is None:
            self.fail(f"{value!r} could mean two times: add a zone, as in 2031-05-04T12:00:00Z or …+02:00", param, ctx)
        return at


DURATION = DurationType()
DURATION_OR_NONE = DurationType(none=True)
TIME = TimeType()


def duration(text: str) -> float | None:
    """Seconds; None when `text` is not a duration."""
    found = _DURATION.fullmatch(text)
    return None if found is None else round(float(found[1]) * _SECONDS[found[2]], 9)


def or_none(value: Any) -> Any:
    """The value of an option that may say `none`."""
    return None if value == NONE else value


def written(seconds: float | None) -> str:
    """Seconds as the options here take them, in the largest unit that keeps them whole."""
    if seconds is None:
        return NONE
    ms = round(seconds * 1000)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if ms and ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms" if ms else "0s"
