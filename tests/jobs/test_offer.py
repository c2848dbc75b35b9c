"""Producing: what an offer stores, answers and refuses (SPEC 3.2)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from redisq import Engine, InvalidInput, JobState, Keep, NewJob, Offer, Queue
from redisq.testing import ManualClock
from tests.jobs.steps import drained, ids, taken, values
from tests.support.fronts import OpenEngine

MIB = 1024 * 1024


@pytest.mark.every_server
def test_an_offered_element_is_taken_with_its_decoded_value(queue: Queue[Any], clock: ManualClock) -> None:
    """persistedqueue 1: the handler gets the decoded value, a big integer included, and attempt 1."""
    value = {"big": 2**53 + 1, "text": "ü", "list": [1, 2.5, None]}
    offer = queue.offer(value)
    assert offer == Offer(offer.id, False, JobState.READY)
    delivery = taken(queue)
    assert delivery.value == value
    assert (delivery.id, delivery.attempt, delivery.max_attempts) == (offer.id, 1, 10)
    assert (delivery.name, delivery.priority, delivery.metadata, delivery.timeout_ms) == ("", 0, {}, None)
    assert (delivery.queue, delivery.lost, delivery.created_ms) == ("jobs", False, clock.now_ms)
    assert delivery.expires_ms == clock.now_ms + 30_000


@pytest.mark.every_server
def test_every_option_reaches_the_delivery_and_the_record(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer(
        "x", id="one", name="mail", priority=-7, max_attempts=3, timeout=2.5, keep=Keep(count=1), metadata={"k": "v"}
    )
    delivery = taken(queue)
    assert (delivery.id, delivery.name, delivery.priority, delivery.max_attempts) == ("one", "mail", -7, 3)
    assert (delivery.timeout_ms, delivery.metadata) == (2500, {"k": "v"})
    job = queue.get("one")
    assert job is not None
    assert (job.name, job.priority, job.max_attempts, job.timeout_ms, job.metadata) == (
        "mail", -7, 3, 2500, {"k": "v"},
    )  # fmt: skip


def test_generated_ids_are_distinct_and_sort_in_offer_order(queue: Queue[Any]) -> None:
    made = [queue.offer(number).id for number in range(20)] + ids(queue.offer_many(range(20)))
    assert len(set(made)) == 40
    assert made == sorted(made, key=str.encode)


def test_a_user_who_takes_an_id_does_not_collide_with_a_generated_one(queue: Queue[Any]) -> None:
    """effect-mq 4: a user takes the id that looks like the next one; the automatic id must differ."""
    first = queue.offer("first").id
    following = first[:-1] + chr(ord(first[-1]) + 1)
    queue.offer("user's", id=following)
    offers = queue.offer_many(["a", "b", "c"])
    assert not any(offer.duplicate for offer in offers)
    assert len(drained(queue)) == 5


@pytest.mark.every_server
def test_a_delayed_job_is_not_handed_out_before_its_time(queue: Queue[Any], clock: ManualClock) -> None:
    """persistedqueue 32 and effect-mq 2: not before, at once when due, and waiting cost no attempt."""
    assert queue.offer("later", delay=5).state is JobState.SCHEDULED
    clock.advance(4.999)
    assert queue.take() is None
    clock.advance(0.001)
    delivery = taken(queue)
    assert (delivery.value, delivery.attempt) == ("later", 1)


@pytest.mark.parametrize("delay", [0, 0.0, None, timedelta(0)])
def test_a_delay_of_zero_or_none_is_immediate(queue: Queue[Any], delay: Any) -> None:
    """persistedqueue 32."""
    assert queue.offer("now", delay=delay).state is JobState.READY
    assert taken(queue).value == "now"


def test_a_delay_is_rounded_up_to_whole_milliseconds(queue: Queue[Any], clock: ManualClock) -> None:
    due = [queue.get(queue.offer("x", delay=delay).id) for delay in (0.0001, 1.5, timedelta(microseconds=1001), 3)]
    assert [job.due_ms - clock.now_ms for job in due if job and job.due_ms] == [1, 1500, 2, 3000]


def test_the_time_of_at_is_kept_and_a_past_one_is_now(queue: Queue[Any], clock: ManualClock) -> None:
    moment = datetime.fromtimestamp((clock.now_ms + 1500) / 1000, UTC)
    offer = queue.offer("later", at=moment)
    assert offer.state is JobState.SCHEDULED
    job = queue.get(offer.id)
    assert job is not None
    assert (job.due_ms, job.due_at) == (clock.now_ms + 1500, moment)
    assert queue.offer("past", at=moment - timedelta(days=400)).state is JobState.READY
    assert queue.offer("now", at=moment - timedelta(seconds=1.5)).state is JobState.READY


@pytest.mark.every_server
def test_offer_many_keeps_the_order_and_mixes_values_with_options(queue: Queue[Any], clock: ManualClock) -> None:
    offers = queue.offer_many(
        ["a", NewJob("b", id="bee", name="n"), NewJob("c", delay=1), NewJob("d", priority=1), "e"]
    )
    assert [offer.state for offer in offers] == ["ready", "ready", "scheduled", "ready", "ready"]
    assert offers[1].id == "bee"
    assert values(drained(queue)) == ["d", "a", "b", "e"]
    clock.advance(1)
    assert values(drained(queue)) == ["c"]


def test_offer_many_of_nothing_offers_nothing(queue: Queue[Any], keys: Callable[..., list[str]]) -> None:
    """effect-mq: [] answers []."""
    assert queue.offer_many([]) == []
    assert queue.offer_many(iter(())) == []
    assert keys() == []


@pytest.mark.every_server
def test_an_id_repeated_inside_a_batch_is_inserted_once(queue: Queue[Any]) -> None:
    """effect-mq 51: [same, same] gives new and duplicate, the first payload is kept."""
    first, second = queue.offer_many([NewJob("first", id="same"), NewJob("second", id="same", delay=9)])
    assert (first.duplicate, first.state) == (False, JobState.READY)
    assert (second.duplicate, second.state) == (True, JobState.READY)
    assert values(drained(queue)) == ["first"]


@pytest.mark.every_server
def test_batch_and_single_offers_persist_every_field_alike(queue: Queue[Any], clock: ManualClock) -> None:
    """effect-mq 50: batch and single inserts persist every field identically."""
    options: dict[str, Any] = {
        "name": "mail", "delay": 7, "priority": 3, "max_attempts": 4, "timeout": 9, "metadata": {"a": "b"},
    }  # fmt: skip
    queue.offer([1], id="single", **options)
    queue.offer_many([NewJob([1], id="batch", **options)])
    single, batch = queue.get("single"), queue.get("batch")
    assert single is not None
    assert batch is not None
    assert msgspec.structs.replace(single, id="") == msgspec.structs.replace(batch, id="")


def test_offer_many_checks_all_before_its_first_chunk(queue: Queue[Any], keys: Callable[..., list[str]]) -> None:
    jobs = [NewJob(number) for number in range(1500)] + [NewJob(0, priority=1001)]
    with pytest.raises(InvalidInput, match="priority"):
        queue.offer_many(jobs)
    assert keys() == []


@pytest.mark.parametrize("items", ["text", b"bytes", 5, None])
def test_offer_many_refuses_what_is_no_list_of_items(queue: Queue[Any], items: Any) -> None:
    with pytest.raises(InvalidInput, match="items"):
        queue.offer_many(items)


def test_a_payload_may_be_one_mebibyte_and_no_byte_more(queue: Queue[Any], keys: Callable[..., list[str]]) -> None:
    with pytest.raises(InvalidInput, match="value"):
        queue.offer("x" * (MIB - 1))
    assert keys() == []
    queue.offer("x" * (MIB - 2))
    assert len(taken(queue).value) == MIB - 2


def test_a_value_that_can_not_be_encoded_stores_nothing(queue: Queue[Any], keys: Callable[..., list[str]]) -> None:
    """persistedqueue a1: encode fails, nothing is stored."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (object(), {1, object()}, "\ud800", deep):
        with pytest.raises(InvalidInput, match="value"):
            queue.offer(value)
    assert keys() == []


@pytest.mark.every_server
def test_an_offer_proves_that_the_value_decodes_as_the_type(engine: Engine) -> None:
    strict = engine.queue("strict", int)
    with pytest.raises(InvalidInput, match="value"):
        strict.offer("text")
    with pytest.raises(InvalidInput, match="value"):
        strict.offer_many([1, "text"])
    assert strict.counts()[JobState.READY] == 0
    loose = engine.queue("loose", int, validate=False)
    assert loose.offer("text").state is JobState.READY


def test_metadata_is_text_of_at_most_16_kib(queue: Queue[Any], keys: Callable[..., list[str]]) -> None:
    wrong: list[Any] = [{"k": 1}, {1: "v"}, ["k"], "k", {"k": "v" * 16 * 1024}, {"k": "\ud800"}]
    for metadata in wrong:
        with pytest.raises(InvalidInput, match="metadata"):
            queue.offer("x", metadata=metadata)
    assert keys() == []
    largest = {"k": "v" * (16 * 1024 - 1)}
    queue.offer("x", metadata=largest)
    assert taken(queue).metadata == largest


def test_delay_and_at_exclude_each_other(queue: Queue[Any]) -> None:
    for delay in (0, 5):
        with pytest.raises(InvalidInput, match=r"delay.*at"):
            queue.offer("x", delay=delay, at=datetime.now(UTC))


def test_a_naive_time_is_refused(queue: Queue[Any]) -> None:
    with pytest.raises(InvalidInput, match="at"):
        queue.offer("x", at=datetime(2030, 1, 1))


@pytest.mark.every_server
def test_two_engines_of_one_namespace_share_the_queue_and_another_namespace_sees_nothing(
    queue: Queue[Any], open_engine: OpenEngine, namespace: str, clock: ManualClock
) -> None:
    """effect-mq 6: two instances on one prefix share its jobs; another prefix sees nothing."""
    queue.offer("shared")
    assert open_engine(f"{namespace}-other", clock).queue("jobs").take() is None
    assert taken(open_engine(clock=clock).queue("jobs")).value == "shared"
    assert queue.take() is None
