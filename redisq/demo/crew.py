"""The worker processes as their parent sees them: start, listen, kill one, send the rest home."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from pathlib import Path
from typing import IO, Self

from redisq.demo.ledger import Line, read
from redisq.demo.worker import READY

LEAVE_S = 10.0
LAST_LINES = 12


class WorkerDied(Exception):
    """A worker ended that nobody had killed; the message holds the end of what it printed."""


class Member:
    """One worker process with its ledger and its log."""

    def __init__(self, name: str, folder: Path, url: str, arguments: list[str]) -> None:
        self.name = name
        self._ledger = folder / f"{name}.jsonl"
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "redisq.demo.worker", arguments[0], name, str(self._ledger), *arguments[1:]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                env={**os.environ, "REDISQ_URL": url},
                # Ctrl-C is for the parent, which then sends everyone home
                start_new_session=True,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.input: IO[bytes] = self.process.stdin
        self.output: IO[bytes] = self.process.stdout

    def lines(self) -> list[Line]:
        return read(self._ledger)

    def last_words(self) -> str:
        """The end of what it printed as errors."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LAST_LINES:])


class Crew:
    """All the workers. Each pauses once in the middle of a batch and asks; `kill` hits it there, while it holds work.

    It pauses after a third of its even share of the rows: at least one comes so far, however they are shared out.
    Leaving the `with` block ends every process that still runs, whatever happened.
    """

    def __init__(self, folder: Path, url: str, namespace: str, *, workers: int, rows: int) -> None:
        batch = max(2, min(64, rows // (workers * 4)))
        pause_after = rows // (workers * 3)
        self.members = [
            Member(f"worker-{number}", folder, url, [namespace, str(rows), str(batch), str(pause_after)])
            for number in range(1, workers + 1)
        ]
        self._outputs = selectors.DefaultSelector()
        for member in self.members:
            self._outputs.register(member.output, selectors.EVENT_READ, member)

    def begin(self) -> None:
        """Wait until every worker is connected, then let all begin together."""
        waiting = len(self.members)
        while waiting:
            waiting -= sum(word == READY for _, word in self.listen(None))
        for member in self.members:
            self.go_on(member)

    def listen(self, seconds: float | None) -> list[tuple[Member, str]]:
        """The words that workers said, once there are some or `seconds` have passed. Raises WorkerDied."""
        heard = []
        for key, _ in self._outputs.select(seconds):
            member: Member = key.data
            word = member.output.readline().decode().strip()
            if not word:
                code = member.process.wait()
                raise WorkerDied(f"{member.name} ended with code {code}:\n{member.last_words()}")
            heard.append((member, word))
        return heard

    def go_on(self, member: Member) -> None:
        """Answer a worker that waits."""
        member.input.write(b"go on\n")

    def kill(self, member: Member) -> None:
        """kill -9: the process gets no chance to hand anything back."""
        self._outputs.unregister(member.output)
        member.process.kill()
        member.process.wait()

    def send_home(self) -> None:
        """Close the workers' inputs, so that they settle what they hold and end. Raises WorkerDied if one fails to."""
        staying = [member for member in self.members if member.process.poll() is None]
        for member in staying:
            member.input.close()
        for member in staying:
            try:
                code = member.process.wait(LEAVE_S)
            except subprocess.TimeoutExpired:
                raise WorkerDied(f"{member.name} did not leave within {LEAVE_S:g} s") from None
            if code:
                raise WorkerDied(f"{member.name} ended with code {code}:\n{member.last_words()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.process.kill()
            member.process.wait()
            member.input.close()
            member.output.close()
        self._outputs.close()
