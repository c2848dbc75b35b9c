"""Payloads byte for byte through every path, and texts of every kind as names and ids (SPEC 2, 3.2, 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import redis

from redisq import Backoff, Done, Engine, ErrorDetail, JobState, NewJob, Queue, QueuePolicy
from redisq.testing import ManualClock
from tests.jobs.steps import drained, ids, killed, root_of, taken, values, walked
from tests.support.fronts import OpenEngine

VALUE: dict[str, Any] = {"a": [], "m": {}, "n": 2**63, "k": 2**53 + 1, "f": 1.0, "z": None}
JSON = b'{"a":[],"m":{},"n":9223372036854775808,"k":9007199254740993,"f":1.0,"z":null}'
VALUES: list[Any] = [
    VALUE, None, True, 0, -(2**63), 1e300, 1.0, "", "\0", "a\0b", "ü🦄", "%s %00 {} : \n", [], {}, [[]], [None],
    {"": ""}, "x" * 5000, list(range(2000)), 1234567890123456, 1 / 3,
]  # fmt: skip
TEXTS = [
    ":", "::", "a:b", "a:jobs:b", "{}", "{a}b", "}{", "\0", "nul\0in", " ", " a b ", "🦄", "ü", "%", "%3A", "%00",
    "a\nb", "\r\n", ";", ",", ";;,", "|", "!", "1,2;3", "*", "[x]?", "\\", "'\"", "\x7f", "\u202e", "0", "-1", "~",
    "body", "a" * 256, "é" * 128, "\U0010ffff" * 64,
]  # fmt: skip


class Bytes:
    """A queue, and what its keys hold of one job."""

    def __init__(self, queue: Queue[Any], raw: redis.Redis, id: str) -> None:
        self.queue = queue
        self._raw = raw
        self._id = id

    def stored(self, column: str) -> Any:
        return self._raw.hget(f"{root_of(self.queue)}:{column}", self._id)


@pytest.mark.every_server
@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_a_payload_stays_byte_for_byte_on_every_path(
    open_engine: OpenEngine, clock: ManualClock, raw: redis.Redis, codec: str
) -> None:
    """effect-mq 47: large integers, 1/3 and [] round-trip exactly; persistedqueue 21: the element is intact."""
    policy = QueuePolicy(backoff=Backoff.fixed(1), max_attempts=3)
    queue = open_engine(clock=clock).queue("jobs", policy=policy, codec=codec)
    wire = JSON if codec == "json" else msgspec.msgpack.encode(VALUE)
    id = queue.offer(VALUE, id="x").id
    job = Bytes(queue, raw, id)

    def same(state: str) -> None:
        assert job.stored("body") == wire
        found = queue.get(id)
        assert found is not None
        assert (found.state, found.value) == (state, VALUE)
        assert type(found.value["f"]) is float
        assert [each.value for each in walked(queue, state=state)] == [VALUE]

    same("ready")
    delivery = taken(queue)
    assert delivery.value == VALUE
    same("leased")
    queue.release(delivery)
    same("ready")
    queue.release(taken(queue), delay=1)
    same("scheduled")
    queue.promote(id)
    queue.fail(taken(queue), "broken")
    same("scheduled")
    clock.advance(1)
    taken(queue, lease=1)
    clock.advance(1)
    queue.maintain()  # a lapse
    same("scheduled")
    clock.advance(1)
    queue.fail(taken(queue), "broken")
    same("dead")
    queue.retry(id)
    same("ready")
    queue.quarantine(taken(queue), "poison")
    same("quarantined")
    queue.retry(id)
    queue.exchange([Done(taken(queue), VALUE)], 0)
    same("completed")
    assert job.stored("result") == wire
    found = queue.get(id)
    assert found is not None
    assert found.result == VALUE


@pytest.mark.every_server
@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_every_kind_of_value_comes_back_as_it_went(
    open_engine: OpenEngine, clock: ManualClock, raw: redis.Redis, codec: str
) -> None:
    queue = open_engine(clock=clock).queue("jobs", codec=codec)
    encode: Callable[[Any], bytes] = msgspec.json.encode if codec == "json" else msgspec.msgpack.encode
    offers = queue.offer_many(VALUES)
    assert [Bytes(queue, raw, offer.id).stored("body") for offer in offers] == [encode(value) for value in VALUES]
    deliveries = queue.take_many(100)
    assert values(deliveries) == VALUES
    assert [type(value) for value in values(deliveries)] == [type(value) for value in VALUES]
    queue.exchange([Done(each, each.value) for each in deliveries], 0)
    for offer, value in zip(offers, VALUES, strict=True):
        job = queue.get(offer.id)
        assert job is not None
        assert (job.value, job.result) == (value, value)


@pytest.mark.every_server
@pytest.mark.parametrize("wire", [b"", b"\x00", b"\xff\xfe", b"{", b"null garbage", b"\xc1", JSON + b"}", b" " * 5000])
def test_bytes_that_do_not_decode_are_kept_as_they_are(
    queue: Queue[Any], raw: redis.Redis, clock: ManualClock, wire: bytes
) -> None:
    """persistedqueue 36 and 37: raw element and reason preserved, readable, and there again after a retry."""
    id = queue.offer("x", id="x").id
    raw.hset(f"{root_of(queue)}:body", id, wire)
    for _ in range(2):
        assert queue.take() is None
        job = queue.get(id)
        assert job is not None
        assert (job.state, job.value) == ("quarantined", wire)
        assert [each.value for each in walked(queue, state="quarantined")] == [wire]
        assert Bytes(queue, raw, id).stored("body") == wire
        assert queue.retry(id)
    raw.hset(f"{root_of(queue)}:body", id, JSON)
    assert taken(queue).value == VALUE


def test_bytes_of_another_language_decode_alike(queue: Queue[Any], raw: redis.Redis) -> None:
    """JSON that another writer would make: spaces, escapes, exponents."""
    id = queue.offer("x").id
    raw.hset(f"{root_of(queue)}:body", id, b' { "k" : "\\u00fc" , "n" : 1E2 } ')
    assert taken(queue).value == {"k": "ü", "n": 100.0}


def test_typed_values_of_every_kind(open_engine: OpenEngine, clock: ManualClock) -> None:
    class Point(msgspec.Struct):
        x: int
        data: bytes = b"\x00\xff"

    for codec in ("json", "msgpack"):
        queue = open_engine(clock=clock).queue(codec, Point, codec=codec)
        queue.offer_many([Point(2**63 - 1, b""), Point(-1)])
        assert values(drained(queue)) == [Point(2**63 - 1, b""), Point(-1)]


@pytest.mark.every_server
def test_any_text_is_an_id(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer_many([NewJob(text, id=text, priority=number % 2) for number, text in enumerate(TEXTS)])
    for text in TEXTS:
        assert queue.offer("again", id=text).duplicate
        job = queue.get(text)
        assert job is not None
        assert (job.id, job.value, job.state) == (text, text, "ready")
    deliveries = drained(queue, 10)
    assert ids(deliveries) == TEXTS[1::2] + TEXTS[::2]
    assert sorted(ids(walked(queue, state="leased", limit=7))) == sorted(TEXTS)
    for number, each in enumerate(deliveries):
        verb = number % 4
        if verb == 0:
            queue.ack(each)
        elif verb == 1:
            queue.fail(each, "broken", retry_in=5)
        elif verb == 2:
            queue.release(each)
        else:
            queue.fail(each, "broken", final=True)
    for state, verb in (("completed", 0), ("scheduled", 1), ("ready", 2), ("dead", 3)):
        wanted = [each.id for number, each in enumerate(deliveries) if number % 4 == verb]
        assert sorted(ids(walked(queue, state=state, limit=3))) == sorted(wanted)
        assert len(ids(walked(queue, state=state, limit=3))) == len(wanted)
    for job in walked(queue, state="dead"):
        assert queue.retry(job.id)
        assert [row.outcome for row in queue.attempts(job.id)] == ["dead"]
        assert len(queue.history(job.id).entries) == 4
    for job in walked(queue, state="scheduled"):
        assert queue.promote(job.id)
    for job in walked(queue, state="ready"):
        assert queue.cancel(job.id) == "cancelled"
    for text in TEXTS:
        assert queue.remove(text)
    assert set(queue.counts().values()) == {0}
    assert queue.take() is None


@pytest.mark.every_server
def test_any_text_and_none_is_a_name(engine: Engine) -> None:
    names = ["", *TEXTS]
    queue = engine.queue("jobs")
    queue.offer_many([NewJob(number, name=name, timeout=1, priority=-3) for number, name in enumerate(names)])
    for number, name in enumerate(names):
        assert values(walked(queue, state="ready", name=name)) == [number]
    deliveries = queue.take_many(100)
    assert [each.name for each in deliveries] == names
    assert {(each.timeout_ms, each.priority) for each in deliveries} == {(1000, -3)}
    queue.ack_many(deliveries[:20])
    for each in deliveries[20:]:
        queue.fail(each, "broken", final=True)
    for number, name in enumerate(names):
        state = "completed" if number < 20 else "dead"
        assert values(walked(queue, state=state, name=name)) == [number]
        job = queue.get(deliveries[number].id)
        assert job is not None
        assert (job.name, job.timeout_ms, job.priority) == (name, 1000, -3)


@pytest.mark.every_server
def test_any_text_is_metadata(queue: Queue[Any]) -> None:
    metadata = {text: TEXTS[-number] for number, text in enumerate(TEXTS)} | {"": ""}
    id = queue.offer("x", metadata=metadata).id
    assert taken(queue).metadata == metadata
    job = queue.get(id)
    assert job is not None
    assert job.metadata == metadata


@pytest.mark.every_server
@pytest.mark.real_server
def test_any_text_names_a_queue_of_its_own(engine: Engine) -> None:
    """persistedqueue c: a queue named `a:pending` must not collide with a part of queue `a`."""
    for text in TEXTS:
        engine.queue(text).offer(text, id="same")
    assert [info.name for info in engine.queues()] == sorted(TEXTS)
    for text in TEXTS:
        queue = engine.queue(text)
        assert {state: number for state, number in queue.counts().items() if number} == {JobState.READY: 1}
        delivery = taken(queue)
        assert (delivery.value, delivery.queue) == (text, text)
        queue.ack(delivery)


@pytest.mark.every_server
@pytest.mark.real_server
def test_any_text_is_a_namespace_of_its_own(open_engine: OpenEngine, namespace: str, clock: ManualClock) -> None:
    """persistedqueue 46: names with glob and brace characters stay apart."""
    texts = [namespace + text for text in TEXTS if len(text.encode()) < 200]
    texts.append((namespace + "a" * 256)[:256])
    for text in texts:
        open_engine(text, clock).queue("jobs").offer(text, id="same")
    for text in texts:
        engine = open_engine(text, clock)
        assert [info.name for info in engine.queues()] == ["jobs"]
        assert values(drained(engine.queue("jobs"))) == [text]


def test_pairs_of_namespace_and_name_that_read_alike_stay_apart(
    open_engine: OpenEngine, namespace: str, clock: ManualClock
) -> None:
    pairs = [
        (f"{namespace}a", "b:c"), (f"{namespace}a:b", "c"), (f"{namespace}a:jobs:b", "c"), (f"{namespace}a", "b%3Ac"),
        (f"{namespace}a%3Ab", "c"), (f"{namespace}a", "jobs:b:c"), (f"{namespace}{{a", "}b"),
        (f"{namespace}a", "queues"), (f"{namespace}a:queues", "b"),
    ]  # fmt: skip
    for space, name in pairs:
        open_engine(space, clock).queue(name).offer([space, name], id="same")
    for space, name in pairs:
        assert values(drained(open_engine(space, clock).queue(name))) == [[space, name]]


def test_a_worker_s_name_may_be_any_text(open_engine: OpenEngine, clock: ManualClock) -> None:
    for number, text in enumerate(TEXTS):
        queue = open_engine(clock=clock, worker=text).queue("jobs")
        id = queue.offer("x", id=str(number)).id
        queue.fail(taken(queue), "broken", retry_in=0)
        queue.ack(taken(queue))
        assert [row.worker for row in queue.attempts(id)] == [text, text]


@pytest.mark.every_server
@pytest.mark.real_server
def test_an_error_of_any_text_comes_back(queue: Queue[Any]) -> None:
    for text in TEXTS:
        detail = ErrorDetail(text, text, text)
        id = queue.offer("x").id
        queue.fail(taken(queue), detail, final=True)
        job = queue.get(id)
        assert job is not None
        assert job.error == detail
        queue.retry(id)
        queue.ack(taken(queue))
        assert queue.attempts(id)[0].error == detail
        assert queue.history(id).entries[2].detail == detail


def test_the_keys_of_a_queue_share_one_slot(
    queue: Queue[Any], raw: redis.Redis, keys: Callable[..., list[str]]
) -> None:
    """SPEC 2: laid out for a cluster: one pair of braces around what names the queue."""
    killed(queue, name="{other}", id="}", priority=1)
    found = [key for key in keys() if not key.endswith(":queues")]
    assert len(found) > 3
    assert {key[: key.index("}") + 1] for key in found} == {root_of(queue)}
