"""Several worker processes under one parent: it passes signals on, watches over them, and ends with the worst code."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from redisq.cli import logs
from redisq.errors import InvalidInput
from redisq.worker import Worker

_log = logging.getLogger("redisq.cli")

LOOK = 0.2
"""Seconds between two looks at the processes."""
STALE = 30.0
"""Seconds after which a process that has not touched its file is unhealthy."""
SIGNALLED = 128


class Pulse:
    """A file that is touched as long as all is well, and removed at the end."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._told = False
        self.beat()

    def beat(self) -> None:
        """A full disk must not stop the worker; then the file grows old, which is the truth."""
        try:
            self._file.touch()
        except OSError as error:
            if not self._told:
                _log.error("can't touch %s: %s", self._file, error)
            self._told = True

    def end(self) -> None:
        self._file.unlink(missing_ok=True)


class Crew:
    """The processes. A signal for the parent goes to each of them, as SIGTERM."""

    def __init__(self, commands: list[list[str]]) -> None:
        # a session of their own: Ctrl-C reaches the parent alone, and so nobody gets it twice
        self._processes = [subprocess.Popen(command, start_new_session=True) for command in commands]
        self._stopping = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping = True
        for process in self._processes:
            if process.poll() is None:
                process.terminate()

    def ended(self, burst: bool) -> bool:
        """Whether all have ended. One that ended by itself ends the others, unless all are to end that way."""
        codes = [process.poll() for process in self._processes]
        for process, code in zip(self._processes, codes, strict=True):
            if code is not None and not self._stopping and not (burst and code == 0):
                _log.error("worker process %d ended with %d: stopping the others", process.pid, code)
                self.stop()
        return None not in codes

    @property
    def worst(self) -> int:
        """The highest exit code; a process that a signal ended counts as 128 and its number, as in a shell.

        One that our own SIGTERM ended had not come as far as taking anything.
        """
        codes = [process.wait() for process in self._processes]
        if self._stopping:
            codes = [0 if code == -signal.SIGTERM else code for code in codes]
        return max(SIGNALLED - code if code < 0 else code for code in codes)


def run(worker: Worker, target: str, arguments: list[str], processes: int, health: Path | None) -> int:
    """Runs `redisq worker TARGET` so many times; `worker` is what they all will be, for the banner."""
    engine = worker._given
    if engine._sender._target.owned is not None:
        raise InvalidInput("an embedded server belongs to one process: --processes needs a server that all can reach")
    logs.banner("worker", engine, f"{processes} processes of concurrency {worker.concurrency}, "
                f"queues {', '.join(worker.queues)}")  # fmt: skip
    files = [Path(f"{health}.{at}") for at in range(processes)] if health is not None else []
    command = [sys.executable, "-m", "redisq", "worker", target, "--parent", str(os.getpid()), *arguments]
    crew = Crew([[*command, *(["--health", str(files[at])] if files else [])] for at in range(processes)])
    pulse = None if health is None else Pulse(health)
    try:
        while not crew.ended(worker.burst):
            time.sleep(LOOK)
            if pulse is not None and all(_fresh(file) for file in files):
                pulse.beat()
    finally:
        if pulse is not None:
            pulse.end()
    return crew.worst


def _fresh(file: Path) -> bool:
    try:
        return time.time() - file.stat().st_mtime < STALE
    except FileNotFoundError:
        return False
