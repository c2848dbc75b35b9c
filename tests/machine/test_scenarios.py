"""Scenes that chance seldom plays, told once, and played on a real engine and on the model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from redisq.model import Done, ErrorDetail, Failed, JobState, Released
from redisq.policy import Backoff, Keep, QueuePolicy
from redisq.testing import ManualClock, ReferenceQueue
from tests.machine.compare import must_equal, outcome, plain

if TYPE_CHECKING:
    from tests.support.fronts import OpenEngine

Scene = Callable[["Stage"], None]
SCENES: list[tuple[QueuePolicy, Scene]] = []
START = 1_700_000_000_000


class Stage:
    """One queue, real or not, and what it said."""

    def __init__(self, queue: Any, clock: ManualClock) -> None:
        self.queue = queue
        self.clock = clock
        self.said: list[tuple[str, Any]] = []

    def say(self, call: Callable[[], Any]) -> None:
        self.said.append((f"answer {len(self.said) + 1}", plain(outcome(call))))

    def show(self, state: JobState | None = None, **options: Any) -> None:
        """Which jobs there are, in the order of the listing."""
        ids, cursor = [], None
        while True:
            page = self.queue.jobs(state=state, cursor=cursor, **options)
            ids += [job.id for job in page.items]
            cursor = page.cursor
            if cursor is None:
                break
        self.said.append((f"listing {len(self.said) + 1}", ids))

    def finish(self, count: int, prefix: str = "", **options: Any) -> None:
        """Offers and completes so many jobs, one after the other."""
        for number in range(count):
            self.queue.offer(number, id=f"{prefix}{number:03}", **options)
            self.queue.ack(self.queue.take())

    def die(self, count: int, prefix: str, **options: Any) -> None:
        for number in range(count):
            self.queue.offer(number, id=f"{prefix}{number:03}", **options)
            self.queue.fail(self.queue.take(), ErrorDetail("AB"[number % 2]), final=True)


def scene(**policy: Any) -> Callable[[Scene], Scene]:
    options = {"keep": Keep(), "backoff": Backoff.fixed(0), "lease": 5, **policy}

    def add(told: Scene) -> Scene:
        SCENES.append((QueuePolicy(**options), told))
        return told

    return add


@pytest.mark.parametrize(("policy", "told"), SCENES, ids=[told.__name__ for _, told in SCENES])
def test_both_say_the_same(open_engine: OpenEngine, policy: QueuePolicy, told: Scene) -> None:
    clock = ManualClock(START)
    real = Stage(open_engine(clock=clock, worker="w").queue("jobs", policy=policy), clock)
    told(real)
    clock = ManualClock(START)
    model = Stage(ReferenceQueue("jobs", clock, policy, worker="w"), clock)
    told(model)
    for (what, said), (_, expected) in zip(real.said, model.said, strict=True):
        must_equal(what, said, expected)


@scene()
def one_settle_prunes_a_bounded_number_and_the_sweep_the_rest(stage: Stage) -> None:
    stage.finish(30)
    stage.queue.alter(QueuePolicy(keep=Keep(count=2)))
    stage.finish(1, "last")
    stage.show()
    for _ in range(6):
        stage.say(lambda: stage.queue.maintain(5))
        stage.show()


@scene()
def a_batch_prunes_twice_its_size_and_ten(stage: Stage) -> None:
    stage.finish(40)
    stage.queue.alter(QueuePolicy(keep=Keep(count=2)))
    stage.queue.offer_many(range(4))
    stage.say(lambda: stage.queue.ack_many(stage.queue.take_many(4)))
    stage.say(stage.queue.counts)


@scene()
def a_batch_of_two_endings_has_one_bound(stage: Stage) -> None:
    stage.finish(40)
    stage.die(30, "d")
    stage.queue.alter(QueuePolicy(keep=Keep(count=2)))
    stage.queue.offer_many(range(4))
    one, two, three, four = stage.queue.take_many(4)
    settlements = [Done(one), Failed(two, "x", final=True), Done(three), Failed(four, "x", final=True)]
    stage.say(lambda: stage.queue.exchange(settlements, 0))
    stage.say(lambda: sum(stage.queue.counts().values()))


@scene(keep=Keep(count=2), max_attempts=1)
def final_lapses_are_older_than_they_look(stage: Stage) -> None:
    for number in range(6):
        stage.queue.offer(number, id=f"{number}")
    stage.queue.take_many(3)
    stage.clock.advance(1)
    for delivery in stage.queue.take_many(3)[:2]:
        stage.queue.fail(delivery, "x")
    stage.clock.advance(20)
    stage.say(lambda: stage.queue.maintain(100))
    stage.show()


@scene(keep=Keep(age=5), max_attempts=1, dedup=100)
def a_lapse_can_be_past_its_age_at_once(stage: Stage) -> None:
    for number in range(3):
        stage.queue.offer(number, id=f"{number}")
    stage.queue.take_many(3)
    stage.clock.advance(20)
    stage.say(lambda: stage.queue.maintain(100))
    stage.show()
    stage.say(lambda: stage.queue.offer(1, id="1"))
    stage.clock.advance(85)
    stage.say(lambda: stage.queue.offer(1, id="2"))
    stage.say(lambda: stage.queue.maintain(100))


@scene(keep=Keep(age=2))
def own_keeps_do_not_stop_the_sweep(stage: Stage) -> None:
    stage.finish(7, "own", keep=None)
    stage.clock.advance(1)
    stage.finish(1, "last")
    stage.clock.advance(60)
    pending = True
    while pending:
        pending = stage.queue.maintain(1).pending
    stage.show()


@scene(keep=Keep(count=2))
def the_sweep_goes_by_the_count_of_the_queue_after_alter(stage: Stage) -> None:
    stage.finish(5, keep=None)
    stage.say(stage.queue.maintain)
    stage.queue.alter(QueuePolicy(keep=Keep(count=3)))
    stage.say(stage.queue.maintain)
    stage.show()


@scene(keep=Keep(age=5), dedup=6)
def each_category_has_its_own_limit(stage: Stage) -> None:
    stage.finish(7)
    for number in range(7):
        stage.queue.offer(number, id=f"l{number}")
    stage.queue.take_many(7)
    for number in range(7):
        stage.queue.offer(number, id=f"d{number}", delay=3)
    stage.clock.advance(10)
    for _ in range(9):
        stage.say(lambda: stage.queue.maintain(2))
        stage.show()


@scene(keep=Keep(count=0), dedup=5)
def the_memory_of_an_id_goes_by_the_policy_as_it_stands(stage: Stage) -> None:
    stage.finish(3)
    stage.queue.alter(QueuePolicy(dedup=50))
    stage.clock.advance(5)
    stage.say(lambda: stage.queue.offer(1, id="000"))
    stage.say(lambda: stage.queue.remove("001"))
    stage.queue.alter(QueuePolicy(dedup=0))
    stage.say(lambda: stage.queue.offer(1, id="002"))
    stage.say(stage.queue.maintain)


@scene(max_attempts=1)
def bulk_operations_take_several_steps(stage: Stage) -> None:
    stage.die(130, "n", name="n")
    stage.die(130, "m")
    stage.say(lambda: stage.queue.errors(JobState.DEAD))
    stage.say(lambda: stage.queue.retry_many(JobState.DEAD, name="n", error="A"))
    stage.show(JobState.READY)
    stage.say(lambda: stage.queue.purge(JobState.DEAD, name=""))
    stage.say(lambda: stage.queue.purge(JobState.READY))
    stage.say(lambda: stage.queue.offer(1, id="n000"))
    stage.say(stage.queue.counts)


@scene(max_attempts=99)
def details_are_cut_alike(stage: Stage) -> None:
    details = [
        ErrorDetail("E", "m" * 20_000, "tb"),
        ErrorDetail("E", "m" * 20, "t" * 20_000 + "end"),
        ErrorDetail("E", "é" * 4090, "ü" * 20_000),
        ErrorDetail("E" * 256, "é" * 511, "ü" * 300),
    ]
    for number, detail in enumerate(details):
        id = f"{number}"
        stage.queue.offer(1, id=id)
        stage.queue.fail(stage.queue.take(), detail, final=True)
        for look in (stage.queue.get, stage.queue.attempts, stage.queue.history):
            stage.say(partial(look, id))


@scene(backoff=Backoff.exponential(base=3, factor=1.7, cap=50, jitter=0.7), max_attempts=1_000_000)
def jitter_is_the_same_everywhere(stage: Stage) -> None:
    for id in ("a", "é", "0"):
        stage.queue.offer(1, id=id)
        for _ in range(8):
            stage.say(lambda: stage.queue.fail(stage.queue.take(), "x"))
            stage.queue.promote(id)
        stage.queue.remove(id)


@scene()
def a_delay_may_be_a_hundred_years(stage: Stage) -> None:
    stage.queue.alter(QueuePolicy(backoff=Backoff.exponential(factor=1000, cap=100 * 365 * 86_400)))
    stage.say(lambda: stage.queue.offer(1, id="a", delay=100 * 365 * 86_400))
    for _ in range(5):
        stage.queue.promote("a")
        stage.say(lambda: stage.queue.fail(stage.queue.take(), "x"))


@scene()
def any_text_is_an_id_and_a_name(stage: Stage) -> None:
    texts = [
        "\x00",
        "\n",
        "a:b",
        "{x}",
        "é" * 128,
        " ",
        "x" * 256,
        "-",
        "+inf",
        "(a",
        "[b",
        "0",
        "1e5",
        "%s",
        '"',
        "a,b",
    ]
    for each in texts:
        stage.queue.offer(each, id=each, name=each, delay=1, metadata={each: each})
    stage.clock.advance(1)
    stage.say(lambda: [delivery.id for delivery in stage.queue.take_many(100)])
    for each in texts:
        stage.say(partial(stage.queue.cancel, each))
    stage.clock.advance(100)
    stage.say(stage.queue.maintain)
    stage.show(JobState.CANCELLED, limit=3)
    for each in texts:
        stage.say(partial(stage.queue.get, each))
        stage.show(name=each)


@scene()
def settlements_of_one_job_in_one_batch(stage: Stage) -> None:
    for number in range(4):
        stage.queue.offer(number, id=f"{number}", priority=number % 2)
    one, two, three, four = stage.queue.take_many(4)
    batch = [Released(one), Done(one), Released(one, 5), Failed(two, "x"), Failed(two, "y", final=True)]
    stage.say(lambda: stage.queue.exchange([*batch, Released(three, 1), Released(four), four], 4))
    stage.show()


@scene(lease=1)
def a_paused_take_does_nothing(stage: Stage) -> None:
    stage.queue.offer(1, id="a")
    stage.queue.take()
    stage.queue.offer(1, id="b", delay=1)
    stage.queue.pause()
    stage.clock.advance(5)
    stage.say(stage.queue.take)
    stage.say(stage.queue.counts)
    stage.say(stage.queue.maintain)
    stage.say(stage.queue.info)


@scene(max_attempts=1)
def errors_of_every_kind(stage: Stage) -> None:
    for number, error in enumerate(["text", ValueError("v"), KeyError("k")]):
        stage.queue.offer(1, id=f"{number}")
        stage.queue.fail(stage.queue.take(), error)
    stage.queue.offer(1, id="aside")
    stage.queue.quarantine(stage.queue.take(), "why")
    stage.queue.offer(1, id="lapsed")
    stage.queue.take()
    stage.clock.advance(99)
    stage.queue.maintain()
    for id in ("0", "1", "2", "aside", "lapsed"):
        error = stage.queue.get(id).error
        stage.said.append((f"error of {id}", (error.type, error.message)))
    for state in (JobState.DEAD, JobState.QUARANTINED):
        stage.say(partial(stage.queue.errors, state))
