"""The contest as pictures: bars on the terminal, and a PNG beside the figures. Both need the extra `bench`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from benchmarks.report import short

PANELS = {
    "offer": "offer one by one, jobs/s",
    "offer_many": "offer 1,000 a call, jobs/s",
    "drain": "drain, no-op handler, jobs/s",
    "drain10": "drain, handler of 10 ms, jobs/s",
    "drain_cpu": "server CPU, µs a drained job",
    "wake_ms": "wake-up of an idle worker, median ms",
    "pending_bytes": "bytes of a pending job of 100 bytes",
    "finished_bytes": "bytes of a finished job, default settings",
}
COLUMNS = 2
LESS_IS_BETTER = ("drain_cpu", "wake_ms", "pending_bytes", "finished_bytes")
OURS, OTHERS = "#c0392b", "#7f8c8d"


def draw(server: str, figures: dict[str, Any], path: Path) -> None:
    """Draws on the terminal and into the file; says so where a library for it is missing."""
    for draw_it in (_on_terminal, _into_file):
        try:
            draw_it(server, figures, path)
        except ImportError as error:
            click.echo(f"no picture, {error.name} is not installed: pip install 'redisq[bench]'", err=True)


def _bars(figures: dict[str, Any], what: str) -> tuple[list[str], list[float]]:
    """Names and medians, the best first."""
    found = {name: each[what]["median"] for name, each in figures.items() if each.get(what)}
    names = sorted(found, key=found.__getitem__, reverse=what not in LESS_IS_BETTER)
    return names, [found[name] for name in names]


def _panels(figures: dict[str, Any]) -> Iterator[tuple[str, list[str], list[float]]]:
    for what, title in PANELS.items():
        names, values = _bars(figures, what)
        if names:
            yield title, names, values


def _on_terminal(server: str, figures: dict[str, Any], path: Path) -> None:
    import plotext  # type: ignore[import-untyped, import-not-found, unused-ignore]

    for title, names, values in _panels(figures):
        plotext.simple_bar(names, values, width=66, title=f"{server}: {title}", color="red+")
        text = plotext.build()
        click.echo(text)  # without colours where there is no terminal
        plotext.clear_figure()


def _into_file(server: str, figures: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure  # type: ignore[import-not-found, unused-ignore]

    panels = list(_panels(figures))
    rows = -(-len(panels) // COLUMNS)
    page = Figure(figsize=(13, 3.2 * rows), layout="constrained")
    axes = page.subplots(rows, COLUMNS, squeeze=False).flat
    page.suptitle(f"redisq and peers on {server}, medians")
    for at, (title, names, values) in zip(axes, panels, strict=False):
        bars = at.barh(names, values, color=[OURS if name == "redisq" else OTHERS for name in names])
        at.bar_label(bars, fmt=short, padding=3, fontsize=8)
        at.invert_yaxis()
        at.set_title(title, fontsize=10)
        at.margins(x=0.15)
        at.spines[["top", "right"]].set_visible(False)
    page.savefig(path.with_stem(f"{path.stem}-{server}"), dpi=120)
