"""Faults of the server itself: busy, full, rolled back, without its scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis


@contextmanager
def freeze(client: redis.Redis, seconds: float = 1.2) -> Iterator[None]:
    """The server answers nobody for `seconds`, from the start of the block on; its end waits until that is over.

    It needs a server that allows DEBUG, as all that the tests start do. A busy script would not do: newer servers stop
    TIME while a script runs, and a count of processor time takes as long as a loaded machine likes.
    """
    connection = client.connection_pool.get_connection()
    try:
        connection.send_command("PING")  # a warm connection: the sleep starts as soon as it is sent
        connection.read_response()
        connection.send_command("DEBUG", "SLEEP", seconds)
        yield
        connection.read_response()
    finally:
        client.connection_pool.release(connection)


class Rollback:
    """Keys as they were when this was made; `back()` puts them so again, as a failover to a lagging replica does."""

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self._client = client
        self._match = f"{prefix}*"
        self._copies: list[tuple[bytes, Any, Any]] = []
        for key in self._keys():
            self._copies.append((key, client.dump(key), client.execute_command("PEXPIRETIME", key)))

    def back(self) -> None:
        """One transaction: nobody sees a state in between."""
        pipe = self._client.pipeline(transaction=True)
        for key in self._keys():
            pipe.delete(key)
        for key, dumped, expires_ms in self._copies:
            ends = max(expires_ms, 0)
            pipe.restore(key, ends, dumped, absttl=ends > 0)
        pipe.execute()

    def _keys(self) -> Sequence[bytes]:
        return list(self._client.scan_iter(match=self._match, count=1000))


@contextmanager
def full_memory(client: redis.Redis, room: int | None = None) -> Iterator[None]:
    """The server is at its maxmemory, or `room` bytes below it, and evicts nothing."""
    before: Any = client.config_get("maxmemory*")
    limit = 1 if room is None else used_memory(client) + room
    client.config_set("maxmemory-policy", "noeviction", "maxmemory", limit)
    try:
        yield
    finally:
        client.config_set("maxmemory", before["maxmemory"], "maxmemory-policy", before["maxmemory-policy"])


def used_memory(client: redis.Redis) -> int:
    info: Any = client.info("memory")
    return int(info["used_memory"])


def script_flush(client: redis.Redis) -> None:
    """The server forgets every loaded script, as after a restart."""
    client.script_flush("SYNC")
