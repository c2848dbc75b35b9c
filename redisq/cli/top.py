"""`redisq top`: a live view."""

from __future__ import annotations

import shutil
import sys
import time
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from redisq.cli import show, units
from redisq.cli.app import App, QueueName, examples, pass_app, refuse
from redisq.cli.show import Cell
from redisq.model import TERMINAL, JobState, QueueInfo, SubscriptionInfo

LIVE = (JobState.READY, JobState.SCHEDULED, JobState.LEASED)
HEADERS = ["QUEUE", "READY", "SCHED", "FLIGHT", "IN/S", "DONE/S", "FAIL/S", "DEAD", "QUAR", "LAG"]
NAMES = ["ready", "scheduled", "in-flight", "in/s", "done/s", "failed/s", "dead", "quarantined", "lag"]
"""What the columns are called on a line of their own."""


class Line(msgspec.Struct, frozen=True):
    """One queue at one tick. Rates are per second, None at the first tick; `lag_ms` is how long the next job waits."""

    queue: QueueInfo
    in_flight: int
    lag_ms: int | None
    in_rate: float | None = None
    done_rate: float | None = None
    failed_rate: float | None = None


class Tick(msgspec.Struct, frozen=True):
    at_ms: int
    queues: list[Line]


@click.command("top", epilog=examples("redisq top", "redisq top mails --interval 5s", "redisq top --count 1 --json"))
@click.argument("queues", nargs=-1, type=QueueName(), metavar="[QUEUE]...")
@click.option("--interval", type=units.DURATION, default=1.0, show_default="1s", help="Between two looks.")
@click.option("--count", type=click.IntRange(1), help="End after so many looks.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document per look, a line each.")
@pass_app
def command(app: App, queues: tuple[str, ...], interval: float, count: int | None, as_json: bool) -> None:
    """Watch queues: what waits, what is in flight, how much comes and goes, how long the next job has waited.

    FLIGHT is what workers hold. DONE/S and FAIL/S count what finished since the last look and is still there; IN/S is
    the change of what is live plus that. In a pipe it prints a line per look. Ctrl-C ends it.
    """
    before: Tick | None = None
    looks = 0
    try:
        while True:
            tick = _look(app, queues, before)
            _draw(tick, as_json)
            before, looks = tick, looks + 1
            if looks == count:
                return
            time.sleep(interval)
    except KeyboardInterrupt:
        return


def _look(app: App, names: tuple[str, ...], before: Tick | None) -> Tick:
    infos = [info for info in app.engine.queues() if not names or info.name in names]
    missing = sorted(set(names) - {info.name for info in infos})
    if missing and before is None:
        raise refuse(f"there is no queue {missing[0]!r} in namespace {app.namespace!r}")
    ((seconds, micros),) = app.commands(("TIME",))
    now = int(seconds) * 1000 + int(micros) // 1000
    last = {} if before is None else {(line.queue.kind, line.queue.name): line for line in before.queues}
    passed = None if before is None else (now - before.at_ms) / 1000
    return Tick(now, [_line(app, info, now, last.get((info.kind, info.name)), passed) for info in infos])


def _line(app: App, info: QueueInfo, now: int, last: Line | None, passed: float | None) -> Line:
    lag = None if info.oldest_ms is None else max(now - info.oldest_ms, 0)
    if info.kind == "events":
        subscriptions = app.engine.events(info.name).subscriptions()
        return Line(info, sum(each.in_flight for each in subscriptions if isinstance(each, SubscriptionInfo)), lag)
    counts: dict[Any, int] = {**info.counts}
    in_flight = counts[JobState.LEASED]
    if last is None or not passed:
        return Line(info, in_flight, lag)
    root = app.registry.core(info.name).root
    since = now - round(passed * 1000)
    ended = app.commands(*(("ZCOUNT", f"{root}:{state}", since, f"({now}") for state in TERMINAL))
    done, *failed = ended
    grown = _live(info) - _live(last.queue)
    return Line(info, in_flight, lag, in_rate=max(grown + sum(ended), 0) / passed, done_rate=done / passed,
                failed_rate=sum(failed) / passed)  # fmt: skip


def _live(info: QueueInfo) -> int:
    counts: dict[Any, int] = {**info.counts}
    return sum(counts[state] for state in LIVE)


def _draw(tick: Tick, as_json: bool) -> None:
    if as_json:
        click.echo(show.encoded(tick))
    elif not sys.stdout.isatty():
        click.echo(_plain(tick))
    else:
        size = shutil.get_terminal_size()
        lines = show.table_lines(HEADERS, [_row(line) for line in tick.queues], right=HEADERS[1:])
        shown = [f"{_clock(tick)}  {len(tick.queues)} queues", *lines][: size.lines - 1]
        # home, then each line over the old one, then what is left below: no flicker
        click.echo("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in shown) + "\x1b[J", nl=False)


def _plain(tick: Tick) -> str:
    """A look on one line."""
    parts = []
    for line in tick.queues:
        pairs = zip(NAMES, (text for text, _ in map(_split, _row(line)[1:])), strict=True)
        told = " ".join(f"{name}={text}" for name, text in pairs if text)
        parts.append(f"{show.escaped(line.queue.name)} {told}")
    return f"{_clock(tick)} " + " | ".join(parts)


def _row(line: Line) -> list[Cell]:
    counts: dict[str, Any] = {str(state): f"{count}" for state, count in line.queue.counts.items()}
    ready = counts.get("ready", counts.get("active", ""))
    dead = f"{line.queue.dead}"
    return [line.queue.name + (" (paused)" if line.queue.paused else ""), ready, counts.get("scheduled", ""),
            f"{line.in_flight}", *(_rate(rate) for rate in (line.in_rate, line.done_rate, line.failed_rate)),
            (dead, "red") if line.queue.dead else dead, counts.get("quarantined", ""),
            "" if line.lag_ms is None else show.span(line.lag_ms)]  # fmt: skip


def _split(cell: Cell) -> tuple[str, str]:
    return (cell, "") if isinstance(cell, str) else cell


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.1f}"


def _clock(tick: Tick) -> str:
    return f"{datetime.fromtimestamp(tick.at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"
