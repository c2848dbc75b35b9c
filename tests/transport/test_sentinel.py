"""Through Sentinel to the master, whichever server that is."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio.sentinel
import redis.sentinel

from redisq import errors
from tests.support.servers import OwnServer, free_port
from tests.transport import faces, tiny
from tests.transport.test_failures import until


class Watched:
    """A master, a replica of it, and one Sentinel that watches them."""

    def __init__(self, open_server: Callable[..., OwnServer]) -> None:
        # else a copy begins only five seconds after it was asked for
        self.master = open_server("--repl-diskless-sync-delay", "0")
        self.replica = open_server("--replicaof", "127.0.0.1", str(self.master.port))
        self.replica.wait_until("the copy", lambda client: client.info("replication")["master_link_status"] == "up")
        self.port = free_port()
        self._folder = tempfile.TemporaryDirectory()
        config = Path(self._folder.name) / "sentinel.conf"
        config.write_text(
            f"port {self.port}\nsentinel monitor shop 127.0.0.1 {self.master.port} 1\n"
            "sentinel down-after-milliseconds shop 300\nsentinel failover-timeout shop 5000\n"
        )
        binary = str(self.master._command[0])
        self._process = subprocess.Popen(
            [binary, str(config), "--sentinel"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.client = redis.Redis(port=self.port, socket_timeout=5)
        until(self._sees_the_replica)

    def _sees_the_replica(self) -> bool:
        try:
            return len(self.client.execute_command("SENTINEL", "REPLICAS", "shop")) == 1
        except redis.ConnectionError:
            return False

    def close(self) -> None:
        self.client.close()
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


@pytest.fixture
def watched(open_server: Callable[..., OwnServer]) -> Iterator[Watched]:
    made = Watched(open_server)
    yield made
    made.close()


def test_a_failover_is_followed(world: str, watched: Watched, key: str) -> None:
    url = f"sentinel://127.0.0.1:1,127.0.0.1:{watched.port}/shop/0"
    with faces.connect(world, url, retry_for=30) as sender:
        assert sender.run(tiny.call(tiny.ONCE, key)) == [b"first", 1]
        with watched.master.client() as master:
            master.wait(1, 5000)
        watched.master.kill()
        assert sender.run(tiny.call(tiny.ONCE, key)) == [b"first", 2]
        with watched.replica.client() as raw:
            assert raw.llen(key) == 2
        assert sender.sender.url == url


def test_a_client_of_sentinel(world: str, watched: Watched, key: str) -> None:
    if world == "sync":
        manager: Any = redis.sentinel.Sentinel([("127.0.0.1", watched.port)])
    else:
        manager = redis.asyncio.sentinel.Sentinel([("127.0.0.1", watched.port)])
    client, reader = manager.master_for("shop", decode_responses=True), manager.slave_for("shop")
    with faces.from_client(world, client) as sender:
        assert sender.run(tiny.call(tiny.ONCE, key)) == [b"first", 1]
        # good for another process
        with faces.connect(world, sender.sender.url) as twin:
            assert twin.run(tiny.call(tiny.ONCE, key)) == [b"first", 2]
        sender.finish(lambda: close_all(manager.sentinels))
    with pytest.raises(errors.InvalidInput, match="master_for"):
        faces.from_client(world, reader)


def close_all(clients: list[Any]) -> Any:
    """Close the user's own clients, in the world that they belong to."""
    closing = [client.aclose() if hasattr(client, "aclose") else client.close() for client in clients]
    return asyncio.gather(*closing) if any(closing) else None


def test_an_unknown_service(world: str, watched: Watched, key: str) -> None:
    url = f"sentinel://127.0.0.1:{watched.port}/toys"
    with faces.connect(world, url, retry_for=0.1) as sender, pytest.raises(errors.Unavailable, match="toys"):
        sender.run(tiny.call(tiny.ONCE, key))


def test_a_sentinel_taken_for_a_server(world: str, watched: Watched, key: str) -> None:
    refused = pytest.raises(errors.UnsupportedServer, match="sentinel://")
    with faces.connect(world, f"redis://127.0.0.1:{watched.port}") as sender, refused:
        sender.run(tiny.call(tiny.ONCE, key))
