"""A caller that is interrupted leaves nothing behind: no lease without a holder, no reply for the next call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from redisq.calls import Kind, Wait
from redisq.transport import AsyncSender, SyncSender, connect_async, connect_sync
from tests.support.servers import OwnServer, Server
from tests.transport import tiny
from tests.transport.test_failures import until


class Stop(BaseException):
    """What a signal handler may raise anywhere."""


@contextlib.contextmanager
def stopped_by_signal(when: Callable[[], bool]) -> Iterator[None]:
    """Raises Stop in the block, in this thread, as soon as `when` holds."""

    def handler(*_: object) -> None:
        raise Stop

    def watch() -> None:
        until(when)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(Stop):
            yield
    finally:
        watcher.join()
        signal.signal(signal.SIGUSR1, before)


@contextlib.contextmanager
def frozen(server: OwnServer) -> Iterator[None]:
    """A server that takes connections and bytes, and does nothing."""
    with server.client() as client:
        process = int(client.info("server")["process_id"])
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def entries(client: redis.Redis, key: str) -> list[list[str]]:
    stored: Any = client.lrange(key, 0, -1)
    return [entry.decode().replace(":", " ").split() for entry in stored]


def waits(client: redis.Redis) -> bool:
    return any(each["cmd"] == "blpop" and "b" in each["flags"] for each in client.client_list())


def nap() -> Callable[[], bool]:
    """True a little later: the time that a request needs to be on its way."""
    ready = threading.Event()
    timer = threading.Timer(0.2, ready.set)
    timer.start()
    return ready.is_set


def test_an_interrupted_wait_is_handed_back(own_server: OwnServer, key: str) -> None:
    with contextlib.closing(connect_sync(own_server.url)) as sender, own_server.client() as raw:
        sender.run(tiny.take(key))
        with stopped_by_signal(lambda: waits(raw)):
            sender.run_wait(Wait(f"{key}:bell", 30, tiny.take(key)))
        sender.run(tiny.take(key))
        first, back, last = entries(raw, key)
        assert first[0] == last[0] == "take"
        # what was pending behind the closed wait never ran
        assert back == ["back", first[1], "2"]
        # the next number but one: a give-back uses up one itself
        assert last[1:] == [first[1], "5"]
        assert not waits(raw)


def test_a_cancelled_wait_is_handed_back(own_server: OwnServer, key: str) -> None:
    async def story(raw: redis.Redis) -> None:
        sender = connect_async(own_server.url)
        await sender.run(tiny.take(key))
        task = asyncio.create_task(sender.run_wait(Wait(f"{key}:bell", 30, tiny.take(key))))
        await asyncio.to_thread(until, lambda: waits(raw))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # handed back before the cancelled task ended
        assert [verb for verb, _, _ in entries(raw, key)] == ["take", "back"]
        await sender.run(tiny.take(key))
        await sender.aclose()

    with own_server.client() as raw:
        asyncio.run(story(raw))
        first, back, last = entries(raw, key)
        assert back == ["back", first[1], "2"]
        assert last == ["take", first[1], "5"]
        assert not waits(raw)


def test_a_call_on_its_way_to_a_frozen_server_is_interrupted(
    own_server: OwnServer, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.closing(connect_sync(own_server.url)) as sender:
        sender.run(tiny.take(key))
        with frozen(own_server), stopped_by_signal(nap()):
            sender.run(tiny.take(key))
        # nobody was there to take it back, which is said
        assert "not handed back" in caplog.text
        # and the next call gets its own reply
        assert sender.run(tiny.call(tiny.ECHO, key, "mine"))[3] == b"mine"


def test_a_call_on_its_way_to_a_frozen_server_is_cancelled(own_server: OwnServer, key: str) -> None:
    async def story() -> None:
        sender = connect_async(own_server.url)
        await sender.run(tiny.take(key))
        with frozen(own_server):
            task = asyncio.create_task(sender.run(tiny.take(key)))
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        # what could not be handed back yet goes on, and closing waits for it
        await sender.aclose()

    asyncio.run(story())
    with own_server.client() as raw:
        first, *rest = entries(raw, key)
        assert sorted(rest) == [["back", first[1], "2"], ["take", first[1], "2"]]


def test_other_calls_are_not_given_back(own_server: OwnServer, key: str) -> None:
    async def story() -> None:
        sender = connect_async(own_server.url)
        await sender.run(tiny.call(tiny.ONCE, key))
        for kind in Kind:
            with frozen(own_server):
                task = asyncio.create_task(sender.run(tiny.call(tiny.ECHO, key, "", kind=kind)))
                await asyncio.sleep(0.05)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            # the slot is free again at once
            assert (await sender.run(tiny.call(tiny.ECHO, key, "mine")))[3] == b"mine"
        await sender.aclose()

    asyncio.run(story())


@pytest.mark.parametrize("world", ["sync", "async"])
def test_nothing_is_handed_back_that_was_never_sent(
    world: str, own_server: OwnServer, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = own_server.url
    own_server.kill()
    if world == "sync":
        with contextlib.closing(connect_sync(url)) as sender, stopped_by_signal(nap()):
            sender.run(tiny.take(key))
    else:

        async def story() -> None:
            sender = connect_async(url)
            task = asyncio.create_task(sender.run(tiny.take(key)))
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not sender._returns
            await sender.aclose()

        asyncio.run(story())
    assert "not handed back" not in caplog.text
    own_server.start()
    with own_server.client() as raw:
        assert entries(raw, key) == []


def test_an_interruption_while_the_answer_is_read(server: Server, key: str) -> None:
    def decode(reply: object) -> object:
        raise Stop

    with contextlib.closing(connect_sync(server.url)) as sender, server.client() as raw:
        take = tiny.call(tiny.TAKE, key, kind=Kind.TAKE, undo=tiny.call(tiny.GIVE_BACK, key), decode=decode)
        with pytest.raises(Stop):
            sender.run(take)
        assert [verb for verb, _, _ in entries(raw, key)] == ["take", "back"]


def test_many_calls_at_once_are_not_many_connections(own_server: OwnServer, key: str) -> None:
    async def story() -> None:
        sender = connect_async(own_server.url)
        await sender.run(tiny.call(tiny.ONCE, key))
        with frozen(own_server):
            tasks = [asyncio.create_task(sender.run(tiny.call(tiny.ONCE, key))) for _ in range(200)]
            await asyncio.sleep(0.1)
            # a cancelled call leaves its turn to others
            for task in tasks[:100]:
                task.cancel()
            await asyncio.sleep(0.1)
        assert len(await asyncio.gather(*tasks[100:])) == 100
        assert len(sender._wire._open) <= 64
        await asyncio.gather(*tasks, return_exceptions=True)
        await sender.aclose()

    asyncio.run(story())


def test_a_sender_belongs_to_one_event_loop(server: Server, key: str) -> None:
    sender: AsyncSender = connect_async(server.url)

    async def first() -> None:
        await sender.run(tiny.call(tiny.ECHO, key, ""))

    async def second() -> None:
        with pytest.raises(ValueError, match="belongs to another event loop"):
            await sender.run(tiny.call(tiny.ECHO, key, ""))

    with asyncio.Runner() as runner:
        runner.run(first())
        with asyncio.Runner() as other:
            other.run(second())
        runner.run(sender.aclose())


def test_an_interrupted_wait_of_fakeredis(key: str) -> None:
    async def story() -> None:
        sender = connect_async(f"memory://{key}")
        task = asyncio.create_task(sender.run_wait(Wait(f"{key}:bell", 30, tiny.take(key))))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # nobody is left in the wait who could steal the next ring
        await sender.run_commands((("RPUSH", f"{key}:bell", "1"),))
        await asyncio.sleep(0.05)
        assert await sender.run_commands((("LLEN", f"{key}:bell"), ("LLEN", key))) == [1, 0]
        await sender.aclose()

    asyncio.run(story())


def test_a_sync_sender_is_a_sync_sender(server: Server) -> None:
    assert isinstance(connect_sync(server.url), SyncSender)
