"""The stage of one run: the client processes, what is set up before them, and what is looked at after them."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import redis

from redisq import Engine, JobState, ObligationStatus, Subscription, SubscriptionInfo
from redisq.testing.check import check
from tests.history.record import Call, Found, History, Setup, read
from tests.history.workload import EVENTS, JOBS, POLICY, Work, lanes_of

ROOT = Path(__file__).parents[2]
STATES = {
    JobState.READY: "waiting", JobState.SCHEDULED: "waiting", JobState.COMPLETED: "done",
    ObligationStatus.PENDING: "waiting", ObligationStatus.ACKNOWLEDGED: "done",
}  # fmt: skip
AT_WORK = 30_000
"""How many bytes of history show that a process is at work."""

DRAIN_SECONDS = 15.0
"""How long draining goes on without any progress."""


class Crew:
    """The client processes of a run, each with a file of its own."""

    def __init__(self, work: Work, count: int) -> None:
        self._work = work
        self._started = 0
        self._read: dict[Path, int] = {}
        self._calls = 0
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        for _ in range(count):
            self.start()

    def start(self) -> None:
        name = f"p{self._started}"
        # each engine in turn is the patient one
        patience = self._work.retry_for[:: 1 if self._started % 2 else -1]
        work = msgspec.structs.replace(self._work, name=name, retry_for=patience)
        command = [sys.executable, "-m", "tests.history.workload", msgspec.json.encode(work).decode()]
        self._started += 1
        self.running[name] = subprocess.Popen(command, cwd=ROOT)

    def calls(self) -> int:
        """How many calls were begun so far."""
        for path in Path(self._work.folder).glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                new = file.read()
            end = new.rfind(b"\n") + 1
            self._read[path] = self._read.get(path, 0) + end
            self._calls += new[:end].count(b'{"is":"call"')
        return self._calls

    def busy(self, dice: random.Random) -> str | None:
        """One of the processes that are at work."""
        files = {name: Path(self._work.folder, f"{name}.jsonl") for name in sorted(self.running)}
        begun = [name for name, file in files.items() if file.exists() and file.stat().st_size > AT_WORK]
        return dice.choice(begun) if begun else None

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def signal(self, name: str, number: signal.Signals) -> None:
        self.running[name].send_signal(number)

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        try:
            # one that was only just started dies of the signal
            self._ended({name: process.wait(60) for name, process in self.running.items()}, (0, -signal.SIGTERM))
        finally:
            self.end()

    def check(self) -> None:
        """Raises when a process has ended by itself."""
        self._ended({name: process.poll() for name, process in self.running.items()}, (None,))

    def _ended(self, codes: dict[str, int | None], good: tuple[int | None, ...]) -> None:
        bad = {name: code for name, code in codes.items() if code not in good}
        if bad:
            raise RuntimeError(f"client processes ended with an error, which stands above; their exit codes: {bad}")

    def end(self) -> None:
        """Kills what still runs."""
        for name in list(self.running):
            self.kill(name)


def prepare(engine: Engine) -> list[Subscription]:
    """Makes the queues and subscriptions."""
    engine.queue(JOBS, policy=POLICY).alter(POLICY)
    return [
        engine.events(name, policy=policy).subscribe(sub) for name, (policy, subs) in EVENTS.items() for sub in subs
    ]


def offset(client: redis.Redis) -> tuple[int, int]:
    """Server time minus CLOCK_MONOTONIC in ns, and how wrong that may be: the best of several looks."""
    looks = []
    for _ in range(20):
        before = time.monotonic_ns()
        seconds, micros = client.time()
        after = time.monotonic_ns()
        looks.append((after - before, seconds * 10**9 + micros * 1000 - (before + after) // 2))
    took, best = min(looks)
    return best, took // 2


def setup(first: tuple[int, int], last: tuple[int, int]) -> Setup:
    """The run's setup, from the offsets at its beginning and end."""
    return Setup(
        offset=first[0],
        error=max(first[1], last[1]) + abs(last[0] - first[0]),
        subs={name: list(subs) for name, (_, subs) in EVENTS.items()},
        brief=[name for name, (policy, _) in EVENTS.items() if policy.on_completion == "delete"],
        backoff_ms={JOBS: 20},
    )


def drain(engine: Engine, history: History, subs: list[Subscription]) -> None:
    """Takes and acks whatever is takeable, until nothing is left or nothing moves."""
    lanes = lanes_of(engine, history, "drain", subs, 30)
    left, moved = live(engine), time.monotonic()
    while left and time.monotonic() - moved < DRAIN_SECONDS:
        for lane in lanes:
            lane.take(1000, 0.05)
            if lane.held:
                lane.ack_many(lane.held)
                lane.held = []
        now = live(engine)
        if now != left:
            left, moved = now, time.monotonic()


def live(engine: Engine) -> int:
    """How much work is not finished, in all queues."""
    counts = engine.queue(JOBS).counts()
    waiting: int = counts[JobState.READY] + counts[JobState.SCHEDULED] + counts[JobState.LEASED]
    return waiting + sum(info.lag for name in EVENTS for info in _lags(engine, name))


def _lags(engine: Engine, name: str) -> list[SubscriptionInfo]:
    infos = engine.events(name).subscriptions()
    return [info for info in infos if isinstance(info, SubscriptionInfo)]


def note_end(engine: Engine, history: History, folder: Path) -> list[str]:
    """Records what is there now; returns what is damaged."""
    history.write(*_jobs(engine), *_events(engine, folder))
    damage = check(engine.queue(JOBS))
    return [*damage, *(found for name in EVENTS for found in check(engine.events(name)))]


def _jobs(engine: Engine) -> Iterator[Found]:
    cursor = None
    while True:
        page = engine.queue(JOBS).jobs(limit=1000, cursor=cursor)
        for job in page.items:
            yield Found(JOBS, "", job.value, STATES.get(job.state, str(job.state)))
        cursor = page.cursor
        if cursor is None:
            return


def _events(engine: Engine, folder: Path) -> Iterator[Found]:
    """By the ids that were ever emitted; what is only known to be there, somewhere, has the key `?`."""
    keys: dict[str, set[str]] = {name: set() for name in EVENTS}
    for _, line in read(folder):
        if isinstance(line, Call) and line.queue in keys:
            keys[line.queue].update(put.key for put in line.puts)
    for name in EVENTS:
        events = engine.events(name)
        waiting = 0
        for key in sorted(keys[name]):
            event = events.get(key)
            for each in () if event is None else event.recipients:
                waiting += each.status is ObligationStatus.PENDING
                yield Found(name, each.name, key, STATES.get(each.status, str(each.status)))
        for info in _lags(engine, name):
            if info.lag and not waiting:
                yield Found(name, info.name, "?", "waiting")
