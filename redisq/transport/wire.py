"""Connections, and commands on them: one packet out, all replies in. Nothing is repeated here.

The sockets, logins, TLS and the parser are redis-py's; its pools, its retries and its `execute_command` are not used.
A connection that failed, timed out or was interrupted is closed and never used again: what else could arrive on it
would be read as the answer of a later call.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import hiredis
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError as LostConnection,
    RedisError,
    ResponseError,
)

from redisq.calls import Argument
from redisq.errors import InvalidInput
from redisq.transport import check
from redisq.transport.sentinel import Place, Sentinels
from redisq.transport.target import Target

Command: TypeAlias = tuple[Argument, ...]

# seconds past a block's end at which an idle server is nudged: once, and again if its clock started later than ours
_NUDGES = (0.001, 0.004, 0.016)
_FRESH = 0.1  # seconds for which an idle connection is taken to be alive
_LOOK_SECONDS = 1.0  # between two questions to Sentinel whether the master is still the same
_LOOK_SHARE = 0.05  # of the time, at most, goes into those questions
_TRANSPORT = (RedisError, OSError)
# replies that redis-py takes for a failure of the connection, which it has closed by then
_CLOSING_REPLIES = (BusyLoadingError, AuthenticationError)
# hiredis declares a tuple of one item, and takes any
_pack = cast("Callable[[Command], bytes]", hiredis.pack_command)
_PING: tuple[Command, ...] = (("PING",),)


class Lost(Exception):
    """An exchange broke off. `sent`: the server may have run the commands. `cause`: what redis-py or the system said.

    Internal: users see `Unavailable` or `IndeterminateWrite`.
    """

    def __init__(self, cause: Exception, *, sent: bool) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.sent = sent


def pack(commands: Sequence[Command]) -> bytes:
    """All commands as one packet."""
    return b"".join([_pack(command) for command in commands])


class _Course:
    """Which master Sentinel named last, and when to ask again; without Sentinel there is no course. Pure."""

    def __init__(self) -> None:
        self.master: Place = ("", 0)
        self.ask_at = math.inf

    def begin(self) -> float:
        """The time now. Others need not ask meanwhile."""
        now = time.monotonic()
        self.ask_at = now + _LOOK_SECONDS
        return now

    def turn(self, began: float, master: Place) -> bool:
        """Note the answer to a question asked at `began`: whether it is another master than before."""
        now = time.monotonic()
        self.ask_at = now + max(_LOOK_SECONDS, (now - began) / _LOOK_SHARE)
        before, self.master = self.master, master
        return before != master

    def leads_to(self, connection: Any) -> bool:
        """Whether a connection may be used again; one to an earlier master may not."""
        return self.ask_at == math.inf or (connection.host, connection.port) == self.master


class Wire:
    """Blocking connections to one target, most recently used first. Thread-safe, and usable after a fork."""

    def __init__(self, target: Target, *, checked: bool = False) -> None:
        self._target = target
        self._checked = checked or target.fake
        self._idle: deque[tuple[Any, float]] = deque()
        self._open: set[Any] = set()
        self._course = _Course()
        self._closed = False

    def checkout(self) -> Any:
        """A connection that is ready to send. Lost (nothing sent) when there is none to be had."""
        sentinels = self._target.sentinels
        if sentinels is not None and time.monotonic() >= self._course.ask_at:
            self._look(sentinels)
        while True:
            try:
                connection, used = self._idle.pop()
            except IndexError:
                return self._connect()
            if time.monotonic() - used < _FRESH or not _ended(connection):
                return connection
            self._discard(connection)

    def talk(self, connection: Any, commands: Sequence[Command], block: float = 0.0, nudge: bool = False) -> list[Any]:
        """Send `commands` in one packet and read every reply; an error reply is a value. Gives the connection back.

        The server may block for `block` seconds before its first reply. With `nudge` it is woken then by other traffic.
        Lost when the connection failed: the commands may or may not have run.
        """
        usable = True
        replies: list[Any] = []
        read = connection.read_response
        try:
            connection.send_packed_command([pack(commands)], False)
            if block:
                self._await_reply(connection, block, nudge)
            for _ in commands:
                try:
                    replies.append(read(disable_decoding=True))
                except ResponseError as error:
                    replies.append(error)
                except _CLOSING_REPLIES as error:
                    if len(replies) + 1 < len(commands):
                        raise
                    replies.append(error)
                    usable = False
        except BaseException as error:
            self._discard(connection)
            if isinstance(error, _TRANSPORT):
                raise Lost(error, sent=not isinstance(error, AuthenticationError)) from error
            raise
        if usable and not self._closed and self._course.leads_to(connection):
            self._idle.append((connection, time.monotonic()))
        else:
            self._discard(connection)
        return replies

    def _await_reply(self, connection: Any, block: float, nudge: bool) -> None:
        deadline = time.monotonic() + block
        for late in _NUDGES if nudge else ():
            if connection.can_read(max(deadline + late - time.monotonic(), 0)):
                return
            # a server without traffic ends a block late; a lost nudge costs no more than that
            try:
                self.talk(self.checkout(), _PING)
            except Lost:
                break
        if not connection.can_read(max(deadline + self._target.timeout - time.monotonic(), 0)):
            raise TimeoutError(f"no reply {self._target.timeout:g} s after the end of a blocking command")

    def _connect(self) -> Any:
        if self._closed:
            raise InvalidInput("this engine is closed")
        connection = self._target.make()
        sentinels = self._target.sentinels
        try:
            if sentinels is not None:
                began = self._course.begin()
                connection.host, connection.port = sentinels.locate()
            connection.connect()
            self._open.add(connection)
            if sentinels is not None:
                if check.is_replica(self._ask(connection, check.ROLE)):
                    sentinels.distrust()
                    raise LostConnection(f"{connection.host}:{connection.port}, named by Sentinel, is no master")
                self._turn(began, (connection.host, connection.port))
            if not self._checked:
                self._check(connection)
        except BaseException as error:
            self._discard(connection)
            if isinstance(error, _TRANSPORT):
                raise Lost(error, sent=False) from error
            raise
        return connection

    def _check(self, connection: Any) -> None:
        check.judge([self._ask(connection, question) for question in check.QUESTIONS])
        self._checked = True

    def _ask(self, connection: Any, question: Command) -> Any:
        connection.send_packed_command([pack((question,))], False)
        try:
            return connection.read_response(disable_decoding=True)
        except ResponseError as error:
            return error

    def _look(self, sentinels: Sentinels) -> None:
        """See whether the master has changed: one that steps down takes writes for seconds more, and loses them."""
        began = self._course.begin()
        master = self._course.master
        with contextlib.suppress(*_TRANSPORT):  # as long as the master answers, the Sentinels need not
            master = sentinels.locate()
        self._turn(began, master)

    def _turn(self, began: float, master: Place) -> None:
        if self._course.turn(began, master):
            self.drop_idle()

    def _discard(self, connection: Any) -> None:
        self._open.discard(connection)
        connection.disconnect()

    def drop_idle(self) -> None:
        """Close what is idle: after a failure the next try shall find the way, and the master, anew."""
        with contextlib.suppress(IndexError):
            while True:
                self._discard(self._idle.pop()[0])

    def close(self) -> None:
        """Close what is idle now, and what is in use when its call ends."""
        self._closed = True
        self.drop_idle()

    def after_fork(self) -> None:
        """In the child: let go of the parent's sockets, those in use by its other threads too."""
        self._idle.clear()
        for connection in self._open:
            connection.disconnect()
        self._open = set()


def _ended(connection: Any) -> bool:
    """Whether an idle connection was closed by the server, or holds something that nobody asked for."""
    try:
        return bool(connection.can_read(0))
    except _TRANSPORT:
        return True


class AsyncWire:
    """The same for asyncio. Its connections belong to the event loop that first used it."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._checked = target.fake
        self._idle: deque[Any] = deque()
        self._open: set[Any] = set()
        self._course = _Course()
        self._nudges: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def checkout(self) -> Any:
        """As `Wire.checkout`."""
        if asyncio.get_running_loop() is not self._loop:
            self._bind()
        sentinels = self._target.sentinels
        if sentinels is not None and time.monotonic() >= self._course.ask_at:
            await self._look(sentinels)
        while self._idle:
            connection = self._idle.pop()
            if not connection._reader.at_eof():
                return connection
            await self._discard(connection)
        return await self._connect()

    async def talk(
        self, connection: Any, commands: Sequence[Command], block: float = 0.0, nudge: bool = False
    ) -> list[Any]:
        """As `Wire.talk`; a cancelled call closes the connection."""
        usable = True
        replies: list[Any] = []
        read = connection.read_response
        loop = asyncio.get_running_loop()
        wakers = [loop.call_later(block + late, self._nudge) for late in _NUDGES] if nudge else []
        try:
            async with asyncio.timeout(block + self._target.timeout):
                await connection.send_packed_command([pack(commands)], False)
                for _ in commands:
                    try:
                        replies.append(await read(disable_decoding=True))
                    except ResponseError as error:
                        replies.append(error)
                    except _CLOSING_REPLIES as error:
                        if len(replies) + 1 < len(commands):
                            raise
                        replies.append(error)
                        usable = False
        except BaseException as error:
            await self._discard(connection)
            if isinstance(error, _TRANSPORT):
                raise Lost(self._named(error), sent=not isinstance(error, AuthenticationError)) from error
            raise
        finally:
            for waker in wakers:
                waker.cancel()
        if usable and not self._closed and self._course.leads_to(connection):
            self._idle.append(connection)
        else:
            await self._discard(connection)
        return replies

    def _nudge(self) -> None:
        task = asyncio.get_running_loop().create_task(self._ping())
        self._nudges.add(task)
        task.add_done_callback(self._nudges.discard)

    async def _ping(self) -> None:
        with contextlib.suppress(Lost):
            await self.talk(await self.checkout(), _PING)

    def _bind(self) -> None:
        if self._loop is not None:
            raise InvalidInput("this engine belongs to another event loop: make one AsyncEngine in each loop")
        self._loop = asyncio.get_running_loop()

    def _named(self, error: Exception) -> Exception:
        """asyncio's own time-out has no text."""
        return error if str(error) else TimeoutError(f"no reply within {self._target.timeout:g} s")

    async def _connect(self) -> Any:
        if self._closed:
            raise InvalidInput("this engine is closed")
        connection = self._target.make()
        sentinels = self._target.sentinels
        try:
            if sentinels is not None:
                began = self._course.begin()
                connection.host, connection.port = await sentinels.alocate()
            async with asyncio.timeout(self._target.timeout):
                await connection.connect()
                self._open.add(connection)
                if sentinels is not None:
                    if check.is_replica(await self._ask(connection, check.ROLE)):
                        sentinels.distrust()
                        raise LostConnection(f"{connection.host}:{connection.port}, named by Sentinel, is no master")
                    await self._turn(began, (connection.host, connection.port))
                if not self._checked:
                    await self._check(connection)
        except BaseException as error:
            await self._discard(connection)
            if isinstance(error, _TRANSPORT):
                raise Lost(self._named(error), sent=False) from error
            raise
        return connection

    async def _check(self, connection: Any) -> None:
        check.judge([await self._ask(connection, question) for question in check.QUESTIONS])
        self._checked = True

    async def _ask(self, connection: Any, question: Command) -> Any:
        await connection.send_packed_command([pack((question,))], False)
        try:
            return await connection.read_response(disable_decoding=True)
        except ResponseError as error:
            return error

    async def _look(self, sentinels: Sentinels) -> None:
        """As `Wire._look`."""
        began = self._course.begin()
        master = self._course.master
        with contextlib.suppress(*_TRANSPORT):
            master = await sentinels.alocate()
        await self._turn(began, master)

    async def _turn(self, began: float, master: Place) -> None:
        if self._course.turn(began, master):
            await self.drop_idle()

    async def _discard(self, connection: Any) -> None:
        self._open.discard(connection)
        await connection.disconnect(nowait=True)

    async def drop_idle(self) -> None:
        """As `Wire.drop_idle`."""
        while self._idle:
            await self._discard(self._idle.pop())

    async def aclose(self) -> None:
        """As `Wire.close`."""
        self._closed = True
        for nudge in list(self._nudges):
            nudge.cancel()
        while self._idle:
            connection = self._idle.pop()
            self._open.discard(connection)
            await connection.disconnect()

    def after_fork(self) -> None:
        """In the child: let go of the parent's sockets, without a word to the parent's event loop."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        for connection in self._open:
            writer = connection._writer
            sock = writer.get_extra_info("socket") if writer is not None else None
            if sock is not None and sock.fileno() >= 0:
                # closing would end in the loop's selector, which the parent shares
                os.dup2(nowhere, sock.fileno())
        os.close(nowhere)
        self._idle.clear()
        self._open = set()
        self._nudges.clear()
        self._loop = None
