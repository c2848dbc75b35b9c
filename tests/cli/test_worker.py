"""`redisq worker` and `redisq sweep` as processes: what they serve, how they stop, what they say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import redis

from redisq import Backoff, Engine, EventQueue, EventStatus, JobState, Queue, QueuePolicy
from redisq.handlers import Subscribers
from tests.cli.conftest import PATIENCE, Cli, stopped, told, until
from tests.support.servers import OwnServer

APP = """
import asyncio, os, time
import redis
from redisq import Context, Engine, Worker

engine = Engine(namespace=os.environ["REDISQ_NAMESPACE"])
mails, bills, idle = engine.queue("mails"), engine.queue("bills"), engine.queue("idle")
bell = redis.Redis.from_url(os.environ["REDISQ_URL"])
say = lambda word: bell.rpush(engine.namespace + ":said", word)

@mails.handler()
def mail(value, context: Context):
    if value == "bad":
        raise ValueError("\\x1b[2J bad")
    context.log.info("mail %s", value)
    return value

@mails.handler("slow")
async def slow(value):
    say(f"{value} begins")
    await asyncio.sleep(0.5)

@mails.handler("stubborn")
async def stubborn(value):
    say(f"{value} begins")
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if value != "deaf":
                raise

@mails.handler("thread")
def thread(value):
    say(f"{value} begins")
    time.sleep(60)

@mails.handler("pair")
def pair(value):
    bills.offer(value)

@bills.handler()
def bill(value):
    return os.getpid()

worker = Worker(engine, [mails, bills], grace=float(os.environ.get("GRACE", "5")))
nothing = Engine(namespace="nothing")
number = 42
"""


@pytest.fixture
def app(cli: Cli) -> Path:
    file = cli.folder / "app.py"
    file.write_text(APP)
    return file


@pytest.fixture
def said(namespace: str) -> str:
    """The list that the handlers push words to."""
    return f"{namespace}:said"


def begun(
    cli: Cli, queue: Queue[Any], raw: redis.Redis, said: str, name: str, *words: str, **env: str
) -> subprocess.Popen[str]:
    """A worker that has begun a job of that name."""
    queue.offer("job", id="job", name=name)
    process = cli.start("worker", *words, env=env)
    assert told(raw, said) == "job begins"
    return process


def test_burst_of_an_engine_runs_all_and_ends(cli: Cli, app: Path, mails: Queue[Any], shop: Engine) -> None:
    mails.offer_many(range(100))
    mails.offer("bad", id="bad", max_attempts=1)
    mails.offer("late", delay=3600)
    shop.queue("idle").offer("nobody serves it")
    mails.offer(7, name="pair")
    done = cli("worker", "app:engine", "--burst")
    counts = mails.counts()
    assert (counts[JobState.COMPLETED], counts[JobState.DEAD], counts[JobState.SCHEDULED]) == (101, 1, 1)
    assert shop.queue("bills").counts()[JobState.COMPLETED] == 1, "what a handler put elsewhere is run, too"
    assert shop.queue("idle").counts()[JobState.READY] == 1
    assert "queues mails, bills, burst" in done.err
    assert "\x1b" not in done.err


@pytest.mark.skipif(not issubclass(EventQueue, Subscribers), reason="event queues have no subscribers yet")
def test_subscribers_of_an_engine_are_served(cli: Cli, app: Path, shop: Engine) -> None:
    app.write_text(f'{APP}\nengine.events("news").subscriber("billing")(bills.offer)\n')
    shop.events("news").subscribe("billing")
    shop.events("news").emit("spring")
    cli("worker", "app:engine", "--burst")
    assert shop.queue("bills").counts()[JobState.COMPLETED] == 1
    assert shop.events("news").info().counts == {EventStatus.ACTIVE: 0}


def test_only_the_queues_that_are_named(cli: Cli, app: Path, mails: Queue[Any], shop: Engine) -> None:
    mails.offer(1)
    shop.queue("bills").offer(1)
    cli("worker", "app:worker", "--burst", "--queues", "bills", "--concurrency", "2")
    assert [queue.counts()[JobState.READY] for queue in (mails, shop.queue("bills"))] == [1, 0]
    assert "does not serve queue 'idle'" in cli("worker", "app:engine", "--queues", "idle", code=2).err


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("app", "write MODULE:ATTR"), ("nowhere:engine", "there is no module 'nowhere'"),
        ("app:gone", "app has no 'gone'"), ("app:number", "must be a Worker or an Engine"),
        ("app:nothing", "has no queue with a handler"),
    ],
)  # fmt: skip
def test_a_wrong_target_is_a_usage_error(target: str, reason: str, cli: Cli, app: Path) -> None:
    assert reason in cli("worker", target, code=2).err


def test_an_error_in_the_users_module_keeps_its_traceback(cli: Cli) -> None:
    (cli.folder / "bad.py").write_text("import nowhere_at_all\n")
    shown = cli.shell("redisq worker bad:engine")
    assert shown.code == 1
    assert "ModuleNotFoundError: No module named 'nowhere_at_all'" in shown.err


def test_options_that_the_engine_would_ignore_are_refused(cli: Cli, app: Path) -> None:
    assert "leave --namespace out" in cli("--namespace", "other", "worker", "app:engine", code=2).err
    (cli.folder / "fixed.py").write_text(
        'from redisq import Engine\nengine = Engine("redis://127.0.0.1:1")\nengine.queue("q").handler()(print)\n'
    )
    assert "leave --url out" in cli("--url", cli.env["REDISQ_URL"], "worker", "fixed:engine", code=2).err


def test_json_logs_are_a_document_a_line(cli: Cli, app: Path, mails: Queue[Any]) -> None:
    mails.offer("one", id="a")
    mails.offer("bad", max_attempts=1)
    entries = [
        json.loads(line) for line in cli("worker", "app:engine", "--burst", "--log-format", "json").err.splitlines()
    ]
    assert {"at", "level", "logger", "message"} <= set(entries[0])
    (mine,) = (each for each in entries if each["message"] == "mail one")
    assert (mine["job"], mine["queue"], mine["level"]) == ("a", "mails", "info")
    assert any(each["level"] == "warning" and "ValueError" in each["message"] for each in entries)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_idle_it_ends_at_the_first_signal(number: int, cli: Cli, app: Path, mails: Queue[Any]) -> None:
    process = cli.start("worker", "app:engine", "--health", "alive")
    until((cli.folder / "alive").exists, "the health file")
    mails.offer(1, id="a")
    until(lambda: mails.counts()[JobState.COMPLETED] == 1, "the job")
    code, err = stopped(process, number)
    assert code == 0, err
    assert not (cli.folder / "alive").exists()


def test_busy_it_ends_what_runs_and_takes_nothing_more(
    cli: Cli, app: Path, mails: Queue[Any], raw: redis.Redis, said: str
) -> None:
    process = begun(cli, mails, raw, said, "slow", "app:worker")
    process.send_signal(signal.SIGTERM)
    mails.offer(1, id="later", delay=0.3)
    assert process.wait(PATIENCE) == 0
    job, later = mails.get("job"), mails.get("later")
    assert job is not None
    assert later is not None
    assert (job.state, job.attempts, later.attempts) == (JobState.COMPLETED, 1, 0)


@pytest.mark.parametrize(("name", "code"), [("stubborn", 0), ("thread", 1)])
def test_over_the_grace_work_is_handed_back_without_an_attempt(
    name: str, code: int, cli: Cli, app: Path, mails: Queue[Any], raw: redis.Redis, said: str
) -> None:
    process = begun(cli, mails, raw, said, name, "app:worker", GRACE="0.1")
    assert stopped(process)[0] == code
    delivery = mails.take()
    assert delivery is not None, "another worker gets it at once"
    assert (delivery.id, delivery.attempt) == ("job", 1)


def test_a_second_signal_ends_at_once(cli: Cli, app: Path, mails: Queue[Any], raw: redis.Redis, said: str) -> None:
    process = begun(cli, mails, raw, said, "thread", "app:worker", GRACE="60")

    def gone() -> bool:
        process.send_signal(signal.SIGTERM)  # two at once may meet as one
        return process.poll() is not None

    until(gone, "the end")
    assert process.returncode == 130


def test_processes_share_the_work_and_end_together(
    cli: Cli, app: Path, mails: Queue[Any], shop: Engine, raw: redis.Redis
) -> None:
    bills = shop.queue("bills", policy=QueuePolicy(backoff=Backoff.fixed(0)))
    process = cli.start("worker", "app:worker", "--processes", "2", "--health", "alive")
    until(lambda: all((cli.folder / name).exists() for name in ("alive", "alive.0", "alive.1")), "three health files")
    seen: set[int] = set()

    def both() -> bool:
        bills.offer_many(range(64))
        seen.update(job.result for job in bills.jobs(state="completed", limit=1000).items)
        return len(seen) == 2

    until(both, "work in both processes")
    assert process.pid not in seen
    code, err = stopped(process)
    assert code == 0, err
    assert err.count("redisq worker") == 3
    assert [file.name for file in cli.folder.glob("alive*")] == []


def test_ctrl_c_reaches_each_process_once(cli: Cli, app: Path, mails: Queue[Any], raw: redis.Redis, said: str) -> None:
    process = begun(cli, mails, raw, said, "slow", "app:worker", "--processes", "2")
    os.killpg(process.pid, signal.SIGINT)  # a terminal signals the whole group
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert mails.counts()[JobState.COMPLETED] == 1


def test_a_process_that_dies_ends_the_others_and_its_code_counts(
    cli: Cli, app: Path, mails: Queue[Any], shop: Engine
) -> None:
    bills = shop.queue("bills")
    process = cli.start("worker", "app:worker", "--processes", "2")
    bills.offer(1, id="a")
    child: int = bills.wait_result("a", PATIENCE)
    os.kill(child, signal.SIGKILL)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGKILL
    assert "stopping the others" in err


def test_processes_in_a_burst(cli: Cli, app: Path, mails: Queue[Any]) -> None:
    mails.offer_many(range(50))
    cli.shell("redisq worker app:worker --processes 2 --burst")
    assert mails.counts()[JobState.COMPLETED] == 50


def test_children_of_a_killed_parent_stop(cli: Cli, app: Path, mails: Queue[Any], shop: Engine) -> None:
    bills = shop.queue("bills")
    process = cli.start("worker", "app:worker", "--processes", "2")
    bills.offer(1, id="a")
    bills.wait_result("a", PATIENCE)
    process.kill()
    _, err = process.communicate(timeout=PATIENCE)  # its pipes close when the last child has ended
    assert "the parent process is gone" in err


def test_sweep_brings_lapsed_work_back_and_stops_at_a_signal(cli: Cli, mails: Queue[Any], server: OwnServer) -> None:
    mails.alter(QueuePolicy(backoff=Backoff.fixed(0)))
    mails.offer(1)
    mails.take(lease=0.001)
    process = cli.start("sweep", "--interval", "50ms")
    until(lambda: mails.counts()[JobState.READY] == 1, "the sweep")
    code, err = stopped(process, signal.SIGINT)
    assert code == 0
    assert "redisq sweep" in err


def test_sweep_refuses_a_server_that_evicts(open_server: object, cli: Cli) -> None:
    assert callable(open_server)
    server = open_server("--maxmemory-policy", "allkeys-lru")
    refused = cli("sweep", code=1, env={"REDISQ_URL": server.url})
    assert "noeviction" in refused.err
