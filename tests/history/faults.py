"""What is done to clients and servers while a workload runs: one class per fault, and `run`, which makes one run."""

from __future__ import annotations

import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from redisq import Engine
from tests.faults.damage import full_memory, script_flush
from tests.faults.proxy import Proxy
from tests.history import scene
from tests.history.judge import Verdict, judge
from tests.history.record import Fault as Undoing, History
from tests.history.workload import Work
from tests.support.sentinel import Topology
from tests.support.servers import OwnServer, own_server

LEASE = 1.0
NAMESPACE = "history"
MS = 1_000_000


class Fault:
    """No fault: what all others start from. `once` does one, while `crew` works; it may take seconds.

    url: what the clients are given. says: for the table. undoes: whether writes may be lost in a window.
    """

    says = "none"
    undoes = False
    options: ClassVar[tuple[str, ...]] = ()
    work: ClassVar[dict[str, Any]] = {}

    def __init__(self, stack: ExitStack) -> None:
        self.server = own_server(*self.options)
        stack.callback(self.server.stop)
        self.url = self.server.url

    def direct(self) -> OwnServer:
        """The server that counts now."""
        return self.server

    def settle(self) -> None:
        """Makes certain that what was written so far can't be undone."""

    def once(self, crew: scene.Crew, history: History, dice: random.Random) -> bool:
        """Whether it was done; not while no process is at work that it could be done to."""
        time.sleep(0.3)
        return True


class KilledWorker(Fault):
    says = "a client process is killed (`kill -9`)"

    def once(self, crew: scene.Crew, history: History, dice: random.Random) -> bool:
        time.sleep(dice.uniform(0.3, 0.8))
        name = crew.busy(dice)
        if name is not None:
            crew.kill(name)
            crew.start()
        return name is not None


class FrozenWorker(Fault):
    says = "a client process is stopped past its leases, and goes on"

    def once(self, crew: scene.Crew, history: History, dice: random.Random) -> bool:
        time.sleep(dice.uniform(0.1, 0.4))
        name = crew.busy(dice)
        if name is not None:
            crew.signal(name, signal.SIGSTOP)
            try:
                time.sleep(LEASE * dice.uniform(1.1, 1.6))
            finally:
                crew.signal(name, signal.SIGCONT)
        return name is not None


class CutConnections(Fault):
    says = "connections are cut, replies dropped and delayed"
    work: ClassVar[dict[str, Any]] = {"retry_for": (10.0, 10.0)}

    def __init__(self, stack: ExitStack) -> None:
        super().__init__(stack)
        self._proxy = stack.enter_context(Proxy(self.server.url))
        self.url = self._proxy.url

    def once(self, crew: scene.Crew, history: History, dice: random.Random) -> bool:
        time.sleep(dice.uniform(0.02, 0.2))
        act = dice.random()
        if act < 0.6:
            self._proxy.eat_replies(dice.randint(1, 5))
        elif act < 0.8:
            self._proxy.cut()
        else:
            self._proxy.stall()
            time.sleep(dice.uniform(0.1, 0.7))
            self._proxy.resume()
        return True


class Impatience(CutConnections):
    says = "the same, and every other client repeats nothing"
    work: ClassVar[dict[str, Any]] = {"retry_for": (10.0, 0.0)}


class ForgottenScripts(Fault):
    says = "`SCRIPT FLUSH`, again and again"

    def once(self, crew: scene.Crew, history: History, dice: random.Random) -> bool:
        with self.server.client() as client:
            for _ in range(10):
                script_flush(client)
                time.sleep(0.02)
        return True


class FullMemory(Fault):
    says = "the server's memory is full, then not"

    def once(self, crew: scene.Crew, history: History, dice: random.Random) -> bool:
        with self.server.client() as client:
            with full_memory(client):
                time.sleep(dice.uniform(0.2, 0.6))
            time.sleep(dice.uniform(0.2, 0.6))
        return True


class WildClocks(Fault):
    says = "the clocks of the clients jump by up to ten minutes"
    work: ClassVar[dict[str, Any]] = {"wild_clock": True}


class KilledServer(Fault):
    says = "the server is killed (`kill -9`), `appendfsync always`"
    options = ("--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")

    def once(self, crew: scene.Crew, history: History, dice: random.Random) -> bool:
        time.sleep(dice.uniform(0.3, 1.2))
        self.server.kill()
        time.sleep(dice.choice((0, 0.2, 0.8)))
        self.server.start()
        return True


class LostPower(Fault):
    """A kill alone loses nothing that was written; so the file is cut to what it was up to a second before."""

    says = "the machine loses power, `appendfsync everysec`"
    undoes = True
    options = ("--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0")

    def settle(self) -> None:
        with self.server.client() as client:
            client.execute_command("WAITAOF", 1, 0, 10_000)

    def once(self, crew: scene.Crew, history: History, dice: random.Random) -> bool:
        time.sleep(dice.uniform(0.5, 2))
        with self.server.client() as client:
            config = client.config_get("dir", "appenddirname")
        (file,) = Path(config["dir"], config["appenddirname"]).glob("*.incr.aof")
        kept = time.monotonic_ns()
        size = file.stat().st_size
        undone = time.monotonic_ns()
        time.sleep(dice.uniform(0.05, 0.9))
        start = time.monotonic_ns()
        self.server.kill()
        with file.open("r+b") as log:
            log.truncate(size)
        self.server.start()
        history.write(Undoing("power", kept, undone, start, time.monotonic_ns()))
        return True


class Failover(Fault):
    """The replicas are made to miss the master's last writes, and it is killed."""

    says = "the master is killed, Sentinel promotes a replica that lags behind"
    undoes = True
    work: ClassVar[dict[str, Any]] = {"replicas": 2}
    LAG = 200 * MS

    def __init__(self, stack: ExitStack) -> None:
        self._topology = stack.enter_context(Topology())
        self.url = self._topology.url

    def direct(self) -> OwnServer:
        return self._topology.master()

    def settle(self) -> None:
        with self.direct().client() as client:
            client.wait(2, 10_000)

    def once(self, crew: scene.Crew, history: History, dice: random.Random) -> bool:
        time.sleep(dice.uniform(0.5, 1.5))
        replicas = self._topology.replicas()
        kept = time.monotonic_ns() - self.LAG
        for replica in replicas:
            replica.freeze()
        with self.direct().client() as client:
            client.client_kill_filter(_type="replica")
        undone = time.monotonic_ns()
        time.sleep(dice.uniform(0, 0.3))
        start = time.monotonic_ns()
        self._topology.kill_master()
        for replica in replicas:
            replica.thaw()
        self._topology.wait_for_new_master()
        history.write(Undoing("failover", kept, undone, start, time.monotonic_ns()))
        self._topology.heal()
        return True


FAULTS: dict[str, type[Fault]] = {
    "none": Fault,
    "worker-kill": KilledWorker,
    "worker-freeze": FrozenWorker,
    "network": CutConnections,
    "network-hasty": Impatience,
    "script-flush": ForgottenScripts,
    "memory": FullMemory,
    "clocks": WildClocks,
    "server-kill": KilledServer,
    "power": LostPower,
    "failover": Failover,
}


@dataclass
class Outcome:
    """One run: what the judge says, what `check` found, and where the history is when either is not content."""

    verdict: Verdict
    faults: int
    version: str
    damage: list[str] = field(default_factory=list)
    kept: Path | None = None

    @property
    def good(self) -> bool:
        return not (self.verdict.broken or self.damage)


def run(
    name: str, operations: int, seed: int, *, processes: int = 2, tell: Callable[[str], None] = lambda line: None
) -> Outcome:
    """One run on servers of its own: at least so many calls, while the fault happens again and again."""
    folder = Path(tempfile.mkdtemp(prefix="redisq-history-"))
    try:
        outcome = _play(FAULTS[name], operations, seed, processes, folder, tell)
        tell("judging")
        outcome.verdict = judge(folder)
    except BaseException as error:
        error.add_note(f"what was recorded is in {folder}")
        raise
    if outcome.good:
        shutil.rmtree(folder)
    else:
        outcome.kept = folder
    return outcome


def _play(
    kind: type[Fault], operations: int, seed: int, processes: int, folder: Path, tell: Callable[[str], None]
) -> Outcome:
    """The run itself, from its servers' start to what is there in the end."""
    with ExitStack() as stack:
        fault = kind(stack)
        history = History(folder, "main")
        stack.callback(history.close)
        with Engine(fault.url, namespace=NAMESPACE) as engine:
            subs = scene.prepare(engine)
        fault.settle()
        with fault.direct().client() as client:
            first = scene.offset(client)
        work = Work(fault.url, NAMESPACE, str(folder), "", seed, subs, lease=LEASE, **fault.work)
        crew = scene.Crew(work, processes)
        stack.callback(crew.end)
        count = _trouble(fault, crew, history, random.Random(seed), operations, tell)
        crew.stop()
        with fault.direct().client() as client:
            history.write(scene.setup(first, scene.offset(client)))
        with Engine(fault.direct().url, namespace=NAMESPACE) as engine:
            scene.drain(engine, history, subs)
            damage = scene.note_end(engine, history, folder)
        return Outcome(Verdict(), count, fault.direct().version(), damage)


def _trouble(
    fault: Fault,
    crew: scene.Crew,
    history: History,
    dice: random.Random,
    operations: int,
    tell: Callable[[str], None],
) -> int:
    """Lets the fault happen until the crew has made its calls; how often it did."""
    limit = time.monotonic() + 60 + operations / 20
    count = 0
    while (calls := crew.calls()) < operations or count == 0:
        tell(f"{calls:,} of {operations:,} calls, {count} faults")
        if time.monotonic() > limit:
            raise TimeoutError(f"only {calls:,} of {operations:,} calls in {60 + operations / 20:.0f} s")
        count += fault.once(crew, history, dice)
        crew.check()
    return count
