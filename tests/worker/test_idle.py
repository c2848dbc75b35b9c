"""What an idle worker costs: fewer than 5 commands a second, at most 2 more per further queue (issue 5)."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest

from redisq import Engine
from redisq.flows import LOOK_EVERY
from redisq.scripts import script
from redisq.transport.wire import AsyncWire
from tests.worker.conftest import WAIT, Serve


class Commands:
    """Counts what the workers of this process send, once `start` was called; `look` opens at each wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self.waits = threading.Semaphore(0)
        talk = AsyncWire.talk
        scripts = ("jobs/exchange", "jobs/maintain", "queue/open", "jobs/renew")
        names = {str([script(name).sha]): name for name in scripts}

        async def counted(wire: AsyncWire, connection: Any, commands: Any, *args: Any, **kwargs: Any) -> Any:
            for command in commands:
                word, *rest = command
                self.counts[names.get(str(rest[:1]), str(word))] += 1
                if word == "BLPOP":
                    self.waits.release()
            return await talk(wire, connection, commands, *args, **kwargs)

        monkeypatch.setattr(AsyncWire, "talk", counted)


@pytest.mark.parametrize("queues", [1, 3])
@pytest.mark.parametrize("made", [True, False])
def test_an_idle_worker_makes_few_commands(
    queues: int, made: bool, engine: Engine, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted per look, which comes every two seconds, and per second for the sweeps."""
    served = [engine.queue(f"q{at}") for at in range(queues)]
    for queue in served:
        queue.handler()(print)
        if made:
            queue.offer("x", delay=3600)
    commands = Commands(monkeypatch)
    serve(served, concurrency=8)
    for _ in range(queues):
        assert commands.waits.acquire(timeout=WAIT)  # the first looks are over
    commands.counts.clear()
    began = time.monotonic()
    for _ in range(2 * queues):
        assert commands.waits.acquire(timeout=WAIT)
    counts, seconds = commands.counts.copy(), time.monotonic() - began
    looks = counts.pop("BLPOP")
    # a wait on a queue that is not there yet asks for its settings; the first exchange of each may fall into the count
    assert counts.pop("jobs/exchange", 0) <= (looks if made else 0) + queues
    assert counts.pop("queue/open", 0) <= (0 if made else looks) + queues
    assert counts.pop("jobs/maintain", 0) <= queues * (seconds + 1)
    assert counts.pop("HMGET") <= seconds + 1
    assert counts == Counter()
    a_second = 2 / LOOK_EVERY + 2  # a look is two commands; the sweep of a queue is one, and so is the list of queues
    assert a_second < 5
    assert 2 / LOOK_EVERY + 1 <= 2
