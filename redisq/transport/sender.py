"""Sends calls and reads their answers: `SyncSender` and `AsyncSender`, twins around the same pure parts.

The plain case, one EVALSHA and a good reply, runs straight through; whatever else happens is left to `retry.conduct`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import secrets
import time
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, cast

from redisq.calls import Call, Kind, NoQueue, Wait
from redisq.errors import CorruptRecord, RedisqError
from redisq.transport.retry import Outcome, Pause, Request, Steps, conduct, first_word, is_passing, refusal
from redisq.transport.target import Target
from redisq.transport.urls import redacted
from redisq.transport.wire import AsyncWire, Command, Lost, Wire

T = TypeVar("T")

log = logging.getLogger("redisq")

_GIVE_BACK_SECONDS = 1.0
_MOST_AT_ONCE = 64  # calls of one AsyncSender on the wire; more wait their turn, so that connections stay few
_LOOK = 0.005  # seconds between two looks at a bell in fakeredis
_WRONG_SHAPE = (ValueError, IndexError, TypeError, KeyError, AttributeError)


class Clock(Protocol):
    """Tells the time that scripts shall go by, in Unix milliseconds."""

    @property
    def now_ms(self) -> int: ...


class Caller:
    """One last-answer slot on the servers: it has one call in flight at most, and its `number` only grows."""

    __slots__ = ("number", "sent", "slot")

    def __init__(self, slot: str) -> None:
        self.slot = slot
        self.number = 0
        self.sent = False  # whether the server may have seen the call in flight


class _NoBell(Exception):
    """The bell can't be waited on although the call ran: what it may have claimed is to be given back."""

    def __init__(self, refusal: RedisqError) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class Callers:
    """The free callers of one client. A forked child is another client: its slots must differ from its parent's."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Become another client, with no caller yet."""
        self._client = secrets.token_urlsafe(9)
        self._indexes = itertools.count()
        self._free: deque[Caller] = deque()

    def take(self) -> Caller:
        """A caller that nobody else has, with a new number."""
        try:
            caller = self._free.pop()
        except IndexError:
            caller = Caller(f"{self._client}.{next(self._indexes)}")
        caller.number += 1
        caller.sent = False
        return caller

    def release(self, caller: Caller) -> None:
        self._free.append(caller)

    def release_returned(self, caller: Caller) -> None:
        """After a give-back, which used up the next number."""
        caller.number += 2
        self._free.append(caller)


class _Sender:
    """What both worlds share: identity, and the ways from a call to a command and from a reply to a result."""

    def __init__(self, target: Target, clock: Clock | None, retry_for: float) -> None:
        self.url = target.url
        self._target = target
        self._clock = clock
        self._retry_for = retry_for
        self._callers = Callers()
        _senders.add(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({redacted(self.url)!r})"

    def _after_fork(self) -> None:
        self._callers.renew()

    def _command(self, call: Call[Any], caller: Caller | None) -> Command:
        script = call.script
        sha = script.plain_sha if self._target.fake else script.sha
        now = "" if self._clock is None else str(self._clock.now_ms)
        if caller is None:
            return ("EVALSHA", sha, "1", call.key, now, "", "", *call.args)
        return ("EVALSHA", sha, "1", call.key, now, caller.slot, caller.number, *call.args)

    def _undoing(self, undo: Call[Any], caller: Caller, retry_for: float) -> Steps:
        return self._steps(undo, (self._command(undo, caller),), None, retry_for)

    def _steps(self, call: Call[Any], packet: tuple[Command, ...], outcome: Outcome | None, retry_for: float) -> Steps:
        source = call.script.plain_source if self._target.fake else call.script.source
        request = Request(call.operation, packet, call, ("SCRIPT", "LOAD", source))
        return conduct(request, outcome, retry_for, writes=call.kind is not Kind.READ)


class SyncSender(_Sender):
    """Runs calls from any thread."""

    def __init__(self, target: Target, clock: Clock | None, retry_for: float) -> None:
        super().__init__(target, clock, retry_for)
        self._wire = Wire(target)

    def run(self, call: Call[T]) -> T:
        """The result of `call`, repeated through failures for at most `retry_for` seconds."""
        return self._perform(call, None)

    def run_wait(self, wait: Wait) -> Any:
        """The result of `wait.call`, run when its bell rang or its time was up. After a failure it runs at once."""
        return self._perform(wait.call, wait if wait.seconds > 0 else None)

    def run_commands(self, commands: Sequence[Command]) -> list[Any]:
        """The replies of plain commands sent in one packet; an error among them is raised. Repeated as reads are."""
        request = Request(str(commands[0][0]), tuple(commands))
        return self._drive(conduct(request, None, self._retry_for, writes=False), None, self._wire)

    def close(self) -> None:
        """Close the connections, and end the embedded server."""
        self._wire.close()
        if self._target.owned is not None:
            self._target.owned.stop()

    def _perform(self, call: Call[T], wait: Wait | None) -> T:
        caller = None if call.kind is Kind.READ else self._callers.take()
        try:
            return _decoded(call, self._answer(call, caller, wait))
        except NoQueue as error:
            return _absent(call, error)
        except RedisqError:
            raise
        except BaseException as error:
            if caller is not None and caller.sent and call.undo is not None:
                returned, caller = caller, None  # it is free when that is done, and not before
                self._give_back(call, call.undo, returned)
            if isinstance(error, _NoBell):
                raise error.refusal from error.refusal.__cause__
            raise
        finally:
            if caller is not None:
                self._callers.release(caller)

    def _answer(self, call: Call[Any], caller: Caller | None, wait: Wait | None) -> Any:
        packet = _packet(call, self._command(call, caller))
        outcome: Outcome
        try:
            connection = self._wire.checkout()
            if caller is not None:
                caller.sent = True
            if wait is None:
                outcome = self._wire.talk(connection, packet)
            else:
                behind_bell = (_bell_command(wait), *packet)
                bell, *outcome = self._wire.talk(connection, behind_bell, wait.seconds, wait.nudge)
                if _is_broken(bell, outcome):
                    if not is_passing(bell):
                        raise _NoBell(refusal(Request(call.operation, behind_bell[:1]), bell))
                    outcome = [bell]
        except Lost as lost:
            outcome = lost
        else:
            if call.copies is None and not isinstance(outcome[0], Exception):
                return outcome[0]
        return self._drive(self._steps(call, packet, outcome, self._retry_for), caller, self._wire)[-len(packet)]

    def _drive(self, steps: Steps, caller: Caller | None, wire: Wire) -> list[Any]:
        outcome: Outcome | None = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as stop:
                return cast("list[Any]", stop.value)
            outcome = None
            if isinstance(step, Pause):
                wire.drop_idle()
                time.sleep(step.seconds)
                continue
            try:
                connection = wire.checkout()
                if caller is not None:
                    caller.sent = True
                outcome = wire.talk(connection, step.commands)
            except Lost as lost:
                outcome = lost

    def _give_back(self, call: Call[Any], undo: Call[Any], caller: Caller) -> None:
        """Return what a take may have claimed for a caller who is gone: now or, when the server is away, not at all."""
        wire = Wire(self._target.hurried(_GIVE_BACK_SECONDS), checked=True)
        try:
            self._drive(self._undoing(undo, caller, _GIVE_BACK_SECONDS), None, wire)
        except RedisqError as error:
            _log_kept(call, error)
        finally:
            wire.close()
            self._callers.release_returned(caller)

    def _after_fork(self) -> None:
        super()._after_fork()
        self._wire.after_fork()


class AsyncSender(_Sender):
    """The same for asyncio. It belongs to the event loop that first used it."""

    def __init__(self, target: Target, clock: Clock | None, retry_for: float) -> None:
        super().__init__(target, clock, retry_for)
        self._wire = AsyncWire(target)
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)
        self._returns: set[asyncio.Task[None]] = set()

    async def run(self, call: Call[T]) -> T:
        """As `SyncSender.run`."""
        async with self._turns:
            return await self._perform(call, None)

    async def run_wait(self, wait: Wait) -> Any:
        """As `SyncSender.run_wait`."""
        if wait.seconds > 0 and self._target.fake:
            await self._look_at(wait)
        elif wait.seconds > 0:
            return await self._perform(wait.call, wait)
        return await self.run(wait.call)

    async def run_commands(self, commands: Sequence[Command]) -> list[Any]:
        """As `SyncSender.run_commands`."""
        request = Request(str(commands[0][0]), tuple(commands))
        return await self._drive(conduct(request, None, self._retry_for, writes=False), None)

    async def aclose(self) -> None:
        """Finish what is being given back, close the connections, and end the embedded server."""
        if self._returns:
            await asyncio.wait(self._returns)
        await self._wire.aclose()
        if self._target.owned is not None:
            await asyncio.to_thread(self._target.owned.stop)

    async def _perform(self, call: Call[T], wait: Wait | None) -> T:
        caller = None if call.kind is Kind.READ else self._callers.take()
        try:
            return _decoded(call, await self._answer(call, caller, wait))
        except NoQueue as error:
            return _absent(call, error)
        except (RedisqError, GeneratorExit):
            raise
        except BaseException as error:
            if caller is not None and caller.sent and call.undo is not None:
                returned, caller = caller, None  # it is free when that is done, and not before
                await self._give_back(call, call.undo, returned)
            if isinstance(error, _NoBell):
                raise error.refusal from error.refusal.__cause__
            raise
        finally:
            if caller is not None:
                self._callers.release(caller)

    async def _answer(self, call: Call[Any], caller: Caller | None, wait: Wait | None) -> Any:
        packet = _packet(call, self._command(call, caller))
        outcome: Outcome
        try:
            connection = await self._wire.checkout()
            if caller is not None:
                caller.sent = True
            if wait is None:
                outcome = await self._wire.talk(connection, packet)
            else:
                behind_bell = (_bell_command(wait), *packet)
                bell, *outcome = await self._wire.talk(connection, behind_bell, wait.seconds, wait.nudge)
                if _is_broken(bell, outcome):
                    if not is_passing(bell):
                        raise _NoBell(refusal(Request(call.operation, behind_bell[:1]), bell))
                    outcome = [bell]
        except Lost as lost:
            outcome = lost
        else:
            if call.copies is None and not isinstance(outcome[0], Exception):
                return outcome[0]
        return (await self._drive(self._steps(call, packet, outcome, self._retry_for), caller))[-len(packet)]

    async def _drive(self, steps: Steps, caller: Caller | None) -> list[Any]:
        outcome: Outcome | None = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as stop:
                return cast("list[Any]", stop.value)
            outcome = None
            if isinstance(step, Pause):
                await self._wire.drop_idle()
                await asyncio.sleep(step.seconds)
                continue
            try:
                connection = await self._wire.checkout()
                if caller is not None:
                    caller.sent = True
                outcome = await self._wire.talk(connection, step.commands)
            except Lost as lost:
                outcome = lost

    async def _give_back(self, call: Call[Any], undo: Call[Any], caller: Caller) -> None:
        """Return what a take may have claimed for a caller who is gone. Waits for it a moment; it goes on by itself."""
        task = asyncio.get_running_loop().create_task(self._return(call, undo, caller))
        self._returns.add(task)
        task.add_done_callback(self._returns.discard)
        await asyncio.wait({task}, timeout=_GIVE_BACK_SECONDS)

    async def _return(self, call: Call[Any], undo: Call[Any], caller: Caller) -> None:
        try:
            await self._drive(self._undoing(undo, caller, self._retry_for), None)
        except RedisqError as error:
            _log_kept(call, error)
        finally:
            self._callers.release_returned(caller)

    async def _look_at(self, wait: Wait) -> None:
        """Wait for a bell of fakeredis: a BLPOP there outlives its caller's cancellation and would steal a ring."""
        until = time.monotonic() + wait.seconds
        while not (await self.run_commands((("LPOP", wait.bell),)))[0]:
            left = until - time.monotonic()
            if left <= 0:
                return
            await asyncio.sleep(min(_LOOK, left))

    def _after_fork(self) -> None:
        super()._after_fork()
        self._wire.after_fork()
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)
        self._returns.clear()


def _decoded(call: Call[T], reply: Any) -> T:
    try:
        return call.decode(reply)
    except RedisqError:
        raise
    except _WRONG_SHAPE as error:
        raise CorruptRecord(f"{call.operation}: the reply has the wrong shape: {error!r}") from error


def _absent(call: Call[T], error: NoQueue) -> T:
    """What a call says of a queue that does not exist; without such an answer the engine has to create it."""
    if call.missing is None:
        raise error
    return call.missing()


def _packet(call: Call[Any], command: Command) -> tuple[Command, ...]:
    return (command,) if call.copies is None else (command, *call.copies.commands)


def _bell_command(wait: Wait) -> Command:
    # BLPOP takes 0 as for ever
    return ("BLPOP", wait.bell, f"{max(wait.seconds, 0.001):.3f}")


def _is_broken(bell: Any, outcome: list[Any]) -> bool:
    """Whether the bell cannot be waited on although the call ran: the wait would become a spin."""
    return isinstance(bell, Exception) and first_word(bell) != "UNBLOCKED" and not isinstance(outcome[0], Exception)


def _log_kept(call: Call[Any], error: RedisqError) -> None:
    log.warning("an interrupted %s was not handed back, its leases have to run out: %s", call.operation, error)


_senders: weakref.WeakSet[_Sender] = weakref.WeakSet()


def _after_fork() -> None:
    for sender in list(_senders):
        sender._after_fork()


os.register_at_fork(after_in_child=_after_fork)
