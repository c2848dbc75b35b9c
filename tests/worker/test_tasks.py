"""Tasks: functions that are typed jobs (SPEC 7, issue 5 item 2)."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from redisq import AsyncEngine, Context, Engine, InvalidInput, JobFailed, JobState, Queue
from redisq.testing import ManualClock
from tests.support.servers import Server
from tests.worker.conftest import WAIT, Serve


def payload_of(queue: Queue[Any], id: str) -> Any:
    job = queue.get(id)
    assert job is not None
    return job.value


def test_a_plain_call_runs_here(queue: Queue[Any]) -> None:
    @queue.task()
    def add(a: int, b: int = 2) -> int:
        return a + b

    assert add(1) == 3
    assert queue.counts()[JobState.READY] == 0
    assert add.__name__ == "add"


def test_an_offer_has_the_name_and_the_parameters(queue: Queue[Any], serve: Serve) -> None:
    @queue.task()
    async def send(to: str, times: int = 1, *, when: datetime | None = None) -> str:
        return f"{times} to {to} at {when}"

    offer = send.offer("x", when=datetime(2030, 1, 2, tzinfo=UTC))
    job = queue.get(offer.id)
    assert job is not None
    assert (job.name, job.value) == ("send", {"to": "x", "when": "2030-01-02T00:00:00Z"})
    serve(queue)
    assert queue.wait_result(offer.id, WAIT) == "1 to x at 2030-01-02 00:00:00+00:00"


def test_defaults_are_left_out_of_the_payload(queue: Queue[Any], serve: Serve) -> None:
    @queue.task()
    def collect(first: int, tags: list[str] = [], size: dict[str, int] = {"a": 1}, note: str = "none") -> Any:  # noqa: B006
        return [first, tags, size, note]

    plain, given = collect.offer(1), collect.offer(1, ["x"], note="some")
    assert payload_of(queue, plain.id) == {"first": 1}
    assert payload_of(queue, given.id) == {"first": 1, "tags": ["x"], "note": "some"}
    serve(queue)
    assert queue.wait_result(plain.id, WAIT) == [1, [], {"a": 1}, "none"]
    assert queue.wait_result(given.id, WAIT) == [1, ["x"], {"a": 1}, "some"]


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_types_come_back_as_they_went(codec: str, engine: Engine, serve: Serve) -> None:
    queue = engine.queue("typed", codec=codec)
    seen: list[Any] = []

    @queue.task()
    async def keep(blob: bytes, table: dict[int, datetime], anything) -> None:  # type: ignore[no-untyped-def]
        seen.append((blob, table, anything))

    moment = datetime(2030, 1, 1, tzinfo=UTC)
    serve(queue)
    queue.wait_result(keep.offer(b"\x00\xff", {7: moment}, [1, "x"]).id, WAIT)
    assert seen == [(b"\x00\xff", {7: moment}, [1, "x"])]


def test_arguments_are_checked_at_the_offer(queue: Queue[Any]) -> None:
    @queue.task()
    async def send(to: str, times: int = 1) -> None: ...

    with pytest.raises(InvalidInput, match="times"):
        send.offer("x", times="many")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="encod|object"):
        send.offer("x", times=object())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="too"):
        send.offer("x", too=1)  # type: ignore[call-arg]
    assert queue.counts()[JobState.READY] == 0


@pytest.mark.parametrize("value", [{"to": 3}, {"to": "x", "more": 1}, {}, "text", None])
def test_arguments_are_checked_at_the_take(value: Any, queue: Queue[Any], serve: Serve) -> None:
    calls: list[Any] = []

    @queue.task()
    async def send(to: str) -> None:
        calls.append(to)

    bad = queue.offer(value, name="send")
    good = send.offer("x")
    serve(queue)
    queue.wait_result(good.id, WAIT)
    with pytest.raises(JobFailed):
        queue.wait_result(bad.id, WAIT)
    job = queue.get(bad.id)
    assert job is not None
    assert (job.state, calls) == (JobState.QUARANTINED, ["x"])
    assert job.error is not None
    assert job.error.type == "Undecodable"


def test_a_validation_error_of_the_body_is_a_failure_like_any_other(queue: Queue[Any], serve: Serve) -> None:
    import msgspec

    @queue.task(max_attempts=1)
    async def parse(text: str) -> None:
        msgspec.json.decode(text, type=int)

    id = parse.offer('"no number"').id
    serve(queue)
    with pytest.raises(JobFailed):
        queue.wait_result(id, WAIT)
    job = queue.get(id)
    assert job is not None
    assert job.state is JobState.DEAD


def test_the_context_is_no_parameter_of_the_offer(queue: Queue[Any], serve: Serve) -> None:
    @queue.task()
    async def count(upto: int, *, context: Context | None = None) -> int:
        return upto if context is None else upto + context.attempt

    assert asyncio.run(count(3)) == 3
    offer = count.offer(3)
    assert payload_of(queue, offer.id) == {"upto": 3}
    with pytest.raises(TypeError, match="context"):
        count.offer(3, context=None)
    serve(queue)
    assert queue.wait_result(offer.id, WAIT) == 4


def test_options_of_the_task_and_of_one_offer(engine: Engine, server: Server, namespace: str) -> None:
    clock = ManualClock()
    with Engine(server.url, namespace=namespace, clock=clock) as timed:
        queue = timed.queue("jobs")

        @queue.task(name="mails.send", max_attempts=3, timeout=7, priority=5)
        def send(to: str) -> None: ...

        plain = queue.get(send.offer("x").id)
        late = queue.get(send.options(delay=5, max_attempts=4).offer("x").id)
    assert plain is not None
    assert late is not None
    assert (plain.name, plain.max_attempts, plain.timeout_ms, plain.priority) == ("mails.send", 3, 7000, 5)
    assert (late.max_attempts, late.timeout_ms, late.due_ms) == (4, 7000, clock.now_ms + 5000)


def test_unknown_options_are_refused(queue: Queue[Any]) -> None:
    with pytest.raises(InvalidInput, match="retries"):

        @queue.task(retries=3)
        def first() -> None: ...

    @queue.task()
    def second() -> None: ...

    with pytest.raises(InvalidInput, match="delays"):
        second.options(delays=3)


def test_a_key_makes_the_id_and_a_duplicate_is_logged_once(queue: Queue[Any], caplog: pytest.LogCaptureFixture) -> None:
    @queue.task(key=lambda user, text="": f"welcome-{user}")
    def welcome(user: int, text: str = "") -> None: ...

    with caplog.at_level(logging.INFO, "redisq"):
        first = welcome.offer(7)
        again = [welcome.offer(7, "other"), welcome.options(priority=3).offer(7)]
        other = welcome.offer(8)
        welcome.offer(8)
    assert (first.id, first.duplicate) == ("welcome-7", False)
    assert [each.duplicate for each in again] == [True, True]
    assert other.id == "welcome-8"
    told = [record.getMessage() for record in caplog.records if "ignored" in record.getMessage()]
    assert [("welcome-7" in text, "welcome-8" in text) for text in told] == [(True, False), (False, True)]


def test_a_task_needs_a_queue_of_any_type_and_named_parameters(engine: Engine, queue: Queue[Any]) -> None:
    with pytest.raises(InvalidInput, match="Any"):
        engine.queue("typed", int).task()
    with pytest.raises(InvalidInput, match="numbers"):

        @queue.task()
        def add(*numbers: int) -> None: ...

    with pytest.raises(InvalidInput, match="Nowhere"):

        @queue.task()
        def unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821

    @queue.task(name="once")
    def once() -> None: ...

    with pytest.raises(InvalidInput, match="'once'"):

        @queue.task(name="once")
        def twice() -> None: ...


def test_only_registered_names_run_and_nothing_is_imported_by_name(queue: Queue[Any], serve: Serve) -> None:
    """C52."""

    @queue.task()
    async def good() -> str:
        return "ran"

    names = ("os.system", "__import__", "builtins.eval", "os:system", "__class__")
    bad = [queue.offer({}, name=name).id for name in names]
    last = good.offer().id
    serve(queue)
    assert queue.wait_result(last, WAIT) == "ran"
    for id in bad:
        job = queue.get(id)
        assert job is not None
        assert job.state is JobState.QUARANTINED
        assert job.error is not None
        assert job.error.type == "Unknown"


def test_an_async_queue_offers_tasks_too(server: Server, namespace: str) -> None:
    async def scenario() -> tuple[str, Any]:
        async with AsyncEngine(server.url, namespace=namespace) as engine:
            queue = engine.queue("jobs")

            @queue.task(key=lambda to: to)
            async def send(to: str) -> str:
                return to

            offer = await send.offer(to="x")
            job = await queue.get(offer.id)
            assert job is not None
            return offer.id, job.value

    assert asyncio.run(scenario()) == ("x", {"to": "x"})


def test_the_payload_is_json_that_others_can_read(queue: Queue[Any], server: Server) -> None:
    @queue.task()
    def send(to: str, weight: float = 1.0) -> None: ...

    id = send.offer(to="ü", weight=2.5).id
    with server.client() as raw:
        body = raw.hget(f"{queue._core.root}:body", id)
    assert isinstance(body, bytes)
    assert json.loads(body) == {"to": "ü", "weight": 2.5}
