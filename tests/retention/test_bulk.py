"""retry_many and purge (SPEC 3.4): by state, name and error type, over any number of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from redisq import Bulk, Engine, ErrorDetail, Failed, InvalidInput, JobState, NewJob, Offer, Queue, QueuePolicy, flows
from redisq.testing import ManualClock
from redisq.testing.check import check
from tests.faults.proxy import Proxy, calls
from tests.jobs.steps import ENDINGS, drained, end, finished, ids, root_of, state_of, taken, values, walked
from tests.retention.conftest import Interrupted
from tests.support.fronts import OpenEngine
from tests.support.servers import Server

UNDONE = ["dead", "quarantined"]
PURGED = ["ready", "scheduled", *ENDINGS]


def into(queue: Queue[Any], state: str, jobs: list[NewJob], errors: Callable[[Any], str] = str) -> list[str]:
    """Offers the jobs and brings them all to a state, in their order; a dead one's error type is `errors(value)`."""
    if state == "scheduled":
        jobs = [NewJob(job.value, id=job.id, name=job.name, delay=60) for job in jobs]
    offered = ids(queue.offer_many(jobs))
    if state == "cancelled":
        for id in offered:
            queue.cancel(id)
    elif state == "completed":
        queue.ack_many(drained(queue))
    elif state == "dead":
        while batch := queue.take_many(1000):
            queue.exchange([Failed(each, ErrorDetail(errors(each.value)), final=True) for each in batch], 0)
    elif state == "quarantined":
        for each in drained(queue):
            queue.quarantine(each, "poison")
    return offered


@pytest.mark.every_server
@pytest.mark.parametrize("state", UNDONE)
def test_retried_jobs_line_up_in_the_order_in_which_they_ended(
    queue: Queue[Any], clock: ManualClock, state: str
) -> None:
    """Over several slices; whatever their ids, and also inside one millisecond."""
    queue.offer("before", id="before")
    before = taken(queue, lease=1000)
    queue.offer_many([NewJob(number, id=f"{(number * 7) % 250:03}") for number in range(250)])
    batch = drained(queue)
    order = sorted(batch, key=lambda each: (each.value * 13) % 250)
    for place, each in enumerate(order):
        if place % 60 == 0:
            clock.advance(0.001)
        if state == "dead":
            queue.fail(each, "broken", final=True)
        else:
            queue.quarantine(each, "poison")
    queue.release(before)
    assert queue.retry_many(state) == Bulk(done=250, vanished=0)
    assert ids(drained(queue)) == ["before", *ids(order)]
    counts = queue.counts()
    assert (counts[JobState(state)], counts[JobState.LEASED]) == (0, 251)


def test_two_thousand_five_hundred_dead_jobs_are_retried_in_order(queue: Queue[Any]) -> None:
    dead = into(queue, "dead", [NewJob(number) for number in range(2500)])
    assert queue.retry_many(JobState.DEAD) == Bulk(done=2500, vanished=0)
    assert queue.counts()[JobState.READY] == 2500
    assert ids(drained(queue)) == dead


@pytest.mark.every_server
@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"name": "mail"}, [0, 2, 4, 6]),
        ({"name": ""}, [1, 3, 5, 7]),
        ({"error": "OSError"}, [0, 1, 4, 5]),
        ({"name": "mail", "error": "OSError"}, [0, 4]),
        ({"name": "mail", "error": "Other"}, []),
        ({"name": "nobody"}, []),
        ({"error": "OS"}, []),
    ],
)
@pytest.mark.parametrize("verb", ["retry_many", "purge"])
def test_a_name_and_an_error_type_choose(
    queue: Queue[Any], verb: str, chosen: dict[str, str], expected: list[int]
) -> None:
    jobs = [NewJob(number, name="" if number % 2 else "mail") for number in range(8)]
    into(queue, "dead", jobs, lambda value: "OSError" if value % 4 < 2 else "ValueError")
    assert getattr(queue, verb)("dead", **chosen) == Bulk(done=len(expected), vanished=0)
    rest = [number for number in range(8) if number not in expected]
    assert sorted(values(walked(queue, state="dead"))) == rest
    assert values(drained(queue)) == (expected if verb == "retry_many" else [])


def test_the_type_is_known_also_where_no_detail_is_kept(engine: Engine) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(history="off"))
    into(queue, "dead", [NewJob(number) for number in range(4)], lambda value: "Odd" if value % 2 else "Even")
    assert queue.retry_many("dead", error="Odd").done == 2
    assert values(drained(queue)) == [1, 3]


@pytest.mark.every_server
def test_a_retried_job_has_all_its_attempts_again_and_its_past_goes_on(queue: Queue[Any]) -> None:
    id = queue.offer("x", max_attempts=2).id
    queue.fail(taken(queue), "one", retry_in=0)
    queue.fail(taken(queue), "two")
    queue.retry_many("dead")
    delivery = taken(queue)
    assert delivery.attempt == 1
    queue.fail(delivery, "three", retry_in=0)
    queue.ack(taken(queue))
    assert [(row.number, row.outcome) for row in queue.attempts(id)] == [
        (1, "retried"), (2, "dead"), (3, "retried"), (4, "completed"),
    ]  # fmt: skip
    assert [each.state for each in queue.history(id).entries][4:6] == ["dead", "ready"]


@pytest.mark.every_server
@pytest.mark.parametrize("state", PURGED)
def test_a_purge_takes_every_job_of_its_state_and_no_other(queue: Queue[Any], keys: Any, state: str) -> None:
    """Over several slices; counts stay exact, and a purged job is gone whole."""
    others = [each for each in PURGED if each != state]
    for other in others:
        if other not in ("ready", "scheduled"):
            end(queue, other, id=f"other {other}")
    into(queue, "scheduled", [NewJob(0, id="other scheduled")] if state != "scheduled" else [])
    purged = into(queue, state, [NewJob(number, name=f"n{number % 3}", metadata={"a": "b"}) for number in range(230)])
    if state != "ready":
        queue.offer(0, id="other ready")
    assert queue.purge(state) == Bulk(done=230, vanished=0)
    expected = {each: int(each in others) for each in JobState}
    assert queue.counts() == expected
    assert all(queue.get(id) is None and queue.attempts(id) == [] for id in (purged[0], purged[101], purged[-1]))
    assert sorted(ids(walked(queue))) == sorted(f"other {other}" for other in others)
    assert [key for key in keys() if ":group:" in key and ":n" in key] == []


@pytest.mark.parametrize("state", ["ready", "scheduled", "completed", "dead"])
def test_two_thousand_five_hundred_jobs_are_purged_by_name(queue: Queue[Any], state: str) -> None:
    jobs = [NewJob(number, id=f"{number:04}", name="rare" if number % 50 == 7 else "common") for number in range(2500)]
    into(queue, state, jobs)
    assert queue.purge(state, name="rare") == Bulk(done=50, vanished=0)
    assert queue.counts()[JobState(state)] == 2450
    assert queue.purge(state, name="common") == Bulk(done=2450, vanished=0)
    assert set(queue.counts().values()) == {0}
    assert queue.take() is None


@pytest.mark.every_server
def test_a_filtered_purge_of_ready_jobs_leaves_no_ghost_behind(queue: Queue[Any], keys: Any) -> None:
    """What stayed is taken in its order, purged ids can be offered again, and the dead entries go with the takes."""
    jobs = [
        NewJob(number, id=f"{number:03}", name="gone" if number % 3 else "stays", priority=(number % 5 == 0) * 2)
        for number in range(240)
    ]
    queue.offer_many(jobs)
    assert queue.purge("ready", name="gone") == Bulk(done=160, vanished=0)
    assert queue.counts()[JobState.READY] == 80
    stayed = [job for job in jobs if job.name == "stays"]
    expected = [job.id for job in stayed if job.priority] + [job.id for job in stayed if not job.priority]
    assert ids(walked(queue, state="ready", limit=7)) == expected[::-1]
    # purged ids are remembered, so these two are offered under the memory's end
    queue.alter(QueuePolicy(dedup=0))
    queue.offer_many([NewJob("again", id="001", name="gone"), NewJob("again", id="002", name="gone")])
    assert queue.purge("ready", name="gone").done == 2
    queue.offer("once more", id="002")
    assert ids(drained(queue, 9)) == [*expected, "002"]
    assert not any(key.endswith(":ghost") for key in keys())


@pytest.mark.every_server
def test_a_whole_purge_of_ready_jobs_takes_old_ghosts_along(queue: Queue[Any], keys: Any) -> None:
    queue.offer_many([NewJob(number, id=f"{number:03}", priority=number % 3 - 1) for number in range(150)])
    for number in range(0, 150, 4):
        queue.remove(f"{number:03}")
    assert queue.purge("ready") == Bulk(done=112, vanished=0)
    assert [key for key in keys() if key.rpartition(":")[2] in ("ready", "ranked", "ghost", "body", "head")] == []
    queue.offer("new")
    assert values(drained(queue)) == ["new"]


def test_a_purge_of_ready_jobs_steps_over_thousands_of_ghosts(queue: Queue[Any]) -> None:
    queue.offer_many([NewJob(number, name="late" if number >= 2300 else "early") for number in range(2500)])
    assert queue.purge("ready", name="early").done == 2300
    assert queue.purge("ready") == Bulk(done=200, vanished=0)
    assert queue.counts()[JobState.READY] == 0


@pytest.mark.every_server
@pytest.mark.parametrize("state", PURGED)
def test_a_purged_custom_id_goes_on_blocking(
    engine: Engine, clock: ManualClock, keys: Callable[..., list[str]], state: str
) -> None:
    """SPEC 3.7: from the job's end, or from the purge when it never finished. `remove` frees it at once."""
    queue = engine.queue("jobs", policy=QueuePolicy(dedup=100))
    into(queue, state, [NewJob("x", id=id) for id in ("purged", "removed")] + [NewJob("generated")])
    clock.advance(10)
    queue.remove("removed")
    assert queue.purge(state).done == 2
    assert queue.offer("again", id="purged") == Offer("purged", True, None)
    assert not queue.offer("again", id="removed").duplicate
    clock.advance(89.999)
    left = 0 if state in ENDINGS else 10
    assert queue.offer("again", id="purged").duplicate
    clock.advance(0.001 + left)
    assert not queue.offer("again", id="purged").duplicate
    assert queue.maintain().by_category["dedup"] == 0
    assert not any(key.endswith(":seen") for key in keys())


@pytest.mark.parametrize(
    ("verb", "state"),
    [("retry_many", each) for each in JobState if each not in UNDONE]
    + [("purge", JobState.LEASED), ("purge", "nothing"), ("retry_many", "")],
)
def test_a_state_that_it_is_not_for_is_refused(queue: Queue[Any], verb: str, state: str) -> None:
    with pytest.raises(InvalidInput, match="state"):
        getattr(queue, verb)(state)


def test_a_queue_that_is_not_there_has_nothing_to_do(queue: Queue[Any], keys: Callable[..., list[str]]) -> None:
    assert queue.retry_many("dead") == queue.purge("ready") == Bulk(done=0, vanished=0)
    assert keys() == []


# what happens between the steps


def test_what_dies_meanwhile_is_not_retried_again(alone: Engine, interrupted: Interrupted) -> None:
    """A job that fails at once again would else go round for ever."""
    queue: Queue[Any] = alone.queue("jobs")
    into(queue, "dead", [NewJob(number) for number in range(250)])

    def fail_one(step: int) -> None:
        queue.fail(taken(queue), "again", final=True)

    done = interrupted(queue, flows.retry_many(queue._core, "dead"), fail_one)
    assert done == Bulk(done=250, vanished=0)
    assert queue.counts()[JobState.DEAD] == 3
    assert values(walked(queue, state="dead")) == [2, 1, 0]


@pytest.mark.parametrize("verb", ["retry_many", "purge"])
def test_jobs_that_leave_and_come_meanwhile_do_no_harm(
    alone: Engine, clock: ManualClock, interrupted: Interrupted, verb: str
) -> None:
    """The one that the cursor stands on, those ahead of it and those behind it."""
    queue: Queue[Any] = alone.queue("jobs")
    into(queue, "dead", [NewJob(number, id=f"{number:03}", name="n") for number in range(300)])
    removed: list[int] = []

    def meddle(step: int) -> None:
        dead = {job.id for job in walked(queue, state="dead", limit=1000)}
        for number in (step * 100 - 1, step * 100, 300 - step * 100, 149, 150):
            if f"{number:03}" in dead:
                queue.remove(f"{number:03}")
                removed.append(number)
        clock.advance(0.001)
        late = queue.offer("late", priority=1, name="n").id
        queue.fail(taken(queue), "broken", final=True)
        assert state_of(queue, late) is JobState.DEAD

    done = interrupted(queue, getattr(flows, verb)(queue._core, "dead", name="n"), meddle)
    assert len(removed) > 2
    assert done == Bulk(done=300 - len(removed), vanished=0)
    assert set(values(walked(queue, state="dead"))) == {"late"}


@pytest.mark.leaves_damage
@pytest.mark.parametrize("verb", ["retry_many", "purge"])
def test_ids_that_vanished_are_counted_and_damaged_ones_stay(queue: Queue[Any], raw: redis.Redis, verb: str) -> None:
    dead = into(queue, "dead", [NewJob(number) for number in range(120)])
    head = f"{root_of(queue)}:head"
    raw.hdel(head, dead[3], dead[110])
    raw.hset(head, dead[5], "broken")
    whole: Any = raw.hget(head, dead[8])
    raw.hset(head, dead[7], whole.replace(b"d", b"c", 1))
    assert getattr(queue, verb)("dead") == Bulk(done=116, vanished=2)
    assert queue.counts()[JobState.DEAD] == 4
    assert len(drained(queue)) == (116 if verb == "retry_many" else 0)


@pytest.mark.every_server
@pytest.mark.leaves_damage
def test_a_damaged_ready_job_that_a_purge_met_is_named(
    queue: Queue[Any], raw: redis.Redis, findings: Callable[[], list[str]]
) -> None:
    """It was popped, so its index no longer tells of it."""
    queue.offer_many([NewJob(number, id=f"{number}") for number in range(6)])
    head = f"{root_of(queue)}:head"
    raw.hset(head, "1", "broken")
    raw.hdel(head, "4")
    assert queue.purge("ready") == Bulk(done=4, vanished=1)
    assert queue.counts()[JobState.READY] == 0
    found = "\n".join(findings())
    assert "job 1 was set aside: its head is damaged" in found
    assert "job 4 was set aside: it is ready but has no head" in found
    assert queue.remove("1")
    assert queue.remove("4")
    assert findings() == []


@pytest.fixture
def findings(server: Server, namespace: str) -> Iterator[Callable[[], list[str]]]:
    """What `check` says of the queue "jobs"."""
    with Engine(server.url, namespace=namespace) as engine:
        yield lambda: check(engine.queue("jobs"))


@pytest.mark.real_server
@pytest.mark.parametrize("verb", ["retry_many", "purge"])
def test_a_step_whose_reply_was_lost_counts_once(open_engine: OpenEngine, server: Server, verb: str) -> None:
    with Proxy(server.url) as proxy:
        queue = open_engine(url=proxy.url).queue("jobs")
        into(queue, "dead", [NewJob(number) for number in range(250)])
        proxy.eat_replies(3, calls("jobs/bulk"))
        assert getattr(queue, verb)("dead") == Bulk(done=250, vanished=0)
        assert len(proxy.eaten) == 3
        assert queue.counts()[JobState.DEAD] == 0


def test_a_purge_by_an_empty_type_takes_no_job_that_has_no_error(queue: Queue[Any]) -> None:
    id = finished(queue)
    into(queue, "dead", [NewJob("nameless")], lambda value: "")
    assert queue.purge("completed", error="") == Bulk(done=0, vanished=0)
    assert queue.purge("dead", error="") == Bulk(done=1, vanished=0)
    assert state_of(queue, id) is JobState.COMPLETED
