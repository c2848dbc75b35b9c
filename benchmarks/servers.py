"""The servers that are measured: private ones, on unix sockets, started by the kit of the test suite.

Valkey's wheel is built with the C library's malloc; its images and the distributions' packages are built with jemalloc,
which serves a script in a fifth to a third less time here (measured in turn). So where a jemalloc is installed, a
server without one is started on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes.util import find_library
from typing import Any, TypeAlias

import click
import redis

from tests.support.servers import NoServer, OwnServer, Pool

Option: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

PRELOAD = "LD_PRELOAD"
KINDS = ("valkey9", "system-redis", "redis8")


@contextmanager
def running(names: Sequence[str], default: int = 2) -> Iterator[list[OwnServer]]:
    """Servers of the named kinds, stopped at the end. None named: the first ones that this machine has."""
    pool = Pool()
    try:
        found = [name for name in KINDS if not pool.kinds[name].missing]
        yield [_start(pool, name) for name in names or found[:default]]
    finally:
        pool.close()


def _start(pool: Pool, name: str) -> OwnServer:
    try:
        server = pool.get(name)
    except NoServer as error:
        raise click.ClickException(f"{name} can't be started here: {error}") from None
    assert isinstance(server, OwnServer), f"{name} is not of KINDS"
    library = find_library("jemalloc")
    if library is not None and allocator(server) == "libc":
        server.kill()
        server.environment[PRELOAD] = library
        server.start()
    return server


def allocator(server: OwnServer) -> str:
    """What gives the server its memory."""
    with connected(server) as client:
        info: Any = client.info("memory")
    return server.environment.get(PRELOAD, str(info["mem_allocator"]))


def connected(server: OwnServer) -> redis.Redis:
    """A plain redis-py client on the socket that the engines use."""
    return redis.Redis.from_url(server.unix_url)


servers_option: Option = click.option(
    "--server",
    "kinds",
    multiple=True,
    type=click.Choice(KINDS),
    help="Default: the first one or two that are here.",
)


def rounds_option(default: int) -> Option:
    return click.option("--rounds", type=click.IntRange(1), default=default, show_default=True)
