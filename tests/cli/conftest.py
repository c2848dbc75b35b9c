"""What the tests of the command line share: `redisq` as a process of its own, in a pipe or on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from redisq import Engine, Queue
from tests.support.servers import Server

ROOT = Path(__file__).parents[2]
PATIENCE = 20.0


@dataclass(frozen=True)
class Ended:
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Cli:
    """Runs `redisq` on the test's server and namespace, from a folder of the test."""

    def __init__(self, url: str, namespace: str, folder: Path, zygote: subprocess.Popen[str]) -> None:
        self.folder = folder
        self._zygote = zygote
        self.env = {
            "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "TERM": "xterm",
            "REDISQ_URL": url, "REDISQ_NAMESPACE": namespace, "LC_ALL": "C.UTF-8",
        }  # fmt: skip
        self.started: list[subprocess.Popen[str]] = []

    def __call__(self, *words: str, code: int = 0, stdin: str = "", env: Mapping[str, str] | None = None) -> Ended:
        """A command without a terminal, with the exit code that it must have. A process of its own, quickly forked."""
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / name for name in ("in", "out", "err")]
            for file, text in zip(files, (stdin, "", ""), strict=True):
                file.write_text(text, encoding="utf-8")
            request = {"words": words, "env": {**self.env, **(env or {})}, "folder": str(self.folder),
                       "files": [str(file) for file in files]}  # fmt: skip
            assert self._zygote.stdin is not None
            assert self._zygote.stdout is not None
            self._zygote.stdin.write(json.dumps(request) + "\n")
            self._zygote.stdin.flush()
            ended = int(self._zygote.stdout.readline())
            _, out, err = (file.read_text(encoding="utf-8") for file in files)
        assert ended == code, out + err
        assert "Traceback" not in err
        return Ended(ended, out, err)

    def shell(self, line: str) -> Ended:
        """A line of bash, where `redisq` is the command; the code is that of the first part of a pipe."""
        script = f'redisq() {{ "{sys.executable}" -m redisq "$@"; }}; {line}; exit ${{PIPESTATUS[0]}}'
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=self.folder, env=self.env,
                              timeout=PATIENCE * 2, check=False)  # fmt: skip
        return Ended(done.returncode, done.stdout, done.stderr)

    def terminal(self, *words: str, columns: int = 80, typed: str = "", env: Mapping[str, str] | None = None) -> Ended:
        """A command whose input and outputs are a terminal of that width; all it shows is in `out`."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen([sys.executable, "-m", "redisq", *words], stdin=theirs, stdout=theirs, stderr=theirs,
                                   cwd=self.folder, env={**self.env, **(env or {})})  # fmt: skip
        os.close(theirs)
        os.write(ours, typed.encode())
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux says so when the other end is closed
                break
            if not part:
                break
            shown += part
        os.close(ours)
        return Ended(process.wait(PATIENCE), shown.decode().replace("\r\n", "\n"), "")

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """A command that runs on, in a process group of its own, as a shell starts it; it is killed after the test."""
        process = subprocess.Popen(
            [sys.executable, "-m", "redisq", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=self.folder, env={**self.env, **(env or {})}, start_new_session=True,
        )  # fmt: skip
        self.started.append(process)
        return process

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture(scope="session")
def zygote() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.cli.zygote"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    yield process
    process.communicate()


@pytest.fixture
def cli(server: Server, namespace: str, tmp_path: Path, zygote: subprocess.Popen[str]) -> Iterator[Cli]:
    made = Cli(server.url, namespace, tmp_path, zygote)
    yield made
    made.close()


@pytest.fixture
def shop(server: Server, namespace: str) -> Iterator[Engine]:
    """An engine on the namespace of `cli`, in the server's own time."""
    with Engine(server.url, namespace=namespace) as engine:
        yield engine


@pytest.fixture
def mails(shop: Engine) -> Queue[Any]:
    """The job queue "mails" of `shop`."""
    return shop.queue("mails")


@pytest.fixture
def furnished(mails: Queue[Any]) -> Queue[Any]:
    """`mails` with a completed, a dead, a quarantined, a leased, a scheduled and a ready job, named by their ids."""
    for id, end in (("done", "ack"), ("broken", "fail"), ("odd", "quarantine")):
        mails.offer({"to": id}, id=id, name="welcome")
        delivery = mails.take()
        assert delivery is not None
        if end == "ack":
            mails.ack(delivery, result="sent")
        elif end == "fail":
            mails.fail(delivery, ValueError("no such address"), final=True)
        else:
            mails.quarantine(delivery, "not a mail")
    mails.offer({"to": "held"}, id="held")
    mails.take(lease=600)
    mails.offer({"to": "later"}, id="later", delay=3600)
    mails.offer({"to": "first"}, id="first", metadata={"from": "shop"})
    return mails


def told(raw: redis.Redis, key: str) -> str:
    """The next word that a handler pushed to a list; waits for it."""
    found: Any = raw.blpop([key], timeout=PATIENCE)
    assert found is not None, "the handler has not said anything"
    return found[1].decode()  # type: ignore[no-any-return]


def until(reached: Callable[[], bool], what: str) -> None:
    """Returns when `reached` is true; there is nothing to wait on for a file or another process."""
    limit = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < limit, f"waited in vain for {what}"
        time.sleep(0.02)


def stopped(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str]:
    """Sends a signal and waits: the exit code, and what stands in stderr."""
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE)
    return process.returncode, err
