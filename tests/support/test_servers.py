"""The servers of the suite are what they are called, and none outlives its test process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.servers import Kind, NoServer, OwnServer, Pool, Server, own_server

ROOT = Path(__file__).resolve().parents[2]
PRODUCTS = {"valkey9": "valkey 9.", "redis8": "redis 8.", "cluster": "valkey 9.", "fakeredis": "fakeredis "}


@pytest.mark.every_server
def test_a_server_is_what_it_is_called(server: Server, raw: redis.Redis, namespace: str) -> None:
    assert server.version().startswith(PRODUCTS.get(server.name, ""))
    raw.set(namespace, "1")
    with server.client() as other:
        assert other.get(namespace) == b"1"


@pytest.mark.parametrize("server", ["cluster"], indirect=True)
def test_the_cluster_owns_all_slots(raw: redis.Redis) -> None:
    info: Any = raw.execute_command("CLUSTER INFO")
    assert (info["cluster_state"], info["cluster_slots_ok"]) == ("ok", "16384")


@pytest.mark.every_server
@pytest.mark.real_server
def test_a_server_keeps_nothing_on_disk_and_evicts_nothing(raw: redis.Redis) -> None:
    config: Any = raw.config_get("*")
    assert (config["save"], config["appendonly"], config["maxmemory-policy"]) == ("", "no", "noeviction")


def test_a_private_server_takes_options_and_both_kinds_of_address() -> None:
    server = own_server("--appendonly", "yes")
    try:
        with server.client() as client, redis.Redis.from_url(server.unix_url) as local:
            config: Any = client.config_get("appendonly")
            assert config == {"appendonly": "yes"}
            client.set("a", "1")
            assert local.get("a") == b"1"
    finally:
        server.stop()
    with pytest.raises(redis.ConnectionError), server.client() as client:
        client.ping()


def test_a_server_that_does_not_start_says_why() -> None:
    with pytest.raises(NoServer, match="no-such-option"):
        own_server("--no-such-option", "1")


def test_a_server_dies_with_the_process_that_started_it() -> None:
    code = (
        "import sys\n"
        "from tests.support.servers import own_server\n"
        "print(own_server().url, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        url = run.stdout.readline().strip()
        with redis.Redis.from_url(url) as client:
            connection = client.connection_pool.get_connection()
            connection.send_command("BLPOP", "never", 30)
            run.kill()
            # the wait ends because the server went away, not because 30 seconds passed
            with pytest.raises(redis.ConnectionError):
                connection.read_response()


def pool_of(*kinds: Kind) -> Pool:
    pool = Pool()
    pool.kinds = {kind.name: kind for kind in kinds}
    return pool


def test_a_pool_starts_a_kind_once() -> None:
    started: list[str] = []

    def start() -> OwnServer:
        started.append("one")
        return own_server()

    pool = pool_of(Kind("one", start))
    try:
        assert pool.get("one") is pool.get("one")
        assert started == ["one"]
        assert pool.versions["one"].startswith("valkey")
    finally:
        pool.close()


def test_a_missing_kind_is_tested_all_the_same_if_required_and_listed_if_not() -> None:
    pool = pool_of(
        Kind("here", own_server), Kind("must", NoServer("gone")), Kind("may", NoServer("no"), required=False)
    )
    assert pool.names(every=True, fake=True) == ["here", "must"]
    assert pool.names(every=False, fake=True) == ["here"]
    assert pool.skipped() == ["may: no"]
    for _ in range(2):
        with pytest.raises(NoServer, match="gone"):
            pool.get("must")
