"""`check` names what is broken and says what to do; `--repair` mends what can be mended without a guess."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from redisq import Ack, Engine, JobState, Queue, repair
from redisq.testing.check import check
from tests.cli.conftest import Cli
from tests.jobs.steps import walked
from tests.scripts.direct import contents

pytestmark = pytest.mark.leaves_damage


def root(queue: Queue[Any]) -> str:
    return queue._core.root


def test_a_sound_queue_has_nothing_to_report(cli: Cli, furnished: Queue[Any], raw: redis.Redis, namespace: str) -> None:
    before = contents(raw, namespace)
    shown = cli("check", "mails")
    assert (shown.out, shown.err) == ("", "queue mails: every invariant holds\n")
    assert cli("check", "mails", "--json").json == []
    assert cli("check", "mails", "--repair").out == ""
    assert {key: value for key, value in contents(raw, namespace).items() if key != root(furnished)} == {
        key: value for key, value in before.items() if key != root(furnished)
    }


def test_each_finding_says_what_to_do(cli: Cli, furnished: Queue[Any], raw: redis.Redis) -> None:
    raw.zrem(f"{root(furnished)}:sched", "later")
    raw.hset(f"{root(furnished)}:head", "done", "nonsense")
    raw.set(f"{root(furnished)}:group:dead:welcome:aside", "1")
    shown = cli("check", "mails", code=4)
    problems = shown.lines[::2]
    assert any("job later" in line for line in problems)
    assert any("job done: its head is damaged" in line for line in problems)
    assert all(line.startswith("  -> ") for line in shown.lines[1::2])
    findings = cli("check", "mails", "--json", code=4).json
    assert all(set(each) == {"problem", "advice"} and each["advice"] for each in findings)


def lost_end(raw: redis.Redis, root: str) -> None:
    raw.zrem(f"{root}:leased", "held")


def lost_text(raw: redis.Redis, root: str) -> None:
    raw.hdel(f"{root}:lease", "held")


def stale_lease(raw: redis.Redis, root: str) -> None:
    raw.hset(f"{root}:lease", "first", raw.hget(f"{root}:lease", "held") or "")


def lost_due(raw: redis.Redis, root: str) -> None:
    raw.zrem(f"{root}:sched", "later")


def lost_ready(raw: redis.Redis, root: str) -> None:
    raw.lrem(f"{root}:ready", 0, "first")


def lost_state(raw: redis.Redis, root: str) -> None:
    raw.zrem(f"{root}:completed", "done")
    raw.zrem(f"{root}:group:completed:welcome", "done")


def lost_group(raw: redis.Redis, root: str) -> None:
    raw.zrem(f"{root}:group:dead:welcome", "broken")


def orphan_body(raw: redis.Redis, root: str) -> None:
    raw.hset(f"{root}:body", "ghost", "1")


def orphan_entry(raw: redis.Redis, root: str) -> None:
    raw.rpush(f"{root}:ready", "ghost")


def orphan_result(raw: redis.Redis, root: str) -> None:
    raw.hset(f"{root}:result", "ghost", "1")


DAMAGE = [
    (lost_end, "held"), (lost_text, "held"), (stale_lease, "first"), (lost_due, "later"), (lost_ready, "first"),
    (lost_state, "done"), (lost_group, "broken"), (orphan_body, "ghost"), (orphan_entry, "ghost"),
    (orphan_result, "ghost"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "id"), DAMAGE, ids=lambda value: getattr(value, "__name__", None))
def test_repair_mends_and_lists_it(damage: Any, id: str, cli: Cli, furnished: Queue[Any], raw: redis.Redis) -> None:
    damage(raw, root(furnished))
    assert check(furnished) != []
    report = cli("check", "mails", "--repair", "--json", code=4 if damage is lost_text else 0).json
    assert [each["id"] for each in report["mended"]] == [id]
    if damage is lost_text:  # it ends now, and the next take or sweep counts it as a lapse
        furnished.maintain()
    assert check(furnished) == []
    counts = furnished.counts()
    assert sum(counts.values()) == 6
    assert counts[JobState.COMPLETED] == counts[JobState.DEAD] == 1


def test_a_lost_lease_end_is_given_back_to_its_holder(cli: Cli, mails: Queue[Any], raw: redis.Redis) -> None:
    mails.offer(1, id="held")
    delivery = mails.take()
    assert delivery is not None
    raw.zrem(f"{root(mails)}:leased", "held")
    assert "mended job held: its lease has an end again" in cli("check", "mails", "--repair").out
    assert mails.ack(delivery) is Ack.ACKNOWLEDGED


def test_what_needs_a_decision_is_left_and_named(
    cli: Cli, furnished: Queue[Any], raw: redis.Redis, namespace: str
) -> None:
    raw.hdel(f"{root(furnished)}:body", "first")
    before = contents(raw, namespace)
    shown = cli("check", "mails", "--repair", code=4)
    assert "its payload is missing" in shown.out
    assert "redisq jobs remove mails ID" in shown.out
    assert contents(raw, namespace) == before
    cli("jobs", "remove", "mails", "first")
    assert cli("check", "mails").out == ""


def test_a_suspect_that_moved_meanwhile_is_left_alone(
    shop: Engine, furnished: Queue[Any], raw: redis.Redis, namespace: str
) -> None:
    furnished.offer(1, id="ranked", priority=5)
    before = contents(raw, namespace)
    suspects = [job.id.encode() for job in walked(furnished)]
    assert len(suspects) == 7
    assert shop._sender.run(repair._repair(furnished._core, [*suspects, b"nobody"])) == []
    after = contents(raw, namespace)
    assert {key for key in before if before[key] != after[key]} == {root(furnished)}  # the caller's last answer


def test_repair_of_many(cli: Cli, mails: Queue[Any], raw: redis.Redis) -> None:
    mails.offer_many(range(60))
    raw.delete(f"{root(mails)}:ready")
    assert len(cli("check", "mails", "--repair").lines) == 60
    assert len(mails.take_many(100)) == 60
