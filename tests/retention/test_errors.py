"""What went wrong, at a glance: errors() by name and type, and what a quarantined job shows (SPEC 3.4)."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from redisq import Engine, ErrorDetail, ErrorGroup, Failed, InvalidInput, JobState, NewJob, Queue, QueuePolicy
from redisq.model import TERMINAL
from redisq.testing import ManualClock
from tests.jobs.steps import drained, end, killed, root_of, taken, walked
from tests.support.fronts import OpenEngine


@pytest.mark.every_server
def test_dead_jobs_are_grouped_by_name_and_type_the_largest_group_first(queue: Queue[Any], clock: ManualClock) -> None:
    start = clock.now_ms
    for number in range(9):
        queue.offer(number, name="mail" if number < 6 else "")
        queue.fail(taken(queue), ErrorDetail("OSError" if number % 3 else "Rare"), final=True)
        clock.advance(1)
    assert queue.errors("dead") == [
        ErrorGroup(name="mail", type="OSError", count=4, newest_ms=start + 5000),
        ErrorGroup(name="", type="OSError", count=2, newest_ms=start + 8000),
        ErrorGroup(name="mail", type="Rare", count=2, newest_ms=start + 3000),
        ErrorGroup(name="", type="Rare", count=1, newest_ms=start + 6000),
    ]


@pytest.mark.every_server
def test_names_and_types_that_run_into_one_another_stay_apart(queue: Queue[Any]) -> None:
    pairs = {("a", "b:c"), ("a:b", "c"), ("", "a:bc"), ("a:b:c", ""), ("1:a", "b"), ("1", ":ab"), ("é\n", "ü|,;")}
    for name, kind in sorted(pairs):
        queue.offer("x", name=name)
        queue.fail(taken(queue), ErrorDetail(kind, "message", "traceback"), final=True)
    assert {(group.name, group.type) for group in queue.errors("dead")} == pairs
    assert {group.count for group in queue.errors("dead")} == {1}


def test_two_thousand_five_hundred_jobs_are_counted_in_steps(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer_many([NewJob(number, name=f"n{number % 2}") for number in range(2500)])
    for batch in range(5):
        clock.advance(1)
        settled = [
            Failed(each, ErrorDetail(f"E{each.value % 5}", "m" * 2000), final=True) for each in queue.take_many(500)
        ]
        queue.exchange(settled, 0)
        assert len(settled) == 500, batch
    groups = queue.errors(JobState.DEAD)
    assert {(group.name, group.type): group.count for group in groups} == {
        (f"n{number % 2}", f"E{number % 5}"): 250 for number in range(10)
    }
    assert {group.newest_ms for group in groups} == {clock.now_ms}


@pytest.mark.every_server
def test_every_ending_with_an_error_has_its_group(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer("lapses", max_attempts=1)
    taken(queue, lease=1)
    clock.advance(1)
    queue.maintain()
    end(queue, "quarantined")
    asked = queue.offer("asked").id
    delivery = taken(queue)
    queue.cancel(asked)
    queue.fail(delivery, ValueError("no more"))
    end(queue, "completed")
    end(queue, "cancelled")
    found = {state: [(group.type, group.count) for group in queue.errors(state)] for state in TERMINAL}
    assert found == {
        "completed": [], "dead": [("LeaseLapsed", 1)], "cancelled": [("ValueError", 1)],
        "quarantined": [("Quarantined", 1)],
    }  # fmt: skip


def test_what_was_retried_or_purged_is_no_longer_counted(queue: Queue[Any]) -> None:
    for kind in ("A", "A", "B"):
        queue.offer("x")
        queue.fail(taken(queue), ErrorDetail(kind), final=True)
    queue.retry_many("dead", error="B")
    queue.remove(walked(queue, state="dead")[0].id)
    assert [(group.type, group.count) for group in queue.errors("dead")] == [("A", 1)]
    queue.purge("dead")
    assert queue.errors("dead") == []


@pytest.mark.parametrize("rung", ["off", "transitions", "full"])
def test_the_type_is_there_on_every_rung(engine: Engine, rung: str) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(history=rung))
    queue.offer("x")
    queue.fail(taken(queue), OSError("secret"), final=True)
    assert [group.type for group in queue.errors("dead")] == ["OSError"]


@pytest.mark.parametrize("state", ["ready", "scheduled", "leased", "blocked", "nothing"])
def test_only_finished_jobs_are_grouped(queue: Queue[Any], state: str) -> None:
    with pytest.raises(InvalidInput, match="state"):
        queue.errors(state)


def test_a_queue_that_is_not_there_has_no_errors(queue: Queue[Any], keys: Any) -> None:
    assert queue.errors("dead") == []
    assert keys() == []


# quarantine


@pytest.mark.every_server
@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_an_undecodable_payload_is_shown_raw_with_its_reason(
    open_engine: OpenEngine, clock: ManualClock, codec: str
) -> None:
    """Seed 004: poison messages are inspected, fixed and retried."""
    sender = open_engine(clock=clock).queue("jobs", codec=codec)
    receiver = open_engine(clock=clock).queue("jobs", int, codec=codec)
    good, bad = sender.offer(5).id, sender.offer(["no number"], name="n", metadata={"from": "there"}).id
    assert [each.id for each in drained(receiver)] == [good]
    job = receiver.get(bad)
    assert job is not None
    assert job.state is JobState.QUARANTINED
    assert job.value == (b'["no number"]' if codec == "json" else b"\x91\xa9no number")
    assert job.error is not None
    assert job.error.type == "Undecodable"
    assert "int" in job.error.message
    assert (job.name, job.metadata) == ("n", {"from": "there"})
    assert walked(receiver, state="quarantined") == [job]
    assert receiver.errors("quarantined") == [ErrorGroup(name="n", type="Undecodable", count=1, newest_ms=clock.now_ms)]
    # whoever reads it as it was meant can go on with it
    assert receiver.retry_many("quarantined", error="Undecodable").done == 1
    assert taken(sender).value == ["no number"]


@pytest.mark.every_server
def test_a_quarantined_job_tells_the_reason_that_was_given(queue: Queue[Any]) -> None:
    id = queue.offer({"amount": -1}).id
    queue.quarantine(taken(queue), "amount must be positive, né?")
    job = queue.get(id)
    assert job is not None
    assert (job.value, job.error) == ({"amount": -1}, ErrorDetail("Quarantined", "amount must be positive, né?"))


@pytest.mark.leaves_damage
def test_a_damaged_entry_hides_no_group(queue: Queue[Any], raw: redis.Redis) -> None:
    ids = [killed(queue) for _ in range(3)]
    raw.hset(f"{root_of(queue)}:head", ids[1], "broken")
    assert [group.count for group in queue.errors("dead")] == [2]
