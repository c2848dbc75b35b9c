"""Idle takers wake up for work (SPEC 3.3): with the 2 s cap raised to 60 s, so that only a ring or a due time can."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import redis

from redisq import Backoff, Cancel, Delivery, Done, Engine, JobState, Queue, QueuePolicy, Released, flows
from tests.jobs.steps import killed, root_of, taken
from tests.support.fronts import OpenEngine
from tests.support.idle import BOUND, Idle
from tests.support.servers import Server

SOON = 0.3


@pytest.fixture(autouse=True)
def cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "LOOK_EVERY", 60.0)


@pytest.fixture
def jobs(open_engine: OpenEngine) -> Queue[Any]:
    """The queue on the server's own time, there already."""
    queue = open_engine().queue("jobs", policy=QueuePolicy(backoff=Backoff.fixed(SOON), max_attempts=5))
    queue.pause()
    queue.resume()
    return queue


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def idle(open_engine: OpenEngine, pool: ThreadPoolExecutor, raw: redis.Redis, server: Server, namespace: str) -> Idle:
    return Idle(open_engine, pool, raw, server.url, namespace)


def got(future: Future[Delivery | None]) -> str:
    delivery = future.result(BOUND)
    assert delivery is not None
    return delivery.id


def test_for_an_offer(jobs: Queue[Any], idle: Idle) -> None:
    waiter = idle()
    jobs.offer("work", id="job")
    assert got(waiter) == "job"


def test_for_a_ranked_offer(jobs: Queue[Any], idle: Idle) -> None:
    waiter = idle()
    jobs.offer("work", id="job", priority=-5)
    assert got(waiter) == "job"


def test_for_an_offer_that_comes_due(jobs: Queue[Any], idle: Idle) -> None:
    """Field case C12 (a)."""
    waiter = idle()
    jobs.offer("work", id="job", delay=SOON)
    assert got(waiter) == "job"


def test_for_an_offer_that_was_scheduled_before_the_wait(jobs: Queue[Any], idle: Idle) -> None:
    jobs.offer("work", id="job", delay=1)
    assert got(idle()) == "job"


def test_for_an_offer_due_before_the_next_known_one(jobs: Queue[Any], idle: Idle) -> None:
    jobs.offer("later", id="later", delay=55)
    waiter = idle()
    jobs.offer("work", id="job", delay=SOON)
    assert got(waiter) == "job"


def test_for_the_end_of_a_back_off(jobs: Queue[Any], idle: Idle) -> None:
    """Field case C12 (b)."""
    jobs.offer("work", id="job")
    held = taken(jobs)
    waiter = idle()
    jobs.fail(held, "broken")
    assert got(waiter) == "job"


def test_for_a_lease_of_another_that_lapses(jobs: Queue[Any], idle: Idle) -> None:
    """Field case C12 (c): the lease is taken before, and while, somebody waits."""
    jobs.offer("work", id="job")
    taken(jobs, lease=SOON)
    first = idle()
    assert got(first) == "job"


def test_for_a_short_lease_that_is_taken_during_the_wait(jobs: Queue[Any], idle: Idle, raw: redis.Redis) -> None:
    jobs.pause()
    jobs.offer("work", id="job")
    waiter = idle()
    jobs.resume()
    # whoever was faster: the job is taken, left, and taken again by the other
    first = jobs.take(lease=SOON)
    assert got(waiter) == "job"
    if first is not None:
        assert first.id == "job"


def test_for_the_end_of_a_pause(jobs: Queue[Any], idle: Idle) -> None:
    jobs.pause()
    jobs.offer("work", id="job")
    waiter = idle()
    jobs.resume()
    assert got(waiter) == "job"


def test_for_the_end_of_a_pause_with_nothing_but_a_lease(jobs: Queue[Any], idle: Idle) -> None:
    jobs.offer("work", id="job")
    taken(jobs, lease=SOON)
    jobs.pause()
    waiter = idle()
    jobs.resume()
    assert got(waiter) == "job"


@pytest.mark.parametrize("delay", [0, SOON])
def test_for_a_release(delay: float, jobs: Queue[Any], idle: Idle) -> None:
    jobs.offer("work", id="job")
    held = taken(jobs)
    waiter = idle()
    jobs.release(held, delay=delay)
    assert got(waiter) == "job"


def test_for_a_retry(jobs: Queue[Any], idle: Idle) -> None:
    id = killed(jobs)
    waiter = idle()
    assert jobs.retry(id)
    assert got(waiter) == id


def test_for_a_promotion(jobs: Queue[Any], idle: Idle) -> None:
    jobs.offer("work", id="job", delay=1000)
    waiter = idle()
    assert jobs.promote("job")
    assert got(waiter) == "job"


def test_for_a_sweep_that_recovers(jobs: Queue[Any], idle: Idle, raw: redis.Redis) -> None:
    """What a sweep puts in order rings, whatever the waiter knew."""
    jobs.offer("work", id="job", delay=50)
    waiter = idle()
    raw.zadd(f"{root_of(jobs)}:sched", {"job": 1})
    assert jobs.maintain().by_category["due"] == 1
    assert got(waiter) == "job"


def test_for_what_an_exchange_hands_back_and_does_not_take(jobs: Queue[Any], idle: Idle) -> None:
    jobs.offer_many(["one", "two"])
    held = jobs.take_many(2)
    waiter = idle()
    answers, _ = jobs.exchange([Done(held[0])], 0)
    assert len(answers) == 1
    assert not waiter.done()
    jobs.exchange([Released(held[1])], 0)
    assert got(waiter) == held[1].id


def test_two_offers_wake_two_takers(jobs: Queue[Any], idle: Idle) -> None:
    """Field case C12 (f)."""
    waiters = [idle(), idle()]
    jobs.offer("one", id="one")
    jobs.offer("two", id="two")
    assert {got(waiter) for waiter in waiters} == {"one", "two"}


def test_one_call_with_two_offers_wakes_two_takers(jobs: Queue[Any], idle: Idle) -> None:
    waiters = [idle(), idle()]
    first, second = jobs.offer_many(["one", "two"])
    assert {got(waiter) for waiter in waiters} == {first.id, second.id}


def test_a_backlog_wakes_them_all(jobs: Queue[Any], idle: Idle) -> None:
    """Whoever leaves work behind rings for the next."""
    jobs.pause()
    jobs.offer_many(range(4))
    waiters = [idle() for _ in range(4)]
    jobs.resume()
    assert len({got(waiter) for waiter in waiters}) == 4


def test_a_ring_that_got_lost_costs_one_look(
    jobs: Queue[Any], idle: Idle, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A taker that popped the bell and died: the others look by themselves after the cap."""
    monkeypatch.setattr(flows, "LOOK_EVERY", SOON)
    jobs.pause()
    waiter = idle()
    jobs.offer("work", id="job")
    # the end of the pause without its ring
    raw.hset(root_of(jobs), "paused", "0")
    raw.delete(f"{root_of(jobs)}:bell")
    assert got(waiter) == "job"


def test_a_taker_that_dies_in_its_wait_takes_nothing_with_it(
    jobs: Queue[Any], idle: Idle, raw: redis.Redis, namespace: str
) -> None:
    waiter = idle()
    doomed = raw.connection_pool.get_connection()
    doomed.send_command("CLIENT", "SETNAME", namespace)
    doomed.send_command("BLPOP", f"{root_of(jobs)}:bell", 50)
    idle.until_blocked(2)
    doomed.disconnect()
    raw.connection_pool.release(doomed)
    jobs.offer("work", id="job")
    assert got(waiter) == "job"


def test_a_killed_connection_waits_on(jobs: Queue[Any], idle: Idle, raw: redis.Redis) -> None:
    """Field case C12 (e)."""
    waiter = idle()
    (victim,) = idle.blocked()
    raw.client_kill_filter(_id=victim["id"])
    jobs.offer("work", id="job")
    assert got(waiter) == "job"


def test_an_unblocked_connection_waits_on(jobs: Queue[Any], idle: Idle, raw: redis.Redis) -> None:
    waiter = idle()
    (victim,) = idle.blocked()
    assert raw.execute_command("CLIENT UNBLOCK", victim["id"], "ERROR")
    jobs.offer("work", id="job")
    assert got(waiter) == "job"


def test_a_wait_for_a_queue_that_does_not_exist_yet(
    open_engine: OpenEngine, idle: Idle, keys: Callable[..., list[str]]
) -> None:
    single, batch = idle(), idle("take_many", 1)
    assert keys() == []
    other = open_engine().queue("jobs", policy=QueuePolicy(lease=7))
    other.offer("one", id="one")
    other.offer("two", id="two")
    assert {got(single), batch.result(BOUND)[0].id} == {"one", "two"}


def test_an_exchange_and_a_handler_wait_as_a_take_does(jobs: Queue[Any], idle: Idle) -> None:
    jobs.offer("work")
    held = taken(jobs)
    handled: list[str] = []
    exchange = idle("exchange", [held], 1)
    process = idle("process_one", lambda delivery: handled.append(delivery.id))
    jobs.offer("one", id="one")
    jobs.offer("two", id="two")
    answers, more = exchange.result(BOUND)
    assert process.result(BOUND) is True
    assert answers == ["acknowledged"]
    assert {more[0].id, *handled} == {"one", "two"}


def test_no_wait_is_no_wait(jobs: Queue[Any]) -> None:
    assert jobs.take() is None
    assert jobs.take(wait=0) is None
    assert jobs.take_many(5, wait=0) == []
    assert jobs.exchange([], 5, wait=0) == ([], [])


def test_a_wait_without_an_end_ends_with_work(jobs: Queue[Any], idle: Idle) -> None:
    waiter = idle(wait=None)
    jobs.offer("work", id="job")
    assert got(waiter) == "job"


@pytest.mark.parametrize("wait", [0.001, 0.2, 1])
def test_a_wait_ends_with_its_time(wait: float, jobs: Queue[Any], pool: ThreadPoolExecutor) -> None:
    jobs.offer("later", delay=1000)
    started = time.monotonic()
    assert pool.submit(jobs.take, wait=wait).result(BOUND) is None
    assert time.monotonic() - started >= wait


def test_a_wait_ends_with_its_time_where_there_is_no_queue(open_engine: OpenEngine, pool: ThreadPoolExecutor) -> None:
    assert pool.submit(open_engine().queue("never").take, wait=0.3).result(BOUND) is None


def test_a_paused_queue_does_not_ring(jobs: Queue[Any], idle: Idle, raw: redis.Redis) -> None:
    jobs.pause()
    waiter = idle(wait=1)
    jobs.offer("work", id="job")
    jobs.offer("more", id="more", delay=0.1)
    assert waiter.result(BOUND) is None
    assert raw.exists(f"{root_of(jobs)}:bell") == 0
    assert jobs.counts()[JobState.READY] == 1
    assert jobs.cancel("job") is Cancel.CANCELLED


def test_the_bell_holds_one_ring_however_much_is_offered(jobs: Queue[Any], raw: redis.Redis) -> None:
    for number in range(5):
        jobs.offer(number)
    jobs.offer_many(range(5))
    assert raw.llen(f"{root_of(jobs)}:bell") == 1
    assert raw.ttl(f"{root_of(jobs)}:bell") == -1


def test_many_takers_and_many_offers_leave_nobody_asleep(
    open_engine: OpenEngine, jobs: Queue[Any], engine_count: int = 4
) -> None:
    """Offers race with takers that come and go: every job is taken, with nothing but rings to wake for."""
    total, seen, lock, done = 200, set(), threading.Lock(), threading.Event()

    def consume(engine: Engine) -> None:
        queue = engine.queue("jobs")
        while not done.is_set():
            for each in queue.take_many(3, wait=0.5):
                queue.ack(each)
                with lock:
                    seen.add(each.value)
                    if len(seen) == total:
                        done.set()

    threads = [threading.Thread(target=consume, args=(open_engine(),), daemon=True) for _ in range(engine_count)]
    for thread in threads:
        thread.start()
    for number in range(total):
        jobs.offer(number)
    assert done.wait(30)
    for thread in threads:
        thread.join(BOUND)
    assert seen == set(range(total))
