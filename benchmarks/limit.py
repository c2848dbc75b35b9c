"""redisq against the limit: the least that a script on the same server and client library could do, in one run.

    python -m benchmarks.limit

The limit keeps no history, no retention, no dedup, no fence that outlives a retry, and looks for nothing that lapsed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import click
import redis

from benchmarks.meter import Meter
from benchmarks.report import Spread, machine, save, say, short, table
from benchmarks.servers import connected, rounds_option, running, servers_option
from benchmarks.verbs import PAYLOAD, fill, queue_on
from redisq import Delivery, Engine, Queue
from redisq.cli.bench import Minimal
from redisq.demo.screen import Progress
from tests.support.servers import OwnServer

BULK = 1000
DRAIN_BATCH = 128
DAY = 86_400.0
TakeCosts: TypeAlias = dict[tuple[str, int], list[float]]
"""What lay behind, and the limit of the take -> server µs, a value a round."""

BARE = "return 1"


class Limit:
    """The hand-written queue of `redisq bench` on the server that is measured, and a script that does nothing."""

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client
        self._minimal = Minimal(client.execute_command, "{limit}")
        self._bare = client.script_load(BARE)
        self.offer = self._minimal.offer

    def bare(self, arguments: Sequence[Any]) -> None:
        """The script that does nothing, called with as many bytes as redisq sends."""
        self._client.evalsha(self._bare, 1, "{bare}", *arguments)

    def drain(self, handle: Callable[[bytes], object] = json.loads) -> int:
        count, done = 0, list[bytes]()
        while True:
            done, bodies = self._minimal.step(done, DRAIN_BATCH)
            for body in bodies:
                handle(body)
            if not done:
                return count
            count += len(done)


def drain(queue: Queue[str]) -> int:
    """What a consumer does whose handler does nothing: exchange until there is no more."""
    done = 0
    held: list[Delivery] = []
    while True:
        _, held = queue.exchange(held, DRAIN_BATCH)
        if not held:
            return done
        done += len(held)


class Contest(NamedTuple):
    """Two ways to do the same `jobs` jobs: redisq's and the limit's. `goal` is the least ratio of their speeds."""

    name: str
    jobs: int
    ours: Callable[[], object]
    limit: Callable[[], object]
    goal: float
    prepare: Callable[[], object] = lambda: None


class Outcome(NamedTuple):
    """Jobs a second and server CPU a job, a value a round."""

    speed: list[float]
    cpu_us: list[float]


@click.command()
@servers_option
@rounds_option(7)
@click.option("--jobs", type=click.IntRange(1000), default=20_000, show_default=True, help="Jobs of a bulk contest.")
@click.option("--deep", default=1_000_000, show_default=True, help="Jobs behind a take, in the deep cases.")
def main(kinds: tuple[str, ...], rounds: int, jobs: int, deep: int) -> None:
    """The goals that are ratios to the limit, each measured in turn with it."""
    figures: list[dict[str, Any]] = []
    with running(kinds) as servers:
        about = machine(servers)
        for server in servers:
            figures += _against_limit(server, jobs, rounds)
            figures += _behind(server, deep, rounds)
            figures.append(_pending(server))
    heads = ["server", "what", "redisq", "limit", "ratio", "goal", "reached"]
    say(table("Against the limit", heads, [[str(row[head]) for head in heads] for row in figures]))
    save("limit", about, figures)


def _against_limit(server: OwnServer, jobs: int, rounds: int) -> list[dict[str, Any]]:
    client = connected(server)
    meter, minimal = Meter(client), Limit(client)
    with Engine(server.unix_url, namespace="limit") as engine:
        contests = _contests(queue_on(engine, "q"), engine, minimal, jobs)
        progress = Progress(rounds * len(contests))
        outcomes = {(contest.name, side): Outcome([], []) for contest in contests for side in ("ours", "limit")}
        for number in range(rounds):
            for step, contest in enumerate(contests, 1):
                for side in ("ours", "limit") if number % 2 else ("limit", "ours"):
                    contest.prepare()
                    with meter.section() as reading:
                        getattr(contest, side)()
                    outcomes[contest.name, side].speed.append(contest.jobs / reading.client_us * 1e6)
                    outcomes[contest.name, side].cpu_us.append(reading.cpu_us / contest.jobs)
                progress.update(number * len(contests) + step, f"{server.name}, {contest.name}")
        progress.end()
    rows = [_speed_row(server, each, outcomes[each.name, "ours"], outcomes[each.name, "limit"]) for each in contests]
    return [*rows, *_cpu_rows(server, contests, outcomes)]


def _contests(queue: Queue[str], engine: Engine, minimal: Limit, jobs: int) -> list[Contest]:
    one, bulk, few = [PAYLOAD], [PAYLOAD] * BULK, max(200, jobs // 40)
    sent = sent_by(engine, lambda: queue.offer(PAYLOAD))

    def empty() -> None:
        drain(queue)
        minimal.drain()

    def full() -> None:
        empty()
        fill(queue, jobs)
        repeat(jobs // BULK, partial(minimal.offer, bulk))

    return [
        Contest("offer one by one, to a bare EVALSHA", few, lambda: repeat(few, partial(queue.offer, PAYLOAD)),
                lambda: repeat(few, partial(minimal.bare, sent)), 0.85),
        Contest("offer one by one, to the minimal offer", few, lambda: repeat(few, partial(queue.offer, PAYLOAD)),
                lambda: repeat(few, partial(minimal.offer, one)), 0.0),
        Contest(f"offer_many({BULK:,})", jobs, lambda: repeat(jobs // BULK, partial(queue.offer_many, bulk)),
                lambda: repeat(jobs // BULK, partial(minimal.offer, bulk)), 1.0, empty),
        Contest(f"drain by exchange, {DRAIN_BATCH} a batch", jobs, lambda: drain(queue), minimal.drain, 0.5, full),
    ]  # fmt: skip


def repeat(times: int, action: Callable[[], object]) -> None:
    for _ in range(times):
        action()


def sent_by(engine: Engine, action: Callable[[], object]) -> list[Any]:
    """The arguments, after the key, of the last script that `action` runs."""
    sent: list[Any] = []
    sender: Any = engine._sender
    command = sender._command

    def recorded(*args: Any) -> Any:
        made = command(*args)
        sent[:] = made[4:]
        return made

    sender._command = recorded
    try:
        action()
    finally:
        sender._command = command
    return sent


def _speed_row(server: OwnServer, contest: Contest, ours: Outcome, limit: Outcome) -> dict[str, Any]:
    ratio = Spread.of(a / b for a, b in zip(ours.speed, limit.speed, strict=True))
    return {"server": server.name, "what": f"{contest.name}, jobs/s", "redisq": Spread.of(ours.speed),
            "limit": Spread.of(limit.speed), "ratio": ratio, "goal": f"≥ {contest.goal:g}" if contest.goal else "",
            "reached": ratio.median >= contest.goal if contest.goal else ""}  # fmt: skip


def _cpu_rows(
    server: OwnServer, contests: list[Contest], outcomes: dict[tuple[str, str], Outcome]
) -> list[dict[str, Any]]:
    rows = []
    for contest in contests[2:]:
        ours, limit = (outcomes[contest.name, side].cpu_us for side in ("ours", "limit"))
        goal = 20 if contest.name.startswith("drain") else None
        rows.append({
            "server": server.name, "what": f"{contest.name}, server CPU µs a job", "redisq": Spread.of(ours),
            "limit": Spread.of(limit), "ratio": Spread.of(a / b for a, b in zip(ours, limit, strict=True)),
            "goal": f"≤ {goal} µs" if goal else "", "reached": Spread.of(ours).median <= goal if goal else "",
        })  # fmt: skip
    return rows


def _behind(server: OwnServer, deep: int, rounds: int) -> list[dict[str, Any]]:
    """A take of 1 and of 100 with much behind, to the same with nothing behind but the jobs to take."""
    with Engine(server.unix_url, namespace="behind") as engine:
        client = connected(server)
        meter = Meter(client, engine)
        queues = {name: queue_on(engine, name) for name in ("empty", "ready", "scheduled")}
        fill(queues["ready"], deep)
        fill(queues["scheduled"], deep, delay=DAY)
        growing = _take_costs(queues, meter, rounds)
        for name in ("ready", "scheduled"):
            _end_growth(client, name, deep)
        settled = _take_costs(queues, meter, rounds)
    return [
        *_behind_rows(server.name, deep, settled, "behind", goal=1.2),
        *_behind_rows(server.name, deep, growing, "behind, its tables still growing", goal=None),
    ]


def _take_costs(queues: dict[str, Queue[str]], meter: Meter, rounds: int) -> TakeCosts:
    calls = 50
    costs: TakeCosts = {}
    for _ in range(rounds):
        for limit in (1, 100):
            for name, queue in queues.items():
                fill(queue, calls * limit)
                held: list[list[Delivery]] = []
                with meter.section() as reading:
                    repeat(calls, lambda queue=queue, held=held, limit=limit: held.append(queue.take_many(limit)))  # type: ignore[misc]
                costs.setdefault((name, limit), []).append(reading.server_us / calls)
                for each in held:
                    queue.ack_many(each)
    return costs


def _end_growth(client: redis.Redis, queue: str, deep: int) -> None:
    """A hash that has outgrown its table moves into a larger one bit by bit, with each lookup."""
    for column in ("head", "body"):
        for _ in range(deep * 6 // 5 // BULK):
            client.hmget(f"{{behind:jobs:{queue}}}:{column}", [f"absent {number}" for number in range(BULK)])


def _behind_rows(server: str, deep: int, costs: TakeCosts, how: str, goal: float | None) -> Iterator[dict[str, Any]]:
    for name in ("ready", "scheduled"):
        for limit in (1, 100):
            ours, base = costs[name, limit], costs["empty", limit]
            ratio = Spread.of(a / b for a, b in zip(ours, base, strict=True))
            yield {"server": server, "what": f"take({limit}) with {deep:,} {name} {how}, µs",
                   "redisq": Spread.of(ours), "limit": Spread.of(base), "ratio": ratio,
                   "goal": "" if goal is None else f"≤ {goal:g}",
                   "reached": "" if goal is None else ratio.median <= goal}  # fmt: skip


def _pending(server: OwnServer, count: int = 100_000) -> dict[str, Any]:
    client = connected(server)
    meter, minimal = Meter(client), Limit(client)
    with Engine(server.unix_url, namespace="pending") as engine:
        queue = queue_on(engine, "q")
        fill(queue, 1)
        start = meter.memory()
        fill(queue, count)
        ours = (meter.memory() - start) / count
        minimal.drain()
        start = meter.memory()
        repeat(count // BULK, partial(minimal.offer, [PAYLOAD] * BULK))
        limit = (meter.memory() - start) / count
    return {"server": server.name, "what": "a pending job, 100-byte payload, bytes", "redisq": short(ours),
            "limit": short(limit), "ratio": short(ours / limit), "goal": "≤ 260 bytes",
            "reached": ours <= 260}  # fmt: skip


if __name__ == "__main__":
    main()
