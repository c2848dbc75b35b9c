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
from tests.contract.heads import LUA, head, scripts
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


@pytest.fixture
def alone(server: Server, namespace: str, clock: ManualClock) -> Iterator[Engine]:
    """A synchronous engine alone, where the scripts are what is tested."""
    with Engine(server.url, namespace=namespace, clock=clock) as engine:
        yield engine


Verb = Callable[[Any, Delivery], Any]

# every verb, by the script that it runs
VERBS: list[tuple[str, str, Verb]] = [
    ("offer", "jobs/offer", lambda queue, held: queue.offer("new")),
    ("offer delayed", "jobs/offer", lambda queue, held: queue.offer("new", delay=5)),
    ("offer_many", "jobs/offer", lambda queue, held: queue.offer_many(["one", "two"])),
    ("take", "jobs/take", lambda queue, held: queue.take()),
    ("take_many", "jobs/take", lambda queue, held: queue.take_many(5)),
    ("blocking take", "jobs/take", lambda queue, held: queue.take(wait=5)),
    ("exchange", "jobs/exchange", lambda queue, held: queue.exchange([Done(held, 1)], 5)),
    ("ack", "jobs/settle", lambda queue, held: queue.ack(held, {"a": 1})),
    ("ack_many", "jobs/settle", lambda queue, held: queue.ack_many([held])),
    ("fail", "jobs/settle", lambda queue, held: queue.fail(held, "no")),
    ("release", "jobs/settle", lambda queue, held: queue.release(held)),
    ("quarantine", "jobs/settle", lambda queue, held: queue.quarantine(held, "no")),
    ("renew", "jobs/renew", lambda queue, held: queue.renew(held)),
    ("renew_many", "jobs/renew", lambda queue, held: queue.renew_many([held])),
    ("cancel", "jobs/cancel", lambda queue, held: queue.cancel("ready")),
    ("retry", "jobs/retry", lambda queue, held: queue.retry("dead")),
    ("promote", "jobs/promote", lambda queue, held: queue.promote("later")),
    ("remove", "jobs/remove", lambda queue, held: queue.remove("done")),
    ("pause", "jobs/pause", lambda queue, held: queue.pause()),
    ("resume", "jobs/pause", lambda queue, held: queue.resume()),
    ("alter", "queue/alter", lambda queue, held: queue.alter(QueuePolicy(max_attempts=3))),
    ("maintain", "jobs/maintain", lambda queue, held: queue.maintain()),
    ("get", "jobs/get", lambda queue, held: queue.get("done")),
    ("jobs", "jobs/list", lambda queue, held: queue.jobs()),
    ("counts", "jobs/info", lambda queue, held: queue.counts()),
    ("info", "jobs/info", lambda queue, held: queue.info()),
    ("attempts", "jobs/past", lambda queue, held: queue.attempts("dead")),
    ("history", "jobs/past", lambda queue, held: queue.history("dead")),
]
COLUMNS = sorted({column for _, script, _ in VERBS for column in head(script).columns() if "*" not in column})

# Most scripts prove every column that they name. These are the ones that run for every job, and prove a column as they
# come to it: each with what it can't do without.
_TAKES = {"leased", "sched", "ready", "head", "body", "lease"}
_SETTLES = {"lease", "leased", "head"}
NEEDED = {
    "offer": {"head", "body", "ready"},
    "offer delayed": {"head", "body", "sched"},
    "offer_many": {"head", "body", "ready"},
    **dict.fromkeys(("take", "take_many", "blocking take"), _TAKES),
    "exchange": _TAKES | {"completed", "ranked", "meta", "result"},
    "ack": _SETTLES | {"completed", "result", "waiters"},
    "ack_many": _SETTLES | {"completed", "waiters"},
    "fail": _SETTLES | {"error", "sched"},
    "release": _SETTLES | {"ready"},
    "quarantine": _SETTLES | {"error", "quarantined", "waiters"},
}


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
    column: str, engine: Engine, alone: Engine, raw: redis.Redis, namespace: str
) -> None:
    """A verb that needs the column refuses and changes nothing; one that does not leaves nothing broken."""
    for place, (name, script, verb) in enumerate(VERBS):
        queue = engine.queue(f"jobs{place}")
        held = furnished(queue)
        key = f"{root_of(queue)}:{column}"
        aside = f"{key}:aside"
        if raw.exists(key):
            raw.rename(key, aside)
        raw.set(key, "an intruder")
        before = contents(raw, namespace)
        try:
            verb(queue, held)
        except CorruptRecord as refusal:
            assert key in str(refusal), name
            assert contents(raw, namespace) == before, name
        else:
            assert column not in NEEDED.get(name, head(script).columns()), name
        raw.delete(key)
        if raw.exists(aside):
            raw.rename(aside, key)
        assert check(alone.queue(queue.name)) == [], name


def test_every_column_is_planted() -> None:
    """Each column that lua/lib/types.lua knows is some script's, and each of a script's is known there, but for those
    that are many keys (the groups, the waiters, the outcomes of events)."""
    named = {column.partition(":")[0] for script in scripts() for column in head(script).columns()}
    source = (LUA / "lib" / "types.lua").read_text(encoding="utf-8")
    table = re.search(r"of = \{(.*?)\}", source, re.DOTALL)
    assert table is not None
    assert set(re.findall(r"(\w+) = \"", table.group(1))) == named - {"group", "w", "ob"}


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
Place = Callable[[Any, ManualClock], None]


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
    "a name that is no text": change_head(lambda head: head.rpartition(b";")[0] + b";\xff\xfe"),
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


PLACES: list[Place] = [
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
    place: Place,
    alone: Engine,
    clock: ManualClock,
    raw: redis.Redis,
    findings: Callable[[], list[str]],
) -> None:
    if place is placed_completed and damage is HEADS["a name that is no text"]:
        pytest.skip("a finished job stands in the group of its name, which nothing tells any more")
    queue = alone.queue("jobs", policy=QueuePolicy(backoff=Backoff.fixed(1), max_attempts=3, history_ttl=86_400))
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


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__.removeprefix("placed_"))
@pytest.mark.parametrize("damage", [HEADS["garbage"], HEADS["missing"]], ids=["garbage", "missing"])
def test_a_damaged_job_is_removed_before_anybody_met_it(
    damage: Damage,
    place: Place,
    alone: Engine,
    clock: ManualClock,
    raw: redis.Redis,
    findings: Callable[[], list[str]],
) -> None:
    queue = alone.queue("jobs")
    queue.offer("good", id="good0")
    place(queue, clock)
    queue.offer("good", id="good1")
    damage(raw, root_of(queue))
    assert queue.remove("bad")
    assert findings() == []
    assert queue.remove("bad") is False
    # the id is free: its new job is handed out once, in its turn
    assert queue.offer("again", id="bad").duplicate is False
    found = queue.take_many(10)
    assert ids(found) == ["good0", "good1", "bad"]
    assert queue.take() is None
    assert [*queue.ack_many(found)] == [Ack.ACKNOWLEDGED] * 3
    clock.advance(3600)
    assert queue.take() is None
    assert findings() == []


# What else may be wrong with one job, and how its holder and the others fare.


def test_a_missing_payload(
    queue: Queue[Any], clock: ManualClock, raw: redis.Redis, findings: Callable[[], list[str]]
) -> None:
    queue.offer("good", id="good0")
    queue.offer("bad", id="bad")
    queue.offer("good", id="good1")
    raw.hdel(f"{root_of(queue)}:body", "bad")
    (item,) = damaged_items(queue)
    assert (item.id, item.raw) == ("bad", b"")
    assert "payload" in item.reason
    assert any("bad" in line for line in findings())
    others_flow(queue, clock, 2)
    with pytest.raises(CorruptRecord, match="payload"):
        queue.get("bad")
    assert any("bad" in line for line in findings())
    assert queue.remove("bad")
    assert findings() == []


LEASES: dict[str, Damage] = {
    "garbage": lambda raw, root: raw.hset(f"{root}:lease", "bad", b"\xff garbage"),
    "huge number": lambda raw, root: raw.hset(f"{root}:lease", "bad", b"1-x," + b"9" * 400 + b",s,1,w"),
    "missing": lambda raw, root: raw.hdel(f"{root}:lease", "bad"),
    "missing end": lambda raw, root: raw.zrem(f"{root}:leased", "bad"),
}


@pytest.mark.parametrize("damage", LEASES.values(), ids=LEASES)
def test_a_damaged_lease_is_named_and_stops_nobody(
    damage: Damage, queue: Queue[Any], clock: ManualClock, raw: redis.Redis, findings: Callable[[], list[str]]
) -> None:
    queue.offer("bad", id="bad")
    held = taken(queue, lease=1000)
    queue.offer("good", id="good0")
    queue.offer("good", id="good1", delay=5)
    damage(raw, root_of(queue))
    before = contents(raw, root_of(queue))
    with pytest.raises(CorruptRecord, match="bad"):
        queue.get("bad")
    for verb in (queue.cancel, queue.promote, queue.retry):
        with pytest.raises(CorruptRecord, match="bad"):
            verb("bad")
    for stale in (queue.ack, queue.renew, queue.release, lambda delivery: queue.fail(delivery, "no")):
        with pytest.raises(LeaseLost):
            stale(held)
    assert jobs_part(contents(raw, root_of(queue))) == jobs_part(before)
    # without its end it stands in no index, so no listing meets it
    listed = [] if damage is LEASES["missing end"] else [("bad", b'"bad"')]
    assert [(item.id, item.raw) for item in damaged_items(queue)] == listed
    assert any("bad" in line for line in findings())
    others_flow(queue, clock, 2)
    assert queue.remove("bad")
    assert queue.get("bad") is None
    assert findings() == []
    assert queue.offer("again", id="bad").duplicate is False
    assert [each.value for each in queue.take_many(5)] == ["again"]


@pytest.mark.parametrize("damage", [LEASES["garbage"], LEASES["missing"]], ids=["garbage", "missing"])
def test_a_lease_that_lost_its_text_lapses_all_the_same(
    damage: Damage, queue: Queue[Any], clock: ManualClock, raw: redis.Redis, findings: Callable[[], list[str]]
) -> None:
    queue.offer("bad", id="bad")
    taken(queue, lease=30)
    damage(raw, root_of(queue))
    clock.advance(30)
    assert queue.maintain().by_category["lapsed"] == 1
    assert findings() == []
    clock.advance(3600)
    again = taken(queue)
    assert (again.id, again.attempt) == ("bad", 2)


def jobs_part(found: dict[str, Any]) -> dict[str, Any]:
    """All but the root, where a refused settlement leaves its answer."""
    return {key: value for key, value in found.items() if ":" in key.partition("}")[2]}


INDEXES: dict[str, tuple[str, Place]] = {
    "ready": ("ready", placed_ready),
    "ranked": ("ranked", placed_ranked),
    "sched": ("sched", placed_scheduled),
    "completed": ("completed", placed_completed),
}


@pytest.mark.parametrize(("column", "place"), INDEXES.values(), ids=INDEXES)
def test_a_job_that_stands_in_no_index_is_named_and_stops_nobody(
    column: str,
    place: Place,
    queue: Queue[Any],
    clock: ManualClock,
    raw: redis.Redis,
    findings: Callable[[], list[str]],
) -> None:
    queue.offer("good", id="good0")
    place(queue, clock)
    queue.offer("good", id="good1", delay=5)
    key = f"{root_of(queue)}:{column}"
    if column == "ready":
        raw.lrem(key, 0, "bad")
    else:
        raw.zrem(key, "bad")
    assert any("bad" in line for line in findings())
    if column == "completed":
        with pytest.raises(CorruptRecord, match="bad"):
            queue.get("bad")
    others_flow(queue, clock, 2)
    assert any("bad" in line for line in findings())
    assert queue.remove("bad")
    assert queue.get("bad") is None


def test_an_entry_without_a_job_is_skipped_in_the_same_call(
    queue: Queue[Any], raw: redis.Redis, clock: ManualClock, findings: Callable[[], list[str]]
) -> None:
    """Field case C04."""
    root = root_of(queue)
    queue.offer("good", id="good")
    raw.lpush(f"{root}:ready", "nobody")
    raw.zadd(f"{root}:sched", {"never": 1})
    raw.zadd(f"{root}:leased", {"nowhere": 1})
    named = findings()
    assert all(any(id in line for line in named) for id in ("nobody", "never", "nowhere"))
    assert ids(queue.take_many(2)) == ["good"]
    # what was skipped is set aside, told, and can be cleared away
    assert all(any(id in line for line in findings()) for id in ("nobody", "never", "nowhere"))
    for id in ("nobody", "never", "nowhere"):
        with pytest.raises(CorruptRecord, match=id):
            queue.get(id)
        assert queue.remove(id)
    assert findings() == []


def test_a_score_that_is_no_time_is_damage_of_one_job(queue: Queue[Any], raw: redis.Redis) -> None:
    queue.offer("bad", id="bad", delay=5)
    queue.offer("good", id="good", delay=5)
    raw.zadd(f"{root_of(queue)}:sched", {"bad": "+inf"})
    with pytest.raises(CorruptRecord, match="bad"):
        queue.get("bad")
    assert ids(walked(queue)) == ["bad", "good"]
    assert ids(damaged_items(queue)) == ["bad"]


def test_a_batch_settles_around_a_damaged_job(queue: Queue[Any], raw: redis.Redis) -> None:
    queue.offer_many(range(3))
    held = queue.take_many(3)
    raw.hset(f"{root_of(queue)}:head", held[1].id, "garbage")
    for verb in (queue.ack, queue.release, lambda delivery: queue.fail(delivery, "no")):
        with pytest.raises(CorruptRecord, match=held[1].id):
            verb(held[1])
    assert queue.ack_many(held) == [Ack.ACKNOWLEDGED, Ack.GONE, Ack.ACKNOWLEDGED]
    for operate in (queue.cancel, queue.promote, queue.retry):
        with pytest.raises(CorruptRecord, match=held[1].id):
            operate(held[1].id)
    assert queue.counts()[JobState.COMPLETED] == 2


@pytest.mark.parametrize("column", ["attempts", "history", "error", "meta", "result"])
def test_a_damaged_past_stops_no_transition(
    column: str, queue: Queue[Any], raw: redis.Redis, clock: ManualClock
) -> None:
    queue.offer("bad", id="bad", metadata={"a": "b"})
    queue.offer("good", id="good")
    for _ in range(3):
        for each in queue.take_many(2):
            queue.fail(each, "no", retry_in=0)
    raw.hset(f"{root_of(queue)}:{column}", "bad", b"\xff:garbage,9")
    found = queue.take_many(2)
    if column == "meta":
        # what can't be read can't be handed out: set aside, with the reason
        assert ids(found) == ["good"]
        assert queue.counts()[JobState.QUARANTINED] == 1
    else:
        assert ids(found) == ["bad", "good"]
        queue.fail(found[0], "no", final=True)
        assert queue.retry("bad")
        assert queue.cancel("bad") is Cancel.CANCELLED
    assert queue.remove("bad")
    assert queue.get("bad") is None


# Field case C44: what an older version would have written, with fields absent or empty, and records between others.


def test_a_reply_has_all_its_items_whatever_a_record_lacks(queue: Queue[Any], raw: redis.Redis) -> None:
    """Only the first of three lacks something: nothing is cut short, nothing moves to its neighbour."""
    queue.offer("plain", id="a")
    queue.offer("", id="b", name="0", metadata={"": "0"}, max_attempts=7, timeout=9)
    queue.offer("0", id="c", name="", metadata={"0": ""})
    found = queue.take_many(3)
    assert [(each.value, each.name, each.metadata) for each in found] == [
        ("plain", "", {}), ("", "0", {"": "0"}), ("0", "", {"0": ""}),
    ]  # fmt: skip
    assert [(each.max_attempts, each.timeout_ms) for each in found] == [(10, None), (7, 9000), (10, None)]
    queue.ack(found[0])
    queue.ack(found[1], "")
    queue.ack(found[2], "0")
    assert [(job.id, job.result, job.error) for job in walked(queue)] == [
        ("c", "0", None),
        ("b", "", None),
        ("a", None, None),
    ]
    assert [queue.get(id).metadata for id in "abc"] == [{}, {"": "0"}, {"0": ""}]  # type: ignore[union-attr]


def test_a_head_of_the_fewest_fields_is_a_whole_job(queue: Queue[Any], raw: redis.Redis) -> None:
    queue.offer("first", id="first")
    root = root_of(queue)
    for id, text in (("short", "w;5;;"), ("named", "w;5;,,,;name"), ("counted", "w0,0,0;5d;0;")):
        raw.hset(f"{root}:head", id, text)
        raw.hset(f"{root}:body", id, "1")
        raw.rpush(f"{root}:ready", id)
    assert [(each.id, each.name, each.attempt) for each in queue.take_many(9)] == [
        ("first", "", 1), ("short", "", 1), ("named", "name", 1), ("counted", "", 1),
    ]  # fmt: skip
    for id in ("short", "named", "counted"):
        job = queue.get(id)
        assert job is not None
        assert (job.created_ms, job.priority, job.metadata, job.error) == (5, 0, {}, None)
        assert len(queue.history(id).entries) == 2
        assert queue.attempts(id) == []


@pytest.mark.parametrize("protocol", [2, 3])
def test_both_protocols_read_the_same(protocol: int, server: Server, namespace: str, open_engine: OpenEngine) -> None:
    queue = open_engine(url=f"{server.url}{'&' if '?' in server.url else '?'}protocol={protocol}").queue("jobs")
    queue.offer("", id="a", delay=50)
    queue.offer("0", id="b", priority=-3)
    held = taken(queue)
    queue.ack(held, "0")
    jobs = walked(queue)
    assert [(job.id, job.value, job.state, job.result) for job in jobs] == [
        ("a", "", JobState.SCHEDULED, None), ("b", "0", JobState.COMPLETED, "0"),
    ]  # fmt: skip
    assert [isinstance(job.due_ms, int) for job in jobs] == [True, False]
    assert queue.counts()[JobState.COMPLETED] == 1
