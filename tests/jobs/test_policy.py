"""The stored policy: who declares it, who is held to it, and how it is changed (SPEC 3.5)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis

from redisq import (
    Backoff,
    ConfigurationConflict,
    History,
    InvalidInput,
    JobState,
    Keep,
    Queue,
    QueuePolicy,
)
from redisq.testing import ManualClock
from tests.jobs.steps import root_of, taken
from tests.support.fronts import OpenEngine

OTHER: dict[str, Any] = {
    "max_attempts": 3,
    "backoff": Backoff.fixed(9),
    "lease": 77,
    "timeout": 5,
    "keep": Keep(count=1),
    "history_ttl": 60,
    "history": History.OFF,
    "transition_cap": 5,
    "attempt_cap": 6,
    "dedup": 7,
}
DEFAULT: dict[str, Any] = {
    "max_attempts": 10,
    "backoff": Backoff.exponential(base=1, factor=2, cap=300, jitter=0),
    "lease": 30,
    "timeout": None,
    "keep": Keep(completed=Keep(count=10_000, age=86_400), cancelled=Keep(count=10_000, age=86_400)),
    "history_ttl": None,
    "history": History.FULL,
    "transition_cap": 64,
    "attempt_cap": 64,
    "dedup": timedelta(days=30),
}


def fields(policy: QueuePolicy) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in OTHER}


@pytest.mark.every_server
def test_the_first_write_of_a_declaring_client_stores_the_policy_whole(
    open_engine: OpenEngine, clock: ManualClock
) -> None:
    declaring = open_engine(clock=clock).queue("jobs", policy=QueuePolicy(lease=5, max_attempts=2))
    declaring.offer("x")
    adopting = open_engine(clock=clock).queue("jobs")
    delivery = taken(adopting)
    assert (delivery.expires_ms - clock.now_ms, delivery.max_attempts) == (5000, 2)
    # whole: a field that was left out is stored with its default, and frozen as well
    late = open_engine(clock=clock).queue("jobs", policy=QueuePolicy(attempt_cap=3))
    with pytest.raises(ConfigurationConflict, match="attempt_cap"):
        late.offer("y")


@pytest.mark.every_server
def test_until_a_client_declares_one_the_defaults_apply_and_nothing_is_frozen(
    open_engine: OpenEngine, clock: ManualClock
) -> None:
    plain = open_engine(clock=clock).queue("jobs")
    plain.offer_many(range(3))
    assert taken(plain).expires_ms == clock.now_ms + 30_000
    declaring = open_engine(clock=clock).queue("jobs", policy=QueuePolicy(lease=5))
    assert declaring.counts()[JobState.READY] == 2  # a read declares nothing
    third = open_engine(clock=clock).queue("jobs", policy=QueuePolicy(lease=6))
    assert taken(third).expires_ms == clock.now_ms + 6000
    assert taken(plain).expires_ms == clock.now_ms + 6000
    with pytest.raises(ConfigurationConflict, match="lease"):
        declaring.offer("x")


@pytest.mark.every_server
@pytest.mark.parametrize("field", list(OTHER))
def test_a_different_field_conflicts_by_name_before_anything_is_touched(
    open_engine: OpenEngine, clock: ManualClock, raw: redis.Redis, field: str
) -> None:
    first = open_engine(clock=clock).queue("jobs", policy=QueuePolicy())
    id = first.offer("x").id
    delivery = taken(first)
    before = everything(first, raw)
    calls: list[Callable[[Any], Any]] = [
        lambda queue: queue.offer("y"), lambda queue: queue.offer_many(["y"]), lambda queue: queue.take(),
        lambda queue: queue.ack(delivery), lambda queue: queue.renew(delivery), lambda queue: queue.cancel(id),
        lambda queue: queue.pause(), lambda queue: queue.maintain(), lambda queue: queue.get(id),
        lambda queue: queue.exchange([delivery], 1), lambda queue: queue.counts(), lambda queue: queue.jobs(),
    ]  # fmt: skip
    late = open_engine(clock=clock).queue("jobs", policy=QueuePolicy(**{field: OTHER[field]}))
    for call in calls:
        with pytest.raises(ConfigurationConflict) as caught:
            call(late)
        named = [name for name in OTHER if f"{name} is" in str(caught.value)]
        assert named == [field]
    assert everything(first, raw) == before


def everything(queue: Queue[Any], raw: Any) -> dict[str, Any]:
    """All that the keys of the queue hold, apart from who was answered last."""
    root = root_of(queue)
    keys = [key.decode() for key in raw.scan_iter(match="*", count=1000) if key.decode().startswith(root)]
    found: dict[str, Any] = {key: raw.dump(key) for key in keys if key != root}
    found[root] = {field: text for field, text in raw.hgetall(root).items() if not field.startswith(b"s.")}
    return found


@pytest.mark.every_server
def test_a_conflict_names_every_different_field(open_engine: OpenEngine, clock: ManualClock) -> None:
    open_engine(clock=clock).queue("jobs", policy=QueuePolicy()).offer("x")
    with pytest.raises(ConfigurationConflict) as caught:
        open_engine(clock=clock).queue("jobs", policy=QueuePolicy(**OTHER)).take()
    for name in OTHER:
        assert f"{name} is" in str(caught.value)


def test_the_same_values_do_not_conflict(open_engine: OpenEngine, clock: ManualClock) -> None:
    open_engine(clock=clock).queue("jobs", policy=QueuePolicy(**OTHER)).offer("x")
    again = open_engine(clock=clock).queue("jobs", policy=QueuePolicy(**OTHER))
    assert not again.offer("y").duplicate
    defaults = open_engine(clock=clock).queue("plain", policy=QueuePolicy())
    defaults.offer("x")
    assert not open_engine(clock=clock).queue("plain", policy=QueuePolicy(**DEFAULT)).offer("y").duplicate


def test_the_fields_left_out_are_adopted(open_engine: OpenEngine, clock: ManualClock) -> None:
    open_engine(clock=clock).queue("jobs", policy=QueuePolicy(**OTHER)).offer("x")
    late = open_engine(clock=clock).queue("jobs", policy=QueuePolicy(max_attempts=3))
    delivery = taken(late)
    assert (delivery.max_attempts, delivery.timeout_ms) == (3, 5000)
    assert delivery.expires_ms == clock.now_ms + 77_000


def test_the_defaults_are_the_ones_of_the_contract(queue: Queue[Any]) -> None:
    assert fields(queue.alter(QueuePolicy())) == fields(QueuePolicy(**DEFAULT)) == fields(QueuePolicy())


@pytest.mark.every_server
@pytest.mark.parametrize("field", list(OTHER))
def test_alter_changes_the_given_field_alone_and_returns_the_old_policy(
    open_engine: OpenEngine, clock: ManualClock, field: str
) -> None:
    queue = open_engine(clock=clock).queue("jobs", policy=QueuePolicy(lease=40))
    queue.offer("x")
    old = fields(queue.alter(QueuePolicy(**{field: OTHER[field]})))
    assert old == {**fields(QueuePolicy()), "lease": 40}
    assert fields(queue.alter(QueuePolicy())) == {**old, field: getattr(QueuePolicy(**{field: OTHER[field]}), field)}


@pytest.mark.every_server
def test_alter_strands_nobody_and_a_later_start_with_the_old_value_conflicts(
    open_engine: OpenEngine, clock: ManualClock
) -> None:
    policy = QueuePolicy(lease=40)
    running = open_engine(clock=clock).queue("jobs", policy=policy)
    running.offer_many(range(3))
    delivery = taken(running)
    operator = open_engine(clock=clock).queue("jobs")
    assert operator.alter(QueuePolicy(lease=50)).lease == 40
    assert taken(running).expires_ms == clock.now_ms + 50_000
    assert running.renew(delivery).expires_ms == clock.now_ms + 50_000
    assert running.ack(delivery) == "acknowledged"
    with pytest.raises(ConfigurationConflict, match="lease"):
        open_engine(clock=clock).queue("jobs", policy=policy).take()
    assert taken(open_engine(clock=clock).queue("jobs", policy=QueuePolicy(lease=50))).value == 2


def test_alter_creates_a_queue_and_declares_it(open_engine: OpenEngine, clock: ManualClock) -> None:
    open_engine(clock=clock).queue("jobs").alter(QueuePolicy(lease=50))
    with pytest.raises(ConfigurationConflict, match="lease"):
        open_engine(clock=clock).queue("jobs", policy=QueuePolicy(lease=40)).offer("x")
    queue = open_engine(clock=clock).queue("jobs")
    queue.offer("x")
    assert taken(queue).expires_ms == clock.now_ms + 50_000


def test_a_declaration_of_a_missing_queue_is_held_at_its_first_write(
    open_engine: OpenEngine, clock: ManualClock
) -> None:
    early = open_engine(clock=clock).queue("jobs", policy=QueuePolicy(lease=40))
    assert early.take() is None
    open_engine(clock=clock).queue("jobs", policy=QueuePolicy(lease=50)).offer("x")
    with pytest.raises(ConfigurationConflict, match="lease"):
        early.take()
    with pytest.raises(ConfigurationConflict, match="lease"):
        early.offer("y")


def test_the_policy_takes_effect_for_jobs_offered_before(open_engine: OpenEngine, clock: ManualClock) -> None:
    queue = open_engine(clock=clock).queue("jobs")
    queue.offer("x")
    queue.alter(QueuePolicy(max_attempts=1, backoff=Backoff.fixed(3), timeout=8))
    delivery = taken(queue)
    assert (delivery.max_attempts, delivery.timeout_ms) == (1, 8000)
    assert queue.fail(delivery, "broken").state is JobState.DEAD


@pytest.mark.every_server
def test_the_codec_of_the_first_write_holds_for_all(open_engine: OpenEngine, clock: ManualClock) -> None:
    packed = open_engine(clock=clock).queue("jobs", codec="msgpack")
    packed.offer({"n": 2**63})
    adopting = open_engine(clock=clock).queue("jobs")
    assert taken(adopting).value == {"n": 2**63}
    adopting.offer("from the other side")
    assert taken(packed).value == "from the other side"
    with pytest.raises(ConfigurationConflict, match="codec"):
        open_engine(clock=clock).queue("jobs", codec="json").offer("x")
    with pytest.raises(ConfigurationConflict, match="codec"):
        open_engine(clock=clock).queue("jobs", codec="json").take()


def test_the_codec_is_frozen_also_without_any_declared_policy(open_engine: OpenEngine, clock: ManualClock) -> None:
    open_engine(clock=clock).queue("jobs").offer("x")
    with pytest.raises(ConfigurationConflict, match="codec"):
        open_engine(clock=clock).queue("jobs", codec="msgpack", policy=QueuePolicy(lease=3)).offer("y")
    declaring = open_engine(clock=clock).queue("jobs", policy=QueuePolicy(lease=3))
    assert taken(declaring).value == "x"


def test_a_result_follows_the_codec_of_the_queue(open_engine: OpenEngine, clock: ManualClock, raw: redis.Redis) -> None:
    open_engine(clock=clock).queue("jobs", codec="msgpack").offer("x")
    adopting = open_engine(clock=clock).queue("jobs")
    delivery = taken(adopting)
    adopting.ack(delivery, [1])
    assert raw.hget(f"{root_of(adopting)}:result", delivery.id) == b"\x91\x01"
    job = adopting.get(delivery.id)
    assert job is not None
    assert job.result == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 1, "completed": Keep(count=1)}, "both"),
        ({"age": 1, "dead": Keep()}, "both"),
        ({"dead": Keep(completed=Keep(count=1))}, "flat"),
        ({"dead": 5}, "dead"),
    ],
)
def test_a_keep_of_both_forms_is_refused_at_its_definition(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Keep(**options)


@pytest.mark.parametrize("ceiling", [{}, {"finished": 5}, {"completed": 5, "ready": 1}, {5: 5}])
def test_a_history_ttl_of_no_or_unknown_states_is_refused(ceiling: Any) -> None:
    """effect-mq 41: `{}` and an unknown key throw at construction."""
    with pytest.raises(InvalidInput, match="history_ttl"):
        QueuePolicy(history_ttl=ceiling)


@pytest.mark.parametrize("policy", [5, "fast", {"lease": 5}, QueuePolicy])
def test_a_policy_is_a_queue_policy(open_engine: OpenEngine, policy: Any) -> None:
    engine = open_engine()
    with pytest.raises(InvalidInput, match="policy"):
        engine.queue("jobs", policy=policy)
    with pytest.raises(InvalidInput, match="policy"):
        engine.queue("other").alter(policy)


def test_one_name_is_one_object_and_other_options_are_refused(open_engine: OpenEngine) -> None:
    engine = open_engine()
    queue = engine.queue("jobs", int, policy=QueuePolicy(lease=5))
    assert engine.queue("jobs").name == queue.name
    assert engine.queue("jobs", int, policy=QueuePolicy(lease=5)).name == "jobs"
    for options in ({"type": str}, {"policy": QueuePolicy(lease=6)}, {"validate": False}, {"codec": "msgpack"}):
        with pytest.raises(InvalidInput, match="options"):
            engine.queue("jobs", **options)
