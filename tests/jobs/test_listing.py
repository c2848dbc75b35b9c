"""Pages of jobs and their cursors (SPEC 3.4)."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest

from redisq import InvalidInput, JobState, NewJob, Queue
from redisq.testing import ManualClock
from tests.jobs.steps import drained, finished, ids, killed, taken, values, walked

SIZES = [1, 3, 7, 50]


@pytest.mark.every_server
@pytest.mark.parametrize("size", SIZES)
def test_ready_jobs_are_listed_in_reverse_take_order(queue: Queue[Any], size: int) -> None:
    queue.offer_many(
        [NewJob(number, priority=priority) for number, priority in enumerate([0, 5, -5, 0, 5, -5, 0, 0, 1])]
    )
    listed = walked(queue, state="ready", limit=size)
    assert values(listed) == values(drained(queue))[::-1]


@pytest.mark.every_server
@pytest.mark.parametrize("size", SIZES)
def test_scheduled_jobs_are_listed_latest_due_first(queue: Queue[Any], size: int) -> None:
    queue.offer_many([NewJob(delay, delay=delay) for delay in (5, 1, 9, 3, 7)])
    assert values(walked(queue, state="scheduled", limit=size)) == [9, 7, 5, 3, 1]


@pytest.mark.parametrize("size", SIZES)
def test_leased_jobs_are_listed_latest_end_first(queue: Queue[Any], size: int) -> None:
    queue.offer_many(range(5))
    for lease in (50, 10, 90, 30, 70):
        taken(queue, lease=lease)
    assert values(walked(queue, state=JobState.LEASED, limit=size)) == [2, 4, 0, 3, 1]


@pytest.mark.every_server
@pytest.mark.parametrize("size", SIZES)
def test_terminal_jobs_are_listed_newest_finish_first(queue: Queue[Any], clock: ManualClock, size: int) -> None:
    queue.offer_many(range(8))
    batch = queue.take_many(8)
    for each in batch[::2]:
        queue.ack(each)
    clock.advance(1)
    for each in batch[1::2]:
        queue.ack(each)
    # the same millisecond: by arrival
    assert values(walked(queue, state="completed", limit=size)) == [7, 5, 3, 1, 6, 4, 2, 0]


@pytest.mark.every_server
@pytest.mark.parametrize("state", ["ready", "scheduled", "leased", "completed"])
def test_seven_rows_of_one_time_in_pages_of_three_are_seen_once_each(queue: Queue[Any], state: str) -> None:
    """effect-mq 50."""
    queue.offer_many([NewJob(number, delay=5 if state == "scheduled" else None) for number in range(7)])
    if state in ("leased", "completed"):
        batch = queue.take_many(7)
        if state == "completed":
            queue.ack_many(batch)
    assert sorted(values(walked(queue, state=state, limit=3))) == list(range(7))


def test_two_thousand_equal_scores_are_seen_once_each(queue: Queue[Any]) -> None:
    queue.offer_many([NewJob(number, delay=5) for number in range(2000)])
    assert sorted(values(walked(queue, state="scheduled", limit=77))) == list(range(2000))
    queue.offer_many([NewJob(number, name="n") for number in range(2000)])
    batch = drained(queue)
    assert sorted(values(walked(queue, state="leased", limit=300))) == list(range(2000))
    queue.ack_many(batch)
    assert values(walked(queue, state="completed", limit=999)) == list(range(1999, -1, -1))
    assert values(walked(queue, state="completed", name="n", limit=999)) == list(range(1999, -1, -1))


def test_rows_that_leave_and_come_between_the_pages_hide_nobody_who_stayed(queue: Queue[Any]) -> None:
    rng = random.Random(5)
    queue.offer_many([NewJob(0, id=f"{number:03}", delay=1 + number % 5) for number in range(200)])
    stayed = set(ids(walked(queue, state="scheduled")))
    seen: list[str] = []
    cursor = None
    while True:
        page = queue.jobs(state="scheduled", limit=9, cursor=cursor)
        seen += ids(page.items)
        cursor = page.cursor
        if cursor is None:
            break
        for id in rng.sample(sorted(stayed), 3) + seen[-1:]:  # the one that the cursor stands on leaves, too
            queue.remove(id)
            stayed.discard(id)
            queue.offer(0, delay=rng.randint(1, 6))
    assert len(seen) == len(set(seen))
    assert stayed <= set(seen)


@pytest.mark.every_server
def test_ready_jobs_that_leave_and_come_between_the_pages_hide_nobody_who_stayed(queue: Queue[Any]) -> None:
    rng = random.Random(6)
    queue.offer_many([NewJob(0, id=f"{number:03}", priority=number % 3 - 1) for number in range(90)])
    stayed = {f"{number:03}" for number in range(90)}
    seen: list[str] = []
    cursor = None
    while True:
        page = queue.jobs(state="ready", limit=7, cursor=cursor)
        seen += ids(page.items)
        cursor = page.cursor
        if cursor is None:
            break
        stayed.discard(taken(queue).id)
        gone = rng.choice(sorted(stayed))
        assert queue.cancel(gone) == "cancelled"
        stayed.discard(gone)
        queue.offer(0, priority=rng.randint(-1, 1))
    assert len(seen) == len(set(seen))
    assert stayed <= set(seen)


@pytest.mark.every_server
@pytest.mark.parametrize("size", SIZES)
def test_removed_and_cancelled_ready_jobs_and_offered_again_ids_are_no_ghosts(queue: Queue[Any], size: int) -> None:
    queue.offer_many([NewJob("old", id=f"{number:02}") for number in range(20)])
    for number in range(0, 20, 2):
        assert queue.remove(f"{number:02}")
    for number in range(1, 20, 4):
        assert queue.cancel(f"{number:02}") == "cancelled"
    queue.offer_many([NewJob("new", id=f"{number:02}") for number in (4, 2, 0)])
    queue.remove("02")
    queue.offer("newer", id="02")
    expected = ["03", "07", "11", "15", "19", "04", "00", "02"]
    assert ids(walked(queue, state="ready", limit=size)) == expected[::-1]
    counts = queue.counts()
    assert (counts[JobState.READY], counts[JobState.CANCELLED]) == (8, 5)
    assert ids(drained(queue, 3)) == expected
    assert queue.counts()[JobState.READY] == 0


def test_a_page_of_ghosts_may_be_empty_and_the_cursor_goes_on(queue: Queue[Any]) -> None:
    queue.offer_many([NewJob("x", id=f"{number:03}") for number in range(300)])
    for number in range(10, 300):
        queue.remove(f"{number:03}")
    page = queue.jobs(state="ready", limit=5)
    assert page.items == []
    assert page.cursor is not None
    assert ids(walked(queue, state="ready", limit=5)) == [f"{number:03}" for number in range(9, -1, -1)]


@pytest.mark.every_server
@pytest.mark.parametrize("state", ["ready", "scheduled", "leased", "completed", "dead", "cancelled", "quarantined"])
@pytest.mark.parametrize("size", [1, 4])
def test_a_name_selects_in_every_state(queue: Queue[Any], state: str, size: int) -> None:
    """effect-mq 50: cursor and filter walk without overlap."""
    into(queue, state, [NewJob(number, name=["mail", "", "mail:x"][number % 3]) for number in range(9)])
    for remainder, name in enumerate(["mail", "", "mail:x"]):
        found = values(walked(queue, state=state, name=name, limit=size))
        assert sorted(found) == [remainder, remainder + 3, remainder + 6]
        assert found == [value for value in values(walked(queue, state=state)) if value % 3 == remainder]
    assert walked(queue, state=state, name="other") == []


def into(queue: Queue[Any], state: str, jobs: list[NewJob]) -> None:
    """Offers the jobs and brings them to a state."""
    if state == "scheduled":
        jobs = [NewJob(job.value, name=job.name, delay=5) for job in jobs]
    offers = queue.offer_many(jobs)
    if state == "cancelled":
        for offer in offers:
            queue.cancel(offer.id)
    if state in ("leased", "completed", "dead", "quarantined"):
        for each in queue.take_many(100):
            if state == "completed":
                queue.ack(each)
            elif state == "dead":
                queue.fail(each, "broken", final=True)
            elif state == "quarantined":
                queue.quarantine(each, "poison")


def test_a_name_among_many_others_is_found_page_by_page(queue: Queue[Any]) -> None:
    queue.offer_many([NewJob(number, name="rare" if number % 700 == 0 else "common") for number in range(2500)])
    for state in ("ready", "leased", "completed"):
        if state == "leased":
            batch = drained(queue)
        elif state == "completed":
            queue.ack_many(batch)
        assert sorted(values(walked(queue, state=state, name="rare", limit=1))) == [0, 700, 1400, 2100]


@pytest.mark.every_server
@pytest.mark.parametrize("size", SIZES)
def test_all_states_are_walked_in_declared_order(queue: Queue[Any], size: int) -> None:
    finished(queue)
    killed(queue)
    queue.offer("q")
    queue.quarantine(taken(queue), "poison")
    queue.cancel(queue.offer("x").id)
    queue.offer("leased")
    taken(queue)
    queue.offer_many(["r1", "r2", "r3", NewJob("s1", delay=1), NewJob("s2", delay=2)])
    listed = [(job.state, job.value) for job in walked(queue, limit=size)]
    assert listed == [
        ("ready", "r3"), ("ready", "r2"), ("ready", "r1"), ("scheduled", "s2"), ("scheduled", "s1"),
        ("leased", "leased"), ("completed", "done"), ("dead", "dead"), ("cancelled", "x"), ("quarantined", "q"),
    ]  # fmt: skip


@pytest.mark.every_server
def test_a_listed_job_is_the_one_that_get_reads(queue: Queue[Any]) -> None:
    """effect-mq c6: list() omitted fields."""
    queue.offer(1, id="a", name="n", metadata={"k": "v"}, priority=2, max_attempts=3, timeout=4)
    queue.offer(2, delay=9)
    queue.offer(3)
    queue.fail(taken(queue), "broken")
    queue.offer(4)
    queue.ack(taken(queue), {"r": 1})
    listed = walked(queue)
    assert len(listed) == 4
    assert listed == [queue.get(job.id) for job in listed]


def test_no_jobs_make_one_empty_page_per_state(queue: Queue[Any]) -> None:
    queue.pause()
    for state in JobState:
        page = queue.jobs(state=state)
        assert (page.items, walked(queue, state=state)) == ([], [])
    assert walked(queue) == []
    assert queue.jobs(state="blocked").cursor is None


def test_a_cursor_of_another_listing_or_of_none_is_refused(queue: Queue[Any]) -> None:
    queue.offer_many([NewJob(number, delay=1) for number in range(3)])
    cursor = queue.jobs(state="scheduled", limit=1).cursor
    assert cursor is not None
    with pytest.raises(InvalidInput, match="cursor"):
        queue.jobs(state="ready", cursor=cursor)
    for wrong in ("", "x", "!!!", cursor + "x", "é", 5, b"x", True):
        with pytest.raises(InvalidInput, match="cursor"):
            queue.jobs(state="scheduled", cursor=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ("ready", "lx"), ("ready", "zq|1"), ("ready", "5|x"), ("ready", "l5|"), ("ready", "q"), ("completed", "x|y"),
        ("scheduled", "nan|a"), ("scheduled", "(5|a"), ("leased", "z5|x"), ("dead", "5"),
    ],
)  # fmt: skip
def test_a_cursor_that_was_made_up_is_refused(queue: Queue[Any], state: str, place: str) -> None:
    queue.offer("x")
    cursor = base64.urlsafe_b64encode(f"{state} {place}".encode()).decode()
    with pytest.raises(InvalidInput, match="cursor"):
        queue.jobs(state=state, cursor=cursor)


@pytest.mark.parametrize("state", ["Ready", "", "waiting", 5, b"ready"])
def test_an_unknown_state_is_refused(queue: Queue[Any], state: Any) -> None:
    with pytest.raises(InvalidInput, match="state"):
        queue.jobs(state=state)
