"""The machine itself: the model agrees with itself, and every broken model is found out."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from redisq.testing import ManualClock, ReferenceEventQueue
from tests.machine.events.event_rules import TYPES, Bench, machine_for
from tests.machine.events.event_twin import BROKEN, TwinEngine

DEEP = settings.get_current_profile_name() == "deep"
QUICK = settings(
    max_examples=20,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)


def bench_of(made_of: type[ReferenceEventQueue]) -> Bench:
    clock, queues = ManualClock(1_700_000_000_000), dict[str, ReferenceEventQueue]()
    return Bench([TwinEngine(queues, clock, made_of) for _ in TYPES], clock)


def test_the_model_agrees_with_itself() -> None:
    run_state_machine_as_test(machine_for(bench_of(ReferenceEventQueue)), settings=QUICK)


@pytest.mark.skipif(not DEEP, reason="minutes long: runs with --hypothesis-profile=deep")
@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_queue_is_found_out(broken: type[ReferenceEventQueue]) -> None:
    many = settings(QUICK, max_examples=2000, report_multiple_bugs=False)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine_for(bench_of(broken)), settings=many)
