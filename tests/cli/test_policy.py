"""The rules of a queue: shown in the words that change them."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from redisq import Backoff, Engine, EventPolicy, Keep, Queue, QueuePolicy
from redisq.cli import policy, units
from redisq.policy import Policy
from tests.cli.conftest import Cli


def test_set_changes_the_fields_given_and_shows_both(cli: Cli, mails: Queue[Any]) -> None:
    mails.offer(1)
    assert "no client has declared a policy yet" in cli("policy", "show", "mails").err
    shown = cli("policy", "set", "mails", *shlex.split("--max-attempts 3 --lease 1m --keep completed:count=5,age=1d"))
    assert [line.split()[0] for line in shown.lines] == ["RULE", "max_attempts", "lease", "keep"]
    old = cli("policy", "set", "mails", "--lease", "2m", "--json").json
    assert (old["lease"], old["max_attempts"]) == ("1m", 3)
    now = cli("policy", "show", "mails", "--json").json
    assert now["lease"] == "2m"
    assert now["keep"] == ["completed:count=5,age=1d"]


def test_events_have_rules_of_their_own(cli: Cli, shop: Engine) -> None:
    shop.events("news").subscribe("billing")
    cli("policy", "set", "news", *shlex.split("--on-completion archive --ttl 1d --max-attempts none"))
    shown = cli("policy", "show", "news", "--json").json
    assert (shown["on_completion"], shown["ttl"], shown["max_attempts"]) == ("archive", "1d", None)
    assert "has no --lease" in cli("policy", "set", "news", "--lease", "1m", code=2).err


def test_a_queue_that_is_not_there_is_made_only_when_its_kind_is_said(cli: Cli, shop: Engine) -> None:
    assert "there is no queue 'bills'" in cli("policy", "set", "bills", "--lease", "1m", code=1).err
    assert "say what to change" in cli("policy", "set", "bills", "--kind", "jobs", code=2).err
    cli("policy", "set", "bills", "--kind", "jobs", "--lease", "1m")
    assert [info.name for info in shop.queues()] == ["bills"]


@pytest.mark.parametrize(
    ("written", "policy_made"),
    [
        ("--backoff fixed:5s", QueuePolicy(backoff=Backoff.fixed(5))),
        ("--backoff delays:1s,5s,30s,jitter=0.5", QueuePolicy(backoff=Backoff.delays(1, 5, 30, jitter=0.5))),
        ("--backoff exponential:base=500ms,factor=3,cap=1h", QueuePolicy(backoff=Backoff.exponential(0.5, 3, 3600))),
        ("--keep all", QueuePolicy(keep=None)),
        ("--keep count=0", QueuePolicy(keep=Keep(count=0))),
        ("--keep dead:age=14d --keep completed:count=1",
         QueuePolicy(keep=Keep(completed=Keep(count=1), dead=Keep(age=1_209_600)))),
        ("--history-ttl none", QueuePolicy(history_ttl=None)),
        ("--history-ttl 7d", QueuePolicy(history_ttl=604_800)),
        ("--history-ttl dead:7d", QueuePolicy(history_ttl={"dead": 604_800})),
        ("--timeout none", QueuePolicy(timeout=None)),
        ("--max-backlog none", EventPolicy(max_backlog=None)),
        ("--max-backlog 7", EventPolicy(max_backlog=7)),
    ],
)  # fmt: skip
def test_what_is_shown_can_be_set(written: str, policy_made: Policy) -> None:
    words = written.split()
    option, given = words[0][2:].replace("-", "_"), words[1::2]
    value = tuple(given) if option in ("keep", "history_ttl") else given[0]
    read = policy._READ.get(option, units.or_none)(value)
    assert type(policy_made)(**{option: read}).given == policy_made.given
    shown = policy._written(policy_made)[option]
    assert sorted(shown if isinstance(shown, list) else [policy._text(shown)]) == sorted(given)


@pytest.mark.parametrize(
    "words",
    [
        "--backoff slow", "--backoff fixed:1s,2s", "--backoff delays:", "--backoff exponential:base=1",
        "--backoff exponential:what=1s", "--keep dead:age=1", "--keep gone:age=1d", "--keep count=1 --keep dead:age=1d",
        "--keep count=x", "--history-ttl gone:1d", "--max-attempts many", "--history-ttl dead:1",
    ],
)  # fmt: skip
def test_what_is_wrong_is_a_usage_error(words: str, cli: Cli, mails: Queue[Any]) -> None:
    from click.testing import CliRunner

    from redisq.cli import main

    mails.offer(1)
    shown = CliRunner(env=cli.env).invoke(main, ["policy", "set", "mails", *words.split()])
    assert shown.exit_code == 2, shown.output
