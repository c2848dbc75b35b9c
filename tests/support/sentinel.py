"""A master with two replicas and three Sentinels that watch them: real servers, to be killed, frozen and brought back.

    with Topology() as topology:
        engine = Engine(topology.url, retry_for=20)
        topology.kill_master()
        new = topology.wait_for_new_master()
        topology.heal()                       # the old master is back, as a replica

Replication is asynchronous: what a dead master had not yet sent is lost. A client that must not lose a job offers it
with `replicas=1`.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self, TypeVar
from urllib.parse import quote

import redis

from tests.support import servers
from tests.support.servers import NoServer, OwnServer

SERVICE = "shop"
# One Sentinel after the other takes a silent master for dead and asks to be elected. Where all do at once, each votes
# for itself, and the next election is seconds away.
DOWN_AFTER_MS = (500, 1000, 1500)
FAILOVER_TIMEOUT_MS = 2000
WAIT_SECONDS = 30.0
_ALL_WELL = ["master master", "sentinel sentinel", "sentinel sentinel", "slave slave", "slave slave"]
_POLL_SECONDS = 0.02
# How often Sentinels look at servers and tell each other what they know, in ms; their own seconds are for real life.
# A replica that they heard nothing of for five pings is not promoted, and INFO comes once a second.
_PERIODS = ("info-period", "500", "publish-period", "400", "ping-period", "300")


@dataclass(frozen=True)
class Access:
    """A login; without a password none is asked for, without a user it is the default user's."""

    user: str = ""
    password: str = ""

    @property
    def prefix(self) -> str:
        """What stands before the hosts in a URL."""
        return f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@" if self.password else ""


class Node(OwnServer):
    """One process of a topology. A frozen one keeps its sockets and answers nothing, like a server cut off."""

    def __init__(self, name: str, access: Access, *options: str) -> None:
        self.access = access
        self.frozen = False
        super().__init__(name, servers.valkey_binary(), *options)

    @property
    def alive(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        self.url = f"redis://{self.access.prefix}127.0.0.1:{self.port}/0"
        self.frozen = False
        super().start()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)
        self.frozen = False

    def kill(self) -> None:
        super().kill()
        self.frozen = False

    def log_tail(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-1000:]

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise NoServer(f"{self.name} is dead: start it first")
        self._process.send_signal(number)


N = TypeVar("N", bound=Node)


class Member(Node):
    """A master or a replica. It starts as an empty master."""

    def __init__(self, name: str, access: Access) -> None:
        # else a copy begins only five seconds after it was asked for, and is loaded a second after it came
        options = ["--repl-diskless-sync-delay", "0", "--repl-diskless-load", "flush-before-load"]
        options += ["--loglevel", "notice"]
        if access.user:
            options += ["--user", access.user, "on", f">{access.password}", "~*", "&*", "+@all"]
            options += ["--user", "default", "off", "--masteruser", access.user, "--masterauth", access.password]
        elif access.password:
            options += ["--requirepass", access.password, "--masterauth", access.password]
        super().__init__(name, access, *options)

    def set(self, name: str, value: str) -> None:
        with self.client() as client:
            client.config_set(name, value)

    def follow(self, master: Member) -> None:
        with self.client() as client:
            client.replicaof("127.0.0.1", str(master.port))

    def follows(self, port: int) -> bool:
        """Whether it is a replica in step with the master at that port."""
        with self.client(socket_timeout=2) as client:
            link = client.info("replication")
        return (link["role"], link.get("master_link_status"), link.get("master_port")) == ("slave", "up", port)


class Sentinel(Node):
    """A Sentinel. Its configuration file, which it rewrites itself, outlives a kill."""

    def __init__(self, number: int, access: Access, master: Member) -> None:
        self._master = master
        self._down_after = DOWN_AFTER_MS[number]
        super().__init__(f"sentinel{number}", access)

    def start(self) -> None:
        file = self._folder / "sentinel.conf"
        if not file.exists():
            file.write_text("\n".join(self._configuration()) + "\n")
        self._command = [self._command[0], str(file), "--sentinel"]
        super().start()
        self.ask("DEBUG", *_PERIODS)

    def _configuration(self) -> list[str]:
        login = self._master.access
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {self._folder}",
            f"sentinel monitor {SERVICE} 127.0.0.1 {self._master.port} 1",
            f"sentinel down-after-milliseconds {SERVICE} {self._down_after}",
            f"sentinel failover-timeout {SERVICE} {FAILOVER_TIMEOUT_MS}",
            f"sentinel parallel-syncs {SERVICE} 2",
        ]
        if self.access.password:
            lines.append(f"requirepass {self.access.password}")
        if login.user:
            lines.append(f"sentinel auth-user {SERVICE} {login.user}")
        if login.password:
            lines.append(f"sentinel auth-pass {SERVICE} {login.password}")
        return lines

    def ask(self, *words: str) -> Any:
        """The answer to `SENTINEL …`."""
        with self.client(socket_timeout=2) as client:
            return client.execute_command("SENTINEL", *words)

    def ranks(self) -> list[tuple[int, int]]:
        """Ports of the replicas, and the priorities that it believes they have."""
        with self.client(socket_timeout=2) as client:
            return [(each["port"], each["slave-priority"]) for each in client.sentinel_slaves(SERVICE)]

    def view(self) -> list[str]:
        """Whom it knows, sorted: the flags, and the role that it was told."""
        with self.client(socket_timeout=2) as client:
            rows = [client.sentinel_master(SERVICE)]
            rows += [*client.sentinel_slaves(SERVICE), *client.sentinel_sentinels(SERVICE)]
        # whoever held the master for down is not asked again, and so keeps that flag
        flags = [row["flags"].removesuffix(",master_down") for row in rows]
        return sorted(f"{flag} {row.get('role-reported', flag)}" for flag, row in zip(flags, rows, strict=True))


class Topology:
    """The whole: `url` is for engines, credentials included.

    `user` and `password` protect the servers, `sentinel_password` the Sentinels. Use it from the main thread, since
    the processes are killed when the thread that started them ends. Every wait is bounded and raises NoServer with
    what was waited for and the ends of the logs.
    """

    def __init__(self, *, user: str = "", password: str = "", sentinel_password: str = "") -> None:
        self.access, self.sentinel_access = Access(user, password), Access("", sentinel_password)
        self._previous = 0  # the port of the master that was killed, frozen or asked to step down
        self.servers: list[Member] = []
        self.sentinels: list[Sentinel] = []
        with ExitStack() as undo:
            undo.callback(self.close)
            for number in range(3):
                self.servers.append(Member(f"server{number}", self.access))
            first = self.servers[0]
            for replica in self.servers[1:]:
                replica.follow(first)
            for number in range(3):
                self.sentinels.append(Sentinel(number, self.sentinel_access, first))
            self.heal()
            undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        for node in (*self.sentinels, *self.servers):
            node.stop()

    @property
    def url(self) -> str:
        return self.url_through(*(sentinel.port for sentinel in self.sentinels))

    def url_through(self, *ports: int) -> str:
        """As `url`, by the Sentinels at these ports."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        password = self.sentinel_access.password
        query = f"?sentinel_password={quote(password, safe='')}" if password else ""
        return f"sentinel://{self.access.prefix}{hosts}/{SERVICE}/0{query}"

    def master(self) -> Member:
        """The server that all reachable Sentinels name."""
        self.wait_until("the Sentinels to agree on a master", lambda: len(self._named()) == 1)
        return self._server(self._named().pop())

    def replicas(self) -> list[Member]:
        """The reachable servers that are not the master."""
        master = self.master()
        return [server for server in self._reachable(self.servers) if server is not master]

    def kill_master(self) -> Member:
        """End the master as a crash would, and return it. The Sentinels find out by themselves."""
        master = self._parting()
        master.kill()
        return master

    def freeze_master(self) -> Member:
        """Stop the master where it is, sockets open, and return it: `thaw()` makes it go on, as a master first."""
        master = self._parting()
        master.freeze()
        return master

    def failover(self, to: Member | None = None) -> Member:
        """A planned failover, begun by `SENTINEL FAILOVER`; returns the master that is to step down.

        `to` is the replica that shall take over; without it any may.
        """
        master = self._parting()
        for replica in self.replicas():
            replica.set("replica-priority", "1" if replica is to else "100")
        self.wait_until("the Sentinels to learn who takes over", lambda: self._prefer(to))
        self.wait_until("a Sentinel to begin a failover", self._begin)
        return master

    def wait_for_new_master(self) -> Member:
        """The server that took over from the one that was killed, frozen or told to step down; it takes writes."""
        self.wait_until(f"a master other than port {self._previous}", self._moved)
        return self.master()

    def kill_sentinel(self, number: int) -> None:
        self.sentinels[number].kill()

    def restart(self, server: Member) -> None:
        """Start a killed server as a replica. Returns when it has the master's data."""
        master = self.master()
        server.start()
        server.follow(master)
        self.wait_until(f"{server.name} to follow port {master.port}", lambda: server.follows(master.port))

    def heal(self) -> None:
        """Bring back whatever is dead or frozen; returns when all copies are whole and all Sentinels see all."""
        for node in self._nodes():
            if node.frozen:
                node.thaw()
        for sentinel in self.sentinels:
            if not sentinel.alive:
                sentinel.start()
        for server in self.servers:
            if not server.alive:
                self.restart(server)
        self.wait_until("one master, two replicas in step and three Sentinels that see them", self._whole)

    def wait_until(self, what: str, reached: Callable[[], bool]) -> None:
        """Return when `reached` is true; a server that does not answer counts as not reached."""
        last: Exception | None = None
        limit = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < limit:
            try:
                if reached():
                    return
            except (redis.ConnectionError, redis.TimeoutError, redis.ReadOnlyError) as error:
                last = error
            time.sleep(_POLL_SECONDS)
        views = "\n".join(f"{each.name} sees {', '.join(each.view())}" for each in self._reachable(self.sentinels))
        logs = "\n".join(f"--- {node.name}, port {node.port}\n{node.log_tail()}" for node in self._nodes())
        raise NoServer(f"waited {WAIT_SECONDS:g} s in vain for {what}; the last failure was {last!r}\n{views}\n{logs}")

    def _nodes(self) -> list[Node]:
        return [*self.sentinels, *self.servers]

    def _parting(self) -> Member:
        master = self.master()
        self._previous = master.port
        return master

    def _server(self, port: int) -> Member:
        return next(server for server in self.servers if server.port == port)

    def _reachable(self, nodes: list[N]) -> list[N]:
        return [node for node in nodes if node.alive and not node.frozen]

    def _named(self) -> set[int]:
        """The ports that the Sentinels give for the master."""
        answers = [each.ask("GET-MASTER-ADDR-BY-NAME", SERVICE) for each in self._reachable(self.sentinels)]
        return {int(answer[1]) for answer in answers}

    def _prefer(self, to: Member | None) -> bool:
        ranked = [(port, rank == 1) for each in self._reachable(self.sentinels) for port, rank in each.ranks()]
        return all(first == (to is not None and port == to.port) for port, first in ranked)

    def _begin(self) -> bool:
        try:
            return bool(self._reachable(self.sentinels)[0].ask("FAILOVER", SERVICE))
        except redis.ResponseError as error:
            # one is still under way, or no replica is good enough yet
            if str(error).startswith(("INPROG", "NOGOODSLAVE")):
                return False
            raise

    def _moved(self) -> bool:
        named = self._named()
        if len(named) != 1 or self._previous in named:
            return False
        with self._server(named.pop()).client(socket_timeout=2) as client:
            return bool(client.info("replication")["role"] == "master")

    def _whole(self) -> bool:
        named = self._named()
        if len(named) != 1:
            return False
        port = named.pop()
        copies = [server.follows(port) for server in self.servers if server.port != port]
        return all(copies) and all(sentinel.view() == _ALL_WELL for sentinel in self.sentinels)
