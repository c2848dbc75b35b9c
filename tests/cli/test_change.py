"""Changing: offer, cancel, retry, promote, remove, purge, the dead ones in bulk, pause and resume, maintain."""

from __future__ import annotations

import shlex
from typing import Any

from redisq import Engine, JobState, Queue
from tests.cli.conftest import Cli


def test_offer_takes_json_and_every_option(cli: Cli, mails: Queue[Any]) -> None:
    options = "--id a --name welcome --delay 1h --priority 7 --max-attempts 3 --timeout 10s -m from=shop --json"
    answer = cli("jobs", "offer", "mails", '{"to": "ann"}', *shlex.split(options)).json
    assert answer == {"id": "a", "duplicate": False, "state": "scheduled"}
    job = mails.get("a")
    assert job is not None
    assert (job.value, job.name, job.priority, job.max_attempts) == ({"to": "ann"}, "welcome", 7, 3)
    assert (job.timeout_ms, job.metadata) == (10_000, {"from": "shop"})
    assert job.due_ms is not None
    assert job.due_ms - job.created_ms == 3_600_000
    assert "duplicate, scheduled" in cli("jobs", "offer", "mails", "1", "--id", "a").out


def test_offer_of_many_lines(cli: Cli, mails: Queue[Any]) -> None:
    answers = cli("jobs", "offer", "mails", "--lines", "-", "--json", stdin='1\n\n"two"\n{"three": 3}\n').json
    assert len({each["id"] for each in answers}) == 3
    assert [each.value for each in mails.take_many(5)] == [1, "two", {"three": 3}]


def test_offer_refuses_what_is_no_json_or_no_time(cli: Cli, mails: Queue[Any]) -> None:
    assert "needs its own quotes" in cli("jobs", "offer", "mails", "ann", code=2).err
    assert "add a zone" in cli("jobs", "offer", "mails", "1", "--at", "2031-05-04T12:00:00", code=2).err
    assert "write 10s, 5m, 2h or 1d" in cli("jobs", "offer", "mails", "1", "--delay", "10", code=2).err
    assert mails.counts()[JobState.READY] == 0


def test_one_by_one(cli: Cli, furnished: Queue[Any]) -> None:
    assert cli("jobs", "cancel", "mails", "first", "held").lines == ["first: cancelled", "held: requested"]
    assert cli("jobs", "cancel", "mails", "done", "--json", code=1).json == ["too-late"]
    assert cli("jobs", "promote", "mails", "later").out == "later: ready now\n"
    assert cli("jobs", "promote", "mails", "later", "--json", code=1).json == [False]
    assert cli("jobs", "retry", "mails", "broken", "odd", "--json").json == [True, True]
    refused = cli("jobs", "remove", "mails", "done", "held", code=1)
    assert refused.lines == ["done: removed", "held: is not there, or leased"]
    assert refused.err == "Error: refused for 1 of 2\n"
    assert furnished.counts()[JobState.READY] == 3


def test_purge_asks_first(cli: Cli, furnished: Queue[Any]) -> None:
    assert "add --yes" in cli("jobs", "purge", "mails", "--state", "dead", code=2).err
    assert cli("jobs", "purge", "mails", "--state", "leased", "--yes", code=2).out == ""
    assert cli("jobs", "purge", "mails", "--state", "dead", "--name", "other", "--yes").out == "purged 0\n"
    assert cli("jobs", "purge", "mails", "--state", "dead", "--yes", "--json").json == {"done": 1, "vanished": 0}
    assert furnished.get("broken") is None


def test_the_dead_in_bulk(cli: Cli, mails: Queue[Any]) -> None:
    mails.offer_many(range(250))
    for at, delivery in enumerate(mails.take_many(250)):
        mails.fail(delivery, KeyError("x") if at % 2 else ValueError("y"), final=True)
    assert cli("dead", "retry", "mails", code=2).out == ""
    assert cli("dead", "retry", "mails", "--all", "--error", "KeyError").out == "retried 125\n"
    assert cli("dead", "purge", "mails", "--error", "KeyError", "--yes").out == "purged 0\n"
    assert cli("dead", "purge", "mails", "--yes", "--json").json["done"] == 125
    mails.offer(1, id="one")
    assert mails.counts()[JobState.READY] == 126
    assert "one: is not there" in cli("dead", "retry", "mails", "one", code=1).out


def test_pause_and_resume(cli: Cli, mails: Queue[Any]) -> None:
    mails.offer(1)
    assert cli("pause", "mails").err == "queue mails is paused\n"
    assert mails.take() is None
    cli("resume", "mails")
    assert mails.take() is not None
    assert "no job queue 'nope'" in cli("resume", "nope", code=1).err


def test_maintain_is_one_bounded_sweep(cli: Cli, mails: Queue[Any]) -> None:
    mails.offer_many(range(3))
    mails.take_many(3, lease=0.001)
    done = cli("maintain", "mails", "--limit", "2", "--json").json
    assert done == {
        "processed": 2, "pending": True, "by_category": {"due": 0, "lapsed": 2, "retention": 0, "dedup": 0},
    }  # fmt: skip
    assert "lapsed     1" in cli("maintain", "mails").out


def test_a_name_of_two_kinds_needs_the_kind(cli: Cli, shop: Engine, mails: Queue[Any]) -> None:
    mails.offer(1)
    shop.events("mails").subscribe("billing")
    assert "--kind jobs or --kind events" in cli("stats", "mails", code=2).err
    assert cli("stats", "mails", "--kind", "events", "--json").json["kind"] == "events"
