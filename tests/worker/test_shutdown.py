"""How a worker process ends: by signals, in the middle of everything (SPEC 7; field cases C32, C48)."""

from __future__ import annotations

import asyncio
import json
import os
import queue as queues
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from redisq import AsyncEngine, Engine, JobState, Queue, QueuePolicy, Worker
from tests.faults.proxy import Proxy
from tests.support.servers import OwnServer, Server
from tests.worker.conftest import WAIT, Serve

ROOT = Path(__file__).parents[2]
FOR_LONG = 3600
NOW = 20.0
"""The bound of what happens at once: far below any lease."""


class Program:
    """A worker process and what it says."""

    def __init__(self, url: str, namespace: str, where: str = "main", **options: Any) -> None:
        command = [sys.executable, "-m", "tests.worker.programs.serve", namespace, json.dumps(options), where]
        environment = {**os.environ, "REDISQ_URL": url}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._said: queues.Queue[str] = queues.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._said.put(line.strip())

    def hear(self, wanted: str) -> None:
        """Waits until it says so."""
        while self._said.get(timeout=2 * WAIT) != wanted:
            pass

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float = NOW) -> int:
        """Its exit code."""
        return self.process.wait(seconds)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


Start = Callable[..., Program]


@pytest.fixture
def start(server: Server, namespace: str) -> Iterator[Start]:
    """Starts worker processes; they are killed after the test."""
    programs: list[Program] = []

    def begin(*, url: str = server.url, where: str = "main", **options: Any) -> Program:
        programs.append(Program(url, namespace, where, **{"grace": 5, **options}))
        return programs[-1]

    yield begin
    for each in programs:
        each.close()


def taken_at_once(queue: Queue[Any], id: str, *, attempt: int = 1) -> None:
    """The job was handed back: another worker gets it right now, and no attempt is counted."""
    delivery = queue.take(wait=NOW)
    assert delivery is not None
    assert (delivery.id, delivery.attempt) == (id, attempt)
    queue.ack(delivery)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_worker_ends_at_once(number: int, start: Start, engine: Engine) -> None:
    engine.queue("jobs").offer("x", delay=FOR_LONG)
    program = start(grace=60)
    program.hear("ready")
    program.signal(number)
    assert program.end() == 0


def test_a_job_may_end_within_the_grace_and_no_other_begins(start: Start, engine: Engine) -> None:
    """Its lease is renewed meanwhile."""
    queue = engine.queue("jobs", policy=QueuePolicy(lease=1.5))
    id = queue.offer(3, name="sleep").id
    program = start(concurrency=4)
    program.hear("started sleep")
    program.signal()
    later = queue.offer(0, name="sleep").id
    assert program.end() == 0
    assert queue.wait_result(id, 0) == "slept"
    assert [row.outcome for row in queue.attempts(id)] == ["completed"]
    taken_at_once(queue, later)


@pytest.mark.parametrize("name", ["sleep", "polite"])
def test_what_ends_when_told_is_handed_back(name: str, start: Start, engine: Engine) -> None:
    queue = engine.queue("jobs")
    id = queue.offer(FOR_LONG, name=name).id
    program = start(grace=0.2)
    program.hear(f"started {name}")
    program.signal()
    assert program.end() == 0
    taken_at_once(queue, id)
    assert [row.outcome for row in queue.attempts(id)] == ["completed"]


def test_a_thread_that_does_not_end_is_handed_back_as_the_last_act(start: Start, engine: Engine) -> None:
    queue = engine.queue("jobs")
    id = queue.offer(FOR_LONG, name="thread").id
    program = start(grace=0.2)
    program.hear("started thread")
    program.signal()
    assert program.end() == 1
    taken_at_once(queue, id)


def test_a_coroutine_that_does_not_end_keeps_its_lease_until_it_runs_out(start: Start, engine: Engine) -> None:
    """C48 c: the process ends all the same, and others get the job."""
    queue = engine.queue("jobs", policy=QueuePolicy(lease=6))
    id = queue.offer(FOR_LONG, name="deaf").id
    program = start(grace=0.2)
    program.hear("started deaf")
    program.signal()
    program.hear("ignored")
    assert program.end() == 1
    assert queue.counts()[JobState.LEASED] == 1
    delivery = queue.take(wait=2 * WAIT)
    assert delivery is not None
    assert (delivery.id, delivery.attempt) == (id, 2)


@pytest.mark.parametrize("name", ["sleep", "thread", "deaf", "block"])
def test_a_second_signal_ends_at_once(name: str, start: Start, engine: Engine) -> None:
    """Also while a handler blocks the event loop."""
    engine.queue("jobs").offer(FOR_LONG, name=name)
    program = start(grace=FOR_LONG)
    program.hear(f"started {name}")
    program.signal()
    program.signal(signal.SIGINT)
    assert program.end() == 130


def test_without_a_server_it_ends_soon(start: Start, own_server: OwnServer) -> None:
    """C48 d: in the middle of its attempts to reconnect."""
    program = start(url=own_server.url, grace=60)
    program.hear("ready")
    own_server.kill()
    with Engine(own_server.url, retry_for=0) as engine, pytest.raises(Exception, match="refused"):
        engine.queue("jobs").take()
    program.signal()
    assert program.end() == 0


def test_it_ends_soon_also_when_the_server_never_was_there(start: Start, own_server: OwnServer) -> None:
    own_server.kill()
    program = start(url=own_server.url, grace=60)
    program.hear("ready")
    program.signal()
    assert program.end() == 0


def test_in_the_middle_of_a_take_nothing_is_kept(
    start: Start, server: Server, engine: Engine, raw: redis.Redis
) -> None:
    """The server has leased the job and its answer does not come through: the lease is given back."""
    queue = engine.queue("jobs")
    queue.offer("first", delay=FOR_LONG)
    with Proxy(server.url) as proxy:
        program = start(url=proxy.url, grace=60)
        program.hear("ready")
        until(lambda: fresh_waiters(raw) == 2)
        proxy.stall()
        id = queue.offer(0, name="sleep").id
        until(lambda: queue.counts()[JobState.LEASED] == 1)
        program.signal()
        proxy.resume()
        assert program.end() == 0
    taken_at_once(queue, id)
    assert len(queue.attempts(id)) == 1


def fresh_waiters(raw: redis.Redis) -> int:
    """Clients that have begun to block less than a second ago."""
    clients: Any = raw.client_list()
    return sum(client["cmd"] == "blpop" and "b" in client["flags"] and client["idle"] == "0" for client in clients)


def until(reached: Callable[[], bool]) -> None:
    stop = time.monotonic() + WAIT
    while not reached():
        assert time.monotonic() < stop, "waited in vain"
        time.sleep(0.01)


def test_in_a_thread_it_is_stopped_by_stop_and_signals_stay_the_programs_own(start: Start, engine: Engine) -> None:
    queue = engine.queue("jobs")
    id = queue.offer(1, name="sleep").id
    program = start(where="thread")
    program.hear("started sleep")
    assert program.process.stdin is not None
    program.process.stdin.close()
    program.hear("code 0")
    assert program.end() == 0
    assert queue.wait_result(id, 0) == "slept"


def test_in_a_thread_a_handler_that_does_not_end_leaves_the_process_alone(start: Start, engine: Engine) -> None:
    """The process goes on, so its job is not handed back while it still runs."""
    queue = engine.queue("jobs")
    queue.offer(FOR_LONG, name="thread")
    program = start(where="thread", grace=0.2)
    program.hear("started thread")
    assert program.process.stdin is not None
    program.process.stdin.close()
    program.hear("code 1")
    assert queue.counts()[JobState.LEASED] == 1


def test_releases_cost_no_attempt_however_often(start: Start, engine: Engine) -> None:
    """C32: five deploys, then one failure is one failure."""
    queue = engine.queue("jobs")
    id = queue.offer(FOR_LONG, name="sleep", max_attempts=2).id
    for _ in range(3):
        program = start(grace=0)
        program.hear("started sleep")
        program.signal()
        assert program.end() == 0
    delivery = queue.take(wait=NOW)
    assert delivery is not None
    assert (delivery.id, delivery.attempt) == (id, 1)
    assert queue.fail(delivery, "once").state is JobState.SCHEDULED


def test_a_job_that_kills_its_worker_burns_only_its_own_attempt(start: Start, engine: Engine) -> None:
    """The one that waited behind the busy slot was never started."""
    jobs = engine.queue("jobs", policy=QueuePolicy(lease=1))
    second = engine.queue("second", policy=QueuePolicy(lease=1))
    program = start(concurrency=1)
    program.hear("ready")
    poison = jobs.offer(1, name="kill").id
    program.hear("started kill")
    mate = second.offer("x").id
    until(lambda: second.counts()[JobState.LEASED] == 1)  # behind the one slot
    assert program.process.stdin is not None
    program.process.stdin.close()
    assert program.end() == -signal.SIGKILL
    taken_at_once(second, mate)
    delivery = jobs.take(wait=WAIT)
    assert delivery is not None
    assert (delivery.id, delivery.attempt) == (poison, 2)


# --- in this process ------------------------------------------------------------------------------------------------


def test_stop_before_the_start_is_a_stop(engine: Engine, queue: Queue[Any], serve: Serve) -> None:
    queue.handler()(print)
    worker = Worker(engine, queue)
    worker.stop()
    assert serve(worker).join() == 0


def test_arun_ends_by_stop_and_by_cancellation(server: Server, namespace: str, engine: Engine) -> None:
    """A cancellation is a stop without grace: what runs is cancelled and handed back, then the cancellation goes on."""
    plain = engine.queue("jobs")

    async def scenario() -> None:
        async with AsyncEngine(server.url, namespace=namespace) as given:
            queue = given.queue("jobs")
            started = asyncio.Event()

            @queue.handler()
            async def handle(value: Any) -> None:
                started.set()
                await asyncio.sleep(FOR_LONG)

            id = (await queue.offer("x")).id
            running = asyncio.create_task(Worker(given, queue, grace=FOR_LONG).arun())
            await asyncio.wait_for(started.wait(), WAIT)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(running, WAIT)
            delivery = await queue.take()
            assert delivery is not None
            assert (delivery.id, delivery.attempt) == (id, 1)
            await queue.ack(delivery)
            stopped = Worker(given, queue)
            stopped.stop()
            await asyncio.wait_for(stopped.arun(), WAIT)
            assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []

    asyncio.run(scenario())
    assert plain.counts()[JobState.LEASED] == 0


def test_a_cancelled_run_leaves_a_running_thread_its_lease(server: Server, namespace: str) -> None:
    """The process goes on, so nobody else may start while the thread still runs."""
    leave = threading.Event()

    async def scenario() -> None:
        async with AsyncEngine(server.url, namespace=namespace) as given:
            queue = given.queue("jobs")
            started = threading.Event()

            @queue.handler()
            def handle(value: Any) -> None:
                started.set()
                leave.wait(WAIT)

            await queue.offer("x")
            running = asyncio.create_task(Worker(given, queue).arun())
            await asyncio.to_thread(started.wait, WAIT)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(running, WAIT)
            assert (await queue.counts())[JobState.LEASED] == 1
            leave.set()

    asyncio.run(scenario())
