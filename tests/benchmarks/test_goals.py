"""Goals are judged by the figures of one run, each ratio within its rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.goals import Row, judged, newest_run

Figures = dict[str, Any]


def speed(*rounds: float) -> Figures:
    ordered = sorted(rounds)
    return {"median": ordered[len(ordered) // 2], "least": ordered[0], "most": ordered[-1], "rounds": list(rounds)}


def peers() -> Figures:
    """A run in which all goals are just reached."""
    ours = {
        "offer": speed(850, 85), "offer_many": speed(5000), "drain": speed(15_000), "drain_cpu": speed(20),
        "wake_ms": {"median": 1.5, "p99": 5.0}, "pending_bytes": speed(260), "failure": "",
    }  # fmt: skip
    limit = {
        "bare": speed(1000, 100), "offer_many": speed(5000), "drain": speed(30_000), "drain_cpu": speed(9),
        "wake_ms": {"median": 1.0, "p99": 1.0}, "failure": "",
    }  # fmt: skip
    slow = {"offer_many": speed(900), "drain": speed(1000), "pending_bytes": speed(210), "failure": ""}
    fast = {"offer_many": speed(1000), "drain": speed(500), "failure": ""}
    return {"redisq": ours, "limit": limit, "slow": slow, "fast": fast, "redis-benchmark": {"offer_many": speed(9e6)}}


def rows(figures: Figures) -> list[Row]:
    return [row for row in judged({"peers": {"valkey9": figures}}) if row.server]


def test_goals_that_are_just_reached() -> None:
    found = rows(peers())
    assert len(found) == 9
    assert all(row.reached for row in found)


@pytest.mark.parametrize(
    ("worsen", "goal"),
    [
        (lambda each: each["redisq"].update(offer=speed(850, 84)), "offer one by one, jobs/s"),
        (lambda each: each["limit"].update(offer_many=speed(5001)), "offer_many(1000), jobs/s"),
        (lambda each: each["fast"].update(offer_many=speed(1001)), "offer_many(1000), jobs/s"),
        (lambda each: each["limit"].update(drain=speed(30_001)), "drain, no-op handler, jobs/s"),
        (lambda each: each["slow"].update(drain=speed(1001)), "drain, no-op handler, jobs/s"),
        (lambda each: each["redisq"].update(drain_cpu=speed(20.1)), "server CPU of a drained job, µs"),
        (lambda each: each["limit"]["wake_ms"].update(median=0.9), "wake-up of an idle worker, median ms"),
        (lambda each: each["redisq"]["wake_ms"].update(p99=5.1), "wake-up of an idle worker, p99 ms"),
        (lambda each: each["redisq"].update(pending_bytes=speed(261)), "a pending job of 100 bytes, bytes"),
    ],
)
def test_a_goal_that_is_missed(worsen: Callable[[Figures], None], goal: str) -> None:
    figures = peers()
    worsen(figures)
    assert [row.goal for row in rows(figures) if not row.reached] == [goal]


def test_the_best_peer_is_named_and_one_that_failed_is_none() -> None:
    figures = peers()
    figures["fast"]["failure"] = "fast ended"
    beside = [row.beside for row in rows(figures) if row.goal.startswith("offer_many")]
    assert beside == ["the limit 5,000", "slow 900"]


def test_a_peer_that_loses_jobs_is_marked() -> None:
    figures = peers()
    figures["slow"]["held"] = False
    assert "slow (at most once) 1,000" in {row.beside for row in rows(figures)}


def test_our_own_failure_is_no_goal_reached() -> None:
    figures = peers()
    figures["redisq"]["failure"] = "redisq ended"
    (row,) = rows(figures)
    assert (row.ours, row.reached) == ("redisq ended", False)


def test_what_the_run_did_not_measure_is_neither_reached_nor_missed() -> None:
    found = list(judged({}))
    assert {row.reached for row in found} == {None}
    assert "python -m benchmarks retention" in {row.beside for row in found}


def test_other_benchmarks_are_judged_by_server() -> None:
    spread = speed
    found = judged({
        "limit": [{"what": f"take(1) with 5 ready behind{how}, µs", "server": "a", "ratio": spread(1.3),
                   "redisq": spread(13), "limit": spread(10), "goal": goal}
                  for how, goal in (("", "≤ 1.2"), (", its tables still growing", ""))],
        "wakeup": [{"waited for": "a due time", "taker": "sync", "server": "a", "p99 ms": 9.0}],
        "fanout": [{"design": "redisq", "server": "a", "subscriptions": count, "emit": spread(us),
                    "bytes an event": spread(100)} for count, us in ((1, 10), (1000, 12.5))],
        "retention": {
            "drain": [{"limit": 100, "server": "a", "server_us": {"median": 900.0, "p99": 2100.0}}],
            "ladder": [{"rung": "keep off", "life": "acked at once", "server": "a", "bytes_left_per_job": spread(0)}],
        },
    })  # fmt: skip
    assert {row.goal: row.reached for row in found if row.server} == {
        "take(1) with 5 ready behind, µs": False,
        "a due job, sync taker, p99 ms": True,
        "emit at 1,000 subscriptions, µs": False,
        "the same, bytes": True,
        "a sweep of 100 finished jobs, p99 ms of server time": False,
        "left of a job acked at once, keep off, bytes": True,
    }


def test_results_of_other_runs_are_left_out() -> None:
    results = [
        {"name": "peers", "about": {"run": "2026-01-02"}},
        {"name": "limit", "about": {"run": "2026-01-02"}},
        {"name": "fanout", "about": {"run": "2026-01-01"}},
        {"name": "retention", "about": {}},
    ]
    assert set(newest_run(results)) == {"peers", "limit"}
    assert newest_run([]) == {}
