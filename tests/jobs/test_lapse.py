"""Leases that run out (SPEC 3.1, 3.5, 3.7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redisq import Ack, Backoff, Cancel, Engine, JobState, LeaseLost, NewJob, Queue, QueuePolicy
from redisq.testing import ManualClock
from tests.jobs.steps import Prefetcher, ids, state_of, taken, values
from tests.support.servers import Server

Noticer = Callable[[Any], Any]
NOTICERS: list[Any] = [
    pytest.param(lambda queue: queue.take_many(1), id="take"),
    pytest.param(lambda queue: queue.exchange([], 1), id="exchange"),
    pytest.param(lambda queue: queue.maintain(), id="maintain"),
]


@pytest.mark.every_server
@pytest.mark.parametrize("notice", NOTICERS)
def test_a_lapsed_lease_is_redelivered_with_the_next_attempt(
    queue: Queue[Any], clock: ManualClock, notice: Noticer
) -> None:
    """persistedqueue 20 and 25: a crash between take and ack; the job comes again with attempt 2, a back-off later."""
    id = queue.offer("x").id
    delivery = taken(queue, lease=5)
    clock.advance(4.999)
    notice(queue)
    assert state_of(queue, id) is JobState.LEASED
    clock.advance(0.001)
    notice(queue)
    job = queue.get(id)
    assert job is not None
    assert (job.state, job.due_ms, job.attempts) == ("scheduled", delivery.expires_ms + 1000, 1)
    assert job.error is not None
    assert "lease" in job.error.message
    clock.advance(1)
    assert taken(queue).attempt == 2
    assert [(row.outcome, row.finished_ms) for row in queue.attempts(id)] == [("lapsed", delivery.expires_ms)]


@pytest.mark.every_server
@pytest.mark.parametrize("notice", NOTICERS)
def test_the_last_attempt_that_lapses_is_dead_as_of_the_end_of_its_lease(
    queue: Queue[Any], clock: ManualClock, notice: Noticer
) -> None:
    """persistedqueue 21: attempts = maxAttempts and no lock: failed, element intact, the reason says it expired."""
    id = queue.offer({"e": 1}, max_attempts=1).id
    delivery = taken(queue, lease=5)
    clock.advance(3600)
    notice(queue)
    job = queue.get(id)
    assert job is not None
    assert (job.state, job.value, job.attempts, job.finished_ms) == ("dead", {"e": 1}, 1, delivery.expires_ms)
    assert job.error is not None
    assert "lease" in job.error.message
    assert [row.outcome for row in queue.attempts(id)] == ["lapsed"]
    assert queue.counts()[JobState.LEASED] == 0
    assert queue.take() is None


@pytest.mark.every_server
def test_two_lapses_use_up_two_attempts_and_the_old_token_can_not_ack(queue: Queue[Any], clock: ManualClock) -> None:
    """effect-mq 9: first expiry: again; second: failed with the reason; the ledger says lapsed, lapsed, 1 and 2."""
    id = queue.offer("x", max_attempts=2).id
    first = taken(queue, lease=1)
    clock.advance(1)
    assert queue.take() is None
    clock.advance(1)
    second = taken(queue, lease=1)
    clock.advance(1)
    assert queue.take() is None
    assert state_of(queue, id) is JobState.DEAD
    assert [(row.number, row.outcome) for row in queue.attempts(id)] == [(1, "lapsed"), (2, "lapsed")]
    for stale in (first, second):
        with pytest.raises(LeaseLost):
            queue.ack(stale)
    assert state_of(queue, id) is JobState.DEAD


def test_a_job_with_a_live_lease_is_not_delivered_again_and_neither_after_its_success(
    queue: Queue[Any], clock: ManualClock
) -> None:
    """persistedqueue 22 and 23: passes run while the lease is renewed; no second delivery, then or later."""
    queue.offer("x")
    delivery = taken(queue, lease=2)
    for _ in range(5):
        clock.advance(1.9)
        queue.renew(delivery, 2)
        assert queue.maintain().processed == 0
        assert queue.take() is None
    assert queue.ack(delivery) is Ack.ACKNOWLEDGED
    clock.advance(10)
    assert queue.take() is None


def test_the_leases_of_one_id_in_two_queues_are_kept_apart(engine: Engine, clock: ManualClock) -> None:
    """persistedqueue 23: two queues, the same custom id: both locks stay alive."""
    here, there = engine.queue("here"), engine.queue("there")
    here.offer("h", id="same")
    there.offer("t", id="same")
    mine, other = taken(here, lease=3), taken(there, lease=3)
    clock.advance(2)
    here.renew(mine, 3)
    clock.advance(1)
    assert there.maintain().by_category["lapsed"] == 1
    assert here.maintain().by_category["lapsed"] == 0
    assert here.ack(mine) is Ack.ACKNOWLEDGED
    with pytest.raises(LeaseLost):
        there.ack(other)


@pytest.mark.every_server
def test_a_lapse_without_back_off_goes_to_the_tail(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(backoff=Backoff.fixed(0)))
    queue.offer_many(["a", "b"])
    taken(queue, lease=1)
    clock.advance(1)
    assert [(each.value, each.attempt) for each in queue.take_many(2)] == [("b", 1), ("a", 2)]


def test_the_back_off_counts_from_the_end_of_the_lease(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer("x")
    delivery = taken(queue, lease=1)
    clock.advance(0.5)
    end = queue.renew(delivery, 1).expires_ms
    clock.advance(60)
    assert taken(queue).attempt == 2  # the wait has passed, too: recovered and promoted by one take
    job = queue.get(delivery.id)
    assert job is not None
    assert job.error is not None
    assert queue.attempts(delivery.id)[0].finished_ms == end


def test_leases_lapse_in_the_order_of_their_ends(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(backoff=Backoff.fixed(0)))
    queue.offer_many(list("abc"))
    for lease in (3, 1, 2):
        taken(queue, lease=lease)
    clock.advance(3)
    assert values(queue.take_many(3)) == ["b", "c", "a"]


@pytest.fixture
def prefetcher(server: Server, namespace: str, clock: ManualClock) -> Iterator[Prefetcher]:
    prefetcher = Prefetcher(server.url, namespace, clock)
    yield prefetcher
    prefetcher.close()


@pytest.mark.every_server
def test_an_unstarted_lease_that_lapses_goes_back_to_the_head_and_costs_nothing(
    queue: Queue[Any], clock: ManualClock, prefetcher: Prefetcher
) -> None:
    """persistedqueue 10: prefetched for takers that vanish: back in the queue with a refund."""
    queue.offer_many(list("abc"))
    found = prefetcher.take(2)
    assert values(found) == ["a", "b"]
    clock.advance(30)
    again = queue.take_many(3)
    assert [(each.value, each.attempt) for each in again] == [("a", 1), ("b", 1), ("c", 1)]
    assert queue.attempts(found[0].id) == []
    for stale in found:
        with pytest.raises(LeaseLost):
            queue.ack(stale)


@pytest.mark.every_server
def test_leases_begun_before_they_lapse_count_and_the_others_do_not(
    queue: Queue[Any], clock: ManualClock, prefetcher: Prefetcher
) -> None:
    """SPEC 7: a job that kills its worker must not burn the attempts of the batch-mates that never started."""
    queue.offer_many(list("abcd"))
    found = prefetcher.take(4, starts=1)
    assert "lease-lost" not in prefetcher.begin(found[1:2])
    clock.advance(30)
    queue.maintain()
    jobs = [queue.get(each.id) for each in found]
    assert [(job.state, job.attempts) for job in jobs if job] == [
        ("scheduled", 1), ("scheduled", 1), ("ready", 0), ("ready", 0),
    ]  # fmt: skip
    assert values(queue.take_many(2)) == ["c", "d"]


def test_an_unstarted_lease_can_be_settled_and_renewed_like_any_other(
    queue: Queue[Any], clock: ManualClock, prefetcher: Prefetcher
) -> None:
    queue.offer_many(list("abc"))
    acked, released, renewed = prefetcher.take(3)
    assert queue.ack(acked) is Ack.ACKNOWLEDGED
    queue.release(released)
    queue.renew(renewed, 60)
    clock.advance(30)
    assert values(queue.take_many(3)) == ["b"]
    clock.advance(30)
    again = taken(queue)
    assert (again.value, again.attempt) == ("c", 1)


def test_a_lease_that_ran_out_can_not_be_begun(queue: Queue[Any], clock: ManualClock, prefetcher: Prefetcher) -> None:
    queue.offer("x")
    found = prefetcher.take(1)
    clock.advance(30)
    assert prefetcher.begin(found) == ["lease-lost"]
    assert taken(queue).attempt == 1


def test_an_unstarted_lease_under_a_pending_cancel_ends_cancelled(
    queue: Queue[Any], clock: ManualClock, prefetcher: Prefetcher
) -> None:
    queue.offer("x", max_attempts=1)
    (found,) = prefetcher.take(1)
    assert queue.cancel(found.id) is Cancel.REQUESTED
    clock.advance(30)
    assert queue.take() is None
    job = queue.get(found.id)
    assert job is not None
    assert (job.state, job.finished_ms) == ("cancelled", found.expires_ms)


@pytest.mark.every_server
def test_a_lapsed_lease_that_nobody_noticed_reads_as_it_lies(queue: Queue[Any], clock: ManualClock) -> None:
    """SPEC 3.4, 3.7: still leased, with its past end; cancel asks, remove refuses."""
    id = queue.offer("x").id
    delivery = taken(queue, lease=1)
    clock.advance(100)
    job = queue.get(id)
    assert job is not None
    assert (job.state, job.lease_expires_ms) == ("leased", delivery.expires_ms)
    assert queue.counts()[JobState.LEASED] == 1
    assert ids(queue.jobs(state="leased").items) == [id]
    assert queue.remove(id) is False
    assert queue.cancel(id) is Cancel.REQUESTED
    assert queue.maintain().by_category["lapsed"] == 1
    assert state_of(queue, id) is JobState.CANCELLED


def test_a_pass_of_maintain_recovers_at_most_its_limit(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(backoff=Backoff.fixed(5)))
    queue.offer_many(range(25))
    queue.take_many(25, lease=1)
    clock.advance(2)
    done = [queue.maintain(10) for _ in range(3)]
    assert [each.by_category["lapsed"] for each in done] == [10, 10, 5]
    assert [each.pending for each in done] == [True, True, False]


def test_priority_and_options_survive_a_lapse(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(backoff=Backoff.fixed(0)))
    queue.offer_many([NewJob("high", priority=5, metadata={"k": "v"}, timeout=3), "plain"])
    taken(queue, lease=1)
    clock.advance(1)
    again = taken(queue)
    assert (again.value, again.priority, again.metadata, again.timeout_ms) == ("high", 5, {"k": "v"}, 3000)
