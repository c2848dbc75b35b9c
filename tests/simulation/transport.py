"""A client's transport that loses replies when told to, and tells the ledger each answer as it is given."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

from redisq import Engine, IndeterminateWrite, Maintenance, ids
from redisq.calls import Call, Kind, Wait
from redisq.calls.broadcast import Emitted
from redisq.calls.consume import Taken
from redisq.errors import RedisqError
from redisq.testing import ManualClock
from redisq.transport import SyncSender, target
from tests.simulation.facts import Sabotage

T = TypeVar("T")
Told = Callable[[Any], None]

LOST, REPEATED, LATE, INTERRUPTED = "lost", "repeated", "late", "interrupted"
FAULTS = (LOST, REPEATED, LATE, INTERRUPTED)


class Interrupted(BaseException):
    """The caller was interrupted between its request and the reply."""


class LossySender(SyncSender):
    """Runs calls on a server. With `fault` set, the reply of the next write or take never reaches its caller.

    lost: the caller gives up. repeated: it sends the request again, under the same identity, and `compare` gets both
    answers. late: the same, after what `meanwhile` does. interrupted: the caller is gone, and its client hands back
    what a take may have claimed.
    """

    fault: str | None = None
    told: Told | None = None
    compare: Callable[[Any, Any], None] | None = None
    meanwhile: Callable[[], None] | None = None
    sabotage: Sabotage | None = None

    def _answer(self, call: Call[T], caller: Any, wait: Wait | None) -> Any:
        fault = None if call.kind is Kind.READ else self.fault
        if fault is None:
            return self._once(call, caller, wait)
        self.fault = None
        reply = self._once(call, caller, wait)
        if fault == LOST:
            raise IndeterminateWrite("the reply was lost", operation=call.operation, ids=call.ids)
        if fault == INTERRUPTED:
            raise Interrupted
        if fault == LATE and self.meanwhile is not None:
            told, compare = self.told, self.compare
            self.meanwhile()
            self.told, self.compare = told, compare
        if call.operation == "renew" or _did_nothing(_heard(call, reply)):
            return self._once(call, caller, wait)  # there is nothing to remember: the repeat is a call of its own
        again = self._reply(call, caller, wait)
        if call.operation == "maintain" and self.told is not None and again != reply:
            self.told(_heard(call, again))  # a second sweep does no harm
        elif self.compare is not None:
            self.compare(_heard(call, reply), _heard(call, again))
        return again

    def _once(self, call: Call[T], caller: Any, wait: Wait | None) -> Any:
        reply = self._reply(call, caller, wait)
        if self.told is not None and call.kind is not Kind.READ:
            self.told(_heard(call, reply))
        return reply

    def _reply(self, call: Call[T], caller: Any, wait: Wait | None) -> Any:
        reply = super()._answer(call, caller, wait)
        return reply if self.sabotage is None else self.sabotage(call, reply)


def _heard(call: Call[Any], reply: Any) -> Any:
    try:
        return call.decode(reply)
    except RedisqError as refusal:
        return refusal


def _did_nothing(answer: Any) -> bool:
    if isinstance(answer, Emitted):
        return bool(answer.unswept)
    if isinstance(answer, Maintenance):
        return answer.processed == 0
    if answer is False:
        return True
    answers, taken = answer if type(answer) is tuple else ([], answer)
    return isinstance(taken, Taken) and not answers and not taken.deliveries


@contextmanager
def reproducible(seed: int, clock: ManualClock) -> Iterator[None]:
    """Ids and nonces that are the same in every run of a seed: some orders depend on them."""
    source = random.Random(seed)
    stands_for_os, stands_for_time = (
        SimpleNamespace(urandom=source.randbytes), SimpleNamespace(time_ns=lambda: clock.now_ms * 1_000_000),
    )  # fmt: skip
    with mock.patch.object(ids, "os", stands_for_os), mock.patch.object(ids, "time", stands_for_time):
        yield


def lossy(url: str | None, *, clock: Any = None, retry_for: float = 10.0) -> LossySender:
    return LossySender(target.from_url(url, target.SYNC), clock, retry_for)


class SimulatedEngine(Engine):
    _connect = staticmethod(lossy)
    _sender: LossySender


def connect(url: str, namespace: str, clock: ManualClock, worker: str, sabotage: Sabotage | None) -> SimulatedEngine:
    engine = SimulatedEngine(url, namespace=namespace, clock=clock, worker=worker, retry_for=1)
    engine._sender.sabotage = sabotage
    return engine
