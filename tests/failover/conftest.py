"""Fixtures of the failover tests: one topology for all, with passwords everywhere, whole again before each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.sentinel import Topology
from tests.support.servers import Server

USER, PASSWORD, SENTINEL_PASSWORD = "app", "p@ss:w/rd", "s#cret&pw"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All in one process: a topology is seven processes, and it is whole for one test at a time."""
    for item in items:
        if "shared_topology" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("failover"))


@pytest.fixture(scope="session")
def shared_topology() -> Iterator[Topology]:
    with Topology(user=USER, password=PASSWORD, sentinel_password=SENTINEL_PASSWORD) as topology:
        yield topology


@pytest.fixture(scope="session")
def server(shared_topology: Topology) -> Server:
    """What `open_engine` opens engines on: whichever server is the master."""
    return Server("sentinel", shared_topology.url)


@pytest.fixture(autouse=True)
def topology(shared_topology: Topology) -> Topology:
    """A master, two replicas in step, and three Sentinels; the test may leave them in any state."""
    shared_topology.heal()
    return shared_topology
