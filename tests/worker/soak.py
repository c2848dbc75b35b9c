"""The soak: jobs of random length through several worker processes, while one of them is killed every second.

    python -m tests.worker.soak --jobs 100000 --workers 4 --seed 1

None may be lost, and a job may run twice only where a kill explains it: the lease of its earlier run was never settled,
because its worker was killed after it had begun. It is counted from the journals that the workers write.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redisq import Backoff, Engine, JobState, Keep, NewJob, Queue, QueuePolicy
from redisq.testing.check import check
from tests.support.servers import own_server

ROOT = Path(__file__).parents[2]
LEASE = 8.0
POLICY = QueuePolicy(max_attempts=1000, lease=LEASE, backoff=Backoff.fixed(0.01), keep=Keep())


@dataclass
class Run:
    """One start of a handler, from the journal of its worker."""

    journal: str
    attempt: int
    fence: int
    ended: bool = False


@dataclass
class Report:
    """What the journals and the queue say."""

    jobs: int
    kills: int = 0
    completed: int = 0
    lost: list[str] = field(default_factory=list)
    repeated: int = 0
    unexplained: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.jobs:,} jobs, {self.kills} kills, {self.seconds:.0f} s: {self.completed:,} completed, "
            f"{len(self.lost)} lost, {self.repeated} run again after a kill, {len(self.unexplained)} without an "
            f"explanation, {len(self.damage)} damaged"
        )

    @property
    def good(self) -> bool:
        return self.completed == self.jobs and not (self.lost or self.unexplained or self.damage)


class Crew:
    """The worker processes; each start has a journal of its own."""

    def __init__(self, url: str, namespace: str, folder: Path, concurrency: int) -> None:
        self._environment = {**os.environ, "REDISQ_URL": url}
        self._arguments = (namespace, folder, concurrency)
        self._count = 0
        self.killed: set[str] = set()
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        namespace, folder, concurrency = self._arguments
        name = f"worker{self._count}"
        self._count += 1
        command = [sys.executable, "-m", "tests.worker.programs.load", namespace, str(folder / name), str(concurrency)]
        self.running[name] = subprocess.Popen(command, cwd=ROOT, env=self._environment)

    def kill_one(self, dice: random.Random) -> None:
        """Kills a worker that has begun, if there is one: the death of another would prove nothing."""
        folder = self._arguments[1]
        begun = [name for name in sorted(self.running) if (folder / name).exists() and (folder / name).stat().st_size]
        if not begun:
            return
        name = dice.choice(begun)
        process = self.running.pop(name)
        process.kill()
        process.wait()
        self.killed.add(name)
        self.start()

    def stop(self) -> list[int]:
        for process in self.running.values():
            process.terminate()
        return [process.wait(60) for process in self.running.values()]


def soak(
    url: str, namespace: str, *, jobs: int, workers: int, seed: int, kills: int | None = None, concurrency: int = 16
) -> Report:
    """Runs the soak on a server. kills: end the killing after so many; None kills as long as there is work."""
    dice = random.Random(seed)
    report = Report(jobs)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name, Engine(url, namespace=namespace) as engine:
        queue = engine.queue("soak", policy=POLICY)
        ids = offer(queue, jobs, dice)
        crew = Crew(url, namespace, Path(name), concurrency)
        for _ in range(workers):
            crew.start()
        try:
            while (done := queue.counts()[JobState.COMPLETED]) < jobs:
                if kills is None or len(crew.killed) < kills:
                    crew.kill_one(dice)
                time.sleep(1)
                if done == queue.counts()[JobState.COMPLETED] and time.monotonic() - began > 60 + jobs / 20:
                    break
        finally:
            codes = crew.stop()
        report.kills = len(crew.killed)
        report.seconds = time.monotonic() - began
        judge(report, queue, ids, Path(name), crew.killed)
        report.damage = [*check(queue), *(f"a worker ended with {code}" for code in codes if code > 0)]
    return report


def offer(queue: Queue[Any], jobs: int, dice: random.Random) -> list[str]:
    """Jobs of 0 to 100 ms, most of them short; one in ten runs in a thread, some are delayed."""
    ids: list[str] = []
    while len(ids) < jobs:
        batch = [
            NewJob(
                round(0.1 * dice.random() ** 4, 4),
                name="thread" if dice.random() < 0.1 else "async",
                delay=dice.random() * 5 if dice.random() < 0.1 else None,
                priority=dice.choice((0, 0, 0, 1)),
            )
            for _ in range(min(1000, jobs - len(ids)))
        ]
        ids += [each.id for each in queue.offer_many(batch)]
    return ids


def judge(report: Report, queue: Queue[Any], ids: Sequence[str], folder: Path, killed: set[str]) -> None:
    """Holds the journals against the queue."""
    runs: dict[str, list[Run]] = defaultdict(list)
    for journal in sorted(folder.iterdir()):
        for line in journal.read_text().splitlines():
            what, id, attempt, fence = line.split()
            if what == "start":
                runs[id].append(Run(journal.name, int(attempt), int(fence)))
            else:
                next(run for run in runs[id] if run.fence == int(fence)).ended = True
    report.completed = queue.counts()[JobState.COMPLETED]
    for id in ids:
        mine = sorted(runs[id], key=lambda run: run.fence)
        if not mine or not mine[-1].ended:
            report.lost.append(id)
        report.repeated += len(mine) - 1
        # every run but the last was cut short, or not settled any more, by a kill of its worker
        report.unexplained += [f"{id} in {run.journal}" for run in mine[:-1] if run.journal not in killed]
        if len({run.fence for run in mine}) != len(mine):
            report.unexplained.append(f"{id}: two runs under one lease")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    server = own_server()
    try:
        report = soak(server.url, "soak", **vars(options))
    finally:
        server.stop()
    sys.stdout.write(f"{report}\n")
    for line in [*report.lost, *report.unexplained, *report.damage][:20]:
        sys.stdout.write(f"  {line}\n")
    raise SystemExit(0 if report.good else 1)


if __name__ == "__main__":
    main()
