"""A real engine against the model, on both front ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from redisq import Engine
from redisq.testing import ManualClock
from redisq.testing.check import check
from tests.machine.events.event_rules import TYPES, Bench, machine_for

if TYPE_CHECKING:
    import redis

    from tests.support.fronts import OpenEngine
    from tests.support.servers import Server

MACHINE = settings(deadline=None, suppress_health_check=list(HealthCheck))
if settings.get_current_profile_name() == "default":
    # the same histories each time, and no shrinking: the deep profile makes new ones and shrinks what fails
    MACHINE = settings(
        MACHINE, max_examples=15, stateful_step_count=40, derandomize=True, database=None, phases=[Phase.generate]
    )


@pytest.mark.timeout(0)
def test_the_engine_agrees_with_the_model(
    open_engine: OpenEngine, server: Server, namespace: str, raw: redis.Redis
) -> None:
    clock = ManualClock()
    with Engine(server.url, namespace=namespace, clock=clock) as looker:
        bench = Bench(
            [open_engine(clock=clock) for _ in TYPES],
            clock,
            check=lambda name: check(looker.events(name)),
            contents=lambda name: contents(raw, namespace, name),
        )
        run_state_machine_as_test(machine_for(bench), settings=MACHINE)


def contents(raw: Any, namespace: str, name: str) -> dict[str, set[str]]:
    """The keys of an event queue, each with all that stands in it."""
    found: dict[str, set[str]] = {}
    for each in raw.scan_iter(match=f"*{namespace}*:{name}}}*", count=1000):
        key = _text(each)
        kind = _text(raw.type(key))
        if kind == "zset":
            found[key] = {_text(member) for member, _ in raw.zscan_iter(key)}
        elif kind == "hash":
            found[key] = {_text(part) for pair in raw.hgetall(key).items() for part in pair}
        elif kind == "list":
            found[key] = {_text(each) for each in raw.lrange(key, 0, -1)}
        else:
            raise AssertionError(f"{key} is a {kind}")
    return found


def _text(data: bytes | str) -> str:
    return data.decode() if isinstance(data, bytes) else data
