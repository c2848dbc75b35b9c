"""What both front ends share: building a queue's core, the registry of queues, and naming this client."""

from __future__ import annotations

import inspect
import os
import secrets
import socket
from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from msgspec import UNSET, UnsetType

from redisq.calls import Handle
from redisq.calls.core import QueueCore
from redisq.errors import InvalidInput, LeaseLost
from redisq.ids import IdMaker
from redisq.policy import QueuePolicy
from redisq.values import boolean, duration_ms, text

P = ParamSpec("P")
T = TypeVar("T")
Q = TypeVar("Q")

DEFAULTS: tuple[Any, ...] = (Any, None, Any, UNSET, True)
"""The options of a `queue(name)` that states none: it asks for the object whatever its options are."""


class Clock(Protocol):
    """A clock that drives every script in place of the server's; `redisq.testing.ManualClock` is one."""

    @property
    def now_ms(self) -> int: ...


class Registry(Generic[Q]):
    """The queue objects of one engine: one per name, with the options it was first asked for."""

    def __init__(self, namespace: str, worker: str | None, retry_for: Any, clock: Clock | None) -> None:
        self.clock = clock
        self.namespace = text("namespace", namespace)
        self.worker = text("worker", default_worker() if worker is None else worker)
        self.retry_for = duration_ms("retry_for", retry_for) / 1000
        self._ids = IdMaker()
        self._known: dict[str, tuple[Q, tuple[Any, ...]]] = {}
        self._lock = Lock()

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
        if codec is not UNSET and not isinstance(codec, str):
            raise InvalidInput(f"codec must be 'json' or 'msgpack', not {codec!r}")
        return QueueCore(
            namespace=self.namespace,
            name=text("name", name),
            type=type,
            result_type=result_type,
            codec=codec,
            policy=policy,
            validate=boolean("validate", validate),
            ids=self._ids,
            worker=self.worker,
            retry_for=self.retry_for,
        )

    def get(self, name: str, options: tuple[Any, ...]) -> Q | None:
        """The object of `name`, if it was asked for before with the same options."""
        known = self._known.get(name)
        if known is None:
            return None
        if options != DEFAULTS and known[1] != options:
            raise InvalidInput(f"queue {name} was made before with other options; use one definition for all")
        return known[0]

    def add(self, name: str, options: tuple[Any, ...], queue: Q) -> Q:
        with self._lock:
            return self._known.setdefault(name, (queue, options))[0]


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
