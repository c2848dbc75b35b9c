"""Calls of asyncio that are cancelled while the master is on its way out."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from redisq import AsyncEngine, AsyncQueue, JobState
from tests.support.sentinel import Topology

CALLS = 200


@pytest.mark.asyncio
async def test_cancelled_calls_leave_no_broken_connection(
    topology: Topology, open_async_engine: Callable[..., AsyncEngine]
) -> None:
    """Else a later call would read the answer of a cancelled one."""
    engine = open_async_engine(retry_for=20)
    queue: AsyncQueue[int] = engine.queue("jobs", int)
    await queue.offer_many(range(CALLS), replicas=2)
    dice = random.Random(7)

    async def offer_and_look(number: int) -> bool:
        id = f"job {number}"
        await queue.offer(number, id=id)
        job = await queue.get(id)
        return job is None or job.value == number

    async def shaken(number: int) -> bool:
        task = asyncio.create_task(offer_and_look(number))
        # some before they were sent, some on the wire, some in a pause, some after the failover
        await asyncio.wait({task}, timeout=dice.choice([0, 0.01, 0.3, 1, 10]))
        task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            return True

    tasks = [asyncio.create_task(shaken(number)) for number in range(CALLS)]
    await asyncio.sleep(0)
    topology.kill_master()
    assert all(await asyncio.gather(*tasks))
    topology.wait_for_new_master()
    assert all(await asyncio.gather(*(offer_and_look(number) for number in range(CALLS, 2 * CALLS))))
    wire = engine._sender._wire
    assert wire._open == set(wire._idle)
    assert (await queue.counts())[JobState.LEASED] == 0
