"""The worker processes seen from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from redisq.demo.crew import Crew, WorkerDied


def test_a_worker_that_dies_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with (
        Crew(tmp_path, "nonsense://", "demo", workers=2, rows=100) as crew,
        pytest.raises(WorkerDied, match=r"(?s)^worker-\d ended with code 1: .*nonsense"),
    ):
        crew.begin()
    assert all(member.process.returncode is not None for member in crew.members)
