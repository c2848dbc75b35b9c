"""Callers that are blocked while the master goes: they are answered by the next one, and nobody tells them to."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from redisq import Ack, Delivery, EventDelivery
from tests.support.fronts import OpenEngine
from tests.support.sentinel import Member, Topology

PATIENCE = 60.0

Go = Callable[[Topology], Member]


def answer(future: Future[Any]) -> Any:
    return future.result(PATIENCE)


def asleep(topology: Topology, count: int) -> None:
    """Return when so many callers are blocked on the master."""
    with topology.master().client() as client:
        topology.wait_until(f"{count} blocked callers", lambda: int(client.info("clients")["blocked_clients"]) >= count)


@pytest.mark.parametrize("go", [Topology.kill_master, Topology.freeze_master, Topology.failover])
def test_all_waits_go_on(topology: Topology, open_engine: OpenEngine, go: Go) -> None:
    waiting, acting = open_engine(retry_for=20), open_engine(retry_for=20)
    jobs, results, events = waiting.queue("jobs"), waiting.queue("results"), waiting.events("events")
    subscription = events.subscribe("reader")
    pending = results.offer("slow", replicas=2).id
    with ThreadPoolExecutor() as pool:
        taking = pool.submit(jobs.take, wait=PATIENCE)
        finding = pool.submit(results.wait_result, pending, PATIENCE)
        reading = pool.submit(events.take, subscription, wait=PATIENCE)
        # on a queue that does not exist yet
        hoping = pool.submit(waiting.queue("later").take, wait=PATIENCE)
        asleep(topology, 4)
        gone = go(topology)
        new = topology.wait_for_new_master()
        assert new is not gone
        if not gone.frozen and gone.alive:
            # one that is told to step down takes writes a while longer, and loses them
            topology.wait_until("the old master to follow", lambda: gone.follows(new.port))
        offered = acting.queue("jobs").offer("work", replicas=1).id
        emitted = acting.events("events").emit("news").id
        delivery = acting.queue("results").take(wait=PATIENCE)
        assert delivery is not None
        acting.queue("results").ack(delivery, "done")
        taken: Delivery = answer(taking)
        heard: EventDelivery = answer(reading)
        assert (taken.id, taken.value, heard.id, heard.value) == (offered, "work", emitted, "news")
        assert answer(finding) == "done"
        acting.queue("later").offer("sooner")
        late: Delivery = answer(hoping)
        assert late.value == "sooner"
        assert [jobs.ack(taken), waiting.queue("later").ack(late), events.ack(heard)] == [Ack.ACKNOWLEDGED] * 3
