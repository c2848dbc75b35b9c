"""What a benchmark hands out: a bar while it runs, tables at the end, and a file of all figures."""

from __future__ import annotations

import json
import os
import platform
import statistics
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from benchmarks.servers import allocator
from tests.support.servers import OwnServer

KEPT = Path(__file__).parent / "results"
RESULTS = KEPT
RUN = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}-{os.getpid()}"
"""What the figures of one process share; only those are compared."""


@dataclass(frozen=True)
class Spread:
    """The median of some rounds, and how far they lay apart."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        rounds = sorted(values)
        return cls(statistics.median(rounds), rounds[0], rounds[-1])

    def __str__(self) -> str:
        return f"{short(self.median)} ({short(self.least)}–{short(self.most)})"


def short(value: float) -> str:
    """Three digits that matter, thousands apart."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown: columns in line, numbers to the right."""
    cells = [[str(each) for each in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(heads), *cells]) for i in range(len(heads))]

    def line(row: Sequence[str]) -> str:
        first, *rest = (
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return f"| {' | '.join([first, *rest])} |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([f"### {title}", "", line(heads), line(rule), *(line(row) for row in cells), ""])


def quantile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def say(text: str) -> None:
    click.echo(text)


def machine(servers: Sequence[OwnServer]) -> dict[str, Any]:
    """Where figures come from: they mean little elsewhere."""
    return {
        "run": RUN,
        "taken": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": [round(each, 2) for each in os.getloadavg()],
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in ("redis", "hiredis", "msgspec")},
        "servers": {server.name: f"{server.version()}, {allocator(server)}" for server in servers},
    }


def keep_nothing() -> None:
    """From now on, results go to a folder that is not the repository's."""
    global RESULTS  # noqa: PLW0603 - one process, one folder
    if RESULTS == KEPT:
        RESULTS = Path(tempfile.mkdtemp(prefix="redisq-bench-"))


def save(name: str, about: dict[str, Any], figures: Any) -> Path:
    """Writes results/<name>.json."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"about": about, "figures": figures}, indent=1, default=_plain) + "\n")
    return path


def _plain(value: Any) -> Any:
    if isinstance(value, Spread):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} is no figure")


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
