"""The process in which an adapter runs: it reads commands and answers them, one JSON object a line.

    python -m benchmarks.peers.stage NAME URL

A stage is either a producer, for many commands, or becomes a worker, and then ends with its one piece of work.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any, TextIO

from benchmarks.peers.contract import DIGITS, Job, Peer, Tally, payload

BULK = 1000
SETTLE_SECONDS = 20.0


class Stage:
    def __init__(self, adapter: type[Peer], url: str, commands: TextIO, answers: TextIO) -> None:
        self._adapter = adapter
        self._url = url
        self._commands = commands
        self._answers = answers
        self._runner = asyncio.Runner(loop_factory=_loop_factory())
        self._peer: Peer
        self._lock = threading.Lock()

    def serve(self) -> None:
        self._say(
            versions={name: metadata.version(name) for name in self._adapter.packages},
            verbs=[verb for verb in ("offer", "offer_many", "bare") if getattr(self._adapter, verb) is not None],
            set_up=self._adapter.set_up,
            concurrency=[self._adapter.plain_concurrency, self._adapter.waiting_concurrency],
        )
        for line in self._commands:
            command = json.loads(line)
            answer = getattr(self, f"do_{command.pop('do')}")(**command)
            self._say(**(answer or {}))

    def do_open(self, queue: str) -> None:
        self._peer = self._adapter(self._url, queue)
        self._finish(self._peer.start())

    def do_offer(self, verb: str, seconds: float) -> dict[str, Any]:
        """As many jobs as fit into `seconds`, after a first call that connects and prepares."""
        call, size = getattr(self._peer, verb), BULK if verb == "offer_many" else 1
        values: Any = [payload(number) for number in range(BULK)] if verb == "offer_many" else payload(0)
        self._finish(call(values))
        if self._adapter.asynchronous:
            calls, taken = self._runner.run(_timed_async(call, values, seconds))
        else:
            calls, taken = _timed(call, values, seconds)
        return {"jobs": calls * size, "first": size, "seconds": taken}

    def do_fill(self, jobs: int) -> None:
        """Jobs 0 to `jobs` - 1, the fastest way there is."""
        many = self._peer.offer_many
        if many is None:
            for number in range(jobs):
                self._finish(self._peer.offer(payload(number)))
            return
        for start in range(0, jobs, BULK):
            self._finish(many([payload(number) for number in range(start, min(jobs, start + BULK))]))

    def do_send(self) -> None:
        """One job that tells when it was offered."""
        self._finish(self._peer.send(payload(time.monotonic_ns())))

    def do_drain(self, queue: str, jobs: int, nap: float) -> None:
        """Becomes a worker of a queue that holds `jobs` jobs; the answer comes when all of them are settled."""
        tally = Tally(jobs)
        Job.seen, Job.nap = tally.add, nap
        self._become_worker(queue, self._adapter.waiting_concurrency if nap else self._adapter.plain_concurrency,
                            lambda: self._watch(tally))  # fmt: skip

    def do_wake(self, queue: str) -> None:
        """Becomes an idle worker: an answer a job, the first of which tells whether the server still held it."""
        Job.seen = self._first_wake
        self._become_worker(queue, self._adapter.plain_concurrency, lambda: None)

    def _become_worker(self, queue: str, concurrency: int, beside: Callable[[], object]) -> None:
        self.do_open(queue)
        self._say(ready=True)
        self._commands.readline()
        threading.Thread(target=beside, daemon=True).start()
        threading.Thread(target=self._end_with_commands, daemon=True).start()
        self._finish(self._peer.work(concurrency))

    def _end_with_commands(self) -> None:
        """The harness closes the pipe: there is no gentle way out of every library's worker."""
        self._commands.read()
        os._exit(0)

    def _watch(self, tally: Tally) -> None:
        tally.done.wait()
        client = self._client()
        limit = time.monotonic() + SETTLE_SECONDS
        while (left := self._peer.left(client)) and time.monotonic() < limit:
            time.sleep(0.02)
        distinct = len(set(tally.numbers))
        self._say(seconds=tally.ended - tally.started, run=len(tally.numbers), distinct=distinct, left=left)

    def _first_wake(self, value: str) -> None:
        Job.seen = self._wake
        self._say(held=self._peer.left(self._client()) > 0)

    def _wake(self, value: str) -> None:
        self._say(microseconds=(time.monotonic_ns() - int(value[:DIGITS])) / 1000)

    def _client(self) -> Any:
        import redis

        return redis.Redis.from_url(self._url)

    def _finish(self, result: Any) -> None:
        if inspect.isawaitable(result):
            self._runner.run(_awaited(result))

    def _say(self, **answer: Any) -> None:
        with self._lock:
            self._answers.write(json.dumps(answer) + "\n")
            self._answers.flush()


async def _awaited(result: Any) -> None:
    await result


def _timed(call: Callable[[Any], object], value: Any, seconds: float) -> tuple[int, float]:
    calls, started = 0, time.perf_counter()
    while (taken := time.perf_counter() - started) < seconds:
        call(value)
        calls += 1
    return calls, taken


async def _timed_async(call: Callable[[Any], Any], value: Any, seconds: float) -> tuple[int, float]:
    calls, started = 0, time.perf_counter()
    while (taken := time.perf_counter() - started) < seconds:
        await call(value)
        calls += 1
    return calls, taken


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed, as it is for the peers."""
    try:
        import uvloop  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def main() -> None:
    name, url = sys.argv[1:]
    # libraries print to standard output: the answers go to a copy of it
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    logging.disable(logging.WARNING)
    adapter = importlib.import_module(f"benchmarks.peers.adapters.{name}").Adapter
    Stage(adapter, url, sys.stdin, answers).serve()


if __name__ == "__main__":
    main()
