"""Keep rules after every kind of terminal transition (SPEC 3.6): each way of ending a job applies its rule at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from redisq import Delivery, Done, Engine, Failed, JobState, Keep, NewJob, Queue, QueuePolicy, Released
from redisq.testing import ManualClock
from tests.jobs.steps import ENDINGS, Prefetcher, drained, state_of, taken, values, walked
from tests.support.fronts import OpenEngine
from tests.support.servers import Server


class Bench(NamedTuple):
    """What an ending may need: the queue, its clock, a client of another payload type, and a worker's prefetch."""

    queue: Queue[Any]
    clock: ManualClock
    strict: Queue[int]
    prefetcher: Prefetcher


def lapsed(bench: Bench, recover: Callable[[Queue[Any]], object], *, cancel: bool = False) -> None:
    held = taken(bench.queue, lease=1)
    if cancel:
        bench.queue.cancel(held.id)
    bench.clock.advance(1)
    recover(bench.queue)


def asked(bench: Bench) -> Delivery:
    held = taken(bench.queue)
    bench.queue.cancel(held.id)
    return held


def ack_after_retry(bench: Bench) -> None:
    bench.queue.release(taken(bench.queue))
    bench.queue.ack(taken(bench.queue), "result")


def cancel_scheduled(bench: Bench) -> None:
    held = taken(bench.queue)
    bench.queue.release(held, delay=60)
    bench.queue.cancel(held.id)


def cancel_unstarted(bench: Bench) -> None:
    (held,) = bench.prefetcher.take(1)
    bench.queue.cancel(held.id)
    bench.clock.advance(30)
    bench.queue.maintain()


ENDED: dict[str, tuple[str, Callable[[Bench], object]]] = {
    "ack": ("completed", lambda bench: bench.queue.ack(taken(bench.queue), "result")),
    "ack after a release": ("completed", ack_after_retry),
    "ack_many": ("completed", lambda bench: bench.queue.ack_many([taken(bench.queue)])),
    "exchange": ("completed", lambda bench: bench.queue.exchange([Done(taken(bench.queue), "result")], 1)),
    "ack after a cancel": ("completed", lambda bench: bench.queue.ack(asked(bench))),
    "final fail": ("dead", lambda bench: bench.queue.fail(taken(bench.queue), "broken", final=True)),
    "last fail": ("dead", lambda bench: bench.queue.fail(taken(bench.queue), "broken")),
    "last fail in exchange": ("dead", lambda bench: bench.queue.exchange([Failed(taken(bench.queue), "broken")], 1)),
    "last lapse in take": ("dead", lambda bench: lapsed(bench, lambda queue: queue.take())),
    "last lapse in exchange": ("dead", lambda bench: lapsed(bench, lambda queue: queue.exchange([], 1))),
    "last lapse in maintain": ("dead", lambda bench: lapsed(bench, lambda queue: queue.maintain())),
    "cancel of a ready job": ("cancelled", lambda bench: bench.queue.cancel(walked(bench.queue, state="ready")[0].id)),
    "cancel of a scheduled job": ("cancelled", cancel_scheduled),
    "fail after a cancel was asked": ("cancelled", lambda bench: bench.queue.fail(asked(bench), "stopped")),
    "release after a cancel was asked": ("cancelled", lambda bench: bench.queue.release(asked(bench))),
    "released in exchange after one": ("cancelled", lambda bench: bench.queue.exchange([Released(asked(bench))], 0)),
    "lapse in take after one": ("cancelled", lambda bench: lapsed(bench, lambda queue: queue.take(), cancel=True)),
    "lapse in maintain after one": (
        "cancelled",
        lambda bench: lapsed(bench, lambda queue: queue.maintain(), cancel=True),
    ),
    "lapse of an unstarted lease after one": ("cancelled", cancel_unstarted),
    "quarantine": ("quarantined", lambda bench: bench.queue.quarantine(taken(bench.queue), "poison")),
    "quarantine after one": (
        "quarantined",
        lambda bench: bench.queue.quarantine(asked(bench), "poison"),
    ),
    "undecodable": ("quarantined", lambda bench: bench.strict.take()),
}


@pytest.fixture
def open_bench(
    open_engine: OpenEngine, engine: Engine, clock: ManualClock, server: Server, namespace: str
) -> Iterator[Callable[..., Bench]]:
    prefetcher = Prefetcher(server.url, namespace, clock)
    strict = open_engine(clock=clock).queue("jobs", int)

    def start(keep: Keep | None, **policy: Any) -> Bench:
        queue = engine.queue("jobs", policy=QueuePolicy(keep=keep, max_attempts=1, dedup=0, **policy))
        queue.pause()
        queue.resume()
        return Bench(queue, clock, strict, prefetcher)

    yield start
    prefetcher.close()


@pytest.mark.parametrize("ending", ENDED)
def test_the_count_of_the_queue_prunes(open_bench: Callable[..., Bench], ending: str) -> None:
    bench = open_bench(Keep(count=2))
    queue, (state, end) = bench.queue, ENDED[ending]
    queue.offer("other name", name="other")
    end(bench)
    for number in range(4):
        queue.offer(f"number {number}", name="mail")
        end(bench)
        assert queue.counts()[JobState(state)] == 1 + min(number + 1, 2)
        bench.clock.advance(0.001)
    assert values(walked(queue, state=state)) == ["number 3", "number 2", "other name"]


@pytest.mark.every_server
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("ending", ENDED)
def test_a_count_of_zero_leaves_nothing(
    open_bench: Callable[..., Bench], keys: Callable[..., list[str]], ending: str, own: bool
) -> None:
    bench = open_bench(None if own else Keep(count=0))
    queue, (_, end) = bench.queue, ENDED[ending]
    before = keys()
    options: dict[str, Any] = {"keep": Keep(count=0)} if own else {}
    id = queue.offer("x", id="x", name="mail", metadata={"k": "v"}, **options).id
    end(bench)
    assert queue.get(id) is None
    assert set(queue.counts().values()) == {0}
    assert not queue.offer("again", id="x").duplicate
    queue.remove("x")
    drained(queue)
    queue.maintain()
    assert keys() == before


@pytest.mark.parametrize("ending", ENDED)
def test_the_age_of_the_queue_prunes_older_siblings(open_bench: Callable[..., Bench], ending: str) -> None:
    bench = open_bench(Keep(age=5000))
    queue, (state, end) = bench.queue, ENDED[ending]
    queue.offer("old")
    end(bench)
    bench.clock.advance(4000)
    queue.offer("young")
    end(bench)
    assert values(walked(queue, state=state)) == ["young", "old"]
    bench.clock.advance(1000)
    queue.offer("last")
    end(bench)
    assert values(walked(queue, state=state)) == ["last", "young"]


@pytest.mark.parametrize("ending", ENDED)
def test_an_own_rule_holds_for_its_call(open_bench: Callable[..., Bench], ending: str) -> None:
    """SPEC 3.7: the finishing job's rule counts for its call; afterwards its own age stands for it, and no count."""
    bench = open_bench(None)
    queue, (state, end) = bench.queue, ENDED[ending]
    for number in range(3):
        queue.offer(f"number {number}")
        end(bench)
    own = queue.offer("own", keep=Keep(count=2, age=5000)).id
    end(bench)
    assert values(walked(queue, state=state)) == ["own", "number 2"]
    queue.offer("plain")
    end(bench)
    assert values(walked(queue, state=state)) == ["plain", "own", "number 2"]
    bench.clock.advance(5000)
    queue.maintain()
    assert state_of(queue, own) is None
    assert values(walked(queue, state=state)) == ["plain", "number 2"]


@pytest.mark.parametrize("ending", ENDED)
def test_a_split_rule_of_another_state_does_not_touch_it(open_bench: Callable[..., Bench], ending: str) -> None:
    state, end = ENDED[ending]
    others: dict[str, Any] = {other: Keep(count=0) for other in ENDINGS if other != state}
    bench = open_bench(Keep(**others))
    for number in range(3):
        bench.queue.offer(f"number {number}")
        end(bench)
    assert bench.queue.counts()[JobState(state)] == 3


@pytest.mark.every_server
def test_a_final_lapse_finished_at_its_lease_s_end(open_bench: Callable[..., Bench]) -> None:
    """Its place among its siblings, and its age, go by that time and not by the one of the call that found out."""
    bench = open_bench(Keep(count=2))
    queue, clock = bench.queue, bench.clock
    early = queue.offer("early").id
    taken(queue, lease=1)
    clock.advance(2)
    queue.offer("failed")
    queue.fail(taken(queue), "broken")
    queue.offer("late")
    taken(queue, lease=1)
    clock.advance(5)
    queue.maintain()
    assert state_of(queue, early) is None
    assert values(walked(queue, state="dead")) == ["late", "failed"]


def test_lapses_of_one_call_are_pruned_together(open_bench: Callable[..., Bench]) -> None:
    bench = open_bench(Keep(count=3))
    bench.queue.offer_many([NewJob(number) for number in range(90)])
    held = bench.queue.take_many(90, lease=1)
    bench.clock.advance(1)
    bench.queue.take()
    # 90 transitions prune up to 190 records; ties stand in the order of their ids
    kept = sorted(held, key=lambda each: each.id)[-3:]
    assert values(walked(bench.queue, state="dead")) == values(kept)[::-1]
    assert bench.queue.counts()[JobState.DEAD] == 3
