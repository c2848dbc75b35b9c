"""Calls and waits on every kind of server, in both worlds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from redisq import errors
from redisq.calls import Kind, NoQueue, Wait
from redisq.testing import ManualClock
from tests.support.servers import Server
from tests.transport import faces, tiny
from tests.transport.faces import Face

pytestmark = pytest.mark.every_server


@pytest.fixture
def sender(world: str, server: Server) -> Iterator[Face]:
    with faces.connect(world, server.url) as face:
        yield face


def test_a_call_carries_its_caller(sender: Face, key: str) -> None:
    now, slot, number, argument = sender.run(tiny.call(tiny.ECHO, key, b"\x00\xff"))
    assert (now, number, argument) == (b"", b"1", b"\x00\xff")
    client, _, index = slot.decode().partition(".")
    assert len(client) >= 8
    assert index == "0"
    assert sender.run(tiny.call(tiny.ECHO, key, 7)) == [b"", slot, b"2", b"7"]


def test_a_read_has_no_caller(sender: Face, key: str) -> None:
    assert sender.run(tiny.call(tiny.ECHO, key, "x", kind=Kind.READ)) == [b"", b"", b"", b"x"]


def test_the_manual_clock_is_read_at_each_call(world: str, server: Server, key: str) -> None:
    clock = ManualClock(1_000)
    with faces.connect(world, server.url, clock=clock) as sender:
        assert sender.run(tiny.call(tiny.ECHO, key, ""))[0] == b"1000"
        clock.advance(2.5)
        assert sender.run(tiny.call(tiny.ECHO, key, ""))[0] == b"3500"


def test_an_unknown_script_is_loaded(sender: Face, key: str, raw: redis.Redis) -> None:
    fresh = tiny.call(f"return '{key}'", key, kind=Kind.READ)
    assert sender.run(fresh) == key.encode()
    assert sender.run(fresh) == key.encode()


def test_results_go_through_decode(sender: Face, key: str) -> None:
    assert sender.run(tiny.call("return 3", key, decode=lambda reply: reply * 2)) == 6


@pytest.mark.parametrize(
    "decode",
    [
        lambda reply: reply[5],
        lambda reply: int(reply[0]),
        lambda reply: reply["x"],
        lambda reply: {}[reply[0]],
        lambda reply: reply.absent,
        lambda reply: b"\xff".decode(),
    ],
)
def test_a_reply_of_the_wrong_shape(sender: Face, key: str, decode: Callable[[Any], Any]) -> None:
    with pytest.raises(errors.CorruptRecord, match="wrong shape"):
        sender.run(tiny.call("return {'a'}", key, decode=decode))


def test_an_error_of_ours_in_decode_passes(sender: Face, key: str) -> None:
    def decode(reply: Any) -> Any:
        raise errors.SchemaMismatch("not that type")

    with pytest.raises(errors.SchemaMismatch, match="not that type"):
        sender.run(tiny.call("return 1", key, decode=decode))


def test_a_refusal(sender: Face, key: str) -> None:
    refusal = tiny.call("return redis.error_reply('LEASELOST the token is stale')", key)
    for _ in range(2):
        with pytest.raises(errors.LeaseLost) as caught:
            sender.run(refusal)
        assert str(caught.value) == "the token is stale"


def test_a_missing_queue(sender: Face, key: str) -> None:
    refusal = "return redis.error_reply('NOQUEUE no such queue')"
    assert sender.run(tiny.call(refusal, key, missing=lambda: "nothing")) == "nothing"
    creating = tiny.call(refusal, key)
    with pytest.raises(NoQueue) as caught:
        sender.run(creating)
    assert caught.value.call is creating


def test_a_key_of_the_wrong_type(sender: Face, key: str, raw: redis.Redis) -> None:
    raw.set(key, "text")
    with pytest.raises(errors.CorruptRecord, match="wrong type"):
        sender.run(tiny.call("return redis.call('LLEN', KEYS[1])", key))


def test_an_error_in_a_script(sender: Face, key: str) -> None:
    with pytest.raises(errors.CorruptRecord, match=r"test: .* holds what this release can't read: .*boom"):
        sender.run(tiny.call("error('boom')", key))


def test_plain_commands(sender: Face, key: str) -> None:
    assert sender.run_commands(("HSET", key, "a", 1), ("HGETALL", key)) == [1, [b"a", b"1"]]
    with pytest.raises(errors.CorruptRecord, match="RPUSH"):
        sender.run_commands(("RPUSH", key, "x"))


def test_a_wait_whose_bell_has_rung(sender: Face, key: str, raw: redis.Redis) -> None:
    raw.rpush(f"{key}:bell", "1")
    assert sender.run_wait(Wait(f"{key}:bell", 30, tiny.call(tiny.ECHO, key, "x")))[3] == b"x"
    assert raw.exists(f"{key}:bell") == 0


def test_a_wait_whose_time_is_up(sender: Face, key: str) -> None:
    for seconds in (0, 0.0001, 0.02):
        assert sender.run_wait(Wait(f"{key}:bell", seconds, tiny.call(tiny.ECHO, key, "x")))[3] == b"x"


def test_a_nudged_wait(sender: Face, key: str) -> None:
    for _ in range(3):
        wait = Wait(f"{key}:bell", 0.02, tiny.call(tiny.ECHO, key, "x"), nudge=True)
        assert sender.run_wait(wait)[3] == b"x"


def test_a_ring_ends_the_wait_and_the_call_sees_what_came_with_it(sender: Face, key: str, server: Server) -> None:
    # a fresh script too: it is loaded only after the bell was popped
    look = tiny.call(f"return redis.call('GET', KEYS[1]) or '{key}'", key, kind=Kind.TAKE)
    with ThreadPoolExecutor(1) as pool, server.client() as other:
        waiting = pool.submit(sender.run_wait, Wait(f"{key}:bell", 30, look))
        until_blocked(server, f"{key}:bell")
        ring = other.pipeline(transaction=True)
        ring.set(key, "work")
        ring.rpush(f"{key}:bell", "1")
        ring.execute()
        assert waiting.result(10) == b"work"
        assert other.exists(f"{key}:bell") == 0


def test_a_wait_that_is_unblocked_runs_its_call(sender: Face, key: str, server: Server) -> None:
    if server.name == "fakeredis":
        pytest.skip("fakeredis has no clients to list")
    with ThreadPoolExecutor(1) as pool, server.client() as other:
        waiting = pool.submit(sender.run_wait, Wait(f"{key}:bell", 30, tiny.call(tiny.ECHO, key, "x")))
        for blocked in until_blocked(server, f"{key}:bell"):
            other.client_unblock(blocked, error=True)
        assert waiting.result(10)[3] == b"x"


def test_a_bell_of_the_wrong_type_is_not_waited_on_in_a_spin(sender: Face, key: str, raw: redis.Redis) -> None:
    sender.run(tiny.take(key))
    raw.delete(key)
    raw.set(f"{key}:bell", "text")
    with pytest.raises(errors.CorruptRecord, match="wrong type"):
        sender.run_wait(Wait(f"{key}:bell", 30, tiny.take(key)))
    # a take that ran all the same was given back
    entries = [entry.split() for entry in raw.lrange(key, 0, -1)]
    assert [verb for verb, _ in entries] in ([], [b"take", b"back"])
    assert len({caller for _, caller in entries}) <= 1


def test_many_threads_share_a_sender(sender: Face, key: str, raw: redis.Redis) -> None:
    append = tiny.call(tiny.ONCE, key)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: sender.run(append), range(200)))
    assert sorted(length for _, length in answers) == list(range(1, 201))
    stored: Any = raw.lrange(key, 0, -1)
    marks = [mark.decode().rpartition(":") for mark in stored]
    assert len({slot for slot, _, _ in marks}) <= 8
    for slot in {slot for slot, _, _ in marks}:
        numbers = [int(number) for other, _, number in marks if other == slot]
        assert numbers == list(range(1, len(numbers) + 1))


def test_a_closed_sender(world: str, server: Server, key: str) -> None:
    sender = faces.connect(world, server.url)
    call = tiny.call(tiny.ECHO, key, "x")
    sender.run(call)
    sender.close()
    if world == "sync":
        with pytest.raises(errors.InvalidInput, match="closed"):
            sender.run(call)


def until_blocked(server: Server, bell: str) -> list[int]:
    """The ids of the clients that block on `bell`, once there are any."""
    if server.name == "fakeredis":
        threading.Event().wait(0.05)
        return []
    deadline = time.monotonic() + 10
    with server.client() as client:
        while time.monotonic() < deadline:
            found = [
                int(each["id"]) for each in client.client_list() if each["cmd"] == "blpop" and "b" in each["flags"]
            ]
            if found:
                return found
    raise AssertionError("nobody waits on the bell")
