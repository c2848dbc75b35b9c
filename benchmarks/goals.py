"""Every goal beside what was measured: ours, the limit's or the best peer's, and whether it is reached.

    python -m benchmarks goals

It reads the results of the newest run and of no other: ratios are made within one run.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import click

from benchmarks import report
from benchmarks.peers.harness import RAW
from benchmarks.report import say, short, table

Figures: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Sequence[Figures]
REDISQ, LIMIT = "redisq", "limit"
HEADS = ("goal", "server", "wanted", "redisq", "beside it", "ratio", "reached")


class Row(NamedTuple):
    goal: str
    server: str
    wanted: str
    ours: str
    beside: str
    ratio: str
    reached: bool | None
    """None: not measured in this run."""


@click.command(help=__doc__)
def main() -> None:
    results = newest_run([json.loads(path.read_text()) | {"name": path.stem} for path in report.RESULTS.glob("*.json")])
    if not results:
        raise click.ClickException(f"there are no results in {report.RESULTS}: python -m benchmarks makes them")
    about = next(iter(results.values()))["about"]
    rows = list(judged({name: each["figures"] for name, each in results.items()}))
    servers = ", ".join(f"{name}: {version}" for name, version in about["servers"].items())
    say(table(f"Goals, run {about['run']}", HEADS, [[*row[:-1], _reached(row)] for row in rows]))
    say(f"{about['cpu']}, {about['cores']} cores, {about['system']}, Python {about['python']}; {servers}; "
        f"load {about['load'][0]:g} at the start")  # fmt: skip


def newest_run(results: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The results that share the newest run, by benchmark."""
    run = max((each["about"].get("run", "") for each in results), default="")
    return {each["name"]: each for each in results if each["about"].get("run", "") == run}


def judged(figures: Mapping[str, Any]) -> Iterator[Row]:
    """The rows of all goals, from the figures of each benchmark by its name."""
    for benchmark, rows in SOURCES.items():
        if benchmark in figures:
            yield from rows(figures[benchmark])
        else:
            yield Row(f"those of {benchmark}", "", "", "not in this run", f"python -m benchmarks {benchmark}", "", None)


def _reached(row: Row) -> str:
    return {None: "–", True: "yes", False: "**no**"}[row.reached]


def _peers(figures: Figures) -> Iterator[Row]:
    for server, found in figures.items():
        yield from _against_all(server, found)


def _against_all(server: str, found: Figures) -> Iterator[Row]:
    ours, limit = found[REDISQ], found[LIMIT]
    if ours["failure"] or limit["failure"]:
        yield Row("those of peers", server, "", ours["failure"] or limit["failure"], "", "", False)
        return
    yield _ratio("offer one by one, jobs/s", server, 0.85, ours["offer"], limit["bare"], "a bare EVALSHA")
    yield _ratio("offer_many(1000), jobs/s", server, 1.0, ours["offer_many"], limit["offer_many"], "the limit")
    yield from _best("offer_many(1000), jobs/s", server, 5.0, found, "offer_many")
    yield _ratio("drain, no-op handler, jobs/s", server, 0.5, ours["drain"], limit["drain"], "the limit")
    yield from _best("drain, no-op handler, jobs/s", server, 15.0, found, "drain")
    yield _at_most("server CPU of a drained job, µs", server, 20.0, ours["drain_cpu"]["median"],
                   _beside(limit["drain_cpu"]["median"], "the limit"))  # fmt: skip
    wake, bare = ours["wake_ms"], limit["wake_ms"]
    ratio = wake["median"] / bare["median"]
    yield Row("wake-up of an idle worker, median ms", server, "≤ 1.5 ×", short(wake["median"]),
              _beside(bare["median"], "a bare BLPOP"), short(ratio), ratio <= 1.5)  # fmt: skip
    yield _at_most("wake-up of an idle worker, p99 ms", server, 5.0, wake["p99"], _beside(bare["p99"], "a bare BLPOP"))
    if "pending_bytes" in ours:
        yield _at_most("a pending job of 100 bytes, bytes", server, 260.0, ours["pending_bytes"]["median"],
                       _lightest(found))  # fmt: skip


def _ratio(goal: str, server: str, least: float, ours: Figures, other: Figures, name: str) -> Row:
    """Speeds compared round by round: both sides of a round met the same minute of the machine."""
    ratio = statistics.median(a / b for a, b in zip(ours["rounds"], other["rounds"], strict=True))
    return Row(goal, server, f"≥ {least:g} ×", short(ours["median"]), _beside(other["median"], name), short(ratio),
               ratio >= least)  # fmt: skip


def _best(goal: str, server: str, least: float, found: Figures, what: str) -> Iterator[Row]:
    """Against the fastest peer, if any was asked."""
    peers = dict(_peers_with(found, what))
    if peers:
        best = max(peers, key=lambda name: peers[name][what]["median"])
        name = best if peers[best].get("held", True) else f"{best} (at most once)"
        yield _ratio(goal, server, least, found[REDISQ][what], peers[best][what], name)


def _lightest(found: Figures) -> str:
    weights = [(each["pending_bytes"]["median"], name) for name, each in _peers_with(found, "pending_bytes")]
    return _beside(*min(weights)) if weights else ""


def _peers_with(found: Figures, what: str) -> Iterator[tuple[str, Figures]]:
    for name, each in found.items():
        if name not in (REDISQ, LIMIT, RAW) and what in each and not each["failure"]:
            yield name, each


def _at_most(goal: str, server: str, most: float, value: float, beside: str = "") -> Row:
    return Row(goal, server, f"≤ {most:g}", short(value), beside, "", value <= most)


def _beside(value: float, name: str) -> str:
    return f"{name} {short(value)}"


def _limit(figures: Rows) -> Iterator[Row]:
    for row in figures:
        if row["what"].startswith("take(") and row["goal"]:
            ratio = row["ratio"]["median"]
            yield Row(row["what"], row["server"], "≤ 1.2 ×", short(row["redisq"]["median"]),
                      _beside(row["limit"]["median"], "nothing behind"), short(ratio), ratio <= 1.2)  # fmt: skip


def _wakeup(figures: Rows) -> Iterator[Row]:
    for row in figures:
        if row["waited for"] == "a due time":
            yield _at_most(f"a due job, {row['taker']} taker, p99 ms", row["server"], 10.0, row["p99 ms"])


def _fanout(figures: Rows) -> Iterator[Row]:
    ours = {(row["server"], row["subscriptions"]): row for row in figures if row["design"] == "redisq"}
    for server in dict.fromkeys(server for server, _ in ours):
        one, many = ours.get((server, 1)), ours.get((server, 1000))
        if one is None or many is None:
            continue
        for what, goal in (("emit", "emit at 1,000 subscriptions, µs"), ("bytes an event", "the same, bytes")):
            ratio = many[what]["median"] / one[what]["median"]
            yield Row(goal, server, "≤ 1.2 ×", short(many[what]["median"]),
                      _beside(one[what]["median"], "at one"), short(ratio), ratio <= 1.2)  # fmt: skip


def _retention(figures: Figures) -> Iterator[Row]:
    for row in figures["drain"]:
        if row["limit"] == 100:
            yield _at_most("a sweep of 100 finished jobs, p99 ms of server time", row["server"], 2.0,
                           row["server_us"]["p99"] / 1000,
                           _beside(row["server_us"]["median"] / 1000, "median"))  # fmt: skip
    for row in figures["ladder"]:
        if row["rung"] == "keep off":
            yield _at_most(f"left of a job {row['life']}, keep off, bytes", row["server"], 0.5,
                           row["bytes_left_per_job"]["median"])  # fmt: skip


SOURCES: dict[str, Callable[[Any], Iterator[Row]]] = {
    "peers": _peers,
    "wakeup": _wakeup,
    "limit": _limit,
    "fanout": _fanout,
    "retention": _retention,
}

if __name__ == "__main__":
    main()
