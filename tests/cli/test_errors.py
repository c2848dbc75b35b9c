"""Exit codes and messages of what the whole command shares: the server, the URL, the namespace."""

from __future__ import annotations

import signal
from typing import Any

import pytest
import redis

from redisq import Queue
from tests.cli.conftest import PATIENCE, Cli


def test_no_server_is_one_line_and_code_3(cli: Cli) -> None:
    for words in (["doctor"], ["jobs", "show", "mails", "a"]):
        shown = cli("--url", "redis://127.0.0.1:1/0", *words, code=3)
        assert shown.out == ""
        assert shown.err.startswith("Error: ")
        assert shown.err.count("\n") == 1


def test_a_url_that_is_none_is_a_usage_error(cli: Cli) -> None:
    assert "url must begin with" in cli("--url", "http://x", "queues", code=2).err


def test_bad_input_is_code_2_and_a_refusal_code_1(cli: Cli, mails: Queue[Any], raw: redis.Redis) -> None:
    mails.offer(1, id="a")
    assert "cursor is not one" in cli("jobs", "list", "mails", "--cursor", "!", code=2).err
    raw.hset(f"{mails._core.root}:head", "a", "\x1b[2Jnonsense")
    refused = cli("jobs", "show", "mails", "a", code=1).err
    assert "job a of queue mails is damaged" in refused
    assert "\x1b" not in refused


def test_the_namespace_is_an_option_or_a_variable(cli: Cli, mails: Queue[Any], namespace: str) -> None:
    mails.offer(1)
    assert cli("queues", "--json", env={"REDISQ_NAMESPACE": "empty-one"}).json == []
    assert len(cli("--namespace", namespace, "queues", "--json", env={"REDISQ_NAMESPACE": "empty-one"}).json) == 1


def test_ctrl_c_ends_top(cli: Cli, mails: Queue[Any]) -> None:
    mails.offer(1)
    process = cli.start("top", "--interval", "100ms")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("words", [["jobs"], ["nope"], ["stats"], ["jobs", "list", "mails", "--state", "odd"]])
def test_usage_is_code_2(words: list[str], cli: Cli) -> None:
    assert cli(*words, code=2).out == ""
