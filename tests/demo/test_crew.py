"""The worker processes seen from outside."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from redisq.demo.crew import Crew, WorkerDied
from tests.support.servers import OwnServer


def test_a_worker_that_dies_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with (
        Crew(tmp_path, "nonsense://", "demo", workers=2, rows=100) as crew,
        pytest.raises(WorkerDied, match=r"(?s)^worker-\d ended with code 1:\n.*nonsense"),
    ):
        crew.begin()
    assert all(member.process.returncode is not None for member in crew.members)


def test_no_worker_outlives_the_block(tmp_path: Path, own_server: OwnServer) -> None:
    with Crew(tmp_path, own_server.url, "demo", workers=2, rows=100) as crew:
        crew.begin()
    assert [member.process.returncode for member in crew.members] == [-signal.SIGKILL] * 2


def test_a_worker_sent_home_leaves_on_its_own(tmp_path: Path, own_server: OwnServer) -> None:
    with Crew(tmp_path, own_server.url, "demo", workers=2, rows=100) as crew:
        crew.begin()
        crew.send_home()
        assert [member.process.returncode for member in crew.members] == [0, 0]
