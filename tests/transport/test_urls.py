"""What a URL means, what is refused, and that no password shows."""

from __future__ import annotations

from typing import Any

import pytest

from redisq.errors import InvalidInput
from redisq.transport import connect_async, connect_sync
from redisq.transport.target import ASYNC, SYNC, from_url
from redisq.transport.urls import DEFAULT_URL, format_url, parse, redacted


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("redis://h", {"host": "h"}),
        ("redis://u:p%40w@h:7000/3", {"username": "u", "password": "p@w", "host": "h", "port": 7000, "db": 3}),
        ("redis://[::1]:7000/", {"host": "::1", "port": 7000}),
        ("rediss://h/1?ssl_cert_reqs=none", {"host": "h", "db": 1, "ssl_cert_reqs": "none"}),
        ("unix://:pw@/tmp/a%20b?db=2", {"password": "pw", "path": "/tmp/a b", "db": 2}),
        ("redis://h?socket_timeout=0.5", {"host": "h", "socket_timeout": 0.5}),
    ],
)
def test_a_server(url: str, options: dict[str, Any]) -> None:
    assert parse(url).options == options


def test_a_sentinel() -> None:
    address = parse("sentinel://u:p@one:1,[::2],three/my%20service/4?sentinel_password=s&ssl=true")
    assert address.hosts == (("one", 1), ("::2", 26379), ("three", 26379))
    assert address.name == "my service"
    assert address.options == {"username": "u", "password": "p", "db": 4, "ssl": True}
    assert address.sentinel_options == {"password": "s"}


def test_the_servers_of_our_own() -> None:
    assert parse("embedded://").path == ""
    assert parse("embedded:///a/b%3Fc d").path == "/a/b?c d"
    assert parse("memory://").name == ""
    assert parse("memory://Shop").name == "Shop"


def test_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDISQ_URL", raising=False)
    assert parse(None).url == DEFAULT_URL
    monkeypatch.setenv("REDISQ_URL", "redis://elsewhere")
    assert parse(None).url == "redis://elsewhere"
    assert parse("redis://here").url == "redis://here"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("localhost:6379", "must begin with redis://"),
        ("http://h", "must begin with redis://"),
        ("", "must begin with redis://"),
        ("redis://h:port", "host or port cannot be read"),
        ("redis://h:99999", "host or port cannot be read"),
        ("redis://h/jobs", "must be the number of a database"),
        ("redis://h/0#x", "write it as %23"),
        ("redis://h?db=x", "a value that cannot be read"),
        ("redis://h?colour=red", "unknown option 'colour'"),
        ("unix://", "names no socket"),
        ("sentinel://h:1", "sentinel://host:26379,host:26379/SERVICE/DB"),
        ("sentinel://h:1/s/x", "sentinel://host:26379,host:26379/SERVICE/DB"),
        ("sentinel://h:p:q/s", "each Sentinel must be host or host:port"),
        ("sentinel://h/s?colour=red", "its options may be"),
        ("embedded://data", "three slashes"),
        ("embedded:///a?b", "write it as %3F"),
        ("memory://a/b", "write memory:// or memory://NAME"),
    ],
)
@pytest.mark.parametrize("connect", [connect_sync, connect_async])
def test_a_bad_url_is_refused_with_a_way_out(connect: Any, url: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        connect(url)
    assert said in str(caught.value)


def test_a_url_must_be_text() -> None:
    with pytest.raises(InvalidInput, match="must be a str, not int"):
        parse(6379)  # type: ignore[arg-type]


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "url",
    [
        f"redis://user:{SECRET}@h/0",
        f"redis://:{SECRET}@h:1/0",
        f"redis://user:{SECRET}@{SECRET}:x@h/0",  # an @ that was not encoded
        f"redis://h:7000{SECRET}@h",
        f"redis://h/0?password={SECRET}",
        f"sentinel://u:{SECRET}@h/s/0?sentinel_password={SECRET}",
    ],
)
def test_no_password_shows(url: str) -> None:
    sender = connect_sync(url)
    assert SECRET in sender.url
    assert SECRET not in repr(sender)
    assert SECRET not in repr(sender._target)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://user:{SECRET}/x@h:6379/0",
        f"redis://user:{SECRET}#x@h:6379/0",
        f"redis://user:{SECRET}?x@h:6379/0",
        f"redis://user:{SECRET}@h/0?colour=red",
        f"sentinel://u:{SECRET}@h/s/0?sentinel_password={SECRET}&colour=red",
        f"http://user:{SECRET}@h/0",
    ],
)
def test_no_password_shows_in_a_refusal(url: str) -> None:
    assert SECRET not in redacted(url)
    with pytest.raises(InvalidInput) as caught:
        connect_sync(url)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("world", [SYNC, ASYNC])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("redis", {"host": "h", "port": 7000, "db": 2, "username": "ü", "password": "p@:/?#"}),
        ("redis", {"host": "::1", "port": 6379, "db": 0, "password": "only"}),
        ("rediss", {"host": "h", "port": 6379, "db": 0, "ssl_ca_certs": "/a b.pem"}),
        ("unix", {"path": "/tmp/ä b?", "db": 1, "username": "u"}),
    ],
)
def test_a_url_made_of_settings_leads_back_to_them(world: Any, kind: str, options: dict[str, Any]) -> None:
    target = from_url(format_url(kind, options), world)
    assert target.connection_class is world.connections[kind]
    assert {name: target.options[name] for name in options} == options


def test_what_belongs_to_redisq_is_not_taken_from_a_url() -> None:
    target = from_url("redis://h?decode_responses=true&retry_on_timeout=true&health_check_interval=5&protocol=3", SYNC)
    assert not {"decode_responses", "retry_on_timeout", "health_check_interval"} & set(target.options)
    assert target.options["protocol"] == 2
    assert target.options["socket_timeout"] == 5.0
