"""Looking: queues, stats, jobs list and show, dead list and errors, top. It changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from redisq import Engine, Queue
from tests.cli.conftest import Cli
from tests.scripts.direct import contents


def test_queues_lists_all_and_its_json_is_that_of_the_engine(cli: Cli, shop: Engine, furnished: Queue[Any]) -> None:
    shop.queue("bills").pause()
    shown = cli("queues")
    assert shown.lines[0].split()[:3] == ["QUEUE", "KIND", "READY"]
    assert [line.split()[0] for line in shown.lines[1:]] == ["bills", "mails"]
    assert "paused" in shown.lines[1]
    document = cli("queues", "--json").json
    assert [each["name"] for each in document] == ["bills", "mails"]
    assert document[1]["counts"] == {str(state): count for state, count in furnished.counts().items()}


def test_no_queue_at_all_is_no_error(cli: Cli) -> None:
    shown = cli("queues")
    assert (shown.out, shown.err) == ("", f"no queues in namespace '{cli.env['REDISQ_NAMESPACE']}'\n")
    assert cli("queues", "--json").json == []


def test_stats_of_one_queue(cli: Cli, furnished: Queue[Any]) -> None:
    lines = dict(line.split(maxsplit=1) for line in cli("stats", "mails").lines)
    assert {state: lines[state] for state in ("ready", "scheduled", "leased", "completed", "dead")} == {
        "ready": "1", "scheduled": "1", "leased": "1", "completed": "1", "dead": "1",
    }  # fmt: skip
    assert cli("stats", "mails", "--json").json["dead"] == 1


def test_jobs_list_shows_every_state_and_walks_by_cursor(cli: Cli, furnished: Queue[Any]) -> None:
    rows = {line.split()[0]: line for line in cli("jobs", "list", "mails").lines[1:]}
    assert set(rows) == {"done", "broken", "odd", "held", "later", "first"}
    assert '{"to":"first"}' in rows["first"]
    assert "lease ends in" in rows["held"]
    assert "due in" in rows["later"]
    only = cli("jobs", "list", "mails", "--state", "dead", "--name", "welcome").lines
    assert [line.split()[0] for line in only[1:]] == ["broken"]
    page = cli("jobs", "list", "mails", "--limit", "4", "--json").json
    rest = cli("jobs", "list", "mails", "--cursor", page["cursor"], "--json").json
    assert len(page["items"]) == 4
    assert {job["id"] for job in page["items"] + rest["items"]} == set(rows)
    assert rest["cursor"] is None


def test_jobs_show_tells_everything_of_one(cli: Cli, furnished: Queue[Any]) -> None:
    shown = cli("jobs", "show", "mails", "broken").out
    for text in ("dead", "ValueError: no such address", '{"to":"broken"}', "ATTEMPT", "STEP", "leased"):
        assert text in shown
    assert cli("jobs", "show", "mails", "done", "--json").json["result"] == "sent"
    assert [each["outcome"] for each in cli("jobs", "show", "mails", "broken", "--attempts", "--json").json] == ["dead"]
    history = cli("jobs", "show", "mails", "broken", "--history", "--json").json
    assert [each["state"] for each in history["entries"]] == ["ready", "leased", "dead"]


def test_dead_list_and_errors(cli: Cli, furnished: Queue[Any]) -> None:
    assert "ValueError: no such address" in cli("dead", "list", "mails").lines[1]
    assert cli("dead", "list", "mails", "--state", "quarantined").lines[1].startswith("odd")
    assert [job["id"] for job in cli("dead", "list", "mails", "--json").json["items"]] == ["broken"]
    assert cli("dead", "errors", "mails").lines[1].split()[0] == "1"
    (group,) = cli("dead", "errors", "mails", "--json").json
    assert (group["name"], group["type"], group["count"]) == ("welcome", "ValueError", 1)


def test_top_in_a_pipe_is_a_line_per_look(cli: Cli, furnished: Queue[Any]) -> None:
    first, second = cli("top", "--count", "2", "--interval", "10ms").lines
    assert "mails ready=1 scheduled=1 in-flight=1" in first
    assert "done/s=" in second
    (look,) = map(json.loads, cli("top", "mails", "--count", "1", "--json").lines)
    assert look["queues"][0]["in_flight"] == 1
    assert look["queues"][0]["queue"]["name"] == "mails"


@pytest.mark.parametrize(
    "words",
    [
        ["stats", "nope"], ["jobs", "list", "nope"], ["jobs", "show", "mails", "nope"], ["dead", "list", "nope"],
        ["top", "nope"], ["policy", "show", "nope"], ["check", "nope"], ["subs", "list", "nope"],
    ],
)  # fmt: skip
def test_what_is_not_there_is_one_line_and_code_1(words: list[str], cli: Cli, mails: Queue[Any]) -> None:
    mails.offer(1)
    shown = cli(*words, code=1)
    assert shown.out == ""
    assert shown.err.startswith("Error: ")
    assert shown.err.count("\n") == 1
    assert "nope" in shown.err


def test_looking_changes_nothing(cli: Cli, furnished: Queue[Any], raw: redis.Redis, namespace: str) -> None:
    before = contents(raw, namespace)
    for words in (
        "queues", "stats mails", "jobs list mails", "jobs show mails broken", "dead list mails", "dead errors mails",
        "policy show mails", "check mails", "top --count 2 --interval 1ms",
    ):  # fmt: skip
        cli(*words.split())
    cli("doctor", code=4)
    assert contents(raw, namespace) == before
