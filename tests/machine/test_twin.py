"""The machine itself: the model agrees with itself, and every broken model is found out."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from redisq.testing import ManualClock, ReferenceQueue
from tests.machine.rules import WORKERS, Bench, machine_for
from tests.machine.twin import BROKEN, TwinEngine

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


def bench_of(made_of: type[ReferenceQueue]) -> Bench:
    clock, queues = ManualClock(1_700_000_000_000), dict[str, ReferenceQueue]()
    engines = [TwinEngine(queues, clock, worker, made_of) for worker in WORKERS]
    return Bench(
        engines,
        clock,
        exchange_unstarted=lambda queue, settlements, limit: queue.exchange(settlements, limit, started=False),
        start=lambda queue, deliveries: queue.start(deliveries),
    )


def test_the_model_agrees_with_itself() -> None:
    run_state_machine_as_test(machine_for(bench_of(ReferenceQueue)), settings=QUICK)


@pytest.mark.timeout(300)
@pytest.mark.skipif(not DEEP, reason="minutes long: runs with --hypothesis-profile=deep")
@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_queue_is_found_out(broken: type[ReferenceQueue]) -> None:
    many = settings(QUICK, max_examples=500, report_multiple_bugs=False)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine_for(bench_of(broken)), settings=many)
