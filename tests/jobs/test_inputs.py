"""Every numeric argument of every public call with what it must not be: InvalidInput naming it, nothing sent.

The engine's server does not exist, so `InvalidInput` and not `Unavailable` proves that no command was tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from redisq import (
    Backoff,
    Delivery,
    Done,
    Engine,
    Failed,
    InvalidInput,
    Keep,
    NewJob,
    Queue,
    QueuePolicy,
    Released,
    Unavailable,
)
from tests.support.fronts import OpenEngine

NOWHERE = "redis://127.0.0.1:1/0"
END_OF_TIME = datetime.max.replace(tzinfo=UTC)
BAD: list[Any] = [math.nan, math.inf, -math.inf, -1, -0.5, True, False, "5", b"5", 2**63, 10**400, 1e300, [5], object()]
BAD_DURATION = [*BAD, timedelta(seconds=-1), timedelta.max, timedelta.min]
BAD_INTEGER = [*BAD, 5.0, 0.5, timedelta(seconds=5)]
DELIVERY = Delivery(
    id="x", name="", value=None, attempt=1, max_attempts=1, priority=0, token="1-abcdefghijk", fence=1, expires_ms=1,
    created_ms=1, timeout_ms=None, metadata={}, queue="jobs",
)  # fmt: skip


class Case(NamedTuple):
    """One argument: its name, a call that passes it on, and what it refuses."""

    name: str
    call: Callable[[Any, Any], Any]
    bad: list[Any]


def duration(name: str, call: Callable[[Any, Any], Any], *more: Any) -> Case:
    return Case(name, call, [*BAD_DURATION, *more])


def whole(name: str, call: Callable[[Any, Any], Any], *more: Any, negative: bool = False) -> Case:
    return Case(name, call, [each for each in [*BAD_INTEGER, *more] if not (negative and each == -1)])


CASES = {
    "offer delay": duration("delay", lambda q, bad: q.offer(1, delay=bad)),
    "offer at": Case("at", lambda q, bad: q.offer(1, at=bad), [*BAD, datetime(2030, 1, 1), END_OF_TIME]),
    "offer priority": whole("priority", lambda q, bad: q.offer(1, priority=bad), None, 1001, -1001, negative=True),
    "offer max_attempts": whole("max_attempts", lambda q, bad: q.offer(1, max_attempts=bad), 0, 1_000_001),
    "offer timeout": duration("timeout", lambda q, bad: q.offer(1, timeout=bad), 0),
    "offer replicas": whole("replicas", lambda q, bad: q.offer(1, replicas=bad), None),
    "offer_many delay": duration("delay", lambda q, bad: q.offer_many([1, NewJob(1, delay=bad)])),
    "offer_many at": Case("at", lambda q, bad: q.offer_many([1, NewJob(1, at=bad)]), [*BAD, datetime(2030, 1, 1)]),
    "offer_many priority": whole(
        "priority", lambda q, bad: q.offer_many([1, NewJob(1, priority=bad)]), None, 1001, -1001, negative=True
    ),
    "offer_many max_attempts": whole("max_attempts", lambda q, bad: q.offer_many([NewJob(1, max_attempts=bad)]), 0),
    "offer_many timeout": duration("timeout", lambda q, bad: q.offer_many([NewJob(1, timeout=bad)]), 0),
    "offer_many replicas": whole("replicas", lambda q, bad: q.offer_many([1], replicas=bad), None),
    "take lease": duration("lease", lambda q, bad: q.take(lease=bad), 0),
    "take wait": duration("wait", lambda q, bad: q.take(wait=bad)),
    "take_many limit": whole("limit", lambda q, bad: q.take_many(bad), None, 0, 1001),
    "take_many lease": duration("lease", lambda q, bad: q.take_many(5, lease=bad), 0),
    "take_many wait": duration("wait", lambda q, bad: q.take_many(5, wait=bad)),
    "renew lease": duration("lease", lambda q, bad: q.renew(DELIVERY, bad), 0),
    "renew_many lease": duration("lease", lambda q, bad: q.renew_many([DELIVERY], bad), 0),
    "release delay": duration("delay", lambda q, bad: q.release(DELIVERY, delay=bad), None),
    "fail retry_in": duration("retry_in", lambda q, bad: q.fail(DELIVERY, "x", retry_in=bad)),
    "exchange limit": whole("limit", lambda q, bad: q.exchange([DELIVERY], bad), None, 1001),
    "exchange lease": duration("lease", lambda q, bad: q.exchange([DELIVERY], 1, lease=bad), 0),
    "exchange wait": duration("wait", lambda q, bad: q.exchange([DELIVERY], 1, wait=bad)),
    "exchange Released": duration("delay", lambda q, bad: q.exchange([DELIVERY, Released(DELIVERY, bad)], 1), None),
    "exchange Failed": duration("retry_in", lambda q, bad: q.exchange([Failed(DELIVERY, "x", bad)], 1)),
    "process_one lease": duration("lease", lambda q, bad: q.process_one(print, lease=bad), 0),
    "process_one renew_every": duration("renew_every", lambda q, bad: q.process_one(print, renew_every=bad), 0),
    "process_one wait": duration("wait", lambda q, bad: q.process_one(print, wait=bad)),
    "jobs limit": whole("limit", lambda q, bad: q.jobs(limit=bad), None, 0, 1001),
    "maintain limit": whole("limit", lambda q, bad: q.maintain(bad), None, 0, 1001),
    "wait_result timeout": duration("timeout", lambda q, bad: q.wait_result("x", bad)),
}  # fmt: skip

GOOD: dict[str, Callable[[Any], Any]] = {
    "offer": lambda q: q.offer(1, delay=0, priority=-1000, max_attempts=1_000_000, timeout=0.001, replicas=0),
    "offer at": lambda q: q.offer(1, at=datetime(1900, 1, 1, tzinfo=UTC)),
    "offer_many": lambda q: q.offer_many([NewJob(1, delay=timedelta(days=36_500))]),
    "take": lambda q: q.take(lease=0.0001, wait=0),
    "take for ever": lambda q: q.take(wait=None),
    "take_many": lambda q: q.take_many(1000, lease=timedelta(days=36_500)),
    "ack": lambda q: q.ack(DELIVERY),
    "ack_many": lambda q: q.ack_many([DELIVERY]),
    "renew": lambda q: q.renew(DELIVERY, None),
    "renew_many": lambda q: q.renew_many([DELIVERY], 5),
    "release": lambda q: q.release(DELIVERY, delay=0),
    "fail": lambda q: q.fail(DELIVERY, "x", retry_in=None),
    "quarantine": lambda q: q.quarantine(DELIVERY, "x"),
    "exchange": lambda q: q.exchange([Done(DELIVERY), Failed(DELIVERY, "x", 0), Released(DELIVERY, 0)], 0),
    "process_one": lambda q: q.process_one(print, lease=9, renew_every=8.999),
    "jobs": lambda q: q.jobs(limit=1),
    "maintain": lambda q: q.maintain(1000),
    "get": lambda q: q.get("x" * 256),
    "cancel": lambda q: q.cancel("é" * 128),
    "wait_result": lambda q: q.wait_result("x", 0),
}


@pytest.fixture
def nowhere(open_engine: OpenEngine) -> Queue[Any]:
    """A queue on a server that does not exist."""
    return open_engine(url=NOWHERE, retry_for=0).queue("jobs")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_bad_number_is_refused_by_name_and_nothing_is_sent(nowhere: Queue[Any], case: Case) -> None:
    for bad in case.bad:
        with pytest.raises(InvalidInput) as caught:
            case.call(nowhere, bad)
        assert case.name in str(caught.value), f"{bad!r}: {caught.value}"
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("call", GOOD.values(), ids=GOOD.keys())
def test_a_good_call_does_try_to_reach_the_server(nowhere: Queue[Any], call: Callable[[Any], Any]) -> None:
    """Without this, the test above would prove nothing."""
    with pytest.raises(Unavailable):
        call(nowhere)


TEXTS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "offer id": ("id", lambda q, bad: q.offer(1, id=bad)),
    "offer_many id": ("id", lambda q, bad: q.offer_many([1, NewJob(1, id=bad)])),
    "get": ("id", lambda q, bad: q.get(bad)),
    "cancel": ("id", lambda q, bad: q.cancel(bad)),
    "wait_result": ("id", lambda q, bad: q.wait_result(bad, 1)),
    "queue name": ("name", lambda q, bad: q.offer(1, name=bad)),
    "jobs name": ("name", lambda q, bad: q.jobs(name=bad)),
    "quarantine reason": ("reason", lambda q, bad: q.quarantine(DELIVERY, bad)),
}


@pytest.mark.parametrize(("name", "call"), TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("bad", [5, b"x", ["x"], 1.5, True])
def test_a_text_is_a_str(nowhere: Queue[Any], name: str, call: Callable[[Any, Any], Any], bad: Any) -> None:
    with pytest.raises(InvalidInput, match=name):
        call(nowhere, bad)


@pytest.mark.parametrize("name", ["id", "name"])
@pytest.mark.parametrize("bad", ["x" * 257, "é" * 129, "\ud800", "a\udfffb"])
def test_a_text_is_at_most_256_bytes_of_unicode(nowhere: Queue[Any], name: str, bad: str) -> None:
    options: dict[str, Any] = {name: bad}
    with pytest.raises(InvalidInput, match=name):
        nowhere.offer(1, **options)


@pytest.mark.parametrize("option", ["name", "namespace", "worker"])
@pytest.mark.parametrize("bad", ["", "x" * 257, "\ud800", 5, b"x", True])
def test_the_names_of_an_engine_are_texts(open_engine: OpenEngine, option: str, bad: Any) -> None:
    with pytest.raises(InvalidInput, match=option):
        if option == "name":
            open_engine().queue(bad)
        else:
            Engine(NOWHERE, **{option: bad})


@pytest.mark.parametrize("bad", BAD_DURATION)
def test_retry_for_is_a_duration(bad: Any) -> None:
    with pytest.raises(InvalidInput, match="retry_for"):
        Engine(NOWHERE, retry_for=bad)


PURE = {
    "max_attempts": whole("max_attempts", lambda _, bad: QueuePolicy(max_attempts=bad), None, 0, 1_000_001),
    "lease": duration("lease", lambda _, bad: QueuePolicy(lease=bad), None, 0),
    "timeout": duration("timeout", lambda _, bad: QueuePolicy(timeout=bad), 0),
    "history_ttl": duration("history_ttl", lambda _, bad: QueuePolicy(history_ttl=bad)),
    "history_ttl of a state": duration("history_ttl", lambda _, bad: QueuePolicy(history_ttl={"dead": bad}), None),
    "transition_cap": whole("transition_cap", lambda _, bad: QueuePolicy(transition_cap=bad), None, 0, 10_001),
    "attempt_cap": whole("attempt_cap", lambda _, bad: QueuePolicy(attempt_cap=bad), None, 0, 10_001),
    "dedup": duration("dedup", lambda _, bad: QueuePolicy(dedup=bad), None),
    "backoff": Case("backoff", lambda _, bad: QueuePolicy(backoff=bad), [*BAD, None, "e,1,2,3,4", 5]),
    "history": Case("history", lambda _, bad: QueuePolicy(history=bad), [*BAD, None, "FULL", "all"]),
    "keep": Case("keep", lambda _, bad: QueuePolicy(keep=bad), [*BAD, {"count": 1}, "1:"]),
    "Keep count": whole("count", lambda _, bad: Keep(count=bad)),
    "Keep age": duration("age", lambda _, bad: Keep(age=bad)),
    "Keep of a state": Case("dead", lambda _, bad: Keep(dead=bad), [*BAD, {"count": 1}]),
    "exponential base": duration("base", lambda _, bad: Backoff.exponential(base=bad), None),
    "exponential cap": duration("cap", lambda _, bad: Backoff.exponential(cap=bad), None),
    "exponential factor": Case("factor", lambda _, bad: Backoff.exponential(factor=bad), [*BAD, None, 0, 0.0001, 1001]),
    "exponential jitter": Case("jitter", lambda _, bad: Backoff.exponential(jitter=bad), [*BAD, None, 1.001, 2]),
    "fixed": duration("delay", lambda _, bad: Backoff.fixed(bad), None),
    "fixed jitter": Case("jitter", lambda _, bad: Backoff.fixed(1, jitter=bad), [*BAD, None, 1.001]),
    "delays": duration("delays", lambda _, bad: Backoff.delays(1, bad), None),
    "delay attempt": whole("attempt", lambda _, bad: Backoff.fixed(1).delay(bad), None, 0),
    "offer keep": Case("keep", lambda q, bad: q.offer(1, keep=bad), [*BAD, {"count": 1}, "1:"]),
    "offer metadata": Case("metadata", lambda q, bad: q.offer(1, metadata=bad), [True, "k", 5, [("k", "v")], {"k": 5}]),
    "fail final": Case("final", lambda q, bad: q.fail(DELIVERY, "x", final=bad), [0, 1, "yes", None]),
}


@pytest.mark.parametrize("case", PURE.values(), ids=PURE.keys())
def test_a_bad_setting_is_refused_by_name(nowhere: Queue[Any], case: Case) -> None:
    for bad in case.bad:
        with pytest.raises(InvalidInput) as caught:
            case.call(nowhere, bad)
        assert case.name in str(caught.value), f"{bad!r}: {caught.value}"


def test_an_invalid_input_is_a_value_error(nowhere: Queue[Any]) -> None:
    with pytest.raises(ValueError, match="priority"):
        nowhere.offer(1, priority=5000)
