"""A queue under load whose master dies, and whose old master takes over again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from redisq import AsyncEngine, Engine, JobState
from tests.failover.crowd import Crowd, jobs_of
from tests.support.fronts import OpenEngine
from tests.support.sentinel import Topology


def test_all_go_on_and_nothing_that_was_replicated_is_lost(
    topology: Topology, open_engine: OpenEngine, front: str, namespace: str
) -> None:
    kind: Callable[..., Any] = Engine if front == "sync" else AsyncEngine

    def serving() -> Engine | AsyncEngine:
        engine: Engine | AsyncEngine = kind(topology.url, namespace=namespace, retry_for=0.3)
        return engine

    crowd = Crowd(topology, open_engine(retry_for=30), serving)
    try:
        crowd.all_move()
        old = topology.kill_master()
        topology.wait_for_new_master()
        crowd.all_move()
        topology.heal()
        # a planned one stops nobody: the master that steps down has writes taken, with its other replica, to the end
        crowd.replicas = 2
        crowd.all_move()
        topology.failover(to=old)
        assert topology.wait_for_new_master() is old
        crowd.all_move()
        crowd.finish()
    finally:
        crowd.close()
    ended = {queue.name: crowd.states(queue) for queue in (crowd.taken, crowd.served)}
    assert Counter(ended[queue.name].get(id) for queue, id in crowd.kept) == {JobState.COMPLETED: len(crowd.kept)}
    assert crowd.duplicates == []
    values = Counter(job.value for queue in (crowd.taken, crowd.served) for job in jobs_of(queue))
    assert [value for value, count in values.items() if count > 1] == []
    tokens = [delivery.token for delivery in crowd.deliveries]
    fences = [delivery.fence for delivery in crowd.deliveries]
    assert len(set(tokens)) == len(tokens)
    assert fences == sorted(set(fences))
    assert len(set(crowd.fences)) == len(crowd.fences)
