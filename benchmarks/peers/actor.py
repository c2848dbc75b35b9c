"""A stage as the harness sees it: a process that answers commands, or says why it can't."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import tempfile
import threading
from types import TracebackType
from typing import Any, Self

from benchmarks.peers.environment import ROOT

PATIENCE = 120.0
STOP_SECONDS = 5.0


class PeerFailed(Exception):
    """A peer that ended or stayed silent; the message has the end of what it printed."""


class Actor:
    """Ends with the `with` block, whatever its library is doing then."""

    def __init__(self, name: str, python: str, url: str) -> None:
        self._name = name
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.peers.stage", name, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._errors, text=True, cwd=ROOT,
        )  # fmt: skip
        self._answers: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.about: dict[str, Any] = {}

    def ask(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure("ended") from None
        return self.hear()

    def tell(self) -> None:
        """The go for a worker that is ready; what it does then is heard with `hear`."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=PATIENCE)
        except queue.Empty:
            raise self._failure(f"said nothing for {PATIENCE:.0f} s") from None
        if line is None:
            raise self._failure("ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        try:
            self.about = self.hear()
        except PeerFailed:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def _end(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._answers.put(line)
        self._answers.put(None)

    def _failure(self, what: str) -> PeerFailed:
        self._errors.seek(0)
        return PeerFailed(f"{self._name} {what}: {self._errors.read()[-800:].strip()}")
