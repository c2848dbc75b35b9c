"""A forked child is another client: its own connections, its own identity."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import redis

from redisq.calls import Wait
from redisq.transport import connect_async, connect_sync
from tests.support.servers import OwnServer
from tests.transport import tiny
from tests.transport.test_failures import until

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


def in_child(body: Callable[[], object]) -> None:
    """Run `body` in a forked child, and fail with it."""
    child = os.fork()
    if child == 0:
        try:
            body()
            os._exit(0)
        except BaseException:  # noqa: BLE001 (nothing may unwind into the parent's test runner)
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def who(answer: Any) -> bytes:
    return bytes(answer[1])


def test_a_child_has_its_own_identity_and_connections(own_server: OwnServer, key: str) -> None:
    sender = connect_sync(own_server.url)
    echo = tiny.call(tiny.ECHO, key, "")
    parent = who(sender.run(echo))

    def body() -> None:
        child = who(sender.run(echo))
        assert child.partition(b".")[0] != parent.partition(b".")[0]
        assert child.endswith(b".0")
        for _ in range(50):
            assert sender.run(tiny.call(tiny.ECHO, key, "child"))[3] == b"child"
        sender.close()

    in_child(body)
    # the child closed nothing of the parent's
    assert who(sender.run(echo)) == parent
    sender.close()


def test_an_async_sender_in_a_child(own_server: OwnServer, key: str) -> None:
    echo = tiny.call(tiny.ECHO, key, "")
    with asyncio.Runner() as runner:
        sender = connect_async(own_server.url)
        parent = who(runner.run(sender.run(echo)))

        def body() -> None:
            async def story() -> bytes:
                answer = who(await sender.run(echo))
                await sender.aclose()
                return answer

            assert asyncio.run(story()).partition(b".")[0] != parent.partition(b".")[0]

        in_child(body)
        assert who(runner.run(sender.run(echo))) == parent
        runner.run(sender.aclose())


@pytest.mark.parametrize("world", ["sync", "async"])
def test_a_child_lets_go_of_its_parents_sockets(world: str, own_server: OwnServer, key: str) -> None:
    """Else a server would not notice the death of a waiting parent, and hand it work."""
    read, write = os.pipe()
    done_read, done_write = os.pipe()
    parent = os.fork()
    if parent == 0:
        os.close(done_write)
        wait_and_fork(world, own_server.url, key, write, done_read)
        os._exit(1)
    os.close(done_read)
    grandchild = int(os.read(read, 20))
    with own_server.client() as raw:

        def waits() -> bool:
            return any(each["cmd"] == "blpop" for each in raw.client_list())

        assert waits()
        os.kill(parent, 9)
        os.waitpid(parent, 0)
        os.kill(grandchild, 0)
        until(lambda: not waits())
    os.close(done_write)
    os.close(read)
    os.close(write)


def wait_and_fork(world: str, url: str, key: str, write: int, done: int) -> None:
    """In a process of its own: wait on a bell in a thread, fork, tell the child's number, and stay."""
    wait = Wait(f"{key}:bell", 30, tiny.take(key))
    if world == "sync":
        sender = connect_sync(url)
        threading.Thread(target=lambda: sender.run_wait(wait), daemon=True).start()
    else:

        async def story() -> None:
            await connect_async(url).run_wait(wait)

        threading.Thread(target=lambda: asyncio.run(story()), daemon=True).start()
    with redis.Redis.from_url(url) as raw:
        until(lambda: any(each["cmd"] == "blpop" for each in raw.client_list()))
    child = os.fork()
    if child == 0:
        os.read(done, 1)  # until the test is over
        os._exit(0)
    os.write(write, str(child).encode())
    os.waitpid(child, 0)
