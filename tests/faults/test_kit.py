"""The fault kit does what it says, on a bare client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.faults.damage import Rollback, freeze, full_memory, script_flush
from tests.faults.proxy import Proxy, command
from tests.support.servers import OwnServer, Server

pytestmark = [pytest.mark.every_server, pytest.mark.real_server]
NO_RETRY = Retry(NoBackoff(), 0)


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.url) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(proxy.url, retry=NO_RETRY, socket_timeout=10) as client:
        client.ping()
        yield client


def test_an_eaten_reply_belongs_to_a_request_that_ran(
    proxy: Proxy, client: redis.Redis, raw: redis.Redis, namespace: str
) -> None:
    proxy.eat_replies(1)
    with pytest.raises(redis.ConnectionError):
        client.incr(namespace)
    assert raw.get(namespace) == b"1"
    assert proxy.eaten == [[b"INCRBY", namespace.encode(), b"1"]]
    assert client.incr(namespace) == 2


def test_only_replies_that_match_are_eaten(proxy: Proxy, client: redis.Redis, raw: redis.Redis, namespace: str) -> None:
    proxy.eat_replies(2, command("set"))
    assert client.incr(namespace) == 1
    for _ in range(2):
        with pytest.raises(redis.ConnectionError):
            client.set(namespace, 5)
        assert client.get(namespace) == b"5"
    assert client.set(namespace, 6)


def test_in_a_pipeline_the_replies_before_the_eaten_one_arrive(
    proxy: Proxy, client: redis.Redis, raw: redis.Redis, namespace: str
) -> None:
    proxy.eat_replies(1, command("RPUSH"))
    connection = client.connection_pool.get_connection()
    connection.send_packed_command(
        connection.pack_commands([("INCR", namespace), ("RPUSH", f"{namespace}:list", "a" * 100_000), ("PING",)])
    )
    assert connection.read_response() == 1
    with pytest.raises(redis.ConnectionError):
        connection.read_response()
    client.connection_pool.release(connection)
    assert raw.llen(f"{namespace}:list") == 1


def test_a_stalled_proxy_hands_on_nothing_until_it_resumes(proxy: Proxy, client: redis.Redis, namespace: str) -> None:
    proxy.stall()
    with (
        redis.Redis.from_url(proxy.url, retry=NO_RETRY, socket_timeout=0.1) as hasty,
        pytest.raises(redis.TimeoutError),
    ):
        hasty.ping()
    connection = client.connection_pool.get_connection()
    connection.send_command("INCR", namespace)
    assert not connection.can_read(timeout=0.1)
    proxy.resume()
    assert connection.read_response() == 1
    client.connection_pool.release(connection)


def test_cut_closes_open_connections_and_takes_new_ones(proxy: Proxy, client: redis.Redis) -> None:
    connection = client.connection_pool.get_connection()
    assert (proxy.connections, proxy.open_connections) == (1, 1)
    proxy.cut()
    assert proxy.open_connections == 0
    with pytest.raises(redis.ConnectionError):
        connection.read_response()
    client.connection_pool.release(connection)
    client.ping()
    assert (proxy.connections, proxy.open_connections) == (2, 1)


def test_a_closed_proxy_is_a_server_that_is_gone(proxy: Proxy, client: redis.Redis) -> None:
    proxy.close()
    for _ in range(2):
        with pytest.raises(redis.ConnectionError):
            client.ping()


def test_a_proxy_speaks_resp3(proxy: Proxy, namespace: str) -> None:
    with redis.Redis.from_url(proxy.url, protocol=3, retry=NO_RETRY) as client:
        client.hset(namespace, mapping={"a": "1", "b": "2"})
        assert client.hgetall(namespace) == {b"a": b"1", b"b": b"2"}


def test_a_frozen_server_answers_nobody_until_it_thaws(server: Server, raw: redis.Redis) -> None:
    with server.client() as other:
        other.ping()
        connection = other.connection_pool.get_connection()
        with freeze(raw):
            connection.send_command("PING")
            assert not connection.can_read(timeout=0.1)
        assert connection.read_response() == b"PONG"
        other.connection_pool.release(connection)


def test_rollback_puts_an_older_copy_back(raw: redis.Redis, namespace: str) -> None:
    # one hash slot, so that a cluster takes it as one transaction
    kept, gone, new, timed = (f"{{{namespace}}}:{name}" for name in ("kept", "gone", "new", "timed"))
    raw.zadd(kept, {"a": 1.5})
    raw.set(gone, "here")
    raw.set(timed, "x", px=600_000)
    expires: Any = raw.execute_command("PEXPIRETIME", timed)
    rollback = Rollback(raw, f"{{{namespace}}}")
    raw.zadd(kept, {"a": 9, "b": 2})
    raw.delete(gone)
    raw.set(new, "newer")
    raw.persist(timed)
    rollback.back()
    assert (raw.zcard(kept), raw.zscore(kept, "a")) == (1, 1.5)
    assert raw.get(gone) == b"here"
    assert not raw.exists(new)
    assert raw.execute_command("PEXPIRETIME", timed) == expires
    assert raw.pttl(gone) == -1


def test_a_full_server_refuses_new_data_and_takes_it_again(own_server: OwnServer) -> None:
    with own_server.client() as client:
        client.set("old", "1")
        with full_memory(client):
            with pytest.raises(redis.exceptions.OutOfMemoryError):
                client.set("new", "1")
            assert client.delete("old") == 1
        assert client.set("new", "1")


def test_room_is_what_still_fits(own_server: OwnServer) -> None:
    with own_server.client() as client, full_memory(client, room=2_000_000):
        client.set("first", "x" * 100_000)
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            for number in range(30):
                client.set(f"more:{number}", "x" * 100_000)


def test_script_flush_forgets_scripts(own_server: OwnServer) -> None:
    with own_server.client() as client:
        sha = client.script_load("return 1")
        assert client.evalsha(sha, 0) == 1
        script_flush(client)
        with pytest.raises(redis.exceptions.NoScriptError):
            client.evalsha(sha, 0)


def test_a_killed_server_starts_again_at_its_address(own_server: OwnServer) -> None:
    with own_server.client(retry=NO_RETRY) as client:
        client.ping()
        own_server.kill()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        own_server.start()
        assert client.ping()
