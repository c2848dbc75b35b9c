"""Last answers: a repeated call is answered again, a late copy of an older one is refused (MECHANISMS 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import pytest
import redis

from redisq import Engine, Failed, Failure, JobState, NewJob, Queue, QueuePolicy
from redisq.calls import Call, consume, operate, produce
from redisq.calls.consume import Taken
from redisq.calls.core import QueueCore
from redisq.testing import ManualClock
from tests.jobs.steps import ids, walked
from tests.scripts.direct import contents, run
from tests.support.servers import Server

T = TypeVar("T")
SLOT, OTHER = "caller.0", "caller.1"


class Direct:
    """Sends calls on the queue "jobs" with slot and number given by hand."""

    def __init__(self, raw: redis.Redis, namespace: str, clock: ManualClock, core: QueueCore) -> None:
        self.raw = raw
        self.clock = clock
        self.core = core
        self._namespace = namespace

    def __call__(self, call: Call[T], number: int, *, slot: str = SLOT) -> T:
        name, key = call.script.name, call.key
        return call.decode(run(self.raw, name, key, *call.args, now=self.clock.now_ms, slot=slot, number=number))

    def take(self, limit: int = 1, lease: int = 30_000) -> Call[Taken]:
        return consume.take(self.core, limit, lease)

    def exchange(self, settlements: Sequence[Any], limit: int = 1, lease: int = 30_000) -> Call[Any]:
        return consume.exchange(self.core, settlements, limit, lease)

    def offer(self, *ids: str) -> Call[Any]:
        return produce.offers(self.core, [produce.encode(self.core, NewJob("x", id=id), id) for id in ids])

    def sweep(self, rounds: int = 20) -> None:
        for _ in range(rounds):
            self(operate.maintain(self.core), 1, slot="sweeper")

    def answers(self) -> list[str]:
        keys: Any = self.raw.hkeys(self.core.root)
        return [key.decode() for key in keys if key.startswith(b"s.")]

    def contents(self) -> dict[str, Any]:
        return contents(self.raw, self._namespace)


@pytest.fixture
def engine(server: Server, namespace: str, clock: ManualClock) -> Iterator[Engine]:
    with Engine(server.url, namespace=namespace, clock=clock) as engine:
        yield engine


@pytest.fixture
def queue(engine: Engine) -> Queue[Any]:
    """Five jobs are ready."""
    queue = engine.queue("jobs")
    queue.offer_many(range(5))
    return queue


@pytest.fixture
def direct(raw: redis.Redis, namespace: str, clock: ManualClock, queue: Queue[Any]) -> Direct:
    return Direct(raw, namespace, clock, queue._core)


def tokens(taken: Taken) -> list[str]:
    return [each.token for each in taken.deliveries]


@pytest.mark.every_server
@pytest.mark.real_server
def test_a_repeated_take_gives_the_same_leases(direct: Direct) -> None:
    take = direct.take(2)
    first = direct(take, 1)
    before = direct.contents()
    assert direct(take, 1) == first
    assert direct.contents() == before
    assert len({*tokens(first), *tokens(direct(direct.take(2), 2))}) == 4


def test_a_repeated_take_gives_what_is_still_held(direct: Direct, queue: Queue[Any]) -> None:
    take = direct.take(3)
    held = direct(take, 1).deliveries
    queue.ack(held[1])
    assert direct(take, 1).deliveries == [held[0], held[2]]


def test_a_repeated_take_whose_leases_ran_out_takes_afresh(direct: Direct, clock: ManualClock) -> None:
    take = direct.take(5)
    first = direct(take, 1)
    clock.advance(30)
    assert direct(take, 1).deliveries == []
    clock.advance(1)
    again = direct(take, 1)
    assert len(again.deliveries) == 5
    assert not {*tokens(first)} & {*tokens(again)}


@pytest.mark.every_server
@pytest.mark.real_server
def test_a_late_copy_of_a_take_is_refused(direct: Direct) -> None:
    for slot, call, later in ((SLOT, direct.take(), direct.take()), (OTHER, direct.exchange([]), direct.exchange([]))):
        direct(call, 5, slot=slot)
        direct(later, 6, slot=slot)
        before = direct.contents()
        with pytest.raises(redis.ResponseError, match="STALE"):
            direct(call, 5, slot=slot)
        assert direct.contents() == before


def test_a_late_copy_of_any_write_is_refused(direct: Direct) -> None:
    core = direct.core
    (held,) = direct(direct.take(), 1).deliveries
    direct(direct.offer("new"), 9)
    before = direct.contents()
    late: list[Call[Any]] = [
        direct.take(),
        direct.exchange([held]),
        direct.offer("newer"),
        consume.ack(core, held),
        consume.fail(core, held, "no"),
        consume.release(core, held),
        consume.quarantine(core, held, "no"),
        consume.renew(core, held, 60),
        consume.renew_many(core, [held], 60_000),
        consume.ack_many(core, [held]),
        operate.cancel(core, held.id),
        operate.retry(core, held.id),
        operate.promote(core, held.id),
        operate.remove(core, "new"),
        operate.pause(core),
        operate.resume(core),
        operate.alter(core, QueuePolicy(lease=3)),
        operate.maintain(core),
    ]
    for call in late:
        with pytest.raises(redis.ResponseError, match="STALE"):
            direct(call, 8)
        assert direct.contents() == before, call.operation


def test_slots_are_apart(direct: Direct) -> None:
    found = [direct(direct.take(), 7), direct(direct.take(), 3, slot=OTHER), direct(direct.take(), 8)]
    assert len({token for each in found for token in tokens(each)}) == 3


def test_an_idle_take_writes_nothing(direct: Direct) -> None:
    assert len(direct(direct.take(5), 1).deliveries) == 5
    before = direct.contents()
    assert direct(direct.take(5), 2).deliveries == []
    assert direct(direct.take(5), 1, slot=OTHER).deliveries == []
    answers, found = direct(direct.exchange([], 5), 3)
    assert (answers, found.deliveries) == ([], [])
    assert direct.contents() == before


def test_an_idle_sweep_writes_no_answer(direct: Direct) -> None:
    before = direct.answers()
    assert direct(operate.maintain(direct.core), 1).processed == 0
    assert direct.answers() == before


def test_a_repeated_sweep_answers_as_the_first_did(direct: Direct, queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer_many([NewJob("x", delay=1) for _ in range(4)])
    clock.advance(1)
    sweep = operate.maintain(direct.core, 2)
    first = direct(sweep, 1)
    assert (first.processed, first.pending) == (2, True)
    assert direct(sweep, 1) == first
    assert queue.counts()[JobState.SCHEDULED] == 2


@pytest.mark.every_server
@pytest.mark.real_server
def test_a_repeated_offer_answers_as_the_first_did(direct: Direct) -> None:
    offer = direct.offer("one", "two")
    first = direct(offer, 1)
    assert [each.duplicate for each in first] == [False, False]
    before = direct.contents()
    assert direct(offer, 1) == first
    assert direct.contents() == before
    # another call finds duplicates
    assert [each.duplicate for each in direct(offer, 2)] == [True, True]


@pytest.mark.every_server
@pytest.mark.real_server
def test_a_repeated_exchange_answers_as_the_first_did(direct: Direct, queue: Queue[Any]) -> None:
    exchange = direct.exchange(queue.take_many(2), 2)
    first = direct(exchange, 4)
    assert first[0] == ["acknowledged", "acknowledged"]
    before = direct.contents()
    assert direct(exchange, 4) == first
    assert direct.contents() == before


def test_a_repeated_exchange_whose_leases_ran_out_settles_nothing_again(
    direct: Direct, queue: Queue[Any], clock: ManualClock
) -> None:
    (held,) = queue.take_many(1)
    exchange = direct.exchange([Failed(held, "no", retry_in=0)], 1, 1000)
    first = direct(exchange, 4)
    clock.advance(2)
    again = direct(exchange, 4)
    assert again[0] == first[0] == [Failure(JobState.READY)]
    assert len(queue.attempts(held.id)) == 1


def undo(call: Call[Any]) -> Call[int]:
    assert call.undo is not None
    return call.undo


@pytest.mark.every_server
@pytest.mark.real_server
def test_what_a_take_took_is_given_back(direct: Direct, queue: Queue[Any]) -> None:
    before, order = queue.counts(), ids(walked(queue, state="ready"))
    take = direct.take(3)
    direct(take, 1)
    assert direct(undo(take), 1) == 3
    assert queue.counts() == before
    # to the head, in their order, and at no cost
    assert ids(walked(queue, state="ready")) == order
    assert {each.attempt for each in queue.take_many(5)} == {1}


def test_what_an_exchange_took_is_given_back_and_what_it_settled_stays(direct: Direct, queue: Queue[Any]) -> None:
    exchange = direct.exchange(queue.take_many(1), 2)
    answers, found = direct(exchange, 1)
    assert (answers, len(found.deliveries)) == (["acknowledged"], 2)
    assert direct(undo(exchange), 1) == 2
    counts = queue.counts()
    assert (counts[JobState.COMPLETED], counts[JobState.LEASED], counts[JobState.READY]) == (1, 0, 4)


@pytest.mark.every_server
@pytest.mark.real_server
def test_a_take_that_comes_after_its_give_back_is_refused(direct: Direct, queue: Queue[Any]) -> None:
    take = direct.take(3)
    assert direct(undo(take), 1) == 0
    before = direct.contents()
    with pytest.raises(redis.ResponseError, match="STALE"):
        direct(take, 1)
    assert direct.contents() == before
    assert queue.counts()[JobState.LEASED] == 0
    # the next number but one is the caller's next call
    assert len(direct(direct.take(3), 3).deliveries) == 3


def test_a_give_back_takes_nothing_from_a_newer_call(direct: Direct, queue: Queue[Any]) -> None:
    take = direct.take()
    direct(take, 1)
    direct(direct.take(), 2)
    with pytest.raises(redis.ResponseError, match="STALE"):
        direct(undo(take), 1)
    assert queue.counts()[JobState.LEASED] == 2


def test_a_give_back_takes_nothing_from_the_next_holder(direct: Direct, queue: Queue[Any], clock: ManualClock) -> None:
    take = direct.take(2, 1000)
    direct(take, 1)
    clock.advance(2)
    others = queue.take_many(5)
    assert len(others) == 5
    direct(undo(take), 1)
    assert queue.counts()[JobState.LEASED] == 5
    assert {*queue.ack_many(others)} == {"acknowledged"}


def test_answers_are_swept_once_nobody_repeats_them(direct: Direct, clock: ManualClock) -> None:
    for number in range(200):
        direct(operate.cancel(direct.core, "nobody"), 1, slot=f"gone.{number}")
    clock.advance(59)
    direct.sweep()
    assert len(direct.answers()) >= 200
    clock.advance(2)
    direct.sweep()
    assert direct.answers() == []


def test_an_answer_lives_as_long_as_its_leases(direct: Direct, clock: ManualClock) -> None:
    take = direct.take(2, 600_000)
    first = direct(take, 1)
    clock.advance(599)
    direct.sweep()
    assert tokens(direct(take, 1)) == tokens(first)


@pytest.mark.parametrize("stored", ["", "garbage", "9", "9|", "x|1|y", "9|1"])
def test_a_damaged_answer_is_no_answer(stored: str, direct: Direct) -> None:
    direct.raw.hset(direct.core.root, f"s.{SLOT}", stored)
    assert len(direct(direct.take(2), 9).deliveries) == 2


def test_one_client_needs_one_slot(queue: Queue[Any], direct: Direct) -> None:
    for _ in range(50):
        for each in queue.take_many(2):
            queue.release(each)
    assert len(direct.answers()) == 1


@pytest.mark.every_server
@pytest.mark.real_server
def test_a_sweep_that_removes_old_answers_keeps_its_own(direct: Direct, queue: Queue[Any]) -> None:
    """Its caller's last answer is old enough to go when this one is written."""
    direct(direct.offer("first"), 1)
    queue.offer("due", id="due", delay=61)
    direct.clock.advance(61)
    first = direct(operate.maintain(direct.core), 2)
    assert first.by_category["due"] == 1
    before = direct.contents()
    assert direct(operate.maintain(direct.core), 2) == first
    assert direct.contents() == before
