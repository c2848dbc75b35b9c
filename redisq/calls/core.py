"""What a client knows of one queue: its key, its codecs, what it declared, and what it has seen."""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar
from urllib.parse import quote

from msgspec import UNSET, UnsetType

from redisq.codec import Codec
from redisq.ids import IdMaker
from redisq.model import Recipient
from redisq.policy import EventPolicy, Policy, QueuePolicy


class Opened(Enum):
    """How far this client has compared its declaration with what the queue stores."""

    NO = "no"
    UNDECLARED = "undeclared"
    YES = "yes"


class Core:
    """One queue, of jobs or of events, as one client sees it: what both kinds have in common. Does no I/O."""

    kind: ClassVar[str]
    policy_type: ClassVar[type[Policy]]

    def __init__(
        self,
        *,
        namespace: str,
        name: str,
        type: Any,
        codec: str | UnsetType,
        policy: Policy | None,
        validate: bool,
        ids: IdMaker,
        worker: str,
        retry_for: float,
    ) -> None:
        self.name = name
        self.root = root(self.kind, namespace, name)
        self.directory = directory(namespace)
        self.entry = f"{self.kind}:{name}"
        self.type = type
        self.declared_codec = None if codec is UNSET else codec
        self.policy = policy
        self.validate = validate
        self.ids = ids
        self.worker = worker_text(worker)
        self.retry_for = retry_for
        self.fence = 0
        self.opened = Opened.NO
        self.wrote = False
        self.use_codec(self.declared_codec or "json")

    def use_codec(self, name: str) -> None:
        self.codec = Codec(name, self.type)

    @property
    def declared(self) -> dict[str, str]:
        """The stored text of every field that this client insists on."""
        given = {} if self.policy is None else self.policy.given
        return given if self.declared_codec is None else {**given, "codec": self.declared_codec}

    @property
    def stored(self) -> dict[str, str]:
        """The stored text of every field, as this client would create the queue."""
        fields = self.policy_type.DEFAULTS if self.policy is None else self.policy.stored
        return {**fields, "codec": self.codec.name}

    @property
    def settled(self) -> bool:
        """Whether a call may go out as it is: compared, and with nothing of its own left to store."""
        return self.opened is not Opened.NO and (self.policy is None or (self.wrote and self.opened is Opened.YES))


class QueueCore(Core):
    """One job queue as one client sees it. Shared by the calls, the flows and the front ends."""

    kind = "jobs"
    policy_type = QueuePolicy

    def __init__(self, *, result_type: Any, **options: Any) -> None:
        self.result_type = result_type
        super().__init__(**options)

    def use_codec(self, name: str) -> None:
        super().use_codec(name)
        self.results = Codec(name, self.result_type)


class EventCore(Core):
    """One event queue as one client sees it.

    `roster` is the newest set of subscriptions that this client was told of, and `roster_version` its name: an emission
    tells it anew only when the version differs, and no version ever names two different sets.
    """

    kind = "events"
    policy_type = EventPolicy

    def __init__(self, **options: Any) -> None:
        self.roster_version = ""
        self.roster: tuple[Recipient, ...] = ()
        super().__init__(**options)


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
