"""The servers that are measured: private ones, on unix sockets, started by the kit of the test suite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import redis

from tests.support.servers import NoServer, OwnServer, Pool

DEFAULT = ("valkey9", "system-redis")


@contextmanager
def running(names: tuple[str, ...]) -> Iterator[list[OwnServer]]:
    """Those of the named kinds (`valkey9`, `system-redis`, `redis8`) that this machine has, stopped at the end."""
    pool = Pool()
    try:
        yield [server for name in names if (server := _start(pool, name)) is not None]
    finally:
        pool.close()


def _start(pool: Pool, name: str) -> OwnServer | None:
    if pool.kinds[name].missing:
        return None
    server = pool.get(name)
    if not isinstance(server, OwnServer):
        raise NoServer(f"{name} is no server of this machine's own")
    return server


def connected(server: OwnServer) -> redis.Redis:
    """A plain redis-py client on the socket that the engines use."""
    return redis.Redis.from_url(server.unix_url)
