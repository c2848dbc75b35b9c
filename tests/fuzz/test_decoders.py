"""Whatever a server answers, a call gives its result or a RedisqError: never another exception."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from redisq import (
    Delivery,
    Event,
    EventDelivery,
    EventPolicy,
    EventStatus,
    InvalidInput,
    JobState,
    NewEvent,
    QueuePolicy,
    RedisqError,
    Subscription,
    detail,
)
from redisq.calls import Call, broadcast, consume, deliveries, events, heads, operate, produce, subscribing, upkeep
from redisq.calls.core import EventCore, QueueCore
from redisq.codec import Codec, Undecodable
from redisq.frontend import Registry
from redisq.transport.sender import _decoded
from redisq.transport.urls import parse
from tests.fuzz.nasty import FIELDS, spoilings

QUICK = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def job_core(**options: Any) -> QueueCore:
    return Registry("fuzz", "worker", 10, None).core("jobs", **options)


def event_core() -> EventCore:
    return Registry("fuzz", "worker", 10, None).event_core("events")


JOBS, EVENTS = job_core(), event_core()
SUBSCRIPTION = Subscription(queue="events", name="billing", generation="5-abc")
HELD = Delivery(
    id="a", name="", value=1, attempt=1, max_attempts=3, priority=0, token="5-abc", fence=5, expires_ms=9, created_ms=1,
    timeout_ms=None, metadata={}, queue="jobs",
)  # fmt: skip
OWED = EventDelivery(
    id="a", value=1, attempt=1, max_attempts=3, token="5-abc", fence=5, expires_ms=9, created_ms=1, queue="events",
    subscription=SUBSCRIPTION,
    event=Event(id="a", queue="events", value=1, status=EventStatus.ACTIVE, created_ms=1, expires_ms=None,
                settled_ms=None, recipients=()),
)  # fmt: skip

# every call, with a reply that it understands
LAST = b"f,1800000000000,s,1800000002000,1800000000000000-abc,1,s,1799999999000,w1"
HEAD = b"w1|" + LAST + b";1800000000000d;5,3,1000,cm,1:2/:/:/:,9;n"
LEASE = b"1800000000000000-abc,1,s,1800000000000,w1"
DETAIL = b"10:ValueError4:textTraceback"
ROWS = b"1,1800000000000,1800000001000,f,18:w1,10:ValueError0:"
STEPS = b"1,1800000000000,r,0,0:2,1800000001000,l,1,0:"
JOB_COLUMNS = [
    b"1", b"3", b"1000", [b"a"], [HEAD], [b"1"], [b'{"a":"b"}'], [LEASE], [b"1800000030000"], None, [b"7"], [DETAIL],
    [b"0.5"], None, None, None, None, None,
]  # fmt: skip
JOB_TAKEN = [b"1", b"9", b"5", b"3", b"1000", b"0", b"12", [b"a"], [b"w;5;;"], [b"1"], [b"{}"]]
HEADER = b"a,1,1,0,;5,1,9,5-a.1,10"
EVENT_TAKEN = [b"1", b"5", b"3", b"0", b"12", [b"a"], [HEADER], [b"1"], [b"1"], [b"9"]]
PARTS = [b"5-abc;7:billing", b"+6-abd,email", b"-6-abd,email"]

CALLS: dict[str, tuple[Call[Any], Any]] = {
    "offer": (produce.offers(JOBS, [produce.encode(JOBS, produce.new_job(1), "a")]), b"r"),
    "take": (consume.take(JOBS, 1, None), JOB_TAKEN),
    "exchange": (consume.exchange(JOBS, [HELD], 1, None), [b"A", JOB_TAKEN]),
    "ack": (consume.ack(JOBS, HELD), b"A"),
    "ack_many": (consume.ack_many(JOBS, [HELD, HELD]), b"A,L"),
    "fail": (consume.fail(JOBS, HELD, "no"), b"s1800000000000"),
    "release": (consume.release(JOBS, HELD), b"r"),
    "quarantine": (consume.quarantine(JOBS, HELD, "no"), b"q"),
    "renew": (consume.renew(JOBS, HELD), b"1800000000000!"),
    "renew_many": (consume.renew_many(JOBS, [HELD, HELD], None), b"1800000000000,L"),
    "give_back": (consume.give_back(JOBS, "abc"), b"1"),
    "progress": (consume.progress(JOBS, HELD, b"1"), b"A"),
    "get": (operate.get(JOBS, "a"), JOB_COLUMNS),
    "attempts": (operate.attempts(JOBS, "a"), [b"full", b"64", b"64", HEAD, LEASE, ROWS, STEPS, DETAIL, DETAIL]),
    "history": (operate.history(JOBS, "a"), [b"full", b"64", b"64", HEAD, LEASE, ROWS, STEPS, DETAIL, DETAIL]),
    "counts": (operate.counts(JOBS), [b"0", b"5", 1, 2, 3, 4, 5, 6, 7]),
    "info": (operate.info(JOBS), [b"0", b"5", 1, 2, 3, 4, 5, 6, 7]),
    "cancel": (operate.cancel(JOBS, "a"), b"cancelled"),
    "retry": (operate.retry(JOBS, "a"), b"1"),
    "maintain": (operate.maintain(JOBS), [b"1", b"2", b"3", b"4", b"0"]),
    "jobs": (operate.jobs(JOBS), [b"5|a", JOB_COLUMNS]),
    "bulk": (operate.bulk(JOBS, "purge", JobState.DEAD, None, None, b""), [b"1", b"0", b""]),
    "errors": (operate.error_groups(JOBS, JobState.DEAD, b""), [b"", b"mail", b"ValueError", b"3", b"5"]),
    "delete": (operate.delete_once(JOBS, True), b"1"),
    "outcome": (operate.outcome(JOBS, "a", "n", 5), b"c7"),
    "open": (operate.open_queue(JOBS), [b"1", b"json"]),
    "create": (operate.create_queue(JOBS), [b"1", b"json"]),
    "alter": (operate.alter(JOBS, QueuePolicy()), [text.encode() for text in QueuePolicy.DEFAULTS.values()]),
    "alter events": (operate.alter(EVENTS, EventPolicy()), [text.encode() for text in EventPolicy.DEFAULTS.values()]),
    "emit": (
        broadcast.emit(EVENTS, [broadcast.encode(EVENTS, NewEvent(1), id) for id in ("a", "b")]),
        [b"5", b"1000", b"5-a.1", b"aP", [b"5,9,a,"], [b"billing", b"5-abc"]],
    ),
    "event": (broadcast.get(EVENTS, "a"), [HEADER, b"1", b"a", b"", PARTS, [b"5-abc", b"a,7,5-abc"], []]),
    "archived": (broadcast.list_archived(EVENTS), [b"a", b"b"]),
    "event info": (broadcast.info(EVENTS), [1, 2, b"5", 0]),
    "event take": (deliveries.take(EVENTS, SUBSCRIPTION, 1, 1000), EVENT_TAKEN),
    "event exchange": (deliveries.exchange(EVENTS, SUBSCRIPTION, [OWED], 1, 1000), [b"A", EVENT_TAKEN]),
    "event ack": (deliveries.ack(EVENTS, OWED), b"A"),
    "event fail": (deliveries.fail(EVENTS, OWED, "no"), b"p1800000000000"),
    "event release": (deliveries.release(EVENTS, OWED), b"p"),
    "event renew": (deliveries.renew(EVENTS, OWED), b"1800000000000"),
    "event renew_many": (deliveries.renew_many(EVENTS, [OWED], 5), b"1800000000000"),
    "subscribe": (subscribing.subscribe(EVENTS, "billing"), b"5-abc"),
    "unsubscribe": (subscribing.unsubscribe(EVENTS, SUBSCRIPTION), b"1"),
    "subscriptions": (subscribing.progress(EVENTS, [b"5-abc"]), [[b"billing", b"1", b"1", b"5", b"0", b"0"]]),
    "dead": (
        subscribing.dead(EVENTS, SUBSCRIPTION), [b"5|a", [b"a"], [b"5"], [b"d,5,3"], [DETAIL], [b"1"], [None]],
    ),
    "event retry": (subscribing.retry(EVENTS, SUBSCRIPTION, "a"), b"1"),
    "due": (upkeep.due(EVENTS, 0), [b"deadlines"]),
    "sweep": (upkeep.sweep(EVENTS, "deadlines", 5), [b"1", b"0"]),
}  # fmt: skip

# what the protocol can carry: bytes, integers of 64 bits, nothing, and lists of those
_ODD: st.SearchStrategy[Any] = st.sampled_from([*FIELDS.values(), None, 0, -1, 2**63 - 1, -(2**63), [], [None], [[]]])
_WORDS = st.sampled_from(
    [b"A", b"B", b"G", b"L", b"N", b"!", b"b", b"d", b"x", b"q", b"p", b"s5", b"A,A", b",", b"s", b"M"]
)
_ANYTHING = st.recursive(
    _ODD | _WORDS | st.binary(max_size=40) | st.integers(-(2**63), 2**63 - 1),
    lambda inner: st.lists(inner, max_size=8),
    max_leaves=20,
)


def heard(call: Call[Any], reply: Any) -> Any:
    """What a client makes of a reply; a refusal is fine."""
    try:
        return _decoded(call, reply)
    except RedisqError as refusal:
        return refusal


@st.composite
def mutated(draw: Any, value: Any) -> Any:
    """A reply with one or two of its parts replaced, dropped, doubled or spoiled."""
    for _ in range(draw(st.integers(1, 2))):
        value = draw(_changed(value))
    return value


@st.composite
def _changed(draw: Any, value: Any) -> Any:
    if isinstance(value, list) and value and draw(st.booleans()):
        at = draw(st.integers(0, len(value) - 1))
        how = draw(st.sampled_from(["inside", "inside", "inside", "drop", "double"]))
        middle = [] if how == "drop" else [value[at]] * 2 if how == "double" else [draw(_changed(value[at]))]
        return [*value[:at], *middle, *value[at + 1 :]]
    if isinstance(value, bytes) and draw(st.booleans()):
        return draw(st.sampled_from(list(spoilings(value).values())))
    return draw(_ODD | _WORDS | st.binary(max_size=30))


def test_each_call_understands_its_own_reply() -> None:
    """The replies that are mutated below are good ones."""
    for name, (call, reply) in CALLS.items():
        found = heard(call, reply)
        assert not isinstance(found, RedisqError), (name, found)


@pytest.mark.parametrize("name", CALLS)
@QUICK
@given(data=st.data())
def test_a_mutated_reply_is_a_result_or_a_refusal(name: str, data: st.DataObject) -> None:
    call, reply = CALLS[name]
    heard(call, data.draw(mutated(reply)))


@pytest.mark.parametrize("name", CALLS)
@settings(QUICK, max_examples=30)
@given(reply=_ANYTHING)
@example(reply=b"A")
@example(reply=b"L")
@example(reply=b"")
@example(reply=[])
def test_any_reply_is_a_result_or_a_refusal(name: str, reply: Any) -> None:
    heard(CALLS[name][0], reply)


READERS: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    "head": (heads.head, HEAD),
    "lease": (heads.lease, LEASE),
    "detail": (detail.from_wire, DETAIL),
    "rows": (heads._rows, ROWS),
    "header": (events.header, HEADER),
    "packed": (events._unpacked, b"7:billing5:email"),
}


@pytest.mark.parametrize("name", READERS)
@settings(QUICK, max_examples=400)
@given(data=st.data())
def test_a_stored_text_is_read_or_is_a_value_error(name: str, data: st.DataObject) -> None:
    read, good = READERS[name]
    read(good)
    spoiled = data.draw(st.sampled_from(list(spoilings(good).values())) | st.binary(max_size=60))
    with contextlib.suppress(ValueError, KeyError, IndexError):
        read(spoiled)


@pytest.mark.parametrize("rows", [b"1,1,c,-5:abc", b"1,1,c,99999999:", b"1,0:" * 3])
def test_rows_end(rows: bytes) -> None:
    """Each row consumes some of the text, whatever size it states."""
    with contextlib.suppress(ValueError):
        assert len(heads._rows(rows)) <= len(rows)
    with contextlib.suppress(ValueError):
        assert len(events._unpacked(rows)) <= len(rows)


BOMBS = {
    "an array of 2^32 - 1": ("msgpack", b"\xdd\xff\xff\xff\xff"),
    "a map of 2^32 - 1": ("msgpack", b"\xdf\xff\xff\xff\xff"),
    "bytes of 2^32 - 1": ("msgpack", b"\xc6\xff\xff\xff\xff"),
    "text of 2^32 - 1": ("msgpack", b"\xdb\xff\xff\xff\xff"),
    "5,000 arrays in each other": ("msgpack", b"\x91" * 5000),
    "an extension": ("msgpack", b"\xc9\xff\xff\xff\xff\x01"),
    "a billion small arrays": ("msgpack", b"\xdd\x3b\x9a\xca\x00" * 50),
    "5,000 lists in each other": ("json", b"[" * 5000 + b"]" * 5000),
    "100,000 objects in each other": ("json", b'{"a":' * 100_000),
    "an integer of 4,301 digits": ("json", b"9" * 4301),
    "an integer of 100,000 digits": ("json", b"9" * 100_000),
    "a huge exponent": ("json", b"1e999999999"),
    "half a surrogate": ("json", b'"\\ud800"'),
    "no utf-8": ("json", b'"\xff\xfe"'),
    "a pickle": ("json", b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R."),
}


@pytest.mark.parametrize(("codec", "bomb"), BOMBS.values(), ids=BOMBS)
def test_a_bomb_does_not_decode(codec: str, bomb: bytes) -> None:
    for kind in (Any, int, str, dict[str, int], list[list[int]]):
        with contextlib.suppress(Undecodable):
            value = Codec(codec, kind).decode(bomb)
            assert isinstance(value, int | float), "a number that fits is a number"


@settings(QUICK, max_examples=500)
@given(
    data=st.binary(max_size=200),
    codec=st.sampled_from(["json", "msgpack"]),
    kind=st.sampled_from([Any, int, dict[str, int]]),
)
def test_any_payload_decodes_or_is_undecodable(data: bytes, codec: str, kind: Any) -> None:
    with contextlib.suppress(Undecodable):
        Codec(codec, kind).decode(data)


class Sized(msgspec.Struct):
    """A type with code of its own, which fails on what it is given."""

    size: int

    def __post_init__(self) -> None:
        if self.size == 0:
            raise ZeroDivisionError("no size")


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_a_type_that_fails_by_itself_is_undecodable(codec: str) -> None:
    """Stored bytes can drive a user's own `__post_init__` into any error."""
    encode = msgspec.json.encode if codec == "json" else msgspec.msgpack.encode
    with pytest.raises(Undecodable, match="no size"):
        Codec(codec, Sized).decode(encode({"size": 0}))


@settings(QUICK, max_examples=500)
@given(
    url=st.text(max_size=60)
    | st.builds(
        "{}://{}{}".format,
        st.sampled_from(["redis", "rediss", "unix", "sentinel", "embedded", "memory", "http", ""]),
        st.text("abz:@/?#[]%&=.,0189 \x00é", max_size=30),
        st.sampled_from(
            ["", "/0", "/x", "?db=x", "?protocol=9", "?socket_timeout=nan", "/svc/0?ssl=maybe", "?a=b&a=c"]
        ),
    )
)
@example("redis://h:99999999999")
@example("redis://[::1")
@example("redis://h/" + "9" * 5000)
def test_any_url_is_understood_or_refused(url: str) -> None:
    with contextlib.suppress(InvalidInput):
        parse(url)


CURSORS = st.text(max_size=40) | st.binary(max_size=40).map(lambda raw: raw.decode("latin-1"))


@settings(QUICK, max_examples=300)
@given(cursor=CURSORS)
@example("cmVhZHkg")
@example("é")
def test_any_cursor_is_understood_or_refused(cursor: str) -> None:
    with contextlib.suppress(InvalidInput):
        operate.jobs(JOBS, cursor=cursor)
    with contextlib.suppress(InvalidInput):
        subscribing.dead(EVENTS, SUBSCRIPTION, cursor=cursor)
