"""What a client knows of one queue: its key, its codecs, what it declared, and what it has seen."""

from __future__ import annotations

from enum import Enum
from typing import Any
from urllib.parse import quote

from msgspec import UNSET, UnsetType

from redisq.codec import Codec
from redisq.ids import IdMaker
from redisq.policy import QueuePolicy


class Opened(Enum):
    """How far this client has compared its declaration with what the queue stores."""

    NO = "no"
    UNDECLARED = "undeclared"
    YES = "yes"


class QueueCore:
    """One job queue as one client sees it. Shared by the calls, the flows and the front ends; does no I/O."""

    def __init__(
        self,
        *,
        namespace: str,
        name: str,
        type: Any,
        result_type: Any,
        codec: str | UnsetType,
        policy: QueuePolicy | None,
        validate: bool,
        ids: IdMaker,
        worker: str,
        retry_for: float,
    ) -> None:
        self.name = name
        self.root = root("jobs", namespace, name)
        self.directory = directory(namespace)
        self.entry = f"jobs:{name}"
        self.type = type
        self.result_type = result_type
        self.declared_codec = None if codec is UNSET else codec
        self.policy = policy
        self.validate = validate
        self.ids = ids
        self.worker = worker_text(worker)
        self.retry_for = retry_for
        self.fence = 0
        self.opened = Opened.NO
        self.use_codec(self.declared_codec or "json")

    def use_codec(self, name: str) -> None:
        self.codec = Codec(name, self.type)
        self.results = Codec(name, self.result_type)

    @property
    def declared(self) -> dict[str, str]:
        """The stored text of every field that this client insists on."""
        given = {} if self.policy is None else self.policy.given
        return given if self.declared_codec is None else {**given, "codec": self.declared_codec}

    @property
    def stored(self) -> dict[str, str]:
        """The stored text of every field, as this client would create the queue."""
        fields = QueuePolicy.DEFAULTS if self.policy is None else self.policy.stored
        return {**fields, "codec": self.codec.name}

    @property
    def settled(self) -> bool:
        """Whether a call may go out as it is: compared, and with nothing of its own left to store."""
        return self.opened is Opened.YES or (self.opened is Opened.UNDECLARED and self.policy is None)


def root(kind: str, namespace: str, name: str) -> str:
    """The root key of a queue: bytes outside A-Za-z0-9._- are percent-encoded, so no name reaches another key.

    The braces put all keys of a queue into one slot of a cluster.
    """
    return f"{{{_escaped(namespace)}:{kind}:{_escaped(name)}}}"


def directory(namespace: str) -> str:
    """The key of the hash that lists the queues of a namespace."""
    return f"{_escaped(namespace)}:queues"


def worker_text(worker: str) -> str:
    """A worker's name without the commas and semicolons that separate stored fields."""
    return quote(worker, safe=":.-_")


def _escaped(name: str) -> str:
    return quote(name, safe="").replace("~", "%7E")
