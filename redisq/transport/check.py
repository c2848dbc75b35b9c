"""Is this server one that redisq can use? Pure: reads the texts of INFO and CLUSTER NODES."""

from __future__ import annotations

import re
from typing import Any

from redisq.errors import UnsupportedServer

QUESTIONS: tuple[tuple[str, ...], ...] = (("INFO", "server"), ("INFO", "cluster"), ("CLUSTER", "NODES"))
"""What to ask a new server; the answers go to `judge`."""

ROLE: tuple[str, ...] = ("HELLO",)
"""What to ask a server that Sentinel named; the answer goes to `is_replica`. Rules of access rarely hide it."""

_ALL_SLOTS = "0-16383"


def judge(answers: list[Any]) -> None:
    """UnsupportedServer for a server that is too old or not whole. What access rules hide is not held against it."""
    server, cluster, nodes = ("" if isinstance(answer, Exception) else _text(answer) for answer in answers)
    if "sentinel" in (_field(server, "redis_mode"), _field(server, "server_mode")):
        raise UnsupportedServer("this address is a Sentinel, not a server: use sentinel://host:port/SERVICE/DB")
    for name, key, floor in (("Valkey", "valkey_version", (8, 0)), ("Redis", "redis_version", (7, 0))):
        version = _field(server, key)
        if version:
            if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < floor:
                raise UnsupportedServer(
                    f"this server is {name} {version}: redisq needs Redis 7.0 or later, or Valkey 8 or later"
                )
            break
    if _field(cluster, "cluster_enabled") == "1" and nodes and not _owns_all(nodes):
        raise UnsupportedServer(
            "this node of a cluster does not own all slots: a cluster is supported only as one node with all of them"
        )


def is_replica(answer: Any) -> bool:
    """Whether this is the answer of a replica. What access rules hide is not held against it."""
    return isinstance(answer, list) and answer[answer.index(b"role") + 1] != b"master"


def _owns_all(nodes: str) -> bool:
    own = next((line.split() for line in nodes.splitlines() if "myself" in line), [])
    return _ALL_SLOTS in own[8:]


def _field(info: str, name: str) -> str:
    found = re.search(rf"^{name}:(.*?)\r?$", info, re.MULTILINE)
    return found.group(1) if found else ""


def _text(answer: Any) -> str:
    return answer.decode(errors="replace") if isinstance(answer, bytes) else ""
