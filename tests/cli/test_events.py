"""Events and subscriptions on the command line."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from redisq import Engine, EventPolicy, EventQueue, Subscription
from tests.cli.conftest import Cli


@pytest.fixture
def news(shop: Engine) -> EventQueue[Any]:
    return shop.events("news", policy=EventPolicy(on_completion="archive", max_attempts=1))


@pytest.fixture
def billing(news: EventQueue[Any]) -> Subscription:
    return news.subscribe("billing")


def given_up(news: EventQueue[Any], billing: Subscription, id: str) -> None:
    news.emit({"title": id}, id=id)
    delivery = news.take(billing)
    assert delivery is not None
    news.fail(delivery, ValueError("no paper"))


def test_emit_show_and_list(cli: Cli, news: EventQueue[Any], billing: Subscription) -> None:
    event = cli("events", "emit", "news", '{"title": "spring"}', "--id", "e1", "--ttl", "1h", "--json").json
    assert event["expires_ms"] - event["created_ms"] == 3_600_000
    assert cli("events", "emit", "news", "1", "--id", "e1").out == "e1: duplicate, active, owed to 1\n"
    assert len(cli("events", "emit", "news", "--lines", "-", "--json", stdin="1\n2\n").json) == 2
    listed = cli("events", "list", "news", "--json").json
    assert [each["value"] for each in listed] == [2, 1, {"title": "spring"}]
    assert "1/1" in cli("events", "list", "news", "--offset", "2").lines[1]
    shown = cli("events", "show", "news", "e1").out
    for text in ("active", '{"title":"spring"}', "billing", "pending"):
        assert text in shown
    assert cli("events", "show", "news", "e1", "--json").json["recipients"][0]["name"] == "billing"
    assert "has no event 'e2'" in cli("events", "show", "news", "e2", code=1).err


def test_archived(cli: Cli, news: EventQueue[Any], billing: Subscription) -> None:
    news.emit("one", id="e1")
    delivery = news.take(billing)
    assert delivery is not None
    news.ack(delivery)
    assert cli("events", "archived", "news", "--json").json == ["e1"]
    assert "completed" in cli("events", "archived", "news").lines[1]


def test_subscriptions_are_added_listed_and_removed(cli: Cli, news: EventQueue[Any], shop: Engine) -> None:
    added = cli("subs", "add", "news", "billing", "--json").json
    assert added == {"queue": "news", "name": "billing", "generation": added["generation"]}
    news.emit(1)
    (listed,) = cli("subs", "list", "news", "--json").json
    assert (listed["name"], listed["lag"], listed["in_flight"]) == ("billing", 1, 0)
    assert "billing" in cli("subs", "list", "news").lines[1]
    assert "add --yes" in cli("subs", "remove", "news", "billing", code=2).err
    assert "has no subscription 'nope'" in cli("subs", "remove", "news", "nope", "--yes", code=1).err
    cli("subs", "remove", "news", "billing", "--yes")
    assert news.subscriptions() == []


def test_what_a_subscription_gave_up(cli: Cli, news: EventQueue[Any], billing: Subscription) -> None:
    for id in ("e1", "e2"):
        given_up(news, billing, id)
    assert "ValueError: no paper" in cli("subs", "dead", "news", "billing").lines[1]
    assert [each["event_id"] for each in cli("subs", "dead", "news", "billing", "--json").json["items"]] == ["e2", "e1"]
    assert cli("subs", "dead", "news", "billing", "--retry", "e1").out == "e1: retried\n"
    assert cli("subs", "dead", "news", "billing", "--discard", "e2", "--json").json == [True]
    assert cli("subs", "dead", "news", "billing", "--retry", "e2", code=1).out == "e2: is not dead\n"
    delivery = news.take(billing)
    assert delivery is not None
    assert delivery.id == "e1"


@pytest.mark.leaves_damage
def test_a_damaged_event_is_a_marked_row(
    cli: Cli, news: EventQueue[Any], billing: Subscription, raw: redis.Redis
) -> None:
    news.emit("good", id="e1")
    news.emit("bad", id="e2")
    raw.hset(f"{news._core.root}:body", "e2", "\x1b[2J{")
    rows = {line.split()[0]: line for line in cli("events", "list", "news").lines[1:]}
    assert "damaged" in rows["e2"]
    assert "active" in rows["e1"]
    assert {each["id"] for each in cli("events", "list", "news", "--json").json} == {"e1", "e2"}


def test_check_walks_events_too(cli: Cli, news: EventQueue[Any], billing: Subscription, raw: redis.Redis) -> None:
    news.emit("good", id="e1")
    assert cli("check", "news", "--json").json == []
    assert "--repair is for job queues" in cli("check", "news", "--repair", code=2).err
    key = f"{news._core.root}:body"
    body = raw.hget(key, "e1")
    raw.hdel(key, "e1")
    (finding,) = cli("check", "news", "--json", code=4).json
    assert "e1" in finding["problem"]
    assert "redisq maintain news" in finding["advice"]
    raw.hset(key, "e1", body or "")


def test_queues_stats_top_and_doctor_know_events(cli: Cli, news: EventQueue[Any], billing: Subscription) -> None:
    given_up(news, billing, "e1")
    news.emit(2)
    news.take(billing)
    assert cli("queues", "--json").json[0]["kind"] == "events"
    assert dict(line.split(maxsplit=1) for line in cli("stats", "news").lines)["active"] == "1"
    assert "news ready=1 in-flight=1 dead=1" in cli("top", "--count", "1").out
    assert any(each["subject"] == "events news" for each in cli("doctor", "--json", code=4).json)
    assert cli("maintain", "news", "--json").json["by_category"]["deadlines"] == 0
