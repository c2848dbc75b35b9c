"""wait_result (SPEC 3.4): every ending of a job reaches those who wait for it, without polling.

The look that a waiter takes by itself every two seconds is put off to a minute, so that only a wake-up can end a wait.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import redis

from redisq import (
    AsyncEngine,
    CorruptRecord,
    Engine,
    ErrorDetail,
    JobCancelled,
    JobFailed,
    JobGone,
    Keep,
    Queue,
    QueuePolicy,
    SchemaMismatch,
    flows,
)
from redisq.testing import ManualClock
from tests.faults.proxy import Proxy, calls
from tests.jobs.steps import end, finished, root_of, taken
from tests.support.fronts import OpenEngine
from tests.support.idle import BOUND, Idle
from tests.support.servers import Server

WAIT = 50
KEPT = pytest.mark.parametrize("keep", [None, Keep(count=0)], ids=["kept", "not kept"])


@pytest.fixture(autouse=True)
def cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "LOOK_EVERY", 60.0)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
def idle(open_engine: OpenEngine, pool: ThreadPoolExecutor, raw: redis.Redis, server: Server, namespace: str) -> Idle:
    return Idle(open_engine, pool, raw, server.url, namespace)


@pytest.fixture
def wait(idle: Idle, clock: ManualClock) -> Callable[..., Future[Any]]:
    """Starts a waiter for a job of "jobs", with an engine of its own, and returns once it blocks."""

    def start(id: str, timeout: float | None = WAIT, **options: Any) -> Future[Any]:
        queue = idle.engine(clock=clock).queue("jobs", **options)
        return idle.start(lambda: queue.wait_result(id, timeout))

    return start


Wait = Callable[..., Future[Any]]


def ack_big(queue: Queue[Any], id: str, clock: ManualClock) -> None:
    queue.ack(taken(queue), "x" * (64 * 1024 - 2))


def fail_for_good(queue: Queue[Any], id: str, clock: ManualClock) -> None:
    queue.fail(taken(queue), ErrorDetail("OSError", "no route", "trace"), final=True)


def use_attempts_up(queue: Queue[Any], id: str, clock: ManualClock) -> None:
    for _ in range(2):
        queue.fail(taken(queue), ErrorDetail("OSError", "no route", "trace"), retry_in=0)


def lapse_in_maintain(queue: Queue[Any], id: str, clock: ManualClock) -> None:
    for _ in range(2):
        taken(queue, lease=1)
        clock.advance(1)
        queue.maintain()
        clock.advance(300)
        queue.maintain()


def lapse_in_take(queue: Queue[Any], id: str, clock: ManualClock) -> None:
    for _ in range(2):
        taken(queue, lease=1)
        clock.advance(1)
        queue.take()
        clock.advance(300)
    queue.take()


def quarantine(queue: Queue[Any], id: str, clock: ManualClock) -> None:
    queue.quarantine(taken(queue), "poison")


def cancel(queue: Queue[Any], id: str, clock: ManualClock) -> None:
    queue.cancel(id)


def cancel_and_fail(queue: Queue[Any], id: str, clock: ManualClock) -> None:
    delivery = taken(queue)
    queue.cancel(id)
    queue.fail(delivery, "stopped")


def cancel_and_release(queue: Queue[Any], id: str, clock: ManualClock) -> None:
    delivery = taken(queue)
    queue.cancel(id)
    queue.release(delivery)


def cancel_and_lapse(queue: Queue[Any], id: str, clock: ManualClock) -> None:
    taken(queue, lease=1)
    queue.cancel(id)
    clock.advance(1)
    queue.maintain()


def remove(queue: Queue[Any], id: str, clock: ManualClock) -> None:
    queue.remove(id)


def purge(queue: Queue[Any], id: str, clock: ManualClock) -> None:
    assert queue.purge("ready").done == 1


def delete(queue: Queue[Any], id: str, clock: ManualClock) -> None:
    queue.delete(force=True)


def delete_and_offer_again(queue: Queue[Any], id: str, clock: ManualClock) -> None:
    queue.delete(force=True)
    queue.offer("another", id=id)


Ending = Callable[[Queue[Any], str, ManualClock], None]
FAILED: list[tuple[Ending, str, str]] = [
    (fail_for_good, "OSError", "no route"), (use_attempts_up, "OSError", "no route"),
    (lapse_in_maintain, "LeaseLapsed", "lease ran out"), (lapse_in_take, "LeaseLapsed", "lease ran out"),
    (quarantine, "Quarantined", "poison"),
]  # fmt: skip
CANCELLED: list[Ending] = [cancel, cancel_and_fail, cancel_and_release, cancel_and_lapse]
GONE: list[Ending] = [remove, purge, delete, delete_and_offer_again]


def offered(engine: Engine, keep: Keep | None, **policy: Any) -> tuple[Queue[Any], str]:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=keep, max_attempts=2, **policy))
    return queue, queue.offer("work", id="job").id


def nothing_waits(queue: Queue[Any], raw: redis.Redis) -> bool:
    """Whether no registration is left, and every list that woke somebody goes by itself."""
    lists = list(raw.scan_iter(match=f"{root_of(queue)}:w:*"))
    return raw.exists(f"{root_of(queue)}:waiters") == 0 and all(0 < raw.pttl(key) <= 60_000 for key in lists)


@pytest.mark.real_server
@pytest.mark.every_server
@KEPT
@pytest.mark.parametrize("result", [{"a": [1, None]}, None, "", 0], ids=repr)
def test_a_result_wakes_its_waiter(
    engine: Engine, wait: Wait, raw: redis.Redis, keep: Keep | None, result: Any
) -> None:
    queue, id = offered(engine, keep)
    waiter = wait(id)
    queue.ack(taken(queue), result)
    assert waiter.result(BOUND) == result
    assert nothing_waits(queue, raw)


@KEPT
def test_a_result_of_64_kib_arrives_whole(engine: Engine, clock: ManualClock, wait: Wait, keep: Keep | None) -> None:
    queue, id = offered(engine, keep)
    waiter = wait(id)
    ack_big(queue, id, clock)
    assert waiter.result(BOUND) == "x" * (64 * 1024 - 2)


@KEPT
def test_an_ack_after_a_retry_and_one_of_a_batch_wake_their_waiters(
    engine: Engine, clock: ManualClock, wait: Wait, keep: Keep | None
) -> None:
    queue, id = offered(engine, keep)
    first = wait(id)
    queue.fail(taken(queue), "not yet", retry_in=0)
    second = wait(queue.offer("more").id)
    queue.ack_many(queue.take_many(2))
    assert (first.result(BOUND), second.result(BOUND)) == (None, None)


@pytest.mark.real_server
@KEPT
@pytest.mark.parametrize(("ending", "type", "message"), FAILED, ids=lambda each: getattr(each, "__name__", ""))
def test_a_failure_wakes_its_waiter_with_the_recorded_error(
    engine: Engine, clock: ManualClock, wait: Wait, raw: redis.Redis, keep: Keep | None, ending: Ending, type: str,
    message: str,
) -> None:  # fmt: skip
    queue, id = offered(engine, keep)
    waiter = wait(id)
    ending(queue, id, clock)
    with pytest.raises(JobFailed, match=message) as failure:
        waiter.result(BOUND)
    error = failure.value.error
    assert isinstance(error, ErrorDetail)
    assert error.type == type
    assert nothing_waits(queue, raw)
    job = queue.get(id)
    assert (job is None) == (keep is not None)
    assert job is None or job.error == error


@KEPT
@pytest.mark.parametrize("ending", CANCELLED, ids=lambda each: each.__name__)
def test_a_cancel_wakes_its_waiter(
    engine: Engine, clock: ManualClock, wait: Wait, raw: redis.Redis, keep: Keep | None, ending: Ending
) -> None:
    queue, id = offered(engine, keep)
    waiter = wait(id)
    ending(queue, id, clock)
    with pytest.raises(JobCancelled, match=id):
        waiter.result(BOUND)
    assert nothing_waits(queue, raw)


@pytest.mark.real_server
@pytest.mark.every_server
@pytest.mark.parametrize("ending", GONE, ids=lambda each: each.__name__)
def test_a_job_that_goes_wakes_its_waiter(
    engine: Engine, clock: ManualClock, wait: Wait, raw: redis.Redis, ending: Ending
) -> None:
    queue, id = offered(engine, None)
    waiter = wait(id)
    ending(queue, id, clock)
    with pytest.raises(JobGone, match=id):
        waiter.result(BOUND)
    assert nothing_waits(queue, raw)


@pytest.mark.every_server
def test_a_job_that_finished_before_answers_at_once(queue: Queue[Any], raw: redis.Redis) -> None:
    assert queue.wait_result(finished(queue), 0) is None
    queue.offer("x", id="x")
    queue.ack(taken(queue), [1, 2])
    assert queue.wait_result("x", None) == [1, 2]
    for state in ("dead", "quarantined"):
        with pytest.raises(JobFailed):
            queue.wait_result(end(queue, state), 0)
    with pytest.raises(JobCancelled):
        queue.wait_result(end(queue, "cancelled"), 0)
    with pytest.raises(JobGone):
        queue.wait_result("unknown", WAIT)
    assert not raw.exists(f"{root_of(queue)}:waiters")


def test_where_there_is_no_queue_the_job_is_gone(queue: Queue[Any], keys: Callable[..., list[str]]) -> None:
    with pytest.raises(JobGone):
        queue.wait_result("x", WAIT)
    assert keys() == []


def test_below_the_full_rung_waiters_learn_the_type_alone(engine: Engine, clock: ManualClock, wait: Wait) -> None:
    """What may not be stored is not handed on by a list that stands for a minute, either."""
    queue, id = offered(engine, None, history="transitions")
    waiter = wait(id)
    fail_for_good(queue, id, clock)
    with pytest.raises(JobFailed) as told:
        waiter.result(BOUND)
    with pytest.raises(JobFailed) as read:
        queue.wait_result(id, 0)
    assert told.value.error == read.value.error == ErrorDetail("OSError")


@KEPT
def test_a_retry_on_the_way_ends_no_wait_and_a_manual_one_comes_too_late(
    engine: Engine, wait: Wait, keep: Keep | None
) -> None:
    queue, id = offered(engine, None)
    waiter = wait(id)
    queue.fail(taken(queue), "first", retry_in=0)
    queue.release(taken(queue))
    queue.fail(taken(queue), "last", final=True)
    queue.retry(id)
    with pytest.raises(JobFailed, match="last"):
        waiter.result(BOUND)
    again = wait(id)
    queue.ack(taken(queue), "better")
    assert again.result(BOUND) == "better"


# several who wait, and some who no longer do


@pytest.mark.real_server
@KEPT
def test_all_who_wait_get_the_result(engine: Engine, wait: Wait, raw: redis.Redis, keep: Keep | None) -> None:
    queue, id = offered(engine, keep)
    waiters = [wait(id) for _ in range(3)]
    other = wait(queue.offer("other").id)
    queue.ack(taken(queue), "shared")
    assert [each.result(BOUND) for each in waiters] == ["shared"] * 3
    assert not other.done()
    queue.ack(taken(queue), "its own")
    assert other.result(BOUND) == "its own"
    assert nothing_waits(queue, raw)


@KEPT
def test_a_waiter_that_died_holds_nobody_up(
    engine: Engine, wait: Wait, raw: redis.Redis, clock: ManualClock, keep: Keep | None
) -> None:
    queue, id = offered(engine, keep)
    raw.hset(f"{root_of(queue)}:waiters", id, f"dead1:{clock.now_ms + 1000},dead2:{clock.now_ms - 1}")
    waiter = wait(id)
    listed: Any = raw.hget(f"{root_of(queue)}:waiters", id)
    assert b"dead1" in listed
    assert b"dead2" not in listed
    queue.ack(taken(queue), "result")
    assert waiter.result(BOUND) == "result"
    assert nothing_waits(queue, raw)


@pytest.mark.every_server
def test_a_time_out_takes_the_waiter_off_the_list(queue: Queue[Any], raw: redis.Redis) -> None:
    """However often somebody asks and gives up, the job's end has nobody to tell."""
    id = queue.offer("x").id
    for timeout in (0, 0, 0.05, 0.001):
        started = time.monotonic()
        with pytest.raises(TimeoutError, match=id):
            queue.wait_result(id, timeout)
        assert time.monotonic() - started >= timeout
        assert not raw.exists(f"{root_of(queue)}:waiters")
    queue.ack(taken(queue), "result")
    assert list(raw.scan_iter(match=f"{root_of(queue)}:w:*")) == []
    assert queue.wait_result(id, 0) == "result"


def test_one_time_out_leaves_the_others_on_the_list(engine: Engine, wait: Wait, raw: redis.Redis) -> None:
    queue, id = offered(engine, None)
    patient, hasty = wait(id), wait(id, 0.2)
    with pytest.raises(TimeoutError):
        hasty.result(BOUND)
    listed: Any = raw.hget(f"{root_of(queue)}:waiters", id)
    assert listed.count(b":") == 1
    queue.ack(taken(queue), "result")
    assert patient.result(BOUND) == "result"


@pytest.mark.real_server
@pytest.mark.asyncio
async def test_a_cancelled_waiter_takes_itself_off_the_list(
    open_async_engine: Callable[..., AsyncEngine], raw: redis.Redis
) -> None:
    queue = open_async_engine().queue("jobs")
    id = (await queue.offer("x")).id
    key = f"{root_of(queue)}:waiters"  # type: ignore[arg-type]
    waiting = asyncio.create_task(queue.wait_result(id, WAIT))
    while not raw.exists(key):
        await asyncio.sleep(0.005)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not raw.exists(key)


@pytest.mark.real_server
def test_ctrl_c_takes_the_waiter_off_the_list(alone: Engine, raw: redis.Redis) -> None:
    queue = alone.queue("jobs")
    id = queue.offer("x").id
    key, main = f"{root_of(queue)}:waiters", threading.get_ident()

    def interrupt() -> None:
        while not raw.exists(key):
            time.sleep(0.005)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        queue.wait_result(id, WAIT)
    thread.join()
    assert not raw.exists(key)


def test_a_waiter_without_a_time_out_waits_on(engine: Engine, wait: Wait) -> None:
    queue, id = offered(engine, None)
    waiter = wait(id, None)
    queue.ack(taken(queue), "result")
    assert waiter.result(BOUND) == "result"


# what may go wrong on the way


@KEPT
def test_a_result_of_another_type_is_a_mismatch(engine: Engine, wait: Wait, keep: Keep | None) -> None:
    queue, id = offered(engine, keep)
    waiter = wait(id, result_type=int)
    queue.ack(taken(queue), {"no": "int"})
    with pytest.raises(SchemaMismatch, match=id):
        waiter.result(BOUND)


def test_a_stored_result_of_another_type_is_a_mismatch(
    engine: Engine, open_engine: OpenEngine, clock: ManualClock
) -> None:
    queue, id = offered(engine, None)
    queue.ack(taken(queue), {"no": "int"})
    with pytest.raises(SchemaMismatch, match=id):
        open_engine(clock=clock).queue("jobs", result_type=int).wait_result(id, WAIT)


def test_a_result_has_its_declared_type(engine: Engine, wait: Wait) -> None:
    queue, id = offered(engine, None)
    waiter = wait(id, result_type=set[int])
    queue.ack(taken(queue), [1, 2])
    assert waiter.result(BOUND) == {1, 2}


def test_a_result_in_the_codec_of_the_queue(open_engine: OpenEngine, clock: ManualClock, wait: Wait) -> None:
    queue = open_engine(clock=clock).queue("jobs", codec="msgpack")
    id = queue.offer("x").id
    waiter = wait(id)
    queue.ack(taken(queue), b"\x00\xff")
    assert waiter.result(BOUND) == b"\x00\xff"


@pytest.mark.real_server
def test_a_killed_connection_waits_on(engine: Engine, wait: Wait, idle: Idle, raw: redis.Redis) -> None:
    queue, id = offered(engine, Keep(count=0))
    waiter = wait(id)
    (victim,) = idle.blocked()
    raw.client_kill_filter(_id=victim["id"])
    idle.until_blocked(1)
    queue.ack(taken(queue), "result")
    assert waiter.result(BOUND) == "result"


@pytest.mark.real_server
@pytest.mark.parametrize("lost", [1, 3])
def test_a_lost_answer_is_asked_for_again_also_when_nothing_is_kept(
    open_engine: OpenEngine, engine: Engine, clock: ManualClock, server: Server, pool: ThreadPoolExecutor,
    raw: redis.Redis, lost: int,
) -> None:  # fmt: skip
    """The wake-up pops one element; the outcome stands in the other one."""
    queue, id = offered(engine, Keep(count=0))
    looks = calls("jobs/await")
    with Proxy(server.url) as proxy:
        waiting = open_engine(url=proxy.url, clock=clock).queue("jobs")
        # the wake-up of the wait, and then looks
        proxy.eat_replies(lost, lambda words: words[0] == b"BLPOP" or (bool(proxy.eaten) and looks(words)))
        waiter = pool.submit(waiting.wait_result, id, WAIT)
        while not proxy.eaten:
            time.sleep(0.005)
        queue.ack(taken(queue), "result")
        assert waiter.result(BOUND) == "result"
        assert len(proxy.eaten) == lost


@pytest.mark.leaves_damage
def test_a_waiter_for_a_damaged_job_is_told_so(queue: Queue[Any], raw: redis.Redis) -> None:
    id = queue.offer("x").id
    raw.hset(f"{root_of(queue)}:head", id, "broken")
    with pytest.raises(CorruptRecord, match=id):
        queue.wait_result(id, WAIT)
