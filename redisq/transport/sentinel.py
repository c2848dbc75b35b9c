"""Asks the Sentinels of a service where its master is: one after the other, each time over a connection of its own.

Nothing stays open between two questions, so there is nothing to be closed, or carried into a fork.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from redis.exceptions import AuthenticationError, ConnectionError as LostConnection, NoPermissionError, RedisError

if TYPE_CHECKING:
    from redisq.transport.target import Target

PATIENCE = 1.0
"""Seconds for a Sentinel to answer, when the settings name no time."""

_QUESTIONS = ("MASTER", "GET-MASTER-ADDR-BY-NAME")

Place = tuple[str, int]


class Sentinels:
    """The Sentinels of one service, the one that answered last first.

    `fewest` other Sentinels have to be known to one that is believed. `host`, if given, is the master's in place of the
    one that they name.
    """

    def __init__(self, service: str, targets: Sequence[Target], *, fewest: int = 0, host: str | None = None) -> None:
        self.service = service
        self._targets = tuple(targets)
        self._fewest = fewest
        self._host = host

    def locate(self) -> Place:
        """The master's host and port; an error of redis-py's that tells what each Sentinel said."""
        survey = _Survey(self.service)
        for target in self._targets:
            connection = target.make()
            try:
                connection.connect()
                answers = []
                for question in _QUESTIONS:
                    connection.send_command("SENTINEL", question, self.service)
                    answers.append(connection.read_response(disable_decoding=True))
                found = self._place(*answers)
            except (RedisError, OSError) as error:
                survey.fail(target, error)
            else:
                self._prefer(target)
                return found
            finally:
                connection.disconnect()
        raise survey.verdict()

    async def alocate(self) -> Place:
        """As `locate`, for asyncio."""
        survey = _Survey(self.service)
        for target in self._targets:
            connection = target.make()
            try:
                async with asyncio.timeout(target.timeout):
                    await connection.connect()
                    answers = []
                    for question in _QUESTIONS:
                        await connection.send_command("SENTINEL", question, self.service)
                        answers.append(await connection.read_response(disable_decoding=True))
                    found = self._place(*answers)
            except (RedisError, OSError) as error:
                survey.fail(target, error)
            else:
                self._prefer(target)
                return found
            finally:
                await connection.disconnect(nowait=True)
        raise survey.verdict()

    def distrust(self) -> None:
        """Ask the preferred one last from now on: it named a server that is no master."""
        self._targets = (*self._targets[1:], *self._targets[:1])

    def _prefer(self, target: Target) -> None:
        self._targets = (target, *(other for other in self._targets if other is not target))

    def _place(self, state: list[bytes], address: list[bytes]) -> Place:
        """Where the master is, from the answers to both questions; LostConnection when that cannot be relied on."""
        words = [word.decode() for word in state]
        known = dict(zip(words[::2], words[1::2], strict=True))
        host, port = (word.decode() for word in address)
        # in a failover the address is the next master's already, while the state is still the old one's
        if (host, port) == (known["ip"], known["port"]) and {"s_down", "o_down"} & set(known["flags"].split(",")):
            raise LostConnection(f"its master {host}:{port} is down")
        if int(known["num-other-sentinels"]) < self._fewest:
            raise LostConnection(f"it knows fewer than {self._fewest} other Sentinels")
        return self._host or host, int(port)


class _Survey:
    """One round of questions: what went wrong, and what that amounts to."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._failures: list[str] = []
        self._refusals = 0

    def fail(self, target: Target, error: Exception) -> None:
        text = str(error) or f"no answer within {target.timeout:g} s"
        self._failures.append(f"{target.options['host']}:{target.options['port']}: {text}")
        self._refusals += isinstance(error, AuthenticationError | NoPermissionError)

    def verdict(self) -> Exception:
        """A refused login is final when no Sentinel had more to say; anything else may pass."""
        told = "; ".join(self._failures)
        if self._refusals == len(self._failures):
            return AuthenticationError(f"Sentinel refused the login (sentinel_username, sentinel_password): {told}")
        return LostConnection(f"no Sentinel names a master for {self._service!r}: {told}")
