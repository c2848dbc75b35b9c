"""A worker to be signalled. Arguments: namespace, options of the worker as JSON, "main" or "thread".

It says `ready` once it serves, `started NAME` from its handlers, and in a thread `code N` at the end. There it stops
when its standard input ends; a `kill` waits for a line there. The server is the one in $REDISQ_URL.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
import time

from redisq import Context, Engine, Worker

logging.basicConfig(level=logging.INFO)
_, NAMESPACE, OPTIONS, WHERE = sys.argv
engine = Engine(namespace=NAMESPACE)
queue = engine.queue("jobs")
second = engine.queue("second")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@queue.handler("sleep")
async def sleep(seconds: float) -> str:
    say("started sleep")
    await asyncio.sleep(seconds)
    return "slept"


@queue.handler("thread")
def sleep_in_a_thread(seconds: float) -> str:
    say("started thread")
    time.sleep(seconds)
    return "slept"


@queue.handler("polite")
def stop_when_told(seconds: float, context: Context) -> None:
    say("started polite")
    while not context.lost:
        time.sleep(0.01)
    raise RuntimeError("told to stop")


@queue.handler("deaf")
async def ignore_cancel(seconds: float) -> None:
    say("started deaf")
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        try:
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            say("ignored")


@queue.handler("block")
async def block_the_loop(seconds: float) -> None:
    say("started block")
    time.sleep(seconds)  # noqa: ASYNC251 - what this handler is for


@queue.handler("kill")
async def kill_this_process(value: object) -> None:
    say("started kill")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    os.kill(os.getpid(), signal.SIGKILL)


@second.handler()
async def nothing(value: object) -> None:
    say("started second")


def main() -> int:
    worker = Worker(engine, ["jobs", "second"], **json.loads(OPTIONS))
    told = threading.Event()

    def tick() -> None:
        if not told.is_set():
            told.set()
            say("ready")

    worker.on_tick = tick
    if WHERE == "main":
        return worker.run()
    thread = threading.Thread(target=lambda: say(f"code {worker.run()}"), daemon=True)
    thread.start()
    for _ in sys.stdin:
        pass
    worker.stop()
    thread.join()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
