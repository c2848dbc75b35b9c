"""The discipline of repeats, as one generator without I/O that blocking code and asyncio both drive.

Repeating is safe because of what a call carries: reads change nothing, and everything else has a request number (or its
token, or its id), so that the server answers a repeat with its first answer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

from redis import exceptions as library

from redisq.calls import Call, NoQueue
from redisq.errors import (
    CapacityExceeded,
    ConfigurationConflict,
    CorruptRecord,
    EventNotActive,
    IndeterminateWrite,
    LeaseLost,
    OutOfMemory,
    QueueNotEmpty,
    RedisqError,
    SubscriptionGone,
    Unavailable,
    UnsupportedServer,
)
from redisq.transport.wire import Command, Lost

_FIRST_PAUSE = 0.02  # seconds; doubled up to the longest, each shortened by chance to between a half and all of it
_LONGEST_PAUSE = 1.0

# first words of error replies: the server's own …
_PASSING = frozenset({
    "LOADING", "READONLY", "MASTERDOWN", "BUSY", "NOREPLICAS", "TRYAGAIN", "UNBLOCKED", "CLUSTERDOWN",
})  # fmt: skip
_RULES = {
    "NOAUTH": "give a user and password in the url",
    "WRONGPASS": "check the user and password in the url",
    "NOPERM": "grant the user what is missing with ACL SETUSER",
    "MISCONF": "the server cannot persist its data: see its log",
}
_ELSEWHERE = frozenset({"MOVED", "ASK", "CROSSSLOT"})
# … and those of our scripts
_REFUSALS: dict[str, type[RedisqError]] = {
    "LEASELOST": LeaseLost,
    "CONFLICT": ConfigurationConflict,
    "CAPACITY": CapacityExceeded,
    "CORRUPT": CorruptRecord,
    "SUBGONE": SubscriptionGone,
    "NOTACTIVE": EventNotActive,
    "NOTEMPTY": QueueNotEmpty,
}
# redis-py cuts the first word off where it has a class for it
_CUT: tuple[tuple[type[Exception], str], ...] = (
    (library.NoScriptError, "NOSCRIPT"),
    (library.OutOfMemoryError, "OOM"),
    (library.NoPermissionError, "NOPERM"),
    (library.AuthenticationError, "NOAUTH"),
    (library.BusyLoadingError, "LOADING"),
    (library.ReadOnlyError, "READONLY"),
    (library.MasterDownError, "MASTERDOWN"),
    (library.ClusterDownError, "CLUSTERDOWN"),
    (library.TryAgainError, "TRYAGAIN"),
    (library.MovedError, "MOVED"),
    (library.AskError, "ASK"),
    (library.ClusterCrossSlotError, "CROSSSLOT"),
)


class Request:
    """What to send until it is answered: a `Call` as one command, or plain repeatable commands without one."""

    __slots__ = ("call", "commands", "load", "operation")

    def __init__(
        self, operation: str, commands: tuple[Command, ...], call: Call[Any] | None = None, load: Command | None = None
    ) -> None:
        self.operation = operation
        self.commands = commands
        self.call = call
        self.load = load  # puts the script in the server's cache


class Send:
    """Step: send `commands` in one packet and come back with the replies, or with what was `Lost`."""

    __slots__ = ("commands",)

    def __init__(self, commands: tuple[Command, ...]) -> None:
        self.commands = commands


class Pause:
    """Step: drop the idle connections, and wait for `seconds`."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


Outcome: TypeAlias = list[Any] | Lost
Steps: TypeAlias = Generator[Send | Pause, Outcome | None, list[Any]]


def conduct(
    request: Request,
    outcome: Outcome | None,
    retry_for: float,
    *,
    writes: bool,
    now: Callable[[], float] = time.monotonic,
    dice: Callable[[], float] = random.random,
) -> Steps:
    """From the `outcome` of a first try (None: not made yet) to replies without an error, or to the error to raise.

    Repeats for `retry_for` seconds in all. `writes` says that a lost try may have changed something, so that a failure
    afterwards is an `IndeterminateWrite`. A script that the server does not know is loaded and run at once.
    """
    deadline = now() + retry_for
    pause = _FIRST_PAUSE
    doubt = loaded = False
    if outcome is None:
        outcome = _answered((yield Send(request.commands)))
    while True:
        if isinstance(outcome, Lost):
            error: Exception | None = outcome.cause
            doubt = doubt or (writes and outcome.sent)
        else:
            error = next((reply for reply in outcome if isinstance(reply, Exception)), None)
            if error is None:
                error = _unconfirmed(request, outcome)
            if error is None:
                return outcome
            # the call itself may stand, and only what goes behind it be missing
            doubt = doubt or (writes and not isinstance(outcome[-len(request.commands)], Exception))
        word = first_word(error)
        commands = request.commands
        if word == "NOSCRIPT" and request.load is not None:
            commands = (request.load, *commands)
        elif isinstance(outcome, Lost) and not _is_reply(error):
            pass  # the connection failed: try another
        elif word not in _PASSING:
            raise _final(request, error, word, doubt, isinstance(outcome, Lost)) from error
        if word != "NOSCRIPT" or loaded:
            left = deadline - now()
            if left <= 0:
                raise _unanswered(request, error, doubt) from error
            yield Pause(min(pause * (0.5 + dice() / 2), left))
            pause = min(pause * 2, _LONGEST_PAUSE)
        loaded = loaded or word == "NOSCRIPT"
        outcome = _answered((yield Send(commands)))


def _unconfirmed(request: Request, outcome: list[Any]) -> Exception | None:
    """What is missing although every reply is good: replicas that have it."""
    copies = None if request.call is None else request.call.copies
    if copies is None or outcome[-1] >= copies.replicas:
        return None
    return library.ResponseError(
        f"NOREPLICAS it is stored on the master, but only {outcome[-1]} of {copies.replicas} replicas confirmed it in "
        "time: it is lost if the master fails before they have it"
    )


def _answered(outcome: Outcome | None) -> Outcome:
    if outcome is None:
        raise TypeError("a Send step is answered with its outcome")
    return outcome


def first_word(error: Exception | None) -> str:
    """The upper-case word that an error reply began with; empty for any other error."""
    for kind, word in _CUT:
        if isinstance(error, kind):
            return word
    word = str(error).partition(" ")[0]
    return word if isinstance(error, library.ResponseError) and word.isupper() else ""


def is_passing(error: Exception) -> bool:
    """Whether this error reply is one that a repeat may not get."""
    return first_word(error) in _PASSING


def refusal(request: Request, error: Exception) -> RedisqError:
    """The error to raise for an error reply that no repeat can mend."""
    return _final(request, error, first_word(error), doubt=False, at_login=False)


def _is_reply(error: Exception | None) -> bool:
    """A login or SELECT that was refused ends the connection; it is an answer all the same."""
    return isinstance(error, library.ResponseError | library.AuthenticationError)


def _final(request: Request, error: Exception | None, word: str, doubt: bool, at_login: bool) -> RedisqError:
    text = str(error)
    if word == "NOQUEUE" and request.call is not None:
        return NoQueue(request.call)
    if word in _REFUSALS:
        return _REFUSALS[word](text.partition(" ")[2])
    ruled = _ruled(request.operation, word, text)
    if ruled is None and at_login:
        ruled = Unavailable(f"{request.operation}: the server refused the connection: {text}")
    if ruled is not None:
        # said of this try; an earlier one may have been applied all the same
        return _unanswered(request, error, doubt) if doubt else ruled
    located = text if request.call is None else request.call.script.locate(text)
    if word == "WRONGTYPE":
        key = request.commands[0][1] if request.call is None else request.call.key
        shown = key.decode(errors="replace") if isinstance(key, bytes) else key
        return CorruptRecord(f"{request.operation}: {shown}, or a key of it, has the wrong type: {located}")
    if request.call is not None and located != text:
        # a script that stumbled in its own lines met something that redisq did not write
        return CorruptRecord(
            f"{request.operation}: {request.call.key} holds what this release can't read: {located}. See redisq check"
        )
    return RedisqError(f"{request.operation}: the server answered with an error: {located}")


def _ruled(operation: str, word: str, text: str) -> RedisqError | None:
    """The error for a reply that refuses the call before anything runs; None for any other reply."""
    if word == "OOM":
        return OutOfMemory(f"{operation}: the server is at its maxmemory: {text}")
    if word in _ELSEWHERE:
        return UnsupportedServer(f"{operation}: this node of a cluster does not own the queue's slot: {word} {text}")
    if "ACL failure in script" in text:
        word = "NOPERM"
    if word in _RULES:
        return Unavailable(f"{operation}: the server refused: {text} ({_RULES[word]})")
    if word == "STALE":
        return RedisqError(f"{operation}: another call used this request number: {text}")
    return None


def _unanswered(request: Request, error: Exception | None, doubt: bool) -> RedisqError:
    text = f"{request.operation}: {error}"
    if not doubt:
        return Unavailable(text)
    ids = () if request.call is None else request.call.ids
    return IndeterminateWrite(f"{text}; it may or may not have been applied", operation=request.operation, ids=ids)
