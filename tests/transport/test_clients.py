"""Senders made from a user's own client: whatever its settings, and without touching it."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import fakeredis
import pytest
import redis
import redis.asyncio
import redis.asyncio.cluster
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialBackoff
from redis.credentials import UsernamePasswordCredentialProvider
from redis.retry import Retry

from redisq import errors
from redisq.calls import Kind
from redisq.transport import async_from_client, connect_sync, sync_from_client
from tests.faults.proxy import Proxy, command
from tests.support.servers import OwnServer, Server
from tests.transport import faces, tiny

BINARY = "return '\\0\\255'"


@pytest.mark.real_server
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"decode_responses": True},
        {"decode_responses": True, "encoding": "latin-1", "encoding_errors": "replace"},
        {"protocol": 2},
        {"protocol": 3},
        {"protocol": 3, "decode_responses": True},
        {"socket_timeout": None, "socket_connect_timeout": None},
        {"socket_timeout": 0.5},
        {"health_check_interval": 1},
        {"client_name": "shop", "max_connections": 3, "socket_keepalive": True},
        {"retry_on_timeout": True},
        {"retry_on_error": [redis.ReadOnlyError]},
    ],
    ids=str,
)
def test_settings(world: str, server: Server, key: str, options: dict[str, Any]) -> None:
    with faces.users_client(world, server.url, **options) as client, faces.from_client(world, client) as sender:
        assert sender.run(tiny.call(BINARY, key, kind=Kind.READ)) == b"\x00\xff"
        assert sender.run_commands(("HSET", key, "a", "b"), ("HGETALL", key)) == [1, [b"a", b"b"]]
        assert sender.sender._target.timeout == (options.get("socket_timeout", 5) or 5)


@pytest.mark.real_server
def test_another_database(world: str, own_server: OwnServer, key: str) -> None:
    with (
        faces.users_client(world, own_server.url.replace("/0", "/5")) as client,
        faces.from_client(world, client) as sender,
    ):
        sender.run(tiny.call(tiny.ONCE, key))
        with own_server.client() as raw:
            raw.execute_command("SELECT", 5)
            assert raw.llen(key) == 1
        assert sender.sender.url.endswith("/5")


@pytest.mark.real_server
def test_retries_of_the_client_are_off(world: str, server: Server, key: str) -> None:
    retry = Retry(ExponentialBackoff(), 10) if world == "sync" else AsyncRetry(ExponentialBackoff(), 10)
    with (
        Proxy(server.url) as proxy,
        faces.users_client(world, proxy.url, retry=retry) as client,
        faces.from_client(world, client, retry_for=0) as sender,
    ):
        sender.run(tiny.call(tiny.ONCE, key))
        proxy.eat_replies(10, command("EVALSHA"))
        with pytest.raises(errors.IndeterminateWrite):
            sender.run(tiny.call(tiny.ONCE, key))
        assert len(proxy.eaten) == 1


@pytest.mark.real_server
@pytest.mark.parametrize("provider", [False, True])
def test_a_login(world: str, own_server: OwnServer, key: str, provider: bool) -> None:
    with own_server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "worker", "on", ">p@ss", "+@all", "~*")
        admin.execute_command("ACL", "SETUSER", "default", "off")
    options: dict[str, Any] = {"username": "worker", "password": "p@ss"}
    if provider:
        options = {"credential_provider": UsernamePasswordCredentialProvider("worker", "p@ss")}
    with faces.users_client(world, own_server.url, **options) as client, faces.from_client(world, client) as sender:
        assert sender.run(tiny.call(tiny.ONCE, key)) == [b"first", 1]
        assert "p@ss" not in repr(sender.sender)
        if not provider:
            # the url is good for another process
            with contextlib.closing(connect_sync(sender.sender.url)) as other:
                assert other.run(tiny.call(tiny.ONCE, key)) == [b"first", 2]


@pytest.mark.real_server
def test_a_unix_socket(world: str, own_server: OwnServer, key: str) -> None:
    with faces.users_client(world, own_server.unix_url) as client, faces.from_client(world, client) as sender:
        assert sender.run(tiny.call(tiny.ONCE, key)) == [b"first", 1]
        with contextlib.closing(connect_sync(sender.sender.url)) as other:
            assert other.run(tiny.call(tiny.ONCE, key)) == [b"first", 2]


@pytest.mark.real_server
def test_the_client_stays_as_it_was(server: Server, key: str) -> None:
    client = redis.Redis.from_url(server.url, decode_responses=True, protocol=3)
    client.set(key, "mine")
    before = dict(client.connection_pool.connection_kwargs)
    sender = sync_from_client(client)
    sender.run(tiny.call("return 1", key))
    sender.close()
    assert client.connection_pool.connection_kwargs == before
    assert client.get(key) == "mine"
    # and the sender does not need the client
    sender = sync_from_client(client)
    client.close()
    client.connection_pool.disconnect()
    assert sender.run(tiny.call("return 1", key)) == 1
    sender.close()


@pytest.mark.parametrize(
    ("connect", "client", "kind", "said"),
    [
        (sync_from_client, redis.asyncio.Redis(), errors.InvalidInput, "Engine needs a redis.Redis client"),
        (async_from_client, redis.Redis(), errors.InvalidInput, "AsyncEngine needs a redis.asyncio.Redis client"),
        (sync_from_client, fakeredis.FakeAsyncRedis(), errors.InvalidInput, "Engine needs a redis.Redis client"),
        (sync_from_client, redis.Redis().pipeline(), errors.InvalidInput, "not Pipeline"),
        (sync_from_client, "redis://h", errors.InvalidInput, "not str"),
        (async_from_client, None, errors.InvalidInput, "not NoneType"),
        (sync_from_client, object.__new__(redis.RedisCluster), errors.UnsupportedServer, "plain client of one node"),
        (
            async_from_client,
            object.__new__(redis.asyncio.cluster.RedisCluster),
            errors.UnsupportedServer,
            "plain client of one node",
        ),
    ],
)
def test_a_client_that_cannot_be_used(connect: Any, client: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        connect(client)


def test_a_fakeredis_client_shares_its_store(world: str, key: str) -> None:
    store = fakeredis.FakeServer()
    client: Any = (fakeredis.FakeRedis if world == "sync" else fakeredis.FakeAsyncRedis)(server=store)
    with faces.from_client(world, client) as sender:
        assert sender.run(tiny.call(tiny.ONCE, key)) == [b"first", 1]
        assert fakeredis.FakeRedis(server=store).llen(key) == 1


def test_one_name_is_one_store_of_memory(key: str) -> None:
    with faces.connect("sync", f"memory://{key}") as one, faces.connect("async", f"memory://{key}") as two:
        assert one.run(tiny.call(tiny.ONCE, key)) == [b"first", 1]
        assert two.run(tiny.call(tiny.ONCE, key)) == [b"first", 2]
        assert one.sender.url == two.sender.url == f"memory://{key}"
        with faces.connect("sync", "memory://") as private, faces.connect("sync", "memory://") as other:
            assert private.run(tiny.call(tiny.ONCE, key)) == [b"first", 1]
            assert other.run(tiny.call(tiny.ONCE, key)) == [b"first", 1]


@pytest.mark.parametrize("missing", ["fakeredis", "lupa"])
def test_memory_without_its_extra(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(errors.InvalidInput, match=r"redisq\[memory\]"):
        connect_sync("memory://")
