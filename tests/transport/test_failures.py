"""Connections that break, servers that restart or refuse: what is repeated, and what is raised."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from redisq import errors
from redisq.calls import Kind, Wait
from tests.faults.proxy import Proxy, command
from tests.support.servers import OwnServer, Server
from tests.transport import faces, tiny

pytestmark = pytest.mark.real_server


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.url) as made:
        yield made


def test_a_lost_reply_is_asked_for_again_by_the_same_caller(world: str, proxy: Proxy, key: str) -> None:
    with faces.connect(world, proxy.url) as sender:
        sender.run(tiny.call(tiny.ONCE, key))
        proxy.eat_replies(2, command("EVALSHA"))
        # it ran at the first try, and the repeats found that out
        assert sender.run(tiny.call(tiny.ONCE, key)) == [b"repeated", 2]
        assert [words[5:7] for words in proxy.eaten] == [proxy.eaten[0][5:7]] * 2
        assert sender.run(tiny.call(tiny.ONCE, key)) == [b"first", 3]


def test_a_lost_reply_of_a_wait_is_asked_for_without_waiting(
    world: str, proxy: Proxy, key: str, server: Server
) -> None:
    with faces.connect(world, proxy.url) as sender, server.client() as other:
        sender.run(tiny.call(tiny.ONCE, key))
        other.rpush(f"{key}:bell", "1")
        proxy.eat_replies(1, command("EVALSHA"))
        assert sender.run_wait(Wait(f"{key}:bell", 30, tiny.call(tiny.ONCE, key))) == [b"repeated", 2]


@pytest.mark.parametrize("kind", list(Kind))
def test_a_reply_that_never_comes(world: str, proxy: Proxy, key: str, kind: Kind) -> None:
    with faces.connect(world, proxy.url, retry_for=0.1) as sender:
        call = tiny.call(tiny.ONCE, key, kind=kind, ids=["one"])
        sender.run(call)
        proxy.eat_replies(1000, command("EVALSHA"))
        if kind is Kind.READ:
            with pytest.raises(errors.Unavailable):
                sender.run(call)
        else:
            with pytest.raises(errors.IndeterminateWrite) as caught:
                sender.run(call)
            assert (caught.value.operation, caught.value.ids) == ("test", ("one",))


def test_connections_that_were_cut_while_idle_are_not_used(world: str, proxy: Proxy, key: str) -> None:
    with faces.connect(world, proxy.url, retry_for=0) as sender:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: sender.run(tiny.call(tiny.ONCE, key)), range(20)))
        proxy.cut()
        until(lambda: proxy.open_connections == 0)
        threading.Event().wait(0.2)  # longer than a connection is taken to be alive without a look
        # without any time for repeats: the dead connections were noticed before anything was sent
        assert sender.run(tiny.call(tiny.ONCE, key)) == [b"first", 21]


def test_a_killed_connection(world: str, server: Server, key: str) -> None:
    with faces.connect(world, server.url) as sender, server.client(client_name="killer") as other:
        for number in range(1, 4):
            assert sender.run(tiny.call(tiny.ONCE, key))[1] == number
            for each in other.client_list():
                if each["cmd"] == "evalsha":
                    with contextlib.suppress(redis.ResponseError):
                        other.client_kill_filter(_id=each["id"])


def test_a_server_that_restarts(world: str, own_server: OwnServer, key: str) -> None:
    with faces.connect(world, own_server.url) as sender:
        assert sender.run(tiny.call(tiny.ONCE, key)) == [b"first", 1]
        own_server.kill()
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(sender.run, tiny.call(tiny.ONCE, key))
            own_server.start()
            # the script is unknown to the new process as well
            assert answer.result(10) == [b"first", 1]


def test_nobody_there(world: str, key: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with faces.connect(world, f"redis://:s3cr3t@127.0.0.1:{port}", retry_for=0.1) as sender:
            with pytest.raises(errors.Unavailable, match=f"127.0.0.1:{port}") as caught:
                sender.run(tiny.call(tiny.ONCE, key))
            assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("waits", [False, True])
def test_a_silent_server(world: str, server: Server, key: str, waits: bool) -> None:
    with Proxy(server.url) as proxy, faces.connect(world, f"{proxy.url}?socket_timeout=0.5", retry_for=0) as sender:
        call = tiny.call(tiny.ONCE, key)
        sender.run(call)
        proxy.stall()
        with pytest.raises(errors.IndeterminateWrite):
            sender.run_wait(Wait(f"{key}:bell", 0.1 if waits else 0, call))
        # no new connection comes about, so this one was certainly not sent
        with pytest.raises(errors.Unavailable):
            sender.run(call)


def test_a_wait_may_be_longer_than_the_time_for_a_reply(world: str, server: Server, key: str) -> None:
    with faces.connect(world, f"{server.url}?socket_timeout=0.6", retry_for=0) as sender:
        assert sender.run_wait(Wait(f"{key}:bell", 1.5, tiny.call(tiny.ONCE, key)))[0] == b"first"


@pytest.mark.parametrize("nudge", [False, True])
def test_an_idle_server_is_nudged_at_the_end_of_a_wait(
    world: str, own_server: OwnServer, key: str, nudge: bool
) -> None:
    with faces.connect(world, own_server.url) as sender, own_server.client() as raw:

        def pings() -> int:
            counted: Any = raw.info("commandstats")
            return int(counted.get("cmdstat_ping", {"calls": 0})["calls"])

        before = pings()
        # one wait in a while may end in time by chance
        for _ in range(10):
            wait = Wait(f"{key}:bell", 0.02, tiny.call(tiny.ONCE, key, kind=Kind.READ), nudge=nudge)
            sender.run_wait(wait)
        assert (pings() > before) == nudge


def test_a_flushed_script_cache(world: str, own_server: OwnServer, key: str) -> None:
    with faces.connect(world, own_server.url, retry_for=0) as sender, own_server.client() as other:
        for number in range(1, 4):
            other.script_flush()
            assert sender.run(tiny.call(tiny.ONCE, key)) == [b"first", number]
        other.script_flush()
        other.rpush(f"{key}:bell", "1")
        assert sender.run_wait(Wait(f"{key}:bell", 30, tiny.call(tiny.ONCE, key))) == [b"first", 4]


def test_a_full_memory(world: str, own_server: OwnServer, key: str) -> None:
    with own_server.client() as other:
        other.config_set("maxmemory", 1)
        # a client that starts now: its scripts are loaded all the same
        with faces.connect(world, own_server.url) as sender:
            with pytest.raises(errors.OutOfMemory, match="test: the server is at its maxmemory"):
                sender.run(tiny.call(tiny.ONCE, key, flags=""))
            assert sender.run(tiny.call(tiny.ONCE, key)) == [b"first", 1]


def test_a_busy_server_is_waited_for(world: str, own_server: OwnServer, key: str) -> None:
    with own_server.client() as other, own_server.client() as stopper:
        other.config_set("busy-reply-threshold", 10)
        with faces.connect(world, own_server.url) as sender, ThreadPoolExecutor(2) as pool:
            sender.run(tiny.call(tiny.ONCE, key))
            busy = pool.submit(other.eval, "while true do end", 0)
            until(lambda: is_busy(stopper))
            answer = pool.submit(sender.run, tiny.call(tiny.ONCE, key))
            threading.Event().wait(0.1)
            stopper.script_kill()
            assert answer.result(10) == [b"first", 2]
            with pytest.raises(redis.ResponseError):
                busy.result(10)


def test_a_replica_is_waited_for_until_it_is_a_master(world: str, own_server: OwnServer, key: str) -> None:
    with own_server.client() as other, Proxy(own_server.url) as proxy:
        with faces.connect(world, proxy.url) as sender, ThreadPoolExecutor(1) as pool:
            sender.run(tiny.call(tiny.ONCE, key))
            other.replicaof("127.0.0.1", "1")
            answer = pool.submit(sender.run, tiny.call(tiny.ONCE, key))
            # the master may be at the end of another connection: each look is a new one, and the old one is closed
            until(lambda: proxy.connections >= 3)
            assert not answer.done()
            other.replicaof("NO", "ONE")
            assert answer.result(10) == [b"first", 2]
            until(lambda: proxy.open_connections == 1)
        other.replicaof("127.0.0.1", "1")
        with faces.connect(world, own_server.url, retry_for=0.1) as sender, pytest.raises(errors.Unavailable):
            sender.run(tiny.call(tiny.ONCE, key))


@pytest.mark.parametrize(
    ("access", "said"),
    [("", "Authentication required"), (":wrong-s3cr3t@", "WRONGPASS|invalid username-password pair")],
)
def test_a_wrong_password(world: str, open_server: Callable[..., OwnServer], key: str, access: str, said: str) -> None:
    server = protected_server(open_server)
    with faces.connect(world, server.replace("//", f"//{access}")) as sender:
        with pytest.raises(errors.Unavailable, match=said) as caught:
            sender.run(tiny.call(tiny.ONCE, key))
        assert "s3cr3t" not in str(caught.value)
        with pytest.raises(errors.Unavailable):
            sender.run_wait(Wait(f"{key}:bell", 1, tiny.call(tiny.ONCE, key)))


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (["+@all", "~other*"], "key"),
        (["+@all", "-evalsha", "~*"], "evalsha"),
        (["+@all", "-rpush", "~*"], "rpush"),
        (["+@all", "-script", "~*"], "script"),
    ],
)
def test_a_missing_permission(
    world: str, open_server: Callable[..., OwnServer], key: str, rules: list[str], said: str
) -> None:
    server = protected_server(open_server, "user", "worker", "on", ">pw", *rules)
    refused = pytest.raises(errors.Unavailable, match=f"(?i){said}.*ACL SETUSER")
    with faces.connect(world, server.replace("//", "//worker:pw@")) as sender, refused:
        sender.run(tiny.call(tiny.ONCE, key))


def test_a_user_without_info(world: str, open_server: Callable[..., OwnServer], key: str) -> None:
    rules = ["-@all", "+evalsha", "+script|load", "+rpush", "+lpos", "+llen", "~*"]
    server = protected_server(open_server, "user", "worker", "on", ">pw", *rules)
    with faces.connect(world, server.replace("//", "//worker:pw@")) as sender:
        assert sender.run(tiny.call(tiny.ONCE, key)) == [b"first", 1]


def test_a_bell_that_may_not_be_waited_on(world: str, open_server: Callable[..., OwnServer], key: str) -> None:
    server = protected_server(open_server, "user", "worker", "on", ">pw", "+@all", "-blpop", "~*")
    with faces.connect(world, server.replace("//", "//worker:pw@")) as sender:
        sender.run(tiny.take(key))
        with pytest.raises(errors.Unavailable, match="blpop"):
            sender.run_wait(Wait(f"{key}:bell", 1, tiny.take(key)))


def test_a_database_that_is_not_there(world: str, server: Server, key: str) -> None:
    url = server.url.rpartition("/")[0]
    with faces.connect(world, f"{url}/99999") as sender, pytest.raises(errors.Unavailable, match="refused the conn"):
        sender.run(tiny.call(tiny.ONCE, key))


@pytest.mark.parametrize(
    ("info", "said"),
    [("redis_version:6.2.14", "Redis 6.2.14"), ("redis_version:7.2.4\r\nvalkey_version:7.2.5", "Valkey 7.2.5")],
)
def test_an_old_server(world: str, key: str, info: str, said: str) -> None:
    with scripted_server(info) as url, faces.connect(world, url) as sender:
        for _ in range(2):
            with pytest.raises(errors.UnsupportedServer, match=said):
                sender.run(tiny.call(tiny.ONCE, key))


def test_a_node_with_half_of_a_cluster(world: str, open_server: Callable[..., OwnServer], key: str) -> None:
    server = open_server("--cluster-enabled", "yes")
    with server.client() as other:
        other.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 8000)
    refused = pytest.raises(errors.UnsupportedServer, match="does not own all slots")
    with faces.connect(world, server.url) as sender, refused:
        sender.run(tiny.call(tiny.ONCE, key))


def protected_server(open_server: Callable[..., OwnServer], *user: str) -> str:
    """The URL, without access, of a server whose default user has a password."""
    server = open_server()
    with server.client() as admin:
        if user:
            admin.execute_command("ACL", "SETUSER", *user[1:])
        admin.execute_command("ACL", "SETUSER", "default", "resetpass", ">s3cr3t")
    return server.url


def test_connecting_is_not_repeated_by_the_client_library(world: str, key: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}"
        retry = Retry(NoBackoff(), 5) if world == "sync" else AsyncRetry(NoBackoff(), 5)
        accepted: list[int] = []

        def refuse() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    accepted.append(client.fileno())
                    client.close()

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        with (
            faces.users_client(world, url, retry=retry) as client,
            faces.from_client(world, client, retry_for=0) as sender,
            pytest.raises(errors.Unavailable),
        ):
            sender.run(tiny.call(tiny.ONCE, key))
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    assert len(accepted) == 1


@contextlib.contextmanager
def scripted_server(info: str) -> Iterator[str]:
    """A server that says of itself what it is told, and OK to everything else."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=answer, args=(client,), daemon=True).start()

        def answer(client: socket.socket) -> None:
            with client, contextlib.suppress(OSError):
                while request := client.recv(4096):
                    for _ in range(request.count(b"*")):
                        text = info if b"INFO" in request else "OK"
                        client.sendall(f"${len(text)}\r\n{text}\r\n".encode())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def is_busy(client: redis.Redis) -> bool:
    try:
        client.ping()
    except redis.ResponseError as error:
        return str(error).startswith("BUSY")
    return False


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not reached():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)
