"""Pure builders of script calls: what to send and how to read the reply. No I/O happens here."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

from redisq.errors import RedisqError
from redisq.scripts import Script

T = TypeVar("T")
Argument: TypeAlias = str | bytes | int


class Kind(Enum):
    """How a call repeats. Reads repeat freely; writes carry a request number, so a repeat gets the first answer."""

    READ = "read"
    WRITE = "write"
    TAKE = "take"


class Call(Generic[T]):
    """One script call on one queue.

    `key` is the root of the queue (KEYS[1]). `args` follow the header that the sender puts in front: the manual clock's
    time, the caller's slot and its request number. `decode` turns the raw reply into the result. `missing` answers when
    the queue does not exist; None means that the call creates it. `undo` gives back what a call took whose caller was
    interrupted before it saw the answer; it is sent with the same slot and number. `copies`: what else has to be true
    of a write before it counts as done.
    """

    __slots__ = ("args", "copies", "decode", "ids", "key", "kind", "missing", "operation", "script", "undo")

    def __init__(
        self,
        operation: str,
        script: Script,
        key: str,
        args: Sequence[Argument],
        decode: Callable[[Any], T],
        *,
        kind: Kind,
        missing: Callable[[], T] | None = None,
        ids: Sequence[str] = (),
        undo: Call[Any] | None = None,
        copies: Copies | None = None,
    ) -> None:
        self.operation = operation
        self.script = script
        self.key = key
        self.args = args
        self.decode = decode
        self.kind = kind
        self.missing = missing
        self.ids = ids
        self.undo = undo
        self.copies = copies


class Copies:
    """`replicas` of the very server that ran the call must have it. Both commands go in its packet, behind it.

    WAIT is about the last write of its connection, and a call that is repeated may be answered without one: so there is
    always another, the `mark`. A server that has lost the call since runs it again.
    """

    __slots__ = ("commands", "replicas")

    def __init__(self, replicas: int, wait_ms: int, mark: tuple[Argument, ...]) -> None:
        self.replicas = replicas
        self.commands = (mark, ("WAIT", replicas, wait_ms))


class NoQueue(RedisqError):
    """The queue of `call` does not exist yet. Internal: the flows create the queue and run the call again."""

    def __init__(self, call: Call[Any]) -> None:
        super().__init__(f"{call.operation}: the queue does not exist")
        self.call = call


class Wait:
    """Block until `bell` rings or `seconds` pass, with `call` sent in the same packet: it runs at the wake-up.

    `nudge`: be punctual at the end of `seconds` also on an idle server, which looks at its clock only now and then.
    """

    __slots__ = ("bell", "call", "nudge", "seconds")

    def __init__(self, bell: str, seconds: float, call: Call[Any], *, nudge: bool = False) -> None:
        self.bell = bell
        self.seconds = seconds
        self.call = call
        self.nudge = nudge


class Sleep:
    """Pause for `seconds`."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Commands:
    """Plain commands, for the few things that need no script; repeated as reads are."""

    __slots__ = ("commands",)

    def __init__(self, *commands: tuple[Argument, ...]) -> None:
        self.commands = commands


class Handle:
    """Run a user's handler for a delivery while `renew` keeps its lease, `lease` seconds long, every `every` seconds.

    The result is what the handler returned. Raises LeaseLost when the lease was lost meanwhile.
    """

    __slots__ = ("delivery", "every", "handler", "lease", "renew")

    def __init__(
        self, handler: Callable[[Any], Any], delivery: Any, renew: Callable[[], Call[Any]], lease: float, every: float
    ) -> None:
        self.handler = handler
        self.delivery = delivery
        self.renew = renew
        self.lease = lease
        self.every = every


class HandlerExit(BaseException):
    """A handler raised GeneratorExit. Thrown into a flow, that would close its inner flows instead of telling them."""


Step: TypeAlias = "Call[Any] | Wait | Sleep | Commands | Handle"
Flow: TypeAlias = Generator[Step, Any, T]
"""A story of several steps. The driver sends each step's result in, or throws its error, cancellation included."""
