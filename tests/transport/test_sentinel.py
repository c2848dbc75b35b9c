"""Through Sentinel to the master, whichever server that is. Failovers under load are in tests/failover."""

from __future__ import annotations

import asyncio
import socketserver
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio.sentinel
import redis.sentinel

from redisq import errors
from redisq.calls import Kind, Wait
from tests.faults import resp
from tests.faults.proxy import Proxy
from tests.support.sentinel import SERVICE, Topology
from tests.support.servers import OwnServer
from tests.transport import faces, tiny
from tests.transport.test_failures import until

pytestmark = pytest.mark.xdist_group("sentinel")

ROLE = (("ROLE",),)


@pytest.fixture(scope="module")
def topology() -> Iterator[Topology]:
    with Topology() as topology:
        yield topology


class Oracle:
    """A Sentinel that names whichever port it is told to, and holds whichever it is told to for the master's still."""

    def __init__(self, port: int, *, flags: str = "master") -> None:
        self.names = self.held = port
        self.flags = flags
        oracle = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                data = b""
                while read := self.request.recv(65536):
                    data += read
                    while (end := resp.frame_end(data)) is not None:
                        words, data = resp.words(data[:end]), data[end:]
                        self.request.sendall(oracle.answer(words))

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def answer(self, words: list[bytes]) -> bytes:
        state = ["ip", "127.0.0.1", "port", str(self.held), "flags", self.flags, "num-other-sentinels", "0"]
        told = {b"MASTER": state, b"GET-MASTER-ADDR-BY-NAME": ["127.0.0.1", str(self.names)]}.get(words[1])
        if told is None:
            return b"+OK\r\n"
        return b"*%d\r\n" % len(told) + b"".join(b"$%d\r\n%s\r\n" % (len(each), each.encode()) for each in told)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def ask() -> Iterator[Callable[..., Oracle]]:
    """Starts Oracles."""
    oracles: list[Oracle] = []

    def start(server: OwnServer, **options: Any) -> Oracle:
        oracles.append(Oracle(server.port, **options))
        return oracles[-1]

    yield start
    for oracle in oracles:
        oracle.close()


def url_of(*oracles: Oracle) -> str:
    return f"sentinel://{','.join(f'127.0.0.1:{oracle.port}' for oracle in oracles)}/{SERVICE}/0"


def test_a_failover_is_followed(world: str, topology: Topology, key: str) -> None:
    topology.heal()
    url = topology.url.replace("sentinel://", "sentinel://127.0.0.1:1,")
    with faces.connect(world, url, retry_for=30) as sender:
        assert sender.run(tiny.call(tiny.ONCE, key)) == [b"first", 1]
        with topology.master().client() as master:
            # replicas that have a later write have ours
            master.set(f"{key}:mark", "1")
            assert master.wait(2, 5000) == 2
        topology.kill_master()
        assert sender.run(tiny.call(tiny.ONCE, key)) == [b"first", 2]
        with topology.wait_for_new_master().client() as raw:
            assert raw.llen(key) == 2
        assert sender.sender.url == url


def test_a_client_of_sentinel(world: str, topology: Topology, key: str) -> None:
    hosts = [("127.0.0.1", sentinel.port) for sentinel in topology.sentinels]
    kind: Any = redis.sentinel.Sentinel if world == "sync" else redis.asyncio.sentinel.Sentinel
    manager = kind(hosts)
    client, reader = manager.master_for(SERVICE, decode_responses=True), manager.slave_for(SERVICE)
    with faces.from_client(world, client) as sender:
        assert sender.run(tiny.call(tiny.ONCE, key)) == [b"first", 1]
        # good for another process
        with faces.connect(world, sender.sender.url) as twin:
            assert twin.run(tiny.call(tiny.ONCE, key)) == [b"first", 2]
        sender.finish(lambda: close_all(manager.sentinels))
    with pytest.raises(errors.InvalidInput, match="master_for"):
        faces.from_client(world, reader)


def close_all(clients: list[Any]) -> Any:
    """Close the user's own clients, in the world that they belong to."""
    closing = [client.aclose() if hasattr(client, "aclose") else client.close() for client in clients]
    return asyncio.gather(*closing) if any(closing) else None


def test_what_the_users_sentinel_client_demands(world: str, own_server: OwnServer, ask: Callable[..., Oracle]) -> None:
    """Its other settings hold here, too: how many Sentinels have to agree, and the address that it forces."""
    kind: Any = redis.sentinel.Sentinel if world == "sync" else redis.asyncio.sentinel.Sentinel
    hosts = [("127.0.0.1", ask(own_server).port)]
    alone = kind(hosts, min_other_sentinels=1).master_for(SERVICE)
    with faces.from_client(world, alone, retry_for=0) as sender:
        with pytest.raises(errors.Unavailable, match="fewer than 1 other Sentinels"):
            sender.run_commands(*ROLE)
    moved = kind(hosts, force_master_ip="127.0.0.2").master_for(SERVICE)
    with faces.from_client(world, moved, retry_for=0) as sender:
        with pytest.raises(errors.Unavailable, match=r"127\.0\.0\.2"):
            sender.run_commands(*ROLE)


def test_a_master_that_steps_down_is_left_while_it_answers(
    world: str, open_server: Callable[..., OwnServer], ask: Callable[..., Oracle], key: str
) -> None:
    """It takes writes until somebody tells it, seconds later."""
    old, new = open_server(), open_server()
    oracle = ask(old)
    with faces.connect(world, url_of(oracle)) as sender, new.client() as raw:
        sender.run(tiny.call(tiny.ONCE, key))
        oracle.names = new.port
        until(lambda: sender.run(tiny.call(tiny.ONCE, key)) and raw.exists(key))


def test_a_connection_that_was_blocked_on_an_earlier_master_is_not_used_again(
    world: str, open_server: Callable[..., OwnServer], ask: Callable[..., Oracle], key: str
) -> None:
    old, new = open_server(), open_server()
    oracle = ask(old)
    with faces.connect(world, url_of(oracle)) as sender, old.client() as raw:
        wait = Wait(f"{key}:bell", 1, tiny.call(tiny.ONCE, key))
        blocked = threading.Thread(target=sender.run_wait, args=(wait,))
        blocked.start()
        until(lambda: int(raw.info("clients")["blocked_clients"]) == 1)
        oracle.names = new.port
        sender.run(tiny.call(tiny.ONCE, key))
        blocked.join()
        assert {connection.port for connection in sender.sender._wire._open} == {new.port}


def test_the_master_outlives_its_sentinels(
    world: str, own_server: OwnServer, ask: Callable[..., Oracle], key: str
) -> None:
    oracle = ask(own_server)
    with faces.connect(world, url_of(oracle), retry_for=0) as sender:
        sender.run(tiny.call(tiny.ONCE, key))
        oracle.flags = "s_down,master"
        threading.Event().wait(1.1)  # longer than a client goes without asking
        assert sender.run(tiny.call(tiny.ONCE, key)) == [b"first", 2]


def test_a_sentinel_that_is_behind(
    world: str, open_server: Callable[..., OwnServer], ask: Callable[..., Oracle]
) -> None:
    """It names a server that is a replica by now, and would answer reads with what it happens to have."""
    master, replica = open_server(), open_server()
    with replica.client() as client:
        client.replicaof("127.0.0.1", str(master.port))
    url = url_of(ask(replica), ask(master))
    with faces.connect(world, url, retry_for=10) as sender:
        assert sender.run_commands(*ROLE)[0][0] == b"master"
    with faces.connect(world, url_of(ask(replica)), retry_for=0) as sender:
        with pytest.raises(errors.Unavailable, match=f"127.0.0.1:{replica.port}, named by Sentinel, is no master"):
            sender.run_commands(*ROLE)


def test_a_sentinel_that_holds_its_master_for_down(
    world: str, own_server: OwnServer, ask: Callable[..., Oracle]
) -> None:
    doubting = ask(own_server, flags="s_down,o_down,master")
    with faces.connect(world, url_of(doubting), retry_for=0.1) as sender:
        with pytest.raises(
            errors.Unavailable, match=f"{doubting.port}: its master 127.0.0.1:{own_server.port} is down"
        ):
            sender.run_commands(*ROLE)
    with faces.connect(world, url_of(doubting, ask(own_server)), retry_for=0) as sender:
        assert sender.run_commands(*ROLE)[0][0] == b"master"
    # it knows the next one already, though it is still busy with the failover
    doubting.held = 1
    with faces.connect(world, url_of(doubting), retry_for=0) as sender:
        assert sender.run_commands(*ROLE)[0][0] == b"master"


def test_a_bell_that_a_demoted_master_refuses(world: str, own_server: OwnServer, key: str) -> None:
    """The call only reads, and would be answered; it is repeated all the same, until there is a master again."""
    read = tiny.call("return redis.call('EXISTS', KEYS[1])", key, kind=Kind.READ, flags="no-writes")
    with faces.connect(world, own_server.url, retry_for=20) as sender, own_server.client() as client:
        client.replicaof("127.0.0.1", "1")
        assert sender.run(read) == 0
        promotion = threading.Timer(0.3, client.replicaof, ("NO", "ONE"))
        promotion.start()
        assert sender.run_wait(Wait(f"{key}:bell", 0.1, read)) == 0
        promotion.join()


def test_a_silent_master_is_given_up_after_one_nudge(
    own_server: OwnServer, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocking code waits for the answer to a nudge: each more would add the whole patience of a connection."""
    with Proxy(own_server.url) as proxy:
        with faces.connect("sync", f"{proxy.url}?socket_timeout=0.3", retry_for=0) as sender:
            sender.run(tiny.call(tiny.ONCE, key))
            wire, used = sender.sender._wire, Counter[str]()
            checkout = wire.checkout

            def counted() -> Any:
                used["connections"] += 1
                return checkout()

            monkeypatch.setattr(wire, "checkout", counted)
            proxy.stall()
            with pytest.raises(errors.IndeterminateWrite):
                sender.run_wait(Wait(f"{key}:bell", 0.05, tiny.call(tiny.ONCE, key), nudge=True))
            assert used["connections"] == 2
            proxy.resume()


def test_an_unknown_service(world: str, topology: Topology, key: str) -> None:
    url = topology.url.replace(SERVICE, "toys")
    with faces.connect(world, url, retry_for=0.1) as sender, pytest.raises(errors.Unavailable, match="toys"):
        sender.run(tiny.call(tiny.ONCE, key))


def test_a_sentinel_taken_for_a_server(world: str, topology: Topology, key: str) -> None:
    refused = pytest.raises(errors.UnsupportedServer, match="sentinel://")
    with faces.connect(world, f"redis://127.0.0.1:{topology.sentinels[0].port}") as sender, refused:
        sender.run(tiny.call(tiny.ONCE, key))
