"""Logs of the commands that run for long: plain or JSON lines on stderr, and a start-up banner without secrets."""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import click

from redisq.aio import AsyncEngine
from redisq.cli import show
from redisq.sync import Engine
from redisq.transport.urls import redacted

_log = logging.getLogger("redisq.cli")
_OWN = ("job", "queue")  # what the log of a handler's context knows beside the message


class Plain(logging.Formatter):
    """One line a record; texts from jobs are escaped, a traceback follows indented."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        known = "".join(f" {name}={show.escaped(str(value))}" for name, value in _extras(record).items())
        line = f"{at:%Y-%m-%d %H:%M:%S}Z {record.levelname:<7} {record.name}: "
        line += show.escaped(record.getMessage()) + known
        trace = [f"  {show.escaped(each)}" for each in _trace(self, record).splitlines()]
        return "\n".join([line, *trace])


class Json(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extras(record),
        }
        trace = _trace(self, record)
        if trace:
            entry["traceback"] = trace
        return show.encoded(entry)


LEVELS = ["debug", "info", "warning", "error"]
FORMATS: dict[str, Callable[[], logging.Formatter]] = {"plain": Plain, "json": Json}


def options(function: Callable[..., None]) -> Callable[..., None]:
    """Adds `--log-format` and `--log-level` to a command, and sets the logs up before it runs."""

    @click.option("--log-format", type=click.Choice(list(FORMATS)), default="plain", show_default=True,
                  help="Logs go to stderr, a line each.")  # fmt: skip
    @click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="The least told.")
    @functools.wraps(function)
    def wrapped(*args: Any, log_format: str, log_level: str, **kwargs: Any) -> None:
        set_up(log_format, log_level)
        function(*args, **kwargs)

    return wrapped


def set_up(format: str, level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATS[format]())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def banner(what: str, engine: Engine | AsyncEngine, more: str) -> None:
    """Says what starts, where, and as which process. The URL's secrets are left out."""
    place = redacted(engine.url)
    _log.info("redisq %s%s, pid %d, server %s, namespace %s, %s",
              what, _version(), os.getpid(), place, engine.namespace, more)  # fmt: skip


def _version() -> str:
    try:
        return f" {metadata.version('redisq')}"
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        return ""


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _OWN if hasattr(record, name)}


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info else ""
