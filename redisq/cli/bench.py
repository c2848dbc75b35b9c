"""`redisq bench`: what this server does with this client, beside the least that hand-written scripts do there."""

from __future__ import annotations

import json
import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec

from redisq.cli import show
from redisq.cli.app import PATIENCE, App, examples, json_option, pass_app
from redisq.cli.bulk import progress
from redisq.ids import IdMaker
from redisq.model import Delivery
from redisq.sync import Engine, Queue

LEASE_MS = 3_600_000
STEPS = 5  # of the bar, for each verb

# per job: id, body
OFFER = """
for i = 1, #ARGV, 2 do
  redis.call('HSET', KEYS[1] .. ':' .. ARGV[i], 'body', ARGV[i + 1], 'state', 'ready')
  redis.call('RPUSH', KEYS[1] .. ':ready', ARGV[i])
end
return 1
"""

# limit, lease end, then the ids of the batch that is done
STEP = """
for i = 3, #ARGV do
  if redis.call('ZREM', KEYS[1] .. ':leased', ARGV[i]) == 1 then redis.call('DEL', KEYS[1] .. ':' .. ARGV[i]) end
end
local ids = redis.call('LPOP', KEYS[1] .. ':ready', ARGV[1]) or {}
local bodies = {}
for i = 1, #ids do
  redis.call('ZADD', KEYS[1] .. ':leased', ARGV[2], ids[i])
  bodies[i] = redis.call('HGET', KEYS[1] .. ':' .. ids[i], 'body')
end
return { ids, bodies }
"""


class Minimal:
    """The hand-written limit: a hash a job, a list, and a zset of leases, through `send`, which runs a command.

    It keeps no history, no finished jobs and no fence that outlives a retry, and looks for nothing that lapsed.
    """

    def __init__(self, send: Callable[..., Any], root: str) -> None:
        self._send = send
        self._root = root
        self._ids = IdMaker()
        self._offer, self._step = (send("SCRIPT", "LOAD", text).decode() for text in (OFFER, STEP))

    def offer(self, values: Sequence[str]) -> None:
        arguments: list[str] = []
        for id, value in zip(self._ids.make(len(values)), values, strict=True):
            arguments += (id, json.dumps(value))
        self._send("EVALSHA", self._offer, 1, self._root, *arguments)

    def step(self, done: Sequence[bytes], limit: int) -> tuple[list[bytes], list[bytes]]:
        """Deletes what is done and leases the next jobs: their ids and bodies."""
        end = time.time_ns() // 1_000_000 + LEASE_MS
        ids, bodies = self._send("EVALSHA", self._step, 1, self._root, limit, end, *done)
        return ids, bodies

    def clear(self) -> None:
        """Deletes all that it put on the server."""
        done = self._send("ZRANGE", f"{self._root}:leased", 0, -1)
        while True:
            done, _ = self.step(done, 1000)
            if not done:
                return


class Measure(msgspec.Struct, frozen=True):
    """One verb at one batch size. Times are of one call, from here to the server and back.

    `limit_jobs_per_second` is what hand-written scripts without redisq's guarantees did in turn with it: the most that
    a queue could do over this connection. `exchange` acks a batch and takes the next.
    """

    verb: str
    batch: int
    jobs_per_second: float
    median_ms: float
    slowest_ms: float
    limit_jobs_per_second: float | None = None


@click.command("bench", epilog=examples("redisq bench", "redisq bench --jobs 20000 --payload 1000 --json"))
@click.option("--jobs", "count", type=click.IntRange(10, 1_000_000), default=2000, show_default=True,
              help="Jobs for each batch size.")  # fmt: skip
@click.option("--batch", type=click.IntRange(2, 1000), default=100, show_default=True, help="The larger batch size.")
@click.option("--payload", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="Bytes of each job.")
@json_option
@pass_app
def command(app: App, count: int, batch: int, payload: int, as_json: bool) -> None:
    """Measure offer, take, ack and exchange against the server, one client in one thread: singly, and in batches.

    Beside them stands the limit: the least that hand-written scripts do there, without history, retries or fences,
    measured in turn. It uses a namespace of its own and removes it. On a server that others use, they notice.
    """
    namespace = f"redisq-bench-{secrets.token_hex(6)}"
    measures: list[Measure] = []
    with Engine(app.url, namespace=namespace, retry_for=PATIENCE) as engine:
        queue = engine.queue("bench", str)
        minimal = Minimal(lambda *command: engine._sender.run_commands([command])[0], f"{{{namespace}:limit}}")
        try:
            with progress("bench", 4 * 2 * STEPS) as bar:
                for size in (1, batch):
                    contest = Contest(queue, minimal, size, count, "x" * payload)
                    measures += contest.run(bar.update if bar else lambda _: None)
        finally:
            minimal.clear()
            queue.delete(force=True)
    if as_json:
        show.document(measures)
        return
    headers = ["VERB", "BATCH", "JOBS/S", "MEDIAN MS", "SLOWEST MS", "LIMIT JOBS/S", "OF THE LIMIT"]
    show.table(headers, [
        [each.verb, f"{each.batch}", f"{each.jobs_per_second:,.0f}", f"{each.median_ms:.2f}", f"{each.slowest_ms:.2f}",
         *_to_limit(each)]
        for each in measures
    ], right=headers[1:])  # fmt: skip


def _to_limit(measure: Measure) -> tuple[str, str]:
    limit = measure.limit_jobs_per_second
    return ("", "") if limit is None else (f"{limit:,.0f}", f"{measure.jobs_per_second / limit:.2f}")


class Contest:
    """All verbs at one batch size: what is offered is taken and acked, or exchanged; the limit's calls in turn."""

    def __init__(self, queue: Queue[Any], minimal: Minimal, size: int, count: int, value: str) -> None:
        self._queue = queue
        self._minimal = minimal
        self._size = size
        self._calls = max(count // size, 1)
        self._values = [value] * size
        self._held: list[list[Delivery]] = []
        self._batch: list[Delivery] = []
        self._done: list[bytes] = []

    def run(self, done: Callable[[int], None]) -> list[Measure]:
        return [
            self._measure("offer", self._offer, lambda: self._minimal.offer(self._values), done),
            self._measure("take", self._take, None, done),
            self._measure("ack", self._ack, None, done),
            self._measure("exchange", self._exchange, self._step, done, before=self._refill),
        ]

    def _measure(
        self,
        verb: str,
        ours: Callable[[], object],
        limit: Callable[[], object] | None,
        done: Callable[[int], None],
        before: Callable[[], object] = lambda: None,
    ) -> Measure:
        before()
        taken: list[float] = []
        limits: list[float] = []
        for at in range(self._calls):
            taken.append(_timed(ours))
            if limit is not None:
                limits.append(_timed(limit))
            done(STEPS * (at + 1) // self._calls - STEPS * at // self._calls)
        jobs = self._calls * self._size
        return Measure(verb, self._size, jobs / sum(taken), statistics.median(taken) * 1000, max(taken) * 1000,
                       jobs / sum(limits) if limits else None)  # fmt: skip

    def _offer(self) -> None:
        if self._size == 1:
            self._queue.offer(self._values[0])
        else:
            self._queue.offer_many(self._values)

    def _take(self) -> None:
        self._held.append(self._queue.take_many(self._size, lease=LEASE_MS / 1000))

    def _ack(self) -> None:
        held = self._held.pop()
        if self._size == 1:
            self._queue.ack(held[0])
        else:
            self._queue.ack_many(held)

    def _refill(self) -> None:
        """The limit still has what was offered; redisq's jobs were acked."""
        for _ in range(self._calls):
            self._offer()

    def _exchange(self) -> None:
        _, self._batch = self._queue.exchange(self._batch, self._size, lease=LEASE_MS / 1000)

    def _step(self) -> None:
        self._done, bodies = self._minimal.step(self._done, self._size)
        for body in bodies:
            json.loads(body)


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
