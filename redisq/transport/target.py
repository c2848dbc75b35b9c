"""What to connect to: a `Target` from a URL or from a client of redis-py, for one of the two worlds."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel

from redisq.errors import InvalidInput, UnsupportedServer
from redisq.transport import memory, urls
from redisq.transport.embedded import EmbeddedServer
from redisq.transport.sentinel import PATIENCE, Sentinels

DEFAULT_TIMEOUT = 5.0
"""Seconds to wait for a connection or a reply when the settings name no time."""

# Arguments that are decided here: repeats are redisq's own business, replies stay bytes, and RESP2 is spoken whatever
# the client spoke, so that a reply has one shape. The rest belongs to pools or to features that are not used.
_DECIDED_HERE = frozenset({
    "retry", "retry_on_timeout", "retry_on_error", "health_check_interval", "decode_responses", "protocol",
    "legacy_responses", "parser_class", "command_packer", "encoder_class", "connection_pool", "connection_class",
    "max_connections", "timeout", "cache", "cache_config", "event_dispatcher", "himport_registry",
    "maint_notifications_config", "maint_notifications_pool_handler", "maintenance_state",
    "maintenance_notification_hash", "orig_host_address", "orig_socket_timeout", "orig_socket_connect_timeout",
    "oss_cluster_maint_notifications_handler",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class World:
    """The classes of redis-py that belong to blocking code, or to asyncio."""

    asynchronous: bool
    connections: dict[str, type[Any]]
    client: type[Any]
    pipeline: type[Any]
    cluster: type[Any]
    sentinel_pool: type[Any]


SYNC = World(
    asynchronous=False,
    connections={
        "redis": redis.Connection,
        "rediss": redis.SSLConnection,
        "unix": redis.UnixDomainSocketConnection,
    },
    client=redis.Redis,
    pipeline=redis.client.Pipeline,
    cluster=redis.RedisCluster,
    sentinel_pool=redis.sentinel.SentinelConnectionPool,
)
ASYNC = World(
    asynchronous=True,
    connections={
        "redis": redis.asyncio.Connection,
        "rediss": redis.asyncio.SSLConnection,
        "unix": redis.asyncio.UnixDomainSocketConnection,
    },
    client=redis.asyncio.Redis,
    pipeline=redis.asyncio.client.Pipeline,
    cluster=redis.asyncio.RedisCluster,
    sentinel_pool=redis.asyncio.sentinel.SentinelConnectionPool,
)


@dataclass(frozen=True, slots=True)
class Target:
    """How to make a connection of redis-py. `timeout` is in seconds, for a connection or a reply.

    `sentinels` tell the host and port of the master; None when the address is fixed.
    `owned` is the server that lives and dies with the sender. `fake` marks fakeredis.
    """

    url: str = field(repr=False)
    connection_class: type[Any]
    options: dict[str, Any] = field(repr=False)
    timeout: float
    fake: bool = False
    sentinels: Sentinels | None = None
    owned: EmbeddedServer | None = None

    def make(self) -> Any:
        """A new connection, not yet connected."""
        return self.connection_class(**self.options)

    def hurried(self, seconds: float) -> Target:
        """The same place with less patience, and without the ownership."""
        timeout = min(self.timeout, seconds)
        options = {**self.options, "socket_connect_timeout": timeout}
        if self.options.get("socket_timeout") is not None:
            options["socket_timeout"] = timeout
        return replace(self, options=options, timeout=timeout, owned=None)


def from_url(url: str | None, world: World) -> Target:
    """The target that `url` names. An embedded server is started here."""
    address = urls.parse(url)
    if address.scheme == "memory":
        client = memory.client(address.name, asynchronous=world.asynchronous)
        return replace(from_client(client, world), url=address.url)
    if address.scheme == "sentinel":
        return _from_sentinel_url(address, world)
    if address.scheme == "embedded":
        server = EmbeddedServer(address.path)
        return _target(server.url, world.connections["unix"], {"path": server.socket}, world, owned=server)
    return _target(address.url, world.connections[address.scheme], address.options, world)


def from_client(client: Any, world: World) -> Target:
    """A target with a copy of the settings of a redis-py client, which is neither changed nor closed, now or later."""
    other = SYNC if world.asynchronous else ASYNC
    if isinstance(client, SYNC.cluster | ASYNC.cluster):
        raise UnsupportedServer(
            "Redis Cluster clients are not supported: give a plain client of one node that owns all slots"
        )
    if isinstance(client, other.client):
        wanted, engine = ("redis.asyncio.Redis", "Engine") if world.asynchronous else ("redis.Redis", "AsyncEngine")
        raise InvalidInput(
            f"{'AsyncEngine' if world.asynchronous else 'Engine'} needs a {wanted} client: give this one to {engine}"
        )
    if not isinstance(client, world.client) or isinstance(client, world.pipeline):
        raise InvalidInput(f"client must be a redis-py client, not {type(client).__name__}: use Engine(url) otherwise")
    pool = client.connection_pool
    options = dict(pool.connection_kwargs)
    if isinstance(pool, world.sentinel_pool):
        return _from_sentinel_pool(pool, options, world)
    fake = memory.is_fake(pool.connection_class)
    kind = next((kind for kind, known in world.connections.items() if pool.connection_class is known), "redis")
    if kind == "redis" and issubclass(pool.connection_class, world.connections["rediss"]):
        kind = "rediss"
    url = "memory://" if fake else urls.format_url("unix" if "path" in options else kind, options)
    return _target(url, pool.connection_class, options, world)


def _from_sentinel_url(address: urls.Address, world: World) -> Target:
    options = dict(address.options)
    kind = "rediss" if options.pop("ssl") else "redis"
    plain = world.connections["redis"]
    targets = [
        _sentinel(address.url, plain, {"host": host, "port": port, **address.sentinel_options}, world)
        for host, port in address.hosts
    ]
    sentinels = Sentinels(address.name, targets)
    return _target(address.url, world.connections[kind], options, world, sentinels=sentinels)


def _from_sentinel_pool(pool: Any, options: dict[str, Any], world: World) -> Target:
    if not pool.is_master:
        raise InvalidInput("this client reads from replicas: give the one of sentinel.master_for(...)")
    kind = "rediss" if issubclass(pool.connection_class, world.connections["rediss"]) else "redis"
    manager, service = pool.sentinel_manager, pool.service_name
    pools = [sentinel.connection_pool for sentinel in manager.sentinels]
    url = urls.format_sentinel_url(
        service, options, [each.connection_kwargs for each in pools], secure=kind == "rediss"
    )
    sentinels = Sentinels(
        service,
        [_sentinel(url, each.connection_class, each.connection_kwargs, world) for each in pools],
        fewest=manager.min_other_sentinels,
        host=manager._force_master_ip,
    )
    return _target(url, world.connections[kind], options, world, sentinels=sentinels)


def _sentinel(url: str, connection_class: type[Any], options: dict[str, Any], world: World) -> Target:
    patience = options.get("socket_timeout") or PATIENCE
    return _target(url, connection_class, {**options, "socket_timeout": patience}, world)


def _target(
    url: str,
    connection_class: type[Any],
    options: dict[str, Any],
    world: World,
    *,
    sentinels: Sentinels | None = None,
    owned: EmbeddedServer | None = None,
) -> Target:
    timeout = float(options.get("socket_timeout") or DEFAULT_TIMEOUT)
    kept = {name: value for name, value in options.items() if name not in _DECIDED_HERE}
    # in asyncio one time limit spans a whole exchange, so the library's own, per step and slower, is off
    kept["socket_timeout"] = None if world.asynchronous else timeout
    kept["socket_connect_timeout"] = options.get("socket_connect_timeout") or timeout
    kept["protocol"] = 2
    target = Target(url, connection_class, kept, timeout, memory.is_fake(connection_class), sentinels, owned)
    try:
        target.make()
    except TypeError as error:
        unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        named = f"unknown option {unknown.group(1)!r}" if unknown else "an option has the wrong type"
        raise InvalidInput(f"url {urls.redacted(url)!r}: {named}") from None
    except (redis.RedisError, ValueError) as error:
        raise InvalidInput(f"url {urls.redacted(url)!r}: {error}") from None
    return target
