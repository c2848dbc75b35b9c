"""The access rules of the README: enough for all that they are meant for, and nothing beyond."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from redisq import Engine, EventPolicy, Unavailable
from tests.cli.acl import work
from tests.cli.conftest import ROOT, Cli
from tests.contract.heads import LUA
from tests.support.servers import Server

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^    redis-cli ACL SETUSER (?:.*\\\n)*.*$", README, re.MULTILINE)
RULES = {words[3]: words[4:] for words in (shlex.split(block.replace("\\\n", " ")) for block in BLOCKS)}
# what the client itself sends; the scripts' commands stand in their text
CLIENT = {"evalsha", "script|load", "blpop", "hset", "hdel", "hkeys", "hgetall", "ping", "info"}
LOOKS = [
    ["queues"], ["stats", "mails"], ["stats", "news"], ["jobs", "list", "mails"], ["jobs", "show", "mails", "a"],
    ["dead", "list", "mails"], ["dead", "errors", "mails"], ["events", "list", "news"],
    ["events", "show", "news", "e1"], ["events", "archived", "news"], ["subs", "list", "news"],
    ["subs", "dead", "news", "billing"],
    ["policy", "show", "mails"], ["check", "mails"], ["top", "--count", "2", "--interval", "1ms"],
]  # fmt: skip

OpenAs = Callable[[str], str]


@pytest.fixture
def url_of(server: Server, raw: redis.Redis, namespace: str) -> Iterator[OpenAs]:
    """Makes the user of a rule, for the test's namespace; gives its URL."""
    users: list[str] = []

    def made(rule: str) -> str:
        users.append(f"{rule}-{secrets.token_hex(4)}")
        words = [word.replace("shop", namespace) for word in RULES[rule] if not word.startswith(">")]
        raw.execute_command("ACL", "SETUSER", users[-1], ">s3cret", *words)
        return server.url.replace("//", f"//{users[-1]}:s3cret@")

    yield made
    for user in users:
        raw.execute_command("ACL", "DELUSER", user)


def commands(rule: str) -> set[str]:
    return {word[1:] for word in RULES[rule] if word.startswith("+")}


def test_the_rules_are_there() -> None:
    assert set(RULES) == {"shop", "shop-look"}
    for words in RULES.values():
        assert {word for word in words if word[0] not in "+>"} == {"on", "~{shop:*", "~shop:queues"}


@pytest.mark.every_server
@pytest.mark.real_server
def test_an_application_can_do_all_it_does(url_of: OpenAs, namespace: str) -> None:
    url = url_of("shop")
    work(url, namespace)
    with Engine(url, namespace="another") as engine, pytest.raises(Unavailable, match="ACL SETUSER"):
        engine.queue("mails").offer(1)


def test_an_application_is_granted_what_the_scripts_call_and_nothing_else() -> None:
    text = "\n".join(file.read_text(encoding="utf-8") for file in LUA.rglob("*.lua"))
    called = {word.lower() for word in re.findall(r'(?:redis\.p?call|plan\.(?:add|of))\(\s*"([A-Z]+)"', text)}
    assert commands("shop") == called | CLIENT


def test_looking_needs_less(cli: Cli, own_server: Server, url_of: OpenAs) -> None:
    with own_server.client() as admin, Engine(own_server.url, namespace="shop") as engine:
        mails, news = engine.queue("mails"), engine.events("news", policy=EventPolicy(max_attempts=1))
        mails.offer_many(range(5))
        mails.offer(1, priority=5, id="a")
        first, second, third = mails.take_many(3)
        mails.fail(first, "broken", final=True)
        mails.ack(second)
        mails.offer(1, delay=3600)
        billing = news.subscribe("billing")
        for id in ("e1", "e2", "e3"):
            news.emit(id, id=id)
        news.fail(news.take_many(billing, 2)[0], "broken")
        admin.execute_command(
            "ACL", "SETUSER", "eye", ">s3cret", *(word for word in RULES["shop-look"] if word[0] != ">")
        )
        admin.config_resetstat()
        env = {"REDISQ_URL": own_server.url.replace("//", "//eye:s3cret@"), "REDISQ_NAMESPACE": "shop"}
        for words in LOOKS:
            cli(*words, env=env)
        cli("doctor", code=4, env=env)
        books: Any = admin.info("commandstats")
        used = {name.removeprefix("cmdstat_") for name, book in books.items() if book["calls"] > book["rejected_calls"]}
        assert commands("shop-look") <= used
        assert "the server refused" in cli("jobs", "offer", "mails", "1", code=3, env=env).err
    assert third.id
