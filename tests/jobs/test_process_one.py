"""Take one job, run its handler under a kept lease, and settle it (SPEC 3.3)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from redisq import (
    AsyncEngine,
    Backoff,
    Delivery,
    Engine,
    InvalidInput,
    JobState,
    LeaseLost,
    Queue,
    QueuePolicy,
)
from redisq.testing import ManualClock
from tests.jobs.steps import state_of, taken
from tests.support.servers import Server

WAIT = 10.0
"""The bound of a wait in earnest; it ends long before."""


class Stop(BaseException):
    """Neither an Exception nor one of the known ways out."""


@pytest.mark.every_server
def test_the_return_value_is_the_result(queue: Queue[Any]) -> None:
    id = queue.offer({"a": 1}).id
    seen: list[Delivery] = []

    def handle(delivery: Delivery) -> Any:
        seen.append(delivery)
        return {"sum": delivery.value["a"] + 1}

    assert queue.process_one(handle) is True
    job = queue.get(id)
    assert job is not None
    assert (job.state, job.result, job.attempts) == ("completed", {"sum": 2}, 1)
    assert (seen[0].id, seen[0].attempt, seen[0].lost) == (id, 1, False)
    assert queue.process_one(handle) is False
    assert len(seen) == 1


@pytest.mark.every_server
def test_an_exception_is_recorded_and_raised_again(queue: Queue[Any], clock: ManualClock) -> None:
    """persistedqueue 12: the caller sees the error; the next take has attempt 2."""
    id = queue.offer("x").id
    error = ValueError("broken")

    def handle(delivery: Delivery) -> None:
        raise error

    with pytest.raises(ValueError, match="broken") as caught:
        queue.process_one(handle)
    assert caught.value is error
    job = queue.get(id)
    assert job is not None
    assert (job.state, job.due_ms) == ("scheduled", clock.now_ms + 1000)
    assert job.error is not None
    assert (job.error.type, job.error.message) == ("ValueError", "broken")
    assert "in handle" in job.error.traceback
    clock.advance(1)
    assert taken(queue).attempt == 2


def test_the_last_failure_is_dead(queue: Queue[Any]) -> None:
    """persistedqueue 15."""
    id = queue.offer("x", max_attempts=1).id
    with pytest.raises(ZeroDivisionError):
        queue.process_one(lambda delivery: 1 / 0)
    assert state_of(queue, id) is JobState.DEAD


@pytest.mark.every_server
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, Stop, GeneratorExit])
def test_an_interruption_hands_the_job_back_and_costs_no_attempt(queue: Queue[Any], kind: type[BaseException]) -> None:
    """persistedqueue 5 to 7: another taker gets it, attempt 1 again; also when one attempt is all it has."""
    id = queue.offer("x", max_attempts=1).id
    queue.offer("next")

    def handle(delivery: Delivery) -> None:
        raise kind

    with pytest.raises(kind):
        queue.process_one(handle)
    job = queue.get(id)
    assert job is not None
    assert (job.state, job.attempts, job.error, queue.attempts(id)) == ("ready", 0, None, [])
    delivery = taken(queue)
    assert (delivery.id, delivery.attempt) == (id, 1)


@pytest.mark.every_server
@pytest.mark.parametrize("result", ["r" * (64 * 1024 - 1), object(), {1, object()}], ids=["large", "object", "inside"])
def test_a_result_that_can_not_be_kept_fails_the_job_finally(queue: Queue[Any], result: Any) -> None:
    """effect-mq 23: a success that can't be encoded: failed, the handler ran once, never again."""
    id = queue.offer("x").id
    calls: list[int] = []

    def handle(delivery: Delivery) -> Any:
        calls.append(1)
        return result

    with pytest.raises(InvalidInput, match="result"):
        queue.process_one(handle)
    job = queue.get(id)
    assert job is not None
    assert (job.state, job.attempts, job.result) == ("dead", 1, None)
    assert job.error is not None
    assert "result" in job.error.message
    assert queue.process_one(handle) is False
    assert len(calls) == 1


def test_a_result_of_64_kib_is_kept(queue: Queue[Any]) -> None:
    id = queue.offer("x").id
    assert queue.process_one(lambda delivery: "r" * (64 * 1024 - 2))
    job = queue.get(id)
    assert job is not None
    assert len(job.result) == 64 * 1024 - 2


def test_a_result_of_another_type_than_declared_fails_the_job_finally(engine: Engine) -> None:
    queue = engine.queue("jobs", result_type=int)
    id = queue.offer("x").id
    with pytest.raises(InvalidInput, match="result"):
        queue.process_one(lambda delivery: "text")
    assert state_of(queue, id) is JobState.DEAD


@pytest.mark.every_server
def test_the_lease_is_renewed_while_the_handler_runs(queue: Queue[Any], clock: ManualClock) -> None:
    """persistedqueue 22 and 23: a handler longer than its lease is not delivered twice."""
    id = queue.offer("x").id

    def handle(delivery: Delivery) -> str:
        # by the servers' clock the lease would be over: renewals, sent by the real one, must move its end
        clock.advance(0.25)
        wait_until(lambda: lease_end(queue, id) > delivery.expires_ms)
        clock.advance(0.25)
        assert queue.take() is None
        return "done"

    assert queue.process_one(handle, lease=0.4, renew_every=0.02)
    assert state_of(queue, id) is JobState.COMPLETED


def lease_end(queue: Queue[Any], id: str) -> int:
    job = queue.get(id)
    assert job is not None
    return job.lease_expires_ms or 0


def wait_until(reached: Callable[[], bool]) -> None:
    """Looks until it is so; the pause gives the machine to the one who makes it so."""
    pause = threading.Event()
    for _ in range(int(WAIT * 100)):
        if reached():
            return
        pause.wait(0.01)
    raise AssertionError("waited in vain")


@pytest.mark.every_server
def test_a_lease_lost_to_the_server_records_nothing(queue: Queue[Any], clock: ManualClock) -> None:
    """effect-mq 26: no failure, no attempt by this run, the new owner's state is intact."""
    id = queue.offer("x").id
    other: list[Delivery] = []

    def handle(delivery: Delivery) -> str:
        clock.advance(60)
        queue.maintain()
        clock.advance(60)
        other.append(taken(queue))
        return "too late"

    with pytest.raises(LeaseLost):
        queue.process_one(handle, lease=30)
    job = queue.get(id)
    assert job is not None
    assert (job.state, job.attempts, job.result) == ("leased", 2, None)
    assert [row.outcome for row in queue.attempts(id)] == ["lapsed"]
    assert queue.ack(other[0]) == "acknowledged"


def test_a_failure_after_the_lease_was_lost_records_nothing(queue: Queue[Any], clock: ManualClock) -> None:
    id = queue.offer("x").id

    def handle(delivery: Delivery) -> None:
        clock.advance(60)
        raise ValueError("late")

    with pytest.raises(LeaseLost):
        queue.process_one(handle, lease=30)
    clock.advance(60)
    again = taken(queue)
    assert again.attempt == 2
    assert [row.outcome for row in queue.attempts(id)] == ["lapsed"]


def test_a_sync_handler_sees_that_its_lease_is_lost(server: Server, namespace: str, clock: ManualClock) -> None:
    """SPEC 3.3: a renewal that the server refuses sets `delivery.lost`; it can't stop a sync handler."""
    with Engine(server.url, namespace=namespace, clock=clock) as engine:
        queue = engine.queue("jobs")
        queue.offer("x")
        seen: list[bool] = []

        def handle(delivery: Delivery) -> str:
            clock.advance(60)
            wait_until(lambda: delivery.lost)
            seen.append(delivery.lost)
            return "too late"

        with pytest.raises(LeaseLost):
            queue.process_one(handle, lease=30, renew_every=0.01)
        assert seen == [True]
        clock.advance(60)
        assert taken(queue).attempt == 2


@pytest.mark.asyncio
async def test_a_lost_lease_cancels_an_async_handler(
    open_async_engine: Callable[..., AsyncEngine], clock: ManualClock
) -> None:
    queue = open_async_engine(clock=clock).queue("jobs")
    offer = await queue.offer("x")
    events: list[str] = []

    async def handle(delivery: Delivery) -> None:
        clock.advance(60)
        try:
            await asyncio.sleep(WAIT)
        except asyncio.CancelledError:
            events.append("cancelled")
            raise

    with pytest.raises(LeaseLost):
        await queue.process_one(handle, lease=30, renew_every=0.01)
    assert events == ["cancelled"]
    job = await queue.get(offer.id)
    assert job is not None
    assert job.error is None


@pytest.mark.asyncio
async def test_cancelling_a_process_one_hands_the_job_back(
    open_async_engine: Callable[..., AsyncEngine], clock: ManualClock
) -> None:
    """persistedqueue 5: the interrupted handler's job goes to the next taker, attempt 1."""
    queue = open_async_engine(clock=clock).queue("jobs")
    await queue.offer("x", max_attempts=1)
    running = asyncio.Event()

    async def handle(delivery: Delivery) -> None:
        running.set()
        await asyncio.sleep(WAIT)

    task = asyncio.create_task(queue.process_one(handle))
    await asyncio.wait_for(running.wait(), WAIT)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    again = await queue.take()
    assert again is not None
    assert again.attempt == 1


@pytest.mark.asyncio
async def test_a_handler_that_cancels_itself_hands_the_job_back(
    open_async_engine: Callable[..., AsyncEngine], clock: ManualClock
) -> None:
    """effect-mq 23, where SPEC 3.3 differs: cancellation hands the job back, it counts no attempt."""
    queue = open_async_engine(clock=clock).queue("jobs")
    offer = await queue.offer("x")

    async def handle(delivery: Delivery) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await queue.process_one(handle)
    job = await queue.get(offer.id)
    assert job is not None
    assert (job.state, job.attempts) == ("ready", 0)


def test_a_handler_that_settled_its_own_job_with_an_ack_is_repeated_quietly(queue: Queue[Any]) -> None:
    id = queue.offer("x").id

    def handle(delivery: Delivery) -> None:
        queue.ack(delivery)

    assert queue.process_one(handle) is True
    assert state_of(queue, id) is JobState.COMPLETED


def test_a_handler_that_released_its_own_job_has_lost_it(queue: Queue[Any]) -> None:
    id = queue.offer("x").id

    def handle(delivery: Delivery) -> None:
        queue.release(delivery)

    with pytest.raises(LeaseLost):
        queue.process_one(handle)
    assert state_of(queue, id) is JobState.READY


def test_a_cancel_asked_for_during_the_run_ends_a_failure_cancelled(queue: Queue[Any]) -> None:
    """effect-mq 15."""
    id = queue.offer("x").id

    def handle(delivery: Delivery) -> None:
        queue.cancel(delivery.id)
        raise ValueError("stopped")

    with pytest.raises(ValueError, match="stopped"):
        queue.process_one(handle)
    assert state_of(queue, id) is JobState.CANCELLED


@pytest.mark.parametrize(("lease", "renew_every"), [(1, 1), (1, 2), (0.001, 0.001), (None, 30), (None, 31), (5, 0)])
def test_a_renewal_pause_is_more_than_nothing_and_less_than_the_lease(
    queue: Queue[Any], lease: Any, renew_every: Any
) -> None:
    id = queue.offer("x").id
    with pytest.raises(InvalidInput, match="renew_every"):
        queue.process_one(lambda delivery: None, lease=lease, renew_every=renew_every)
    job = queue.get(id)
    assert job is not None
    assert (job.state, job.attempts) == ("ready", 0)


def test_an_async_handler_needs_an_async_engine(server: Server, namespace: str, clock: ManualClock) -> None:
    with Engine(server.url, namespace=namespace, clock=clock) as engine:
        queue = engine.queue("jobs")
        id = queue.offer("x").id

        async def handle(delivery: Delivery) -> None:
            raise AssertionError

        with pytest.raises(InvalidInput, match="async"):
            queue.process_one(handle)
        assert state_of(queue, id) is not JobState.COMPLETED


def test_the_policy_s_back_off_holds_for_handlers(engine: Engine, clock: ManualClock) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(backoff=Backoff.delays(4, 9)))
    queue.offer("x")
    for wait in (4, 9, 9):
        with pytest.raises(ZeroDivisionError):
            queue.process_one(lambda delivery: 1 / 0)
        clock.advance(wait - 0.001)
        assert queue.process_one(lambda delivery: None) is False
        clock.advance(0.001)
