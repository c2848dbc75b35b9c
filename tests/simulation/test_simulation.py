"""Random histories of many clients break no promise; each kind of broken promise is found, and told by few steps."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any
from unittest import mock

import pytest
import redis

from tests.simulation.facts import Broken, Sabotage
from tests.simulation.sabotages import SABOTAGES, Make
from tests.simulation.shrink import replayed, shortened, text_of
from tests.simulation.steps import Steps
from tests.simulation.world import Step, World
from tests.support.servers import Server

_namespaces = (f"simulated{number}" for number in itertools.count(1))


@pytest.fixture
def url(server: Server, raw: redis.Redis) -> Iterator[str]:
    """The main server, by its socket where it has one."""
    yield getattr(server, "unix_url", server.url)
    for key in raw.scan_iter(match="*simulated*", count=1000):
        raw.delete(key)
    for key in raw.scan_iter(match="*replay*", count=1000):
        raw.delete(key)


def end_of(world: World, feed: Iterator[Step]) -> Broken | None:
    try:
        world.run(feed)
    except Broken as broken:
        return broken
    finally:
        world.close()
    return None


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_promise_breaks(seed: int, url: str) -> None:
    world = World(url, next(_namespaces), check_every=250)
    assert end_of(world, Steps(world, seed, 1500)) is None
    assert world.faults > 50
    assert world.stale > 50
    assert all(ledger.accepted > 50 for ledger in world.jobs.values())
    assert all(ledger.accepted > 50 for ledger in world.events.values())


@pytest.mark.parametrize(("rule", "make"), SABOTAGES.values(), ids=SABOTAGES)
def test_a_broken_promise_is_found(rule: str, make: Make, url: str, raw: redis.Redis) -> None:
    # what is lost shall be missed by those who wait for it, before anybody counts
    world = World(url, next(_namespaces), sabotage=make(raw), check_every=10_000 if rule in ("lost", "early") else 50)
    same_nonces = mock.patch("redisq.calls.consume.nonce", return_value="nonce") if rule == "token" else nullcontext()
    with same_nonces:
        broken = end_of(world, Steps(world, 4, 1200))
    assert broken is not None
    assert broken.rule == rule, broken


def test_a_failing_history_becomes_short_and_can_be_replayed(url: str, raw: redis.Redis) -> None:
    rule, make = SABOTAGES["a stale token changes something"]

    def sabotage(namespace: str) -> Sabotage:
        return make(raw)

    world = World(url, next(_namespaces), sabotage=make(raw), check_every=50)
    assert getattr(end_of(world, Steps(world, 4, 1200)), "rule", None) == rule
    short = shortened(world.history, rule, lambda steps: replayed(url, steps, sabotage=sabotage, drain=False))
    assert len(short) < min(10, len(world.history))
    read: list[Any] = [json.loads(line) for line in text_of(short).splitlines()]
    again = replayed(url, read, sabotage=sabotage)
    assert again is not None
    assert again.rule == rule
    # the last step is what it took, and without the sabotage nothing is wrong with the history
    assert replayed(url, short[:-1], sabotage=sabotage) is None
    assert replayed(url, read) is None
