"""`replicas=`: what an offer promises that waited for replicas."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from redisq import IndeterminateWrite, JobState, Queue
from tests.support.fronts import OpenEngine
from tests.support.sentinel import Topology


def value_of(queue: Queue[Any], id: str) -> Any:
    job = queue.get(id)
    assert job is not None, f"job {id} is lost"
    return job.value


def test_what_replicas_confirmed_outlives_the_master(topology: Topology, open_engine: OpenEngine) -> None:
    queue = open_engine(retry_for=20).queue("jobs")
    ids = [queue.offer("one", replicas=1).id, *(each.id for each in queue.offer_many(range(1500), replicas=2))]
    topology.kill_master()
    assert queue.counts()[JobState.READY] == len(ids)
    assert [queue.take() for _ in range(2)] != [None, None]


def test_replicas_that_do_not_answer(topology: Topology, open_engine: OpenEngine) -> None:
    """The jobs are there all the same, as the error says."""
    open_engine().queue("jobs").offer("before", replicas=2)
    queue = open_engine(retry_for=0.5).queue("jobs")
    first, second = topology.replicas()
    first.freeze()
    open_engine().queue("jobs").offer("one is enough", replicas=1)
    with pytest.raises(IndeterminateWrite, match="of 2 replicas confirmed") as caught:
        queue.offer_many(["a", "b"], replicas=2)
    assert [value_of(queue, id) for id in caught.value.ids] == ["a", "b"]
    second.kill()
    with pytest.raises(IndeterminateWrite, match="0 of 1 replicas confirmed") as caught:
        queue.offer("c", replicas=1)
    assert caught.value.operation == "offer"
    assert [value_of(queue, id) for id in caught.value.ids] == ["c"]
    assert queue.counts()[JobState.READY] == 5


def test_a_failover_that_loses_the_job_is_no_confirmation(topology: Topology, open_engine: OpenEngine) -> None:
    """The next master and its replica agree on what they have, and the job is not among it: it is offered again."""
    offering, looking = open_engine(retry_for=30).queue("jobs"), open_engine(retry_for=30).queue("jobs")
    offering.offer("before", replicas=2)
    for replica in topology.replicas():
        with replica.client() as client:
            client.replicaof("127.0.0.1", "1")
    with ThreadPoolExecutor() as pool:
        offer = pool.submit(offering.offer, "work", replicas=1)
        topology.wait_until("the job to be stored", lambda: looking.counts()[JobState.READY] == 2)
        topology.kill_master()
        assert not offer.result(60).duplicate
        assert value_of(looking, offer.result().id) == "work"
