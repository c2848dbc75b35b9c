"""`check` says of a damaged field which one it is: in which column, and of whom."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from redisq import Engine, EventPolicy
from redisq.testing import check

pytestmark = pytest.mark.leaves_damage

NUMBERS = [b"", b"9" * 5000, b"\xff", b"1e308", b"0x1f", b" 1"]


def named(findings: Iterable[str], *words: str) -> bool:
    return any(all(word in finding for word in words) for finding in findings)


@pytest.mark.parametrize("data", NUMBERS)
@pytest.mark.parametrize(
    ("column", "field"), [("", b"ghosts"), ("", b"first"), (":ghost", b"gone"), (":ghost", b"\xff")]
)
def test_a_number_of_a_job_queue(column: str, field: bytes, data: bytes, engine: Engine, raw: Any) -> None:
    queue = engine.queue("mails")
    for id in ("gone", "stays"):
        queue.offer(1, id=id)
    queue.remove("gone")
    assert check(queue) == []
    key = f"{queue._core.root}{column}"
    raw.hset(key, field, data)
    assert named(check(queue), field.decode(errors="replace").replace("\ufffd", "\\ufffd"), key, "no number")


@pytest.mark.parametrize("data", NUMBERS)
@pytest.mark.parametrize("column", ["", ":cursor", ":refs"])
def test_a_number_of_an_event_queue(column: str, data: bytes, engine: Engine, raw: Any) -> None:
    queue = engine.events("orders")
    queue.subscribe("billing")
    queue.emit(1)
    assert check(queue) == []
    key = f"{queue._core.root}{column}"
    field = b"block" if column == "" else next(iter(raw.hkeys(key)))
    raw.hset(key, field, data)
    assert named(check(queue), field.decode(), key, "no number")


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"," * 9, b"9" * 5000 + b",,,x", b"x"])
@pytest.mark.parametrize("column", ["ev", "gens", "ob", "roster"])
def test_a_text_of_an_event_queue(column: str, data: bytes, engine: Engine, raw: Any) -> None:
    queue = engine.events("orders")
    queue.alter(EventPolicy(on_completion="archive", archive_retention=60))
    billing = queue.subscribe("billing")
    queue.subscribe("email")
    queue.emit(1, id="one")
    for delivery in queue.take_many(billing, 1):
        queue.ack(delivery)
    assert check(queue) == []
    root = queue._core.root
    block = raw.hget(root, "block")
    key, field, words = {
        "ev": (f"{root}:ev", b"one", ("event one", "header")),
        "gens": (f"{root}:gens", billing.generation.encode(), (billing.generation, "facts")),
        "ob": (f"{root}:ob:one", billing.generation.encode(), ("event one", billing.generation, "outcome")),
        "roster": (f"{root}:roster", b"s" + block, (f"roster {block.decode()}.",)),
    }[column]
    assert raw.hexists(key, field)
    raw.hset(key, field, data)
    assert named(check(queue), *words)


def test_a_generation_that_can_be_none(engine: Engine, raw: Any) -> None:
    queue = engine.events("orders")
    queue.subscribe("billing")
    raw.hset(f"{queue._core.root}:gens", b"\xff", b"1,,,x")
    assert named(check(queue), "generation \\ufffd", "can be none")


@pytest.mark.parametrize("score", ["+inf", "-inf", 1e300])
def test_a_score_that_can_be_no_sequence(score: Any, engine: Engine, raw: Any) -> None:
    queue = engine.events("orders")
    queue.subscribe("billing")
    queue.emit(1, id="one")
    raw.zadd(f"{queue._core.root}:log", {"one": score})
    assert named(check(queue), "event one is in log with", str(float(score)))
