"""Which servers are good enough."""

from __future__ import annotations

from typing import Any

import pytest

from redisq.errors import UnsupportedServer
from redisq.transport.check import judge

PLAIN = b"# Cluster\r\ncluster_enabled:0\r\n"
CLUSTER = b"# Cluster\r\ncluster_enabled:1\r\n"


def server(**fields: str) -> bytes:
    return b"# Server\r\n" + b"".join(f"{name}:{value}\r\n".encode() for name, value in fields.items())


def node(flags: str, *slots: str) -> bytes:
    return f"abc 127.0.0.1:1@2 {flags} - 0 0 1 connected {' '.join(slots)}\n".encode()


@pytest.mark.parametrize(
    "fields",
    [
        {"redis_version": "7.0.0"},
        {"redis_version": "8.2.1"},
        {"redis_version": "10.0.0"},
        {"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "8.0.0"},
        {"redis_version": "7.2.4", "valkey_version": "9.1.0"},
        {"redis_version": "255.255.255"},
        {},
    ],
)
def test_good_enough(fields: dict[str, str]) -> None:
    judge([server(**fields), PLAIN, Exception("ERR This instance has cluster support disabled")])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"redis_version": "6.2.14"}, "this server is Redis 6.2.14"),
        ({"redis_version": "2.8.0"}, "this server is Redis 2.8.0"),
        ({"redis_version": "7.2.4", "valkey_version": "7.2.5"}, "this server is Valkey 7.2.5"),
        ({"redis_version": "7.2.4", "redis_mode": "sentinel"}, "is a Sentinel"),
    ],
)
def test_too_old(fields: dict[str, str], said: str) -> None:
    with pytest.raises(UnsupportedServer, match=said):
        judge([server(**fields), PLAIN, Exception()])


def test_a_cluster_of_one_node() -> None:
    judge([server(redis_version="8.0.0"), CLUSTER, node("myself,master", "0-16383")])
    judge([server(redis_version="8.0.0"), CLUSTER, node("slave") + node("myself,master", "0-16383")])


@pytest.mark.parametrize(
    "nodes",
    [
        node("myself,master", "0-5460") + node("master", "5461-16383"),
        node("myself,master"),
        node("myself,slave") + node("master", "0-16383"),
    ],
)
def test_a_part_of_a_cluster(nodes: bytes) -> None:
    with pytest.raises(UnsupportedServer, match="does not own all slots"):
        judge([server(redis_version="8.0.0"), CLUSTER, nodes])


def test_what_may_not_be_asked_is_not_held_against_the_server() -> None:
    refused: Any = Exception("NOPERM this user has no permissions to run the 'info' command")
    judge([refused, refused, refused])
    judge([server(redis_version="8.0.0"), CLUSTER, refused])
