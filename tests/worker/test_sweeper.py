"""The sweep loop (SPEC 7, issue 5 item 5; field case C16)."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from redisq import Engine, EventPolicy, InvalidInput, JobState, NewJob, Queue, Sweeper
from redisq.calls import operate
from redisq.testing import ManualClock
from redisq.testing.check import check
from tests.jobs.steps import root_of, state_of
from tests.support.servers import OwnServer, Server
from tests.worker.conftest import WAIT

ROOT = Path(__file__).parents[2]
Sweep = Callable[..., Sweeper]


@pytest.fixture
def sweep(engine: Engine) -> Iterator[Sweep]:
    """Starts sweepers in threads; they are stopped after the test."""
    started: list[tuple[Sweeper, threading.Thread]] = []

    def start(*args: Any, engine: Engine = engine, **options: Any) -> Sweeper:
        sweeper = Sweeper(engine, *args, **{"interval": 0.05, **options})
        thread = threading.Thread(target=sweeper.run)
        thread.start()
        started.append((sweeper, thread))
        return sweeper

    yield start
    for sweeper, thread in started:
        sweeper.stop()
        thread.join(WAIT)
        assert not thread.is_alive()


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queues in the order of their sweeps."""
    order: list[str] = []
    build = operate.sweep

    def noted(core: Any, limit: int, gap_ms: int) -> Any:
        order.append(core.name)
        return build(core, limit, gap_ms)

    monkeypatch.setattr(operate, "sweep", noted)
    return order


def until(reached: Callable[[], object]) -> None:
    stop = time.monotonic() + WAIT
    while not reached():
        assert time.monotonic() < stop, "waited in vain"
        time.sleep(0.005)


def lapsing(queue: Queue[Any]) -> str:
    """A job whose lease has run out, unseen by any taker."""
    id = queue.offer("x", max_attempts=1).id
    assert queue.take(lease=0.001) is not None
    return id


@pytest.mark.every_server
@pytest.mark.real_server
def test_all_queues_of_the_namespace_are_found_also_later_ones(server: Server, namespace: str) -> None:
    with Engine(server.url, namespace=namespace) as engine:
        first, later = engine.queue("first"), engine.queue("later")
        id = lapsing(first)
        sweeper = Sweeper(engine, interval=0.05)
        thread = threading.Thread(target=sweeper.run)
        thread.start()
        until(lambda: state_of(first, id) is JobState.DEAD)
        id = lapsing(later)
        until(lambda: state_of(later, id) is JobState.DEAD)
        sweeper.stop()
        thread.join(WAIT)
        assert not thread.is_alive()


def test_only_the_queues_that_are_named(engine: Engine, sweep: Sweep, swept: list[str]) -> None:
    a, b = engine.queue("a"), engine.queue("b")
    ids = [lapsing(a), lapsing(b)]
    sweep(["b", "missing"])
    until(lambda: state_of(b, ids[1]) is JobState.DEAD)
    until(lambda: len(swept) > 3)
    assert set(swept) == {"b"}
    assert state_of(a, ids[0]) is JobState.LEASED


def test_event_queues_are_swept_too(engine: Engine, sweep: Sweep, caplog: pytest.LogCaptureFixture) -> None:
    events = engine.events("news", policy=EventPolicy(on_completion="archive"))
    events.subscribe("reader")
    events.emit("x", ttl=0.01)
    with caplog.at_level(logging.INFO, "redisq.sweeper"):
        sweep()
        until(lambda: any("swept 1 deadlines" in record.getMessage() for record in caplog.records))
    assert events.maintain().processed == 0


def test_a_queue_that_still_has_work_is_swept_again_at_once(engine: Engine, sweep: Sweep) -> None:
    """Not an interval later, which would be an hour."""
    queue = engine.queue("jobs")
    for _ in range(30):
        queue.offer("x", delay=0.001)
    sweep(interval=3600, limit=5)
    until(lambda: queue.counts()[JobState.READY] == 30)


def test_the_others_have_their_turns_meanwhile(engine: Engine, sweep: Sweep, swept: list[str]) -> None:
    a, b = engine.queue("a"), engine.queue("b")
    for _ in range(20):
        a.offer("x", delay=0.001)
    id = lapsing(b)
    sweep(interval=3600, limit=1)
    until(lambda: a.counts()[JobState.READY] == 20)
    assert state_of(b, id) is JobState.DEAD
    assert swept.index("b") <= 1


def test_a_queue_that_another_swept_within_the_interval_is_left_out(
    server: Server, namespace: str, sweep: Sweep, swept: list[str]
) -> None:
    clock = ManualClock()
    with Engine(server.url, namespace=namespace, clock=clock) as timed:
        queue = timed.queue("jobs")
        queue.offer("x", delay=0.5)
        first = sweep(engine=timed, interval=1)
        until(lambda: swept)
        first.stop()
        clock.advance(0.999)
        before = len(swept)
        sweep(engine=timed, interval=1)
        until(lambda: len(swept) >= before + 2)
        assert queue.counts()[JobState.SCHEDULED] == 1
        clock.advance(0.001)
        until(lambda: queue.counts()[JobState.READY] == 1)


def test_several_at_once_are_harmless(engine: Engine, sweep: Sweep) -> None:
    queue = engine.queue("jobs")
    offers = [queue.offer(at, delay=0.001 * (at % 50)) for at in range(200)]
    for _ in range(4):
        sweep(interval=0.001, limit=7)
    until(lambda: queue.counts()[JobState.READY] == 200)
    assert sorted(each.id for each in queue.take_many(300)) == sorted(each.id for each in offers)


@pytest.mark.leaves_damage
def test_an_error_in_one_queue_does_not_stop_the_others(
    engine: Engine, sweep: Sweep, raw: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    broken, good = engine.queue("broken"), engine.queue("good")
    broken.offer("x", delay=60)
    raw.delete(f"{root_of(broken)}:sched")
    raw.set(f"{root_of(broken)}:sched", "no zset")
    sweep()
    for number in range(1, 3):
        lapsing(good)
        until(lambda number=number: good.counts()[JobState.DEAD] == number)  # type: ignore[misc]
    assert any("can't sweep queue broken" in record.getMessage() for record in caplog.records)


def test_killed_in_the_middle_it_holds_nobody_up(server: Server, namespace: str, engine: Engine, sweep: Sweep) -> None:
    """C16: kill -9, several times; the next one goes on, and nothing is damaged."""
    queue = engine.queue("jobs")
    queue.offer_many(NewJob(at, delay=0.001) for at in range(3000))
    command = [sys.executable, "-m", "tests.worker.programs.sweep", namespace]
    for _ in range(3):
        before = queue.counts()[JobState.SCHEDULED]
        program = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "REDISQ_URL": server.url})
        until(lambda before=before: queue.counts()[JobState.SCHEDULED] < before)  # type: ignore[misc]
        program.kill()
        program.wait()
        assert check(queue) == []
    assert queue.counts()[JobState.SCHEDULED] > 0, "it was never in the middle"
    sweep(limit=1000)
    until(lambda: queue.counts()[JobState.READY] == 3000)


def test_stop_before_the_start_is_a_stop(engine: Engine) -> None:
    sweeper = Sweeper(engine)
    sweeper.stop()
    sweeper.run()


def test_without_a_server_it_stops_soon_and_it_goes_on_when_one_is_there(
    own_server: OwnServer, namespace: str, sweep: Sweep
) -> None:
    own_server.kill()
    with Engine(own_server.url, namespace=namespace) as engine:
        sweep(engine=engine)
        stopped = Sweeper(engine)
        thread = threading.Thread(target=stopped.run)
        thread.start()
        stopped.stop()
        thread.join(WAIT)
        assert not thread.is_alive()
        own_server.start()
        queue = engine.queue("jobs")
        id = lapsing(queue)
        until(lambda: state_of(queue, id) is JobState.DEAD)


def test_arun_ends_by_cancellation(server: Server, namespace: str) -> None:
    async def scenario() -> None:
        with Engine(server.url, namespace=namespace) as engine:
            running = asyncio.create_task(Sweeper(engine).arun())
            await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

    asyncio.run(scenario())


def test_a_sweeper_refuses_what_makes_no_sense(engine: Engine) -> None:
    for options in ({"interval": 0}, {"limit": 0}, {"limit": 1001}, {"queues": [""]}):
        with pytest.raises(InvalidInput):
            Sweeper(engine, **options)
    with pytest.raises(InvalidInput, match="engine"):
        Sweeper("redis://")  # type: ignore[arg-type]
