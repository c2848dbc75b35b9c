"""The engine whose stored bytes are replaced."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redisq import Engine
from redisq.testing import ManualClock
from tests.support.servers import Server


@pytest.fixture
def engine(server: Server, namespace: str, clock: ManualClock) -> Iterator[Engine]:
    """A synchronous engine, by the server's socket."""
    with Engine(getattr(server, "unix_url", server.url), namespace=namespace, clock=clock, retry_for=0) as engine:
        yield engine
