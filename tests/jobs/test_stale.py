"""A token that lost its lease is refused by every verb, and nothing comes back to life (SPEC 3.3, 3.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from redisq import (
    Ack,
    Backoff,
    Delivery,
    Done,
    Engine,
    Failed,
    JobState,
    Keep,
    LeaseLost,
    Queue,
    QueuePolicy,
    Released,
)
from redisq.testing import ManualClock
from tests.jobs.steps import taken


class Verb(NamedTuple):
    """One way to settle or renew: raises LeaseLost, or answers with a word."""

    name: str
    run: Callable[[Any, Delivery], Any]
    batch: bool = False


VERBS = [
    Verb("ack", lambda queue, delivery: queue.ack(delivery, "late")),
    Verb("ack_many", lambda queue, delivery: queue.ack_many([delivery])[0], True),
    Verb("renew", lambda queue, delivery: queue.renew(delivery, 600)),
    Verb("renew_many", lambda queue, delivery: queue.renew_many([delivery], 600)[0], True),
    Verb("release", lambda queue, delivery: queue.release(delivery)),
    Verb("release later", lambda queue, delivery: queue.release(delivery, delay=5)),
    Verb("fail", lambda queue, delivery: queue.fail(delivery, "late")),
    Verb("fail finally", lambda queue, delivery: queue.fail(delivery, "late", final=True)),
    Verb("quarantine", lambda queue, delivery: queue.quarantine(delivery, "late")),
    Verb("exchange done", lambda queue, delivery: queue.exchange([Done(delivery, "late")], 0)[0][0], True),
    Verb("exchange plain", lambda queue, delivery: queue.exchange([delivery], 0)[0][0], True),
    Verb("exchange failed", lambda queue, delivery: queue.exchange([Failed(delivery, "late")], 0)[0][0], True),
    Verb("exchange released", lambda queue, delivery: queue.exchange([Released(delivery)], 0)[0][0], True),
]


each_verb = pytest.mark.parametrize("verb", VERBS, ids=[verb.name for verb in VERBS])


def refused(queue: Queue[Any], delivery: Delivery, *but: str, gone: bool = False) -> None:
    """Every verb is refused, and nothing that can be seen of the queue changes.

    `but`: the verbs whose own first answer the situation repeats (see test_repeats.py).
    """
    before = seen(queue, delivery.id)
    for verb in VERBS:
        if verb.name in but:
            continue
        answers_gone = gone and (verb.batch or verb.name == "ack")
        wanted = Ack.GONE if answers_gone else Ack.LEASE_LOST if verb.batch else LeaseLost
        try:
            answer = verb.run(queue, delivery)
        except LeaseLost as error:
            assert delivery.id in str(error)
            answer = LeaseLost
        assert answer is wanted, f"{verb.name}: {answer}"
        assert seen(queue, delivery.id) == before, f"{verb.name} changed something"


def seen(queue: Queue[Any], id: str) -> Any:
    return queue.get(id), queue.attempts(id), queue.history(id), queue.info(), queue.counts()


@pytest.fixture
def jobs(engine: Engine) -> Queue[Any]:
    """A queue whose lapses go straight back to ready."""
    return engine.queue("jobs", policy=QueuePolicy(backoff=Backoff.fixed(0)))


@pytest.mark.every_server
@pytest.mark.parametrize("past", [0, 0.001, 3600])
def test_after_the_lease_s_end_before_the_lapse_is_noticed(jobs: Queue[Any], clock: ManualClock, past: float) -> None:
    """At now == expires the lease is lost, whether or not anyone has re-taken the job."""
    jobs.offer("x")
    delivery = taken(jobs, lease=30)
    clock.advance(30 + past)
    refused(jobs, delivery)


@each_verb
def test_one_millisecond_before_its_end_the_lease_holds(jobs: Queue[Any], clock: ManualClock, verb: Verb) -> None:
    jobs.offer("x")
    delivery = taken(jobs, lease=30)
    clock.advance(29.999)
    assert verb.run(jobs, delivery) not in (Ack.LEASE_LOST, Ack.GONE)


@pytest.mark.every_server
def test_after_the_lapse_was_noticed(jobs: Queue[Any], clock: ManualClock) -> None:
    jobs.offer("x")
    delivery = taken(jobs, lease=30)
    clock.advance(30)
    assert jobs.maintain().by_category["lapsed"] == 1
    refused(jobs, delivery)


def test_after_a_lapse_into_a_wait(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer("x")
    delivery = taken(queue, lease=30)
    clock.advance(30)
    queue.maintain()
    assert queue.counts()[JobState.SCHEDULED] == 1
    refused(queue, delivery)


def test_after_the_final_lapse(queue: Queue[Any], clock: ManualClock) -> None:
    """effect-mq 9: the old token can't ack."""
    queue.offer("x", max_attempts=1)
    delivery = taken(queue, lease=30)
    clock.advance(30)
    queue.maintain()
    assert queue.counts()[JobState.DEAD] == 1
    refused(queue, delivery)


@pytest.mark.every_server
def test_after_the_job_was_taken_again_by_the_same_worker(jobs: Queue[Any], clock: ManualClock) -> None:
    """effect-mq 10 and 49: the late worker is refused, the new owner's state is intact, whoever that is."""
    jobs.offer("x")
    stale = taken(jobs, lease=30)
    clock.advance(30)
    owner = taken(jobs)
    refused(jobs, stale)
    assert jobs.ack(owner) is Ack.ACKNOWLEDGED


@pytest.mark.every_server
def test_a_wrong_token_is_no_token(jobs: Queue[Any]) -> None:
    """effect-mq 5: a wrong token's ack is refused, the job is still active and the cancel flag still set."""
    jobs.offer("x")
    owner = taken(jobs)
    jobs.cancel(owner.id)
    stamp, _, nonce = owner.token.partition("-")
    wrong = [f"{int(stamp) + 1}-{nonce}", f"{stamp}-{nonce[:-1]}", stamp, owner.token + "x", owner.token[1:], ","]
    for token in wrong:
        refused(jobs, msgspec.structs.replace(owner, token=token))
    job = jobs.get(owner.id)
    assert job is not None
    assert (job.state, job.cancel_requested) == ("leased", True)
    assert jobs.ack(owner) is Ack.ACKNOWLEDGED


@pytest.mark.every_server
def test_after_a_release(jobs: Queue[Any]) -> None:
    """A released token is dead at once for every other verb."""
    jobs.offer("x")
    delivery = taken(jobs)
    jobs.release(delivery)
    refused(jobs, delivery, "release", "exchange released", "release later")


@pytest.mark.parametrize("final", [False, True])
def test_after_a_failure(jobs: Queue[Any], final: bool) -> None:
    jobs.offer("x")
    delivery = taken(jobs)
    jobs.fail(delivery, "broken", final=final)
    refused(jobs, delivery, "fail", "fail finally", "exchange failed")


def test_after_a_quarantine(jobs: Queue[Any]) -> None:
    jobs.offer("x")
    delivery = taken(jobs)
    jobs.quarantine(delivery, "poison")
    refused(jobs, delivery, "quarantine")


def test_after_an_ack(jobs: Queue[Any]) -> None:
    jobs.offer("x")
    delivery = taken(jobs)
    jobs.ack(delivery)
    refused(jobs, delivery, "ack", "ack_many", "exchange done", "exchange plain")


@pytest.mark.every_server
def test_after_the_removal_nothing_comes_back_to_life(jobs: Queue[Any], clock: ManualClock) -> None:
    """effect-mq 5: an unknown id; persistedqueue c: a worker whose lock lapsed can not re-queue a job."""
    jobs.offer("x")
    delivery = taken(jobs)
    jobs.ack(delivery)
    assert jobs.remove(delivery.id)
    refused(jobs, delivery, gone=True)
    assert jobs.get(delivery.id) is None
    clock.advance(3600)
    jobs.maintain()
    assert jobs.take() is None
    assert set(jobs.counts().values()) == {0}


def test_after_a_lapse_and_the_removal(jobs: Queue[Any], clock: ManualClock) -> None:
    jobs.offer("x")
    delivery = taken(jobs, lease=1)
    clock.advance(1)
    jobs.maintain()
    assert jobs.remove(delivery.id)
    refused(jobs, delivery, gone=True)
    assert jobs.take() is None


def test_after_retention_removed_it(engine: Engine) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(count=0)))
    queue.offer("x")
    delivery = taken(queue)
    queue.ack(delivery)
    refused(queue, delivery, gone=True)


@pytest.mark.every_server
@pytest.mark.parametrize("state", ["ready", "leased", "completed"])
def test_the_old_token_of_a_used_again_id_is_refused(jobs: Queue[Any], state: str) -> None:
    """SPEC 3.7: LeaseLost from every verb, an ack too."""
    jobs.offer("old", id="x")
    old = taken(jobs)
    jobs.ack(old)
    jobs.remove("x")
    jobs.offer("new", id="x")
    if state != "ready":
        new = taken(jobs)
        if state == "completed":
            jobs.ack(new)
    refused(jobs, old)


def test_a_queue_that_does_not_exist_knows_no_lease(engine: Engine, keys: Callable[..., list[str]]) -> None:
    queue = engine.queue("jobs")
    delivery = msgspec.structs.replace(forged(), queue="jobs")
    refused(queue, delivery, gone=True)
    assert keys() == []


def forged() -> Delivery:
    return Delivery(
        id="x", name="", value=None, attempt=1, max_attempts=1, priority=0, token="1-abcdefghijk", fence=1,
        expires_ms=1, created_ms=1, timeout_ms=None, metadata={}, queue="jobs",
    )  # fmt: skip


@each_verb
def test_an_empty_token_is_refused(jobs: Queue[Any], verb: Verb) -> None:
    jobs.offer("x")
    owner = taken(jobs)
    jobs.release(owner)
    jobs.promote(owner.id)
    with pytest.raises(ValueError, match="token"):
        verb.run(jobs, msgspec.structs.replace(owner, token=""))


@pytest.mark.every_server
def test_one_stale_token_in_a_batch_stops_none_of_the_others(jobs: Queue[Any], clock: ManualClock) -> None:
    jobs.offer_many(range(5))
    stale = taken(jobs, lease=1)
    live = jobs.take_many(4)
    clock.advance(1)
    assert jobs.ack_many([live[0], stale, live[1]]) == ["acknowledged", "lease-lost", "acknowledged"]
    answers, found = jobs.exchange([Failed(stale, "late"), live[2], Done(live[3], "r")], 5)
    assert answers == ["lease-lost", "acknowledged", "acknowledged"]
    assert [(each.id, each.attempt) for each in found] == [(stale.id, 2)]
