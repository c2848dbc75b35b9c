"""Everything between a `Call` and a socket.

Four ways in, one per world and origin. An embedded server is started there; nothing connects before the first `run`:

    connect_sync(url, *, clock=None, retry_for=10.0) -> SyncSender
    connect_async(url, *, clock=None, retry_for=10.0) -> AsyncSender
    sync_from_client(client, *, clock=None, retry_for=10.0) -> SyncSender
    async_from_client(client, *, clock=None, retry_for=10.0) -> AsyncSender

`url` None means `$REDISQ_URL`, then `redis://127.0.0.1:6379/0`. `clock` is None (server time) or has a
property `now_ms`, read at each sending. `retry_for` is in seconds, 0 or more: the total a call may spend on retries.

A sender has (the Async one's methods are awaited):

    .url                  for other processes of this host, password included; repr() hides it
    .run(call)            the decoded result of one `Call`
    .run_wait(wait)       the decoded result of `wait.call`, run when the bell rang or the time was up
    .run_commands(cmds)   the raw replies (bytes, ints, lists) of plain repeatable commands such as HGETALL or HSET;
                          a server error among them is raised
    .close() / .aclose()  gives everything back; a closed sender raises InvalidInput

`calls.NoQueue` is raised for a call without `missing` on a queue that does not exist: create the queue and run the call
again.

Modules: `urls`, `target` and `sentinel` (what to connect to), `embedded` and `memory` (servers of our own), `check` (is
this server good enough), `wire` (connections), `retry` (the discipline of repeats, no I/O), `sender` (calls on the
wire).
"""

from __future__ import annotations

from typing import Any

from redisq.transport import target
from redisq.transport.sender import AsyncSender, Clock, SyncSender

__all__ = [
    "AsyncSender",
    "Clock",
    "SyncSender",
    "async_from_client",
    "connect_async",
    "connect_sync",
    "sync_from_client",
]


def connect_sync(url: str | None, *, clock: Clock | None = None, retry_for: float = 10.0) -> SyncSender:
    """A sender to the server that `url` names."""
    return SyncSender(target.from_url(url, target.SYNC), clock, retry_for)


def connect_async(url: str | None, *, clock: Clock | None = None, retry_for: float = 10.0) -> AsyncSender:
    """A sender for asyncio to the server that `url` names."""
    return AsyncSender(target.from_url(url, target.ASYNC), clock, retry_for)


def sync_from_client(client: Any, *, clock: Clock | None = None, retry_for: float = 10.0) -> SyncSender:
    """A sender with a copy of the settings of a `redis.Redis`."""
    return SyncSender(target.from_client(client, target.SYNC), clock, retry_for)


def async_from_client(client: Any, *, clock: Clock | None = None, retry_for: float = 10.0) -> AsyncSender:
    """A sender with a copy of the settings of a `redis.asyncio.Redis`."""
    return AsyncSender(target.from_client(client, target.ASYNC), clock, retry_for)
