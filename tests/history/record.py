"""The history of a run: every call of every client as an interval, one JSON line before it and one after.

    history = History(folder, "p0")
    with history.call(Call("p0.1", "ack", "jobs", settles=[Settle("ack", key, token)])) as call:
        call.settled = [answer_of(queue.ack(delivery))]

Times are nanoseconds of this machine's CLOCK_MONOTONIC, which all its processes share. Lines are written with one
system call each, so a process that is killed leaves its calls as intervals without an end: they may have been applied.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from redisq import Ack, Failure, RedisqError, Renewal


class Line(msgspec.Struct, omit_defaults=True, tag_field="is"):
    """Base of what a file holds."""


class Put(msgspec.Struct, array_like=True, frozen=True):
    """A job or event put in. `key` is its payload, and unique: it says what is what, whatever ids there are.

    most: attempts that it has, 0 for no bound. brief: its record goes when it has finished. delay_ms: not before.
    safe: once it is answered, all replicas have it.
    """

    key: str
    most: int = 0
    brief: bool = False
    delay_ms: int = 0
    safe: bool = False


class Settle(msgspec.Struct, array_like=True, frozen=True):
    """One settlement, or a renewal: ack, fail, release, renew. ms: the delay of a release, the lease of a renewal."""

    verb: str
    key: str
    token: str
    ms: int = 0
    final: bool = False


class Answer(msgspec.Struct, array_like=True, frozen=True):
    """What one settlement was answered. ms: when it is due again, or when the lease now ends."""

    word: str
    ms: int | None = None


class Claim(msgspec.Struct, array_like=True, frozen=True):
    """One delivery."""

    key: str
    token: str
    fence: int
    attempt: int
    expires_ms: int


class Call(Line, tag="call"):
    """The start of a call. sub: the subscription. limit: how many it may take; lease_ms: under which lease."""

    client: str
    verb: str
    queue: str
    sub: str = ""
    puts: list[Put] = []
    settles: list[Settle] = []
    limit: int = 0
    lease_ms: int = 0
    n: int = 0
    at: int = 0


class Reply(Line, tag="reply"):
    """The end of a call: an answer per part, or the name of the error."""

    n: int
    at: int = 0
    added: list[str] = []
    """Per put: `new`, or `duplicate`."""
    settled: list[Answer] = []
    claimed: list[Claim] = []
    error: str = ""


class Fault(Line, tag="fault"):
    """Something that undid the last writes, and was over at `end`.

    What had ended by `kept` is still there, what began after `undone` and before `start` is not.
    """

    name: str
    kept: int
    undone: int
    start: int
    end: int


class Setup(Line, tag="setup"):
    """What a judge has to know of a run. Server time in ns is CLOCK_MONOTONIC + `offset`, give or take `error` ns.

    subs: the subscriptions of each event queue. brief: the event queues whose events go once they are settled.
    backoff_ms: what follows a lapse, per queue.
    """

    offset: int
    error: int
    subs: dict[str, list[str]]
    brief: list[str]
    backoff_ms: dict[str, int]


class Found(Line, tag="found"):
    """The end of a run, read from the server at rest: the state of one job, or of what a subscription owes."""

    queue: str
    sub: str
    key: str
    state: str


Record = Call | Reply | Fault | Setup | Found


class History:
    """The file of one process. Safe to use from its threads."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = os.open(folder / f"{name}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._numbers = itertools.count(1)
        self._encode = msgspec.json.Encoder().encode

    def close(self) -> None:
        os.close(self._file)

    def write(self, *lines: Line) -> None:
        os.write(self._file, b"".join(self._encode(line) + b"\n" for line in lines))

    @contextmanager
    def call(self, call: Call) -> Iterator[Reply]:
        """Records `call` before the block and its reply after it; the block fills in the answers.

        An error of the engine is recorded and ends there; the caller finds its name in `error`.
        """
        call.n = next(self._numbers)
        reply = Reply(call.n)
        call.at = time.monotonic_ns()
        self.write(call)
        try:
            yield reply
        except RedisqError as error:
            reply.error = type(error).__name__
        reply.at = time.monotonic_ns()
        self.write(reply)


def read(folder: Path) -> Iterator[tuple[str, Record]]:
    """Every line of a run's files, with the name of its file. A line that a kill cut short is left out."""
    decode = msgspec.json.Decoder(Record).decode
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield path.stem, decode(line)


def answer_of(answer: Any) -> Answer:
    """What a settling verb returned, in the words of the history."""
    if isinstance(answer, Ack):
        return Answer(str(answer))
    if isinstance(answer, Failure):
        return Answer(str(answer.state), answer.due_ms)
    if isinstance(answer, Renewal):
        return Answer("renewed", answer.expires_ms)
    return Answer("released")


def claims_of(deliveries: Sequence[Any]) -> list[Claim]:
    return [Claim(each.value, each.token, each.fence, each.attempt, each.expires_ms) for each in deliveries]
