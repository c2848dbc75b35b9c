"""The demo end to end, with real processes and a real kill -9, on few rows."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

from tests.support.servers import OwnServer

_COMMAND = [sys.executable, "-m", "redisq", "demo", "--workers", "3"]


def _demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*_COMMAND, "--rows", "300", *arguments], check=False, capture_output=True, text=True)


def test_it_proves_itself_on_an_embedded_server() -> None:
    done = _demo()
    assert (done.returncode, "[NO]" in done.stdout) == (0, False), done.stdout + done.stderr
    marks = re.findall(r"^  \[ok\] (.*?) +([\d,]+) +([\d,]+)$", done.stdout, re.MULTILINE)
    counts = {title: (left, right) for title, left, right in marks}
    assert len(marks) == 13
    assert counts["all rows: came to an end"] == ("300", "300")
    assert counts["cut-off rows: in quarantine"] == ("1", "1")
    held = int(counts["rows the killed worker held: settled later"][0])
    twice = int(counts["rows done but not settled: done twice"][0])
    assert 1 <= twice <= held
    assert "kill -9" in done.stdout
    assert "300 of 300" in done.stderr


def test_a_server_of_yours_is_left_as_it_was(own_server: OwnServer) -> None:
    with own_server.client() as client:
        client.set("mine", "1")
        done = _demo("--url", own_server.url)
        assert done.returncode == 0, done.stdout + done.stderr
        assert client.keys() == [b"mine"]


def test_an_interrupted_run_leaves_no_worker_and_no_key(own_server: OwnServer) -> None:
    with own_server.client() as client:
        before = len(client.client_list())
        running = subprocess.Popen([*_COMMAND, "--rows", "3000", "--url", own_server.url], stderr=subprocess.PIPE)
        assert running.stderr is not None
        with running, running.stderr as progress:
            assert b" of 3,000 " in progress.readline()
            running.send_signal(signal.SIGINT)
            assert progress.read().endswith(b"Error: interrupted\n")
        assert running.returncode == 130
        assert client.keys() == []
        assert len(client.client_list()) == before
