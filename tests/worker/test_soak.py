"""A small, seeded part of the soak: 2,000 jobs, 3 kills."""

from __future__ import annotations

import pytest

from tests.support.servers import Server
from tests.worker.soak import soak


@pytest.mark.timeout(300)
def test_nothing_is_lost_and_only_kills_repeat_work(server: Server, namespace: str) -> None:
    report = soak(server.url, namespace, jobs=2000, workers=2, seed=7, kills=3, concurrency=3)
    assert report.good, f"{report}: {[*report.lost, *report.unexplained, *report.damage][:5]}"
    assert report.kills == 3
