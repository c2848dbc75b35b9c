"""Every stored field of a job queue replaced: the other jobs go on, and only refusals come out."""

from __future__ import annotations

from typing import Any

import pytest

from redisq import Backoff, Delivery, Done, Engine, Failed, JobState, Queue, QueuePolicy, Released
from redisq.testing import ManualClock, check
from tests.fuzz.nasty import MEMBERS, Trial, entries, some_spoilings

pytestmark = [pytest.mark.leaves_damage, pytest.mark.timeout(300)]

GOOD = {f"good{number}" for number in range(4)}


class Struck(Trial):
    """A queue with jobs in every state, and four good ones; one thing is replaced at a time."""

    def __init__(self, engine: Engine, raw: Any, clock: ManualClock, name: str) -> None:
        super().__init__()
        self.raw = raw
        self.clock = clock
        self.queue: Queue[Any] = engine.queue(name)
        self.root = self.queue._core.root

    def furnish(self) -> dict[str, Delivery]:
        """One bad job a state, with as many columns as a job can have; the deliveries of those that were taken."""
        queue, held = self.queue, {}
        queue.alter(QueuePolicy(backoff=Backoff.fixed(1), max_attempts=3, history_ttl=86_400))
        queue.offer("x", id="done", priority=9)
        queue.offer("x", id="dead", priority=8, metadata={"a": "b"})
        queue.offer("x", id="aside", priority=7)
        queue.offer("x", id="held", priority=6, max_attempts=7, timeout=9, metadata={"a": "b"})
        queue.offer("x", id="again", priority=5)
        for delivery in queue.take_many(5, lease=20):
            held[delivery.id] = delivery
        queue.ack(held["done"], {"a": 1})
        queue.fail(held["dead"], ValueError("no"), final=True)
        queue.quarantine(held["aside"], "poison")
        queue.fail(held["again"], ValueError("no"), retry_in=0)
        queue.offer("x", id="later", delay=10)
        queue.offer("x", id="stopped", delay=10)
        queue.cancel("stopped")
        queue.offer("x", id="first", priority=3)
        queue.offer("x", id="ready")
        return held

    def offer_good(self) -> None:
        options: list[dict[str, Any]] = [{}, {"priority": 2}, {"delay": 5}, {"priority": -2}]
        for number, given in enumerate(options):
            self.queue.offer("good", id=f"good{number}", **given)

    def everything(self, id: str, held: dict[str, Delivery]) -> None:
        """Every verb on the job, and on the queue."""
        queue = self.queue
        for look in (queue.get, queue.attempts, queue.history):
            self.try_out(look.__name__, lambda look=look: look(id))  # type: ignore[misc]
        self.try_out("counts", queue.counts)
        self.try_out("info", queue.info)
        self.try_out("errors", lambda: queue.errors("dead"))
        self.try_out("check", lambda: check(queue))
        for state in (*JobState, None):
            self.try_out(f"jobs {state}", lambda state=state: queue.jobs(state=state, limit=100))  # type: ignore[misc]
        self.try_out("wait_result", lambda: self._no_timeout(id))
        if id in held:
            self.try_out("renew", lambda: queue.renew(held[id]))
            self.try_out("renew_many", lambda: queue.renew_many([held[id]]))
            self.try_out("exchange", lambda: queue.exchange([Released(held[id], 1)], 0))
            self.try_out("exchange", lambda: queue.exchange([Failed(held[id], "no")], 0))
            self.try_out("ack", lambda: queue.ack(held[id], 1))
        self.try_out("offer", lambda: queue.offer("x", id=id))
        for verb in (queue.cancel, queue.promote, queue.retry):
            self.try_out(verb.__name__, lambda verb=verb: verb(id))  # type: ignore[misc]

    def _no_timeout(self, id: str) -> None:
        try:
            self.queue.wait_result(id, 0)
        except TimeoutError:
            return

    def flow(self) -> set[str]:
        """Takes, settles and maintains until nothing comes any more; the good jobs that came."""
        seen: set[str] = set()
        for _ in range(3):
            for _ in range(6):
                found = self.try_out("take", lambda: self.queue.take_many(6, lease=20)) or []
                seen |= {each.id for each in found}
                items = [Done(each, 1) if each.id in GOOD else Failed(each, "no") for each in found]
                self.try_out("exchange", lambda items=items: self.queue.exchange(items, 0))  # type: ignore[misc]
                if not found:
                    break
            self.try_out("maintain", self.queue.maintain)
            self.clock.advance(25)
        return seen & GOOD

    def operate(self, id: str) -> None:
        queue = self.queue
        self.try_out("retry_many", lambda: queue.retry_many("dead"))
        self.try_out("purge", lambda: queue.purge("dead"))
        self.try_out("remove", lambda: queue.remove(id))
        self.try_out("check", lambda: check(queue))
        self.try_out("delete", lambda: queue.delete(force=True))


def columns(raw: Any, root: str) -> dict[str, list[bytes]]:
    """The hash columns of a queue, each with its fields."""
    keys = [key for key in raw.scan_iter(match=f"{root}*", count=1000) if raw.type(key) == b"hash"]
    return {key.decode().removeprefix(root): list(raw.hkeys(key)) for key in sorted(keys)}


JOBS = ("done", "dead", "aside", "held", "again", "later", "stopped", "first", "ready")
COLUMNS = ("head", "body", "meta", "lease", "result", "error", "attempts", "history")


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("id", JOBS)
def test_a_field_of_a_job(id: str, column: str, engine: Engine, raw: Any, clock: ManualClock) -> None:
    """Whatever a field of one job holds: refusals at most, and the good jobs come."""
    probe = Struck(engine, raw, clock, "probe")
    probe.furnish()
    stored: Any = raw.hget(f"{probe.root}:{column}", id)
    if stored is None:
        pytest.skip("a job in this state has none")
    problems = []
    for number, (name, data) in enumerate(some_spoilings(stored, JOBS.index(id)).items()):
        struck = Struck(engine, raw, clock, f"jobs{number}")
        held = struck.furnish()
        struck.offer_good()
        raw.hset(f"{struck.root}:{column}", id, data)
        struck.everything(id, held)
        came = struck.flow()
        struck.operate(id)
        problems += [f"{name}: {each}"[:400] for each in struck.escaped]
        if came != GOOD:
            problems.append(f"{name}: {sorted(GOOD - came)} never came")
    assert problems == []


@pytest.mark.parametrize("column", ["ranked", "sched", "leased", "completed", "dead", "cancelled", "quarantined"])
def test_a_place_in_an_index(column: str, engine: Engine, raw: Any, clock: ManualClock) -> None:
    """Scores that are no times, and members that are no jobs."""
    problems = []
    for number, (name, member, score) in enumerate(entries()):
        struck = Struck(engine, raw, clock, f"jobs{number}")
        held = struck.furnish()
        struck.offer_good()
        ids = [id for id in raw.zrange(f"{struck.root}:{column}", 0, -1) if id.decode() not in GOOD]
        target = ids[0] if member is None else member
        raw.zadd(f"{struck.root}:{column}", {target: score})
        struck.everything(target.decode(errors="replace") or "x", held)
        came = struck.flow()
        struck.operate(target.decode(errors="replace") or "x")
        problems += [f"{name}: {each}"[:400] for each in struck.escaped]
        if came != GOOD:
            problems.append(f"{name}: {sorted(GOOD - came)} never came")
    assert problems == []


@pytest.mark.parametrize("place", ["ready", "bell"])
def test_an_entry_of_a_list(place: str, engine: Engine, raw: Any, clock: ManualClock) -> None:
    problems = []
    for number, member in enumerate(MEMBERS):
        struck = Struck(engine, raw, clock, f"jobs{number}")
        held = struck.furnish()
        raw.lpush(f"{struck.root}:{place}", member)
        raw.rpush(f"{struck.root}:{place}", member, "ready")
        struck.offer_good()
        struck.everything("ready", held)
        came = struck.flow()
        struck.operate("ready")
        problems += [f"{member[:20]!r}: {each}"[:400] for each in struck.escaped]
        if came != GOOD:
            problems.append(f"{member[:20]!r}: {sorted(GOOD - came)} never came")
    assert problems == []


OF_THE_QUEUE = [
    "attempt_cap", "backoff", "codec", "declared", "dedup", "first", "format", "ghosts", "history", "history_ttl",
    "keep", "lease", "max_attempts", "rank_head", "rank_tail", "ready", "stamp", "timeout", "transition_cap", "wide",
]  # fmt: skip


def of_the_queue(raw: Any, root: str) -> dict[str, tuple[str, bytes]]:
    """What is neither a job's nor a caller's last answer: by name, its column and its field."""
    return {
        field.decode(): (column, field)
        for column, names in columns(raw, root).items()
        if column.strip(":") not in COLUMNS
        for field in names
        if not field.startswith(b"s.")
    }


def with_ghost(struck: Struck) -> dict[str, Delivery]:
    held = struck.furnish()
    struck.queue.remove("ready")
    return held


@pytest.mark.parametrize("name", OF_THE_QUEUE)
def test_a_field_of_the_queue_itself(name: str, engine: Engine, raw: Any, clock: ManualClock) -> None:
    """The settings, the counters, the ghosts: refusals at most."""
    probe = Struck(engine, raw, clock, "probe")
    with_ghost(probe)
    if name not in (found := of_the_queue(raw, probe.root)):
        pytest.skip("this queue has none")
    column, field = found[name]
    stored: Any = raw.hget(f"{probe.root}{column}", field)
    problems = []
    for number, (spoiling, data) in enumerate(some_spoilings(stored, OF_THE_QUEUE.index(name)).items()):
        struck = Struck(engine, raw, clock, f"jobs{number}")
        held = with_ghost(struck)
        struck.offer_good()
        raw.hset(f"{struck.root}{column}", field, data)
        struck.everything("again", held)
        struck.flow()
        struck.operate("again")
        problems += [f"{spoiling}: {each}"[:300] for each in struck.escaped]
    assert problems == []


def test_every_field_of_the_queue_is_struck(engine: Engine, raw: Any, clock: ManualClock) -> None:
    probe = Struck(engine, raw, clock, "probe")
    with_ghost(probe)
    fields = of_the_queue(raw, probe.root)
    assert {name for name in fields if ":" not in name} <= {*OF_THE_QUEUE}
    assert len(fields) > 15
