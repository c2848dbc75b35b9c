"""Every stored field of an event queue replaced: other events and other subscribers go on, only refusals come out."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from redisq import Backoff, Done, Engine, EventDelivery, EventPolicy, EventQueue, Failed, Subscription
from redisq.testing import ManualClock, check
from tests.fuzz.nasty import Trial, entries, some_spoilings

pytestmark = [pytest.mark.leaves_damage, pytest.mark.timeout(300)]

GOOD = {f"good{number}" for number in range(3)}
BAD = ("bad", "held", "parked", "lost", "settled", "timed")


class Struck(Trial):
    """A queue with events in every situation, three subscriptions, one of them removed, and good events on top."""

    def __init__(self, engine: Engine, raw: Any, clock: ManualClock, name: str) -> None:
        super().__init__()
        self.raw = raw
        self.clock = clock
        self.queue: EventQueue[Any] = engine.events(name)
        self.root = self.queue._core.root
        self.held: dict[str, EventDelivery] = {}

    def furnish(self) -> None:
        queue = self.queue
        queue.alter(EventPolicy(on_completion="archive", archive_retention=600, dead_retention=600, dedup=30,
                                max_attempts=2, backoff=Backoff.fixed(1), max_backlog=500))  # fmt: skip
        self.billing, self.email, self.gone = (queue.subscribe(name) for name in ("billing", "email", "gone"))
        queue.emit("x", id="settled")
        for subscription in (self.billing, self.email, self.gone):
            for delivery in queue.take_many(subscription, 1):
                queue.ack(delivery)
        for id in ("lost", "parked", "held", "bad"):
            queue.emit("x", id=id)
        queue.emit("x", id="timed", ttl=10)
        for delivery in queue.take_many(self.billing, 3, lease=20):
            self.held[delivery.id] = delivery
        queue.fail(self.held["lost"], "no", final=True)
        queue.fail(self.held["parked"], "no", retry_in=5)
        queue.unsubscribe(self.gone)
        for number in range(3):
            queue.emit("good", id=f"good{number}")

    def targets(self) -> list[tuple[str, bytes]]:
        """All hash fields of the queue, in an order that is the same in each: key and field."""
        return [
            (key.decode(), field)
            for key in sorted(self.raw.scan_iter(match=f"{self.root}*", count=1000))
            if self.raw.type(key) == b"hash"
            for field in sorted(self.raw.hkeys(key))
            if not field.startswith(b"s.")
        ]

    def members(self) -> list[tuple[str, bytes]]:
        """All members of sorted sets."""
        return [
            (key.decode(), member)
            for key in sorted(self.raw.scan_iter(match=f"{self.root}*", count=1000))
            if self.raw.type(key) == b"zset"
            for member in sorted(self.raw.zrange(key, 0, -1))
        ]

    def everything(self) -> None:
        """Every verb, and a life of the queue to its end."""
        queue = self.queue
        for id in BAD:
            self.try_out(f"get {id}", partial(queue.get, id))
        self.try_out("subscriptions", queue.subscriptions)
        self.try_out("list_archived", queue.list_archived)
        self.try_out("info", queue.info)
        self.try_out("check", lambda: check(queue))
        self.try_out("dead", lambda: queue.dead(self.billing))
        self.try_out("renew", lambda: queue.renew(self.held["held"]))
        self.try_out("release", lambda: queue.release(self.held["held"]))
        self.try_out("ack", lambda: queue.ack(self.held["lost"]))
        self.try_out("emit again", lambda: queue.emit("x", id="bad"))
        self.try_out("emit settled", lambda: queue.emit("x", id="settled"))
        self.try_out("retry", lambda: queue.retry(self.billing, "lost"))
        self.try_out("subscribe", lambda: queue.subscribe("billing"))
        self.try_out("another", lambda: queue.subscribe("another"))
        self.try_out("emit", lambda: queue.emit("x"))

    def flow(self) -> dict[str, set[str]]:
        """Takes, settles and maintains; which good events came to whom."""
        seen: dict[str, set[str]] = {"billing": set(), "email": set()}
        for _ in range(3):
            for subscription in (self.billing, self.email):
                for _ in range(4):
                    found = self.try_out("take", lambda to=subscription: self.queue.take_many(to, 6, lease=20)) or []  # type: ignore[misc]
                    seen[subscription.name] |= {each.id for each in found} & GOOD
                    self.settle(subscription, found)
                    if not found:
                        break
            self.try_out("maintain", self.queue.maintain)
            self.clock.advance(25)
        return seen

    def settle(self, subscription: Subscription, found: list[EventDelivery]) -> None:
        items = [Done(each, None) if each.id in GOOD else Failed(each, "no") for each in found]
        self.try_out("exchange", lambda: self.queue.exchange(subscription, items, 0))

    def finish(self) -> None:
        queue = self.queue
        self.try_out("discard", lambda: queue.discard(self.billing, "lost"))
        for subscription in (self.billing, self.email):
            self.try_out("unsubscribe", lambda to=subscription: queue.unsubscribe(to))  # type: ignore[misc]
        self.clock.advance(2000)
        for _ in range(4):
            self.try_out("maintain", lambda: queue.maintain(100))
        self.try_out("check", lambda: check(queue))


def column_of(key: str) -> str:
    return key.rpartition("}")[2].strip(":").partition(":")[0]


def expected(struck: Struck, key: str, field: bytes) -> set[str]:
    """Who must get all good events whatever the field holds."""
    rest = key.rpartition("}")[2]
    if field.decode(errors="replace") in BAD or rest.removeprefix(":ob:") in BAD:
        return {"billing", "email"}
    of_billing = rest.endswith(struck.billing.generation) or field == struck.billing.generation.encode()
    return {"email"} if of_billing and column_of(key) != "gens" else set()


def problems_of(struck: Struck, name: str, wanted: set[str]) -> list[str]:
    struck.everything()
    came = struck.flow()
    struck.finish()
    found = [f"{name}: {each}"[:300] for each in struck.escaped]
    return found + [
        f"{name}: {who} never got {sorted(GOOD - came[who])}" for who in sorted(wanted) if came[who] != GOOD
    ]


HASHES = ["", "body", "cursor", "error", "ev", "gens", "lease", "ob", "refs", "roster", "subs"]
ZSETS = ["archives", "dead", "deadlines", "due", "leased", "log", "mort", "parked"]


@pytest.mark.parametrize("column", HASHES)
def test_a_field(column: str, engine: Engine, raw: Any, clock: ManualClock) -> None:
    probe = Struck(engine, raw, clock, "probe")
    probe.furnish()
    places = [at for at, (key, field) in enumerate(probe.targets())
              if column_of(key) == column and field.decode(errors="replace") not in GOOD]  # fmt: skip
    assert places != []
    problems: list[str] = []
    for place in places[:: max(1, len(places) // 3)] if column else places:
        stored: Any = raw.hget(*probe.targets()[place])
        for number, (name, data) in enumerate(some_spoilings(stored, place).items()):
            struck = Struck(engine, raw, clock, f"events{place}-{number}")
            struck.furnish()
            key, field = struck.targets()[place]
            raw.hset(key, field, data)
            shown = f"{column_of(key)} {field.decode(errors='replace')} {name}"
            problems += problems_of(struck, shown, expected(struck, key, field))
    assert problems == []


@pytest.mark.parametrize("column", ZSETS)
def test_a_place_in_an_index(column: str, engine: Engine, raw: Any, clock: ManualClock) -> None:
    probe = Struck(engine, raw, clock, "probe")
    probe.furnish()
    places = [at for at, (key, member) in enumerate(probe.members())
              if column_of(key) == column and member.decode(errors="replace") not in GOOD]  # fmt: skip
    assert places != []
    problems: list[str] = []
    for place in places[:3]:
        for number, (name, member, score) in enumerate(entries()):
            struck = Struck(engine, raw, clock, f"events{place}-{number}")
            struck.furnish()
            key, stored = struck.members()[place]
            raw.zadd(key, {stored if member is None else member: score})
            problems += problems_of(struck, f"{column} {stored!r} {name}", set())
    assert problems == []
