"""Several queues in one worker, and what it does with what it can't run (SPEC 7 and 3.3)."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest
import redis

from redisq import Engine, JobState, Queue
from tests.jobs.steps import root_of, state_of
from tests.worker.conftest import QUICK, WAIT, Serve


class Book:
    """Notes which queue each handled job came from; `count` opens `full`."""

    def __init__(self, count: int) -> None:
        self.order: list[str] = []
        self.full = threading.Event()
        self._count = count

    def keep(self, queue: Queue[Any], name: str) -> None:
        @queue.handler()
        async def handle(value: Any) -> None:
            self.order.append(name)
            if len(self.order) == self._count:
                self.full.set()


def test_strict_serves_the_first_queue_before_the_next(engine: Engine, serve: Serve) -> None:
    a, b = engine.queue("a"), engine.queue("b")
    book = Book(60)
    book.keep(a, "a")
    book.keep(b, "b")
    b.offer_many(range(20))
    a.offer_many(range(40))
    serve([a, b], concurrency=2)
    assert book.full.wait(WAIT)
    assert book.order == ["a"] * 40 + ["b"] * 20


@pytest.mark.parametrize("concurrency", [1, 4])
def test_weights_share_the_slots(concurrency: int, engine: Engine, serve: Serve) -> None:
    a, b = engine.queue("a"), engine.queue("b")
    book = Book(200)
    book.keep(a, "a")
    book.keep(b, "b")
    a.offer_many(range(200))
    b.offer_many(range(200))
    serve([a, b], concurrency=concurrency, dispatch={"a": 3, "b": 1})
    assert book.full.wait(WAIT)
    counts = Counter(book.order[:200])
    assert 140 <= counts["a"] <= 160
    stretch = 16 if concurrency == 1 else 48  # while a call of one queue is under way, the other may go on
    assert all("b" in book.order[at : at + stretch] for at in range(200 - stretch))


@pytest.mark.parametrize("dispatch", ["strict", {"a": 1, "b": 9, "c": 1}])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_no_slot_idles_while_any_queue_has_work(concurrency: int, dispatch: Any, engine: Engine, serve: Serve) -> None:
    """All slots run jobs of one queue while the others are empty; none is kept for those."""
    queues = [engine.queue(name) for name in ("a", "b", "c")]
    meet = threading.Barrier(concurrency)

    def handle(value: Any) -> None:
        meet.wait(WAIT)

    for queue in queues:
        queue.handler()(handle)
    serve(queues, concurrency=concurrency, dispatch=dispatch)
    for queue in (queues[1], queues[2], queues[0], queues[1]):
        offers = queue.offer_many(range(3 * concurrency))
        for offer in offers:
            queue.wait_result(offer.id, WAIT)


def test_a_queue_that_wakes_up_gets_its_turn_and_no_more(engine: Engine, serve: Serve) -> None:
    """Its idle time gives it no claim on all slots."""
    a, b = engine.queue("a"), engine.queue("b")
    book = Book(320)
    book.keep(a, "a")
    book.keep(b, "b")
    serve([a, b], concurrency=2, dispatch={"a": 1, "b": 1})
    for offer in a.offer_many(range(200)):
        a.wait_result(offer.id, WAIT)
    a.pause()
    b.pause()
    a.offer_many(range(60))
    b.offer_many(range(60))
    a.resume()
    b.resume()
    assert book.full.wait(WAIT)
    assert 20 <= Counter(book.order[200:280])["b"] <= 50


@pytest.mark.parametrize("dispatch", ["strict", {"high": 9, "low": 1}])
def test_a_queue_that_was_empty_is_not_forgotten_while_another_is_busy(
    dispatch: Any, engine: Engine, serve: Serve
) -> None:
    high, low = engine.queue("high"), engine.queue("low")
    stop, busy = threading.Event(), threading.Event()

    @high.handler()
    async def urgent(value: Any) -> str:
        return "done"

    @low.handler()
    async def refill(value: int) -> None:
        if not stop.is_set():
            await asyncio.to_thread(low.offer, value + 1)
        if value == 5:
            busy.set()

    low.offer_many([0] * 20)
    serve([high, low], concurrency=1, dispatch=dispatch)
    assert busy.wait(WAIT)
    for _ in range(3):
        assert high.wait_result(high.offer("x").id, WAIT) == "done"
    stop.set()


def test_what_waits_behind_busy_slots_is_left_to_others(engine: Engine, serve: Serve) -> None:
    """C07: a prefetched job that finds no slot for a while goes back, unstarted, to where another worker gets it."""
    a, b = engine.queue("a"), engine.queue("b")
    busy, leave, done = threading.Event(), threading.Event(), threading.Event()

    @a.handler()
    def block(value: Any) -> None:
        busy.set()
        leave.wait(WAIT)

    @b.handler()
    async def handle(value: Any) -> str:
        done.set()
        return "done"

    serve([b, a], concurrency=1)
    a.offer("x")
    assert busy.wait(WAIT)
    id = b.offer("y").id
    with Engine(engine.url, namespace=engine.namespace) as other:
        other.queue("b").handler()(handle)
        serve("b", engine=other)
        assert b.wait_result(id, WAIT) == "done"
    leave.set()
    (row,) = b.attempts(id)
    assert row.number == 1


@pytest.mark.parametrize("bad", ["unknown", "undecodable"])
def test_twenty_in_a_row_end_the_taking_and_keep_the_rest(
    bad: str, engine: Engine, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """A bad deploy must not empty a queue into quarantine."""
    queue = engine.queue("jobs", int if bad == "undecodable" else Any, policy=QUICK)
    with Engine(engine.url, namespace=engine.namespace) as other:
        other.queue("jobs").offer_many(["text"] * 50)
    closed = threading.Event()
    queue.handler("known")(print)
    if bad == "undecodable":
        queue.handler()(print)
    serving = serve(queue, concurrency=64)
    serving.worker.on_tick = lambda: closed.set() if queue.counts()[JobState.LEASED] == 0 else None
    assert closed.wait(WAIT)
    serving.stop()
    counts = queue.counts()
    assert (counts[JobState.QUARANTINED], counts[JobState.READY]) == (20, 30)
    assert any("no longer taken" in record.getMessage() for record in caplog.records)


def test_good_jobs_between_bad_ones_keep_a_queue_open(queue: Queue[Any], serve: Serve) -> None:
    @queue.handler("good")
    async def handle(value: Any) -> None: ...

    last = None
    for _ in range(3):
        for _ in range(15):
            queue.offer("x", name="bad")
        last = queue.offer("x", name="good").id
    assert last is not None
    serve(queue, concurrency=32)
    queue.wait_result(last, WAIT)
    queue.wait_result(queue.offer("x", name="good").id, WAIT)


def test_the_guard_of_one_queue_leaves_the_others_alone(engine: Engine, serve: Serve) -> None:
    bad, good = engine.queue("bad"), engine.queue("good")
    bad.handler("known")(print)

    @good.handler()
    async def handle(value: Any) -> None: ...

    bad.offer_many(range(30))
    serve([bad, good])
    for offer in good.offer_many(range(30)):
        good.wait_result(offer.id, WAIT)


def test_an_unknown_name_is_released_with_a_delay_if_so_told(queue: Queue[Any], serve: Serve) -> None:
    @queue.handler("known")
    async def handle(value: Any) -> None: ...

    unknown, known = queue.offer("x", name="unknown").id, queue.offer("x", name="known").id
    serve(queue, unknown="release").worker.on_tick = None
    queue.wait_result(known, WAIT)
    gone = threading.Event()
    serve(queue, unknown="release").worker.on_tick = lambda: (
        gone.set() if state_of(queue, unknown) is JobState.SCHEDULED else None
    )
    assert gone.wait(WAIT)
    job = queue.get(unknown)
    assert job is not None
    assert job.due_ms is not None
    assert (job.attempts, job.error) == (0, None)
    assert 0 < job.due_ms - job.created_ms <= 5000 + WAIT * 1000


@pytest.mark.leaves_damage
def test_a_damaged_queue_does_not_stop_the_others(
    engine: Engine, serve: Serve, raw: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    broken, good = engine.queue("broken"), engine.queue("good")

    async def handle(value: Any) -> str:
        return "done"

    for queue in (broken, good):
        queue.handler()(handle)
        queue.offer("x")
    raw.rename(f"{root_of(broken)}:ready", f"{root_of(broken)}:kept")
    raw.set(f"{root_of(broken)}:ready", "no list")
    serve([broken, good], concurrency=2)
    for offer in good.offer_many(range(10)):
        assert good.wait_result(offer.id, WAIT) == "done"
    assert any("broken" in record.getMessage() and "trying again" in record.getMessage() for record in caplog.records)
    raw.delete(f"{root_of(broken)}:ready")
    raw.rename(f"{root_of(broken)}:kept", f"{root_of(broken)}:ready")
    assert broken.wait_result(broken.offer("y").id, 2 * WAIT) == "done"


def test_a_queue_that_is_made_later_is_served_in_its_own_codec(engine: Engine, serve: Serve) -> None:
    queue = engine.queue("later")
    seen = threading.Event()

    @queue.handler()
    async def handle(value: Any) -> None:
        assert value == {"a": 1}
        seen.set()

    looked = threading.Event()
    serve(queue).worker.on_tick = looked.set
    assert looked.wait(WAIT)
    with Engine(engine.url, namespace=engine.namespace) as other:
        other.queue("later", codec="msgpack").offer({"a": 1})
        assert seen.wait(WAIT)


@pytest.mark.leaves_damage
def test_a_queue_that_this_release_can_not_read_does_not_stop_the_others(
    engine: Engine, serve: Serve, raw: redis.Redis
) -> None:
    foreign, good = engine.queue("foreign"), engine.queue("good")
    with Engine(engine.url, namespace=engine.namespace) as other:
        other.queue("foreign").offer("x")
    raw.hset(root_of(foreign), "codec", "cbor")

    async def handle(value: Any) -> str:
        return "done"

    for queue in (foreign, good):
        queue.handler()(handle)
    serve([foreign, good])
    for offer in good.offer_many(range(5)):
        assert good.wait_result(offer.id, WAIT) == "done"


def test_paused_and_resumed(queue: Queue[Any], serve: Serve) -> None:
    @queue.handler()
    async def handle(value: Any) -> str:
        return "done"

    serve(queue)
    queue.wait_result(queue.offer("x").id, WAIT)
    queue.pause()
    id = queue.offer("y").id
    with pytest.raises(TimeoutError):
        queue.wait_result(id, 0.2)
    queue.resume()
    assert queue.wait_result(id, WAIT) == "done"
