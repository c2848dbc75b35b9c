"""Scripts as the server sees them: one EVALSHA with its header words given by hand, and keys as they lie there."""

from __future__ import annotations

from typing import Any

import redis

from redisq.scripts import script


def run(
    client: redis.Redis, name: str, root: str, *args: Any, now: str | int = "", slot: str = "", number: str | int = ""
) -> Any:
    """The raw reply of the script `name` on the queue `root`; its refusal is a ResponseError."""
    linked = script(name)
    client.script_load(linked.source)
    return client.execute_command("EVALSHA", linked.sha, 1, root, now, slot, number, *args)


def lua(client: redis.Redis, module: str, code: str, *args: Any) -> Any:
    """What `code` returns, run behind the module `lib/<module>.lua`, whose table it sees as M."""
    linked = script(f"lib/{module}").plain_source
    body, _, _ = linked.rpartition("return M\n")
    return client.eval(body + code, 0, *args)


def contents(client: redis.Redis, namespace: str) -> dict[str, Any]:
    """All that the keys of a namespace hold, with their times to live: two of these compare what a call changed."""
    read: dict[str, Any] = {
        "string": client.get,
        "hash": client.hgetall,
        "list": lambda key: client.lrange(key, 0, -1),
        "zset": lambda key: client.zrange(key, 0, -1, withscores=True),
    }
    found: dict[str, Any] = {}
    for key in client.scan_iter(match=f"*{namespace}*", count=1000):
        found[key.decode()] = (read[client.type(key).decode()](key), client.pttl(key))  # type: ignore[union-attr]
    return found
