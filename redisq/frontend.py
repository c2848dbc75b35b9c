"""What both front ends share: building a queue's core, the registry of queues, and naming this client."""

from __future__ import annotations

import inspect
import os
import secrets
import socket
from collections.abc import Callable
from threading import Lock
from typing import Any, ClassVar, Generic, ParamSpec, Protocol, Self, TypeVar

from msgspec import UNSET, UnsetType

from redisq.calls import Handle
from redisq.calls.core import EventCore, QueueCore
from redisq.errors import InvalidInput, LeaseLost
from redisq.ids import IdMaker
from redisq.policy import EventPolicy, QueuePolicy
from redisq.values import Duration, boolean, duration_ms, text

P = ParamSpec("P")
T = TypeVar("T")
Q = TypeVar("Q")
E = TypeVar("E")
S = TypeVar("S", bound="Addressed")

DEFAULTS: tuple[Any, ...] = (Any, None, Any, UNSET, True)
"""The options of a `queue(name)` that states none: it asks for the object whatever its options are."""

EVENT_DEFAULTS: tuple[Any, ...] = (Any, None, UNSET, True)
"""The same of an `events(name)`."""


class Clock(Protocol):
    """A clock that drives every script in place of the server's; `redisq.testing.ManualClock` is one."""

    @property
    def now_ms(self) -> int: ...


class Addressed(Protocol):
    """What a sender of either world says of itself."""

    url: str


class Known(Generic[Q]):
    """Queue objects by name, with the options each was first asked for. Asked with `defaults`, any will do."""

    def __init__(self, defaults: tuple[Any, ...]) -> None:
        self._defaults = defaults
        self._known: dict[str, tuple[Q, tuple[Any, ...]]] = {}
        self._lock = Lock()

    def all(self) -> list[Q]:
        return [queue for queue, _ in self._known.values()]

    def get(self, name: str, options: tuple[Any, ...], make: Callable[[], Q]) -> Q:
        """The object of `name`, made when it is asked for first."""
        known = self._known.get(name)
        if known is None:
            made = make()
            with self._lock:
                known = self._known.setdefault(name, (made, options))
        if options not in (self._defaults, known[1]):
            raise InvalidInput(f"queue {name} was made before with other options; use one definition for all")
        return known[0]


class Registry(Generic[Q, E]):
    """The job queues of one engine, its event queues, and what all of them share."""

    def __init__(self, namespace: str, worker: str | None, retry_for: Any, clock: Clock | None) -> None:
        self.clock = clock
        self.namespace = text("namespace", namespace)
        self.worker = text("worker", default_worker() if worker is None else worker)
        self.retry_for = duration_ms("retry_for", retry_for) / 1000
        self._ids = IdMaker()
        self.queues: Known[Q] = Known(DEFAULTS)
        self.events: Known[E] = Known(EVENT_DEFAULTS)

    def core(
        self,
        name: str,
        type: Any = Any,
        policy: QueuePolicy | None = None,
        result_type: Any = Any,
        codec: str | UnsetType = UNSET,
        validate: bool = True,
    ) -> QueueCore:
        if policy is not None and not isinstance(policy, QueuePolicy):
            raise InvalidInput(f"policy must be a QueuePolicy or None, not {policy.__class__.__name__}")
        return QueueCore(result_type=result_type, **self._shared(name, type, policy, codec, validate))

    def event_core(
        self,
        name: str,
        type: Any = Any,
        policy: EventPolicy | None = None,
        codec: str | UnsetType = UNSET,
        validate: bool = True,
    ) -> EventCore:
        if policy is not None and not isinstance(policy, EventPolicy):
            raise InvalidInput(f"policy must be an EventPolicy or None, not {policy.__class__.__name__}")
        return EventCore(**self._shared(name, type, policy, codec, validate))

    def _shared(self, name: str, type: Any, policy: Any, codec: Any, validate: bool) -> dict[str, Any]:
        if codec is not UNSET and not isinstance(codec, str):
            raise InvalidInput(f"codec must be 'json' or 'msgpack', not {codec!r}")
        return {
            "namespace": self.namespace, "name": text("name", name), "type": type, "codec": codec, "policy": policy,
            "validate": boolean("validate", validate), "ids": self._ids, "worker": self.worker,
            "retry_for": self.retry_for,
        }  # fmt: skip


class EngineBase(Generic[Q, E, S]):
    """What `Engine` and `AsyncEngine` share: all that does no I/O.

    url: see README; None is `$REDISQ_URL`, then `redis://127.0.0.1:6379/0`. namespace: the front of every key, 1–256
    bytes. clock: drives every script in place of the server's clock, for tests. retry_for: seconds that one operation
    may spend on reconnects and repeats. worker: this client's name in the ledger, host:pid:random by default.

    Nothing is sent before the first operation; after a fork connections reopen.
    """

    _connect: ClassVar[Callable[..., Any]]
    _adopt: ClassVar[Callable[..., Any]]
    _queue_class: ClassVar[type[Any]]
    _events_class: ClassVar[type[Any]]

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = "redisq",
        clock: Clock | None = None,
        retry_for: Duration = 10,
        worker: str | None = None,
    ) -> None:
        self._registry: Registry[Q, E] = Registry(namespace, worker, retry_for, clock)
        self._sender: S = self._connect(url, clock=clock, retry_for=self._registry.retry_for)

    @classmethod
    def from_client(
        cls,
        client: Any,
        *,
        namespace: str = "redisq",
        clock: Clock | None = None,
        retry_for: Duration = 10,
        worker: str | None = None,
    ) -> Self:
        """An engine with the settings of a client of redis-py (`redis.Redis` for `Engine`, `redis.asyncio.Redis` for
        `AsyncEngine`), in a pool of its own; the client stays as it is."""
        engine = cls.__new__(cls)
        engine._registry = Registry(namespace, worker, retry_for, clock)
        engine._sender = cls._adopt(client, clock=clock, retry_for=engine._registry.retry_for)
        return engine

    @property
    def url(self) -> str:
        """The server's address for other processes of this host, password included."""
        return self._sender.url

    @property
    def namespace(self) -> str:
        return self._registry.namespace

    def queue(
        self,
        name: str,
        type: Any = Any,
        *,
        policy: QueuePolicy | None = None,
        result_type: Any = Any,
        codec: str | UnsetType = UNSET,
        validate: bool = True,
    ) -> Q:
        """The job queue `name`; no I/O. The same name gives the same object; other options raise InvalidInput.

        type, result_type: what payloads and results are, anything msgspec decodes. policy: the settings this client
        insists on; None adopts what is stored. codec: "json" (the default) or "msgpack", fixed by the first write.
        validate: prove at offer that the payload decodes as `type`.
        """
        options = (type, policy, result_type, codec, validate)
        make = lambda: self._queue_class(self._registry.core(name, *options), self._sender)  # noqa: E731
        return self._registry.queues.get(name, options, make)

    def events(
        self,
        name: str,
        type: Any = Any,
        *,
        policy: EventPolicy | None = None,
        codec: str | UnsetType = UNSET,
        validate: bool = True,
    ) -> E:
        """The event queue `name`; no I/O. The same name gives the same object; other options raise InvalidInput.

        type: what payloads are, anything msgspec decodes. policy: the settings this client insists on; None adopts what
        is stored. codec: "json" (the default) or "msgpack", fixed by the first write. validate: prove at emission that
        the payload decodes as `type`.
        """
        options = (type, policy, codec, validate)
        make = lambda: self._events_class(self._registry.event_core(name, *options), self._sender)  # noqa: E731
        return self._registry.events.get(name, options, make)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._sender!r}, namespace={self.namespace!r})"


def default_worker() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


def name_method(method: Callable[P, T], source: Callable[..., Any], queue: Any, name: str) -> Callable[P, T]:
    """Gives a bound method its builder's signature and text, and keeps it on the object for the next access."""
    signature = inspect.signature(source)
    method.__name__ = name
    method.__qualname__ = f"{type(queue).__name__}.{name}"
    method.__doc__ = source.__doc__
    method.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])  # type: ignore[attr-defined]
    queue.__dict__[name] = method
    return method


def lost_lease(step: Handle) -> LeaseLost:
    return LeaseLost(f"the lease of job {step.delivery.id} was lost while its handler ran: nothing was recorded")
