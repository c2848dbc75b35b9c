"""A worker of the soak. Arguments: namespace, its journal, concurrency.

Each job writes a line when it starts and when it ends: what, job, attempt, fence. The server is the one in $REDISQ_URL.
"""

from __future__ import annotations

import asyncio
import os
import sys

from redisq import Context, Engine, Worker

_, NAMESPACE, JOURNAL, CONCURRENCY = sys.argv
engine = Engine(namespace=NAMESPACE, worker=os.path.basename(JOURNAL))  # noqa: PTH119
queue = engine.queue("soak")
journal = os.open(JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def note(what: str, context: Context) -> None:
    os.write(journal, f"{what} {context.job.id} {context.attempt} {context.fence}\n".encode())


@queue.handler("async")
async def wait(seconds: float, context: Context) -> None:
    note("start", context)
    await asyncio.sleep(seconds)
    note("end", context)


@queue.handler("thread")
def compute(seconds: float, context: Context) -> None:
    note("start", context)
    if seconds > 0.02:
        context.progress(seconds)  # type: ignore[unused-awaitable] # a plain handler need not wait
    note("end", context)


if __name__ == "__main__":
    raise SystemExit(Worker(engine, queue, concurrency=int(CONCURRENCY)).run())
