"""Damage is contained: a wrong type is refused before any write, and one bad job never stops the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from redisq import (
    Ack,
    Backoff,
    Cancel,
    CorruptRecord,
    DamagedRecord,
    Delivery,
    Done,
    Engine,
    Job,
    JobState,
    Keep,
    LeaseLost,
    Queue,
    QueuePolicy,
)
from redisq.testing import ManualClock
from redisq.testing.check import check
from tests.contract.heads import LUA, head
from tests.jobs.steps import finished, ids, killed, root_of, taken, walked
from tests.scripts.direct import contents
from tests.support.fronts import OpenEngine
from tests.support.servers import Server

pytestmark = pytest.mark.leaves_damage


@pytest.fixture
def findings(server: Server, namespace: str) -> Iterator[Callable[[], list[str]]]:
    """What `check` says of the queue "jobs"."""
    with Engine(server.url, namespace=namespace) as engine:
        yield lambda: check(engine.queue("jobs"))


Verb = Callable[[Any, Delivery], Any]

# every verb, by the script that it runs
VERBS: list[tuple[str, str, Verb]] = [
    ("offer", "offer", lambda queue, held: queue.offer("new")),
    ("offer delayed", "offer", lambda queue, held: queue.offer("new", delay=5)),
    ("offer_many", "offer", lambda queue, held: queue.offer_many(["one", "two"])),
    ("take", "take", lambda queue, held: queue.take()),
    ("take_many", "take", lambda queue, held: queue.take_many(5)),
    ("blocking take", "take", lambda queue, held: queue.take(wait=5)),
    ("process_one", "take", lambda queue, held: queue.process_one(lambda delivery: None)),
    ("exchange", "exchange", lambda queue, held: queue.exchange([Done(held, 1)], 5)),
    ("ack", "settle", lambda queue, held: queue.ack(held, {"a": 1})),
    ("ack_many", "settle", lambda queue, held: queue.ack_many([held])),
    ("fail", "settle", lambda queue, held: queue.fail(held, "no")),
    ("release", "settle", lambda queue, held: queue.release(held)),
    ("quarantine", "settle", lambda queue, held: queue.quarantine(held, "no")),
    ("renew", "renew", lambda queue, held: queue.renew(held)),
    ("renew_many", "renew", lambda queue, held: queue.renew_many([held])),
    ("cancel", "cancel", lambda queue, held: queue.cancel("ready")),
    ("retry", "retry", lambda queue, held: queue.retry("dead")),
    ("promote", "promote", lambda queue, held: queue.promote("later")),
    ("remove", "remove", lambda queue, held: queue.remove("done")),
    ("pause", "pause", lambda queue, held: queue.pause()),
    ("resume", "pause", lambda queue, held: queue.resume()),
    ("alter", "alter", lambda queue, held: queue.alter(QueuePolicy(max_attempts=3))),
    ("maintain", "maintain", lambda queue, held: queue.maintain()),
    ("get", "get", lambda queue, held: queue.get("done")),
    ("jobs", "list", lambda queue, held: queue.jobs()),
    ("counts", "info", lambda queue, held: queue.counts()),
    ("info", "info", lambda queue, held: queue.info()),
    ("attempts", "past", lambda queue, held: queue.attempts("dead")),
    ("history", "past", lambda queue, held: queue.history("dead")),
]
COLUMNS = sorted({column for _, script, _ in VERBS for column in head(f"jobs/{script}").columns() if "*" not in column})


def furnished(queue: Queue[Any]) -> Delivery:
    """One job in each state, with a result, an error and a past; the delivery of the leased one."""
    finished(queue, id="done")
    killed(queue, id="dead")
    queue.offer("held", id="held", metadata={"a": "b"})
    held = taken(queue)
    queue.offer("later", id="later", delay=60)
    queue.offer("ready", id="ready")
    queue.offer("first", id="first", priority=5)
    return held


@pytest.mark.parametrize("column", COLUMNS)
def test_a_wrong_type_is_refused_by_name_before_the_first_write(
    column: str, queue: Queue[Any], raw: redis.Redis, namespace: str
) -> None:
    held = furnished(queue)
    key = f"{root_of(queue)}:{column}"
    aside = f"{key}:aside"
    if raw.exists(key):
        raw.rename(key, aside)
    raw.set(key, "an intruder")
    for name, script, verb in VERBS:
        before = contents(raw, namespace)
        if column in head(f"jobs/{script}").columns():
            with pytest.raises(CorruptRecord, match=re.escape(key)):
                verb(queue, held)
            assert contents(raw, namespace) == before, name
        else:
            verb(queue, held)
    raw.delete(key)
    if raw.exists(aside):
        raw.rename(aside, key)
    # nothing of all this has cost the jobs anything
    assert queue.ack(held) is Ack.ACKNOWLEDGED
    assert "ready" in ids(queue.take_many(1000))


def test_every_column_is_planted() -> None:
    """The list above is the whole list: each column of lua/lib/queue.lua is some script's."""
    source = (LUA / "lib" / "queue.lua").read_text(encoding="utf-8")
    table = re.search(r"local TYPES = \{(.*?)\}", source, re.DOTALL)
    assert table is not None
    assert set(re.findall(r"(\w+) = \"", table.group(1))) == set(COLUMNS)


def test_a_root_of_a_wrong_type_is_refused_by_name(
    queue: Queue[Any], open_engine: OpenEngine, clock: ManualClock, raw: redis.Redis, namespace: str
) -> None:
    held = furnished(queue)
    root = root_of(queue)
    raw.rename(root, f"{root}:aside")
    raw.set(root, "an intruder")
    fresh = open_engine(clock=clock).queue("jobs")
    declaring = open_engine(clock=clock).queue("jobs", policy=QueuePolicy(lease=5))
    before = contents(raw, namespace)
    for each in (queue, fresh, declaring):
        for name, _, verb in VERBS:
            with pytest.raises(CorruptRecord, match=re.escape(root)):
                verb(each, held)
            assert contents(raw, namespace) == before, name
    raw.rename(f"{root}:aside", root)
    assert fresh.ack(held) is Ack.ACKNOWLEDGED


def test_a_directory_of_a_wrong_type_stops_creation_alone(
    queue: Queue[Any], open_engine: OpenEngine, clock: ManualClock, raw: redis.Redis, namespace: str
) -> None:
    furnished(queue)
    directory = f"{namespace}:queues"
    raw.delete(directory)
    raw.set(directory, "an intruder")
    engine = open_engine(clock=clock)
    before = contents(raw, namespace)
    for verb in (
        engine.queues,
        lambda: engine.queue("other").offer("x"),
        lambda: engine.queue("other").pause(),
        lambda: engine.queue("third", policy=QueuePolicy(lease=5)).offer("x"),
    ):
        with pytest.raises(CorruptRecord, match=re.escape(directory)):
            verb()
        assert contents(raw, namespace) == before
    # the queue that is there goes on, also for a client that is new
    assert engine.queue("jobs").take() is not None
    raw.delete(directory)
    assert engine.queue("other").offer("x").state is JobState.READY


def test_a_format_of_another_release_is_refused(queue: Queue[Any], raw: redis.Redis, namespace: str) -> None:
    held = furnished(queue)
    raw.hset(root_of(queue), "format", "2")
    before = contents(raw, namespace)
    for name, _, verb in VERBS:
        with pytest.raises(CorruptRecord, match="format 2"):
            verb(queue, held)
        assert contents(raw, namespace) == before, name


def test_a_group_of_a_wrong_type_stops_nothing(
    engine: Engine, raw: redis.Redis, clock: ManualClock, findings: Callable[[], list[str]]
) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(keep=Keep(count=2)))
    finished(queue, name="other")
    key = f"{root_of(queue)}:group:completed:mail"
    raw.set(key, "an intruder")
    for _ in range(4):
        finished(queue, name="mail")
        finished(queue, name="other")
    # the jobs of the name go without the rule, the others go by it
    names = [job.name for job in walked(queue, state=JobState.COMPLETED)]
    assert (names.count("mail"), names.count("other")) == (4, 2)
    assert queue.counts()[JobState.COMPLETED] == 6
    # an alter of the rule makes the sweep look at every group
    queue.alter(QueuePolicy(keep=Keep(count=1)))
    while queue.maintain().pending:
        pass
    names = [job.name for job in walked(queue, state=JobState.COMPLETED)]
    assert (names.count("mail"), names.count("other")) == (4, 1)
    with pytest.raises(CorruptRecord, match=re.escape(key)):
        queue.jobs(state=JobState.COMPLETED, name="mail")
    assert len(walked(queue, state=JobState.COMPLETED, name="other")) == 1
    assert any(key in line for line in findings())
    raw.delete(key)


# One damaged job among others: "bad" was taken, is ready, scheduled or finished, and something of it is broken.

Damage = Callable[[redis.Redis, str], Any]


def set_head(text: bytes | None) -> Damage:
    if text is None:
        return lambda raw, root: raw.hdel(f"{root}:head", "bad")
    return lambda raw, root: raw.hset(f"{root}:head", "bad", text)


def change_head(change: Callable[[bytes], bytes]) -> Damage:
    def damage(raw: redis.Redis, root: str) -> None:
        before: Any = raw.hget(f"{root}:head", "bad")
        after = change(before)
        assert after != before
        raw.hset(f"{root}:head", "bad", after)

    return damage


def no_body(raw: redis.Redis, root: str) -> Any:
    return raw.hdel(f"{root}:body", "bad")


# name -> damage of a head, whatever the state of its job
HEADS: dict[str, Damage] = {
    "garbage": set_head(b"\xff\x00 garbage"),
    "empty": set_head(b""),
    "missing": set_head(None),
    "cut at the first separator": change_head(lambda head: head.split(b";")[0]),
    "cut behind the first separator": change_head(lambda head: head.split(b";")[0] + b";"),
    "cut at the second separator": change_head(lambda head: b";".join(head.split(b";")[:2])),
    "unknown state": change_head(lambda head: b"z" + head[1:]),
    "huge number": change_head(lambda head: head[:1] + b"9" * 400 + b";" + head.split(b";", 1)[1]),
    "huge time": change_head(lambda head: head.split(b";")[0] + b";" + b"9" * 5000 + b";;"),
    "no time": change_head(lambda head: head.split(b";")[0] + b";;;"),
    "name that is no text": change_head(lambda head: head.rpartition(b";")[0] + b";\xff\xfe"),
    "options that are no numbers": change_head(lambda head: head.rpartition(b";")[0] + b"-,x,y;"),
    "a sign without a number": change_head(lambda head: b";".join(head.split(b";")[:2]) + b";-;"),
    "a keep rule cut short": change_head(lambda head: b";".join(head.split(b";")[:2]) + b";0,,,c,1:2/:;"),
    "a last settlement cut short": change_head(lambda head: head[:1] + b"1|a,12-x,3;" + head.split(b";", 1)[1]),
}


def placed_ready(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer("bad", id="bad")


def placed_ranked(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer("bad", id="bad", priority=7)


def placed_scheduled(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer("bad", id="bad", delay=10)


def placed_leased(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer("bad", id="bad", priority=1000)
    assert taken(queue, lease=20).id == "bad"


def placed_completed(queue: Queue[Any], clock: ManualClock) -> None:
    queue.offer("bad", id="bad", priority=1000)
    queue.ack(taken(queue), "result")


PLACES: list[Callable[[Queue[Any], ManualClock], None]] = [
    placed_ready, placed_ranked, placed_scheduled, placed_leased, placed_completed,
]  # fmt: skip


def others_flow(queue: Queue[Any], clock: ManualClock, good: int) -> None:
    """Take, exchange, settle, maintain, jobs and counts serve `good` other jobs that are takeable or become so."""
    seen: set[str] = set()
    handed: list[Delivery] = []
    for _ in range(4 * good):
        answers, more = queue.exchange(handed, 3, lease=20)
        assert {*answers} <= {Ack.ACKNOWLEDGED}
        handed = [each for each in more if each.id != "bad"]
        seen |= set(ids(handed))
        if not more:
            queue.maintain()
            clock.advance(15)
    assert seen == {f"good{number}" for number in range(good)}
    assert {job.id for job in walked(queue, state=JobState.COMPLETED) if isinstance(job, Job)} >= seen
    assert queue.counts()[JobState.COMPLETED] >= good


def damaged_items(queue: Queue[Any]) -> list[DamagedRecord]:
    return [item for item in walked(queue) if isinstance(item, DamagedRecord)]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__.removeprefix("placed_"))
@pytest.mark.parametrize("damage", HEADS.values(), ids=HEADS)
def test_a_damaged_head_is_named_and_stops_nobody(
    damage: Damage,
    place: Callable[[Queue[Any], ManualClock], None],
    engine: Engine,
    clock: ManualClock,
    raw: redis.Redis,
    findings: Callable[[], list[str]],
) -> None:
    queue = engine.queue("jobs", policy=QueuePolicy(backoff=Backoff.fixed(1), max_attempts=3, history_ttl=86_400))
    queue.offer("good", id="good0")
    place(queue, clock)
    for number in range(1, 4):
        queue.offer("good", id=f"good{number}", delay=number)
    root = root_of(queue)
    damage(raw, root)
    with pytest.raises(CorruptRecord, match="bad"):
        queue.get("bad")
    (item,) = damaged_items(queue)
    assert (item.id, item.queue, item.raw) == ("bad", "jobs", b'"bad"')
    assert item.reason
    assert any("bad" in line for line in findings())
    others_flow(queue, clock, 4)
    # it is still there to be looked at, and then it goes, and its id is free
    with pytest.raises(CorruptRecord, match="bad"):
        queue.get("bad")
    assert any("bad" in line for line in findings())
    assert queue.remove("bad")
    assert queue.get("bad") is None
    assert damaged_items(queue) == []
    assert queue.offer("again", id="bad").duplicate is False
    assert [each.value for each in queue.take_many(10)] == ["again"]
    assert queue.take() is None
    assert findings() == []
