"""Lost replies, flushed scripts, cut connections and restarts: one effect, and the first answer (SPEC 6)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest
import redis
import redis.asyncio

from redisq import (
    Ack,
    AsyncEngine,
    Backoff,
    Delivery,
    Done,
    Engine,
    Failed,
    IndeterminateWrite,
    InvalidInput,
    Job,
    JobState,
    Keep,
    NewEvent,
    NewJob,
    OutOfMemory,
    Queue,
    QueuePolicy,
    Released,
    Unavailable,
)
from redisq.scripts import script as linked
from redisq.testing import ManualClock
from tests.contract.heads import scripts
from tests.faults.damage import freeze, full_memory, script_flush
from tests.faults.proxy import Match, Proxy, anything, calls, command
from tests.jobs.steps import finished, killed, taken, walked
from tests.support.fronts import OpenEngine
from tests.support.servers import OwnServer, own_server

BOUND = 10.0


@pytest.fixture(scope="module")
def private() -> Iterator[OwnServer]:
    """A server of this file alone, whose scripts may be flushed."""
    server = own_server()
    yield server
    server.stop()


@pytest.fixture
def raw(private: OwnServer) -> Iterator[redis.Redis]:
    with private.client() as client:
        yield client


@pytest.fixture
def proxy(private: OwnServer, raw: redis.Redis) -> Iterator[Proxy]:
    """A way to the private server, which knows every script: so the first call whose reply is eaten has run."""
    for name in scripts():
        raw.script_load(linked(name).source)
    with Proxy(private.url) as proxy:
        yield proxy


# Every verb, on a queue that was furnished for it: its name, the script whose replies get lost, and the call.

Held = Sequence[Delivery]
Verb = Callable[[Any, Held], Any]
VERBS: list[tuple[str, str, Verb]] = [
    ("offer", "offer", lambda queue, held: queue.offer("new", id="new")),
    ("offer again", "offer", lambda queue, held: queue.offer("new", id="ready")),
    ("offer delayed", "offer", lambda queue, held: queue.offer("new", id="new", delay=9, metadata={"a": "b"})),
    ("offer ranked", "offer", lambda queue, held: queue.offer("new", id="new", priority=-9)),
    ("offer_many", "offer", lambda queue, held: queue.offer_many([NewJob(n, id=f"n{n}") for n in range(1001)])),
    ("take", "take", lambda queue, held: queue.take()),
    ("take_many", "take", lambda queue, held: queue.take_many(9, lease=7)),
    ("process_one", "take", lambda queue, held: queue.process_one(lambda delivery: delivery.value)),
    ("process_one settles", "settle", lambda queue, held: queue.process_one(lambda delivery: delivery.value)),
    ("exchange", "exchange", lambda queue, held: queue.exchange(
        [Done(held[0], "r"), Failed(held[1], "no"), Released(held[2])], 2)),
    ("exchange nothing", "exchange", lambda queue, held: queue.exchange(
        [held[0], Failed(held[1], "no", final=True)], 0)),
    ("ack", "settle", lambda queue, held: queue.ack(held[0], {"a": 1})),
    ("ack_many", "settle", lambda queue, held: queue.ack_many(held)),
    ("fail", "settle", lambda queue, held: queue.fail(held[0], ValueError("no"))),
    ("fail at once", "settle", lambda queue, held: queue.fail(held[0], "no", retry_in=0)),
    ("fail finally", "settle", lambda queue, held: queue.fail(held[0], "no", final=True)),
    ("release", "settle", lambda queue, held: queue.release(held[0])),
    ("release later", "settle", lambda queue, held: queue.release(held[0], delay=3)),
    ("quarantine", "settle", lambda queue, held: queue.quarantine(held[0], "odd")),
    ("renew", "renew", lambda queue, held: queue.renew(held[0], 99)),
    ("renew_many", "renew", lambda queue, held: queue.renew_many(held, 99)),
    ("cancel", "cancel", lambda queue, held: queue.cancel("ready")),
    ("cancel a holder's", "cancel", lambda queue, held: queue.cancel(held[0].id)),
    ("retry", "retry", lambda queue, held: queue.retry("dead")),
    ("promote", "promote", lambda queue, held: queue.promote("later")),
    ("remove", "remove", lambda queue, held: queue.remove("ready")),
    ("remove again", "remove", lambda queue, held: queue.remove("unknown")),
    ("pause", "pause", lambda queue, held: queue.pause()),
    ("resume", "pause", lambda queue, held: queue.resume()),
    ("maintain", "maintain", lambda queue, held: queue.maintain(2)),
    ("get", "get", lambda queue, held: queue.get("ready")),
    ("jobs", "list", lambda queue, held: queue.jobs()),
    ("counts", "info", lambda queue, held: queue.counts()),
    ("info", "info", lambda queue, held: queue.info()),
    ("attempts", "past", lambda queue, held: queue.attempts("dead")),
    ("history", "past", lambda queue, held: queue.history("dead")),
]  # fmt: skip
ALTER: tuple[str, str, Verb] = ("alter", "queue/alter", lambda queue, held: queue.alter(QueuePolicy(max_attempts=2)))
SCRIPTS = [(name, f"jobs/{script}", verb) for name, script, verb in VERBS] + [ALTER]


def furnished(queue: Queue[Any]) -> Held:
    """Jobs in every state, due ones among them; three deliveries."""
    finished(queue, id="done")
    killed(queue, id="dead")
    queue.offer_many([NewJob("held", id=f"held{n}") for n in range(3)])
    held = queue.take_many(3)
    queue.offer("later", id="later", delay=50)
    queue.offer_many([NewJob("due", id=f"due{n}", delay=1) for n in range(3)])
    queue.offer_many([NewJob("ready", id=id) for id in ("ready", "next")])
    return held


def plain(result: Any) -> Any:
    """A result without what differs from run to run: tokens and fences."""
    if isinstance(result, Delivery):
        return msgspec.structs.replace(result, token="", fence=0)
    if isinstance(result, list | tuple):
        return [plain(each) for each in result]
    return result


def everything(queue: Queue[Any]) -> Any:
    """All that can be seen of a queue from outside, in its order."""
    past = [(queue.attempts(id), queue.history(id)) for id in ("held0", "held1", "ready", "dead")]
    return walked(queue, limit=1000), past, queue.info()


def flushed_and_lost(proxy: Proxy, raw: redis.Redis, script: str) -> None:
    script_flush(raw)
    proxy.eat_replies(1)


Fault = Callable[[Proxy, redis.Redis, str], None]
FAULTS: dict[str, Fault] = {
    "replies lost": lambda proxy, raw, script: proxy.eat_replies(2, calls(script)),
    "scripts flushed": lambda proxy, raw, script: script_flush(raw),
    "scripts flushed and a reply lost": flushed_and_lost,
    "connections cut": lambda proxy, raw, script: proxy.cut(),
}
MATRIX = [*((fault, None) for fault in FAULTS), ("replies lost", Keep(count=0))]


@pytest.mark.parametrize(("fault", "keep"), MATRIX, ids=[*FAULTS, "replies lost, nothing kept"])
def test_every_verb_has_one_effect_and_its_first_answer(
    fault: str,
    keep: Keep | None,
    open_engine: OpenEngine,
    proxy: Proxy,
    private: OwnServer,
    raw: redis.Redis,
    clock: ManualClock,
    namespace: str,
) -> None:
    """The same steps with and without the fault look the same, from the answer to the last record."""
    policy = QueuePolicy(keep=keep, backoff=Backoff.fixed(2))
    options: dict[str, Any] = {"clock": clock, "worker": "me"}
    spared = open_engine(f"{namespace}-spared", url=private.url, **options)
    struck = open_engine(url=proxy.url, **options)
    for name, script, verb in SCRIPTS:
        queues = [engine.queue(name, policy=policy) for engine in (spared, struck)]
        held = [furnished(queue) for queue in queues]
        clock.advance(1)
        wanted = plain(verb(queues[0], held[0]))
        before = len(proxy.eaten)
        FAULTS[fault](proxy, raw, script)
        assert plain(verb(queues[1], held[1])) == wanted, name
        if fault == "replies lost":
            assert len(proxy.eaten) == before + 2, name
        proxy.eat_replies(0)
        assert everything(queues[1]) == everything(queues[0]), name


@pytest.mark.parametrize("lost", [1, 2, 3, 4, 5])
def test_the_first_use_of_a_queue_survives_losses(
    lost: int, open_engine: OpenEngine, proxy: Proxy, raw: redis.Redis
) -> None:
    """Whatever comes first: connecting, comparing, listing, creating, offering."""
    engine = open_engine(url=proxy.url)
    proxy.eat_replies(lost)
    queue = engine.queue("jobs", policy=QueuePolicy(lease=5))
    assert queue.offer("work", id="one").duplicate is False
    assert len(proxy.eaten) == lost
    proxy.eat_replies(0)
    assert [info.name for info in engine.queues()] == ["jobs"]
    assert taken(queue).id == "one"
    assert queue.take() is None


def test_a_pause_that_is_repeated_late_does_not_undo_a_resume(
    open_engine: OpenEngine, proxy: Proxy, private: OwnServer
) -> None:
    """The first answer counts: what others did meanwhile stands."""
    here, there = open_engine(url=proxy.url).queue("jobs"), open_engine(url=private.url).queue("jobs")
    here.offer("work")

    resumed: list[bool] = []

    def first_pause(words: Sequence[bytes]) -> bool:
        if not calls("jobs/pause")(words):
            return False
        if proxy.eaten:
            # before the repeat goes on
            resumed.append(there.info().paused)
            there.resume()
        return not proxy.eaten

    proxy.eat_replies(2, first_pause)
    here.pause()
    assert resumed == [True]
    assert here.info().paused is False


def test_scripts_that_vanish_all_the_time_stop_nobody(
    open_engine: OpenEngine, private: OwnServer, raw: redis.Redis
) -> None:
    """Field case C40: flushed beside a busy worker, and inside bulk calls."""
    queue = open_engine(url=private.url).queue("jobs")
    with repeatedly(lambda: script_flush(raw)):
        offers = queue.offer_many(range(5000))
        done: list[Any] = []
        handed: list[Delivery] = []
        while True:
            answers, handed = queue.exchange(handed, 250)
            assert {*answers} <= {Ack.ACKNOWLEDGED}
            done += [each.value for each in handed]
            if not handed:
                break
    assert [each.duplicate for each in offers] == [False] * 5000
    assert done == list(range(5000))


@contextlib.contextmanager
def repeatedly(act: Callable[[], object], pause: float = 0.005) -> Iterator[None]:
    """Does something over and over while the block runs."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(pause):
            act()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def worked_off(queue: Queue[Any], jobs: int) -> None:
    """Produces and consumes; every job ends completed, at its first attempt."""
    for start in range(0, jobs, 20):
        for offer in queue.offer_many([NewJob(n, id=f"job{n}") for n in range(start, start + 20)]):
            assert offer.duplicate is False
        first = taken(queue)
        queue.renew(first)
        assert queue.ack(first) is Ack.ACKNOWLEDGED
        handed = queue.take_many(9)
        answers, more = queue.exchange(handed, 10)
        assert answers == [Ack.ACKNOWLEDGED] * 9
        assert queue.ack_many(more) == [Ack.ACKNOWLEDGED] * 10
    found = walked(queue, limit=1000)
    assert len(found) == jobs
    assert {(job.state, job.attempts) for job in found} == {(JobState.COMPLETED, 1)}


def test_connections_that_are_cut_at_any_moment(open_engine: OpenEngine, proxy: Proxy) -> None:
    """Field case C01."""
    queue = open_engine(url=proxy.url).queue("jobs")
    queue.pause()
    queue.resume()
    with repeatedly(proxy.cut, 0.015):
        worked_off(queue, 400)
    assert proxy.connections > 3


def test_a_server_that_restarts_in_the_middle(
    open_engine: OpenEngine, open_server: Callable[..., OwnServer], front: str
) -> None:
    """Its append-only file is all that it keeps: scripts and connections are gone."""
    server = open_server("--appendonly", "yes", "--appendfsync", "always")
    queue = open_engine(url=server.url, retry_for=30).queue("jobs")
    failures: list[BaseException] = []
    midway = threading.Semaphore(0)
    resumed = [threading.Event(), threading.Event()]

    def work() -> None:
        try:
            for round in range(4):
                offers = queue.offer_many([NewJob(n, id=f"{round}-{n}") for n in range(200)])
                assert not any(offer.duplicate for offer in offers)
                held = queue.take_many(200)
                assert len(held) == 200
                midway.release()
                # half of the acks meet the restart
                for each in held:
                    assert queue.ack(each) is Ack.ACKNOWLEDGED
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)
            for _ in range(4):
                midway.release()

    worker = threading.Thread(target=work)
    worker.start()
    for _ in resumed:
        midway.acquire()
        server.kill()
        server.start()
    worker.join(50)
    assert not worker.is_alive()
    if failures:
        raise failures[0]
    found = walked(queue, limit=1000)
    assert len(found) == 800
    assert {(job.state, job.attempts) for job in found} == {(JobState.COMPLETED, 1)}


# What is certain, and what is not.

WRITES = [entry for entry in SCRIPTS if entry[1] not in ("jobs/get", "jobs/list", "jobs/info", "jobs/past")]
READS = [entry for entry in SCRIPTS if entry not in WRITES]


def test_what_was_sent_and_never_answered_is_uncertain(
    open_engine: OpenEngine, proxy: Proxy, clock: ManualClock
) -> None:
    engine = open_engine(url=proxy.url, clock=clock, retry_for=0.05)
    for name, script, verb in SCRIPTS:
        queue = engine.queue(name)
        held = furnished(queue)
        proxy.eat_replies(10**6, calls(script))
        expected = IndeterminateWrite if (name, script, verb) in WRITES else Unavailable
        with pytest.raises(expected) as caught:
            verb(queue, held)
        proxy.eat_replies(0)
        if isinstance(caught.value, IndeterminateWrite):
            assert caught.value.operation
            assert caught.value.operation in str(caught.value)


def test_what_never_got_out_is_certain(open_engine: OpenEngine, private: OwnServer, clock: ManualClock) -> None:
    with Proxy(private.url) as proxy:
        engine = open_engine(url=proxy.url, clock=clock, retry_for=0.02)
        queue = engine.queue("jobs")
        held = furnished(queue)
        before = everything(queue)
        proxy.close()
        # a connection that ended while it lay idle is found out by the first that uses it
        with pytest.raises(Unavailable):
            queue.counts()
        for _, _, verb in SCRIPTS:
            with pytest.raises(Unavailable):
                verb(queue, held)
        with pytest.raises(Unavailable):
            engine.queue("new").offer("work")
    assert everything(open_engine(url=private.url, clock=clock).queue("jobs")) == before


def test_an_uncertain_error_says_what_it_is_about(open_engine: OpenEngine, proxy: Proxy) -> None:
    queue = open_engine(url=proxy.url, retry_for=0.05).queue("jobs")
    queue.offer("work", id="one")
    held = taken(queue)
    proxy.eat_replies(10**6, calls("jobs/settle"))
    with pytest.raises(IndeterminateWrite) as caught:
        queue.ack(held)
    assert (caught.value.operation, caught.value.ids) == ("ack", ("one",))
    proxy.eat_replies(0)
    # the user asks again with the token, and knows
    assert queue.ack(held) is Ack.ALREADY_ACKNOWLEDGED


def test_a_bulk_offer_that_breaks_off_says_how_far_it_got(open_engine: OpenEngine, proxy: Proxy) -> None:
    queue = open_engine(url=proxy.url, retry_for=0.05).queue("jobs")
    queue.pause()
    proxy.eat_replies(10**6, after(1, calls("jobs/offer")))
    with pytest.raises(IndeterminateWrite) as caught:
        queue.offer_many([NewJob(n, id=f"n{n}") for n in range(2500)])
    assert [each.id for each in caught.value.done] == [f"n{n}" for n in range(1000)]  # type: ignore[attr-defined]
    assert caught.value.ids == tuple(f"n{n}" for n in range(1000, 2000))
    proxy.eat_replies(0)
    # in doubt, and in fact there; the third chunk was never sent
    assert queue.counts()[JobState.READY] == 2000


def test_a_bulk_offer_that_fills_the_server_says_how_far_it_got(own_server: OwnServer, open_engine: OpenEngine) -> None:
    """The first chunk stands, and is told; the second was refused whole."""
    queue = open_engine(url=own_server.url).queue("jobs")
    with own_server.client() as client, full_memory(client, room=1_500_000):
        with pytest.raises(OutOfMemory) as caught:
            queue.offer_many([f"{n:>1000}" for n in range(20_000)])
    assert 0 < len(caught.value.done) == queue.counts()[JobState.READY] < 20_000
    listed = queue.jobs(state=JobState.READY).items
    assert {job.id for job in listed} <= {offer.id for offer in caught.value.done}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("after_script", "act"),
    [
        ("jobs/exchange", lambda queue, events, held: queue.exchange([held], 1, wait=5)),
        ("events/emit", lambda queue, events, held: events.emit_many([NewEvent(1, id="new"), NewEvent(0, id="old")])),
    ],
    ids=["exchange that waits", "emit_many with a duplicate"],
)
def test_what_was_applied_is_never_unavailable(
    after_script: str, act: Callable[..., Any], open_engine: OpenEngine, proxy: Proxy
) -> None:
    """The first script of a story ran and was answered; what it did is told when a later one finds no server."""
    engine = open_engine(url=proxy.url, retry_for=0.05)
    queue, events = engine.queue("jobs"), engine.events("news")
    events.subscribe("reader")
    events.emit(0, id="old")
    queue.offer("x")
    (held,) = queue.exchange([], 1)[1]
    events.emit(2)
    answered = calls(after_script)
    proxy.eat_replies(10**6, lambda words: not answered(words))
    with pytest.raises(IndeterminateWrite) as caught:
        act(queue, events, held)
    assert len(caught.value.done) == (1 if after_script == "jobs/exchange" else 2)


def after(count: int, match: Match) -> Match:
    """Matches all but the first `count`."""
    left = [count]

    def matches(words: Sequence[bytes]) -> bool:
        if not match(words):
            return False
        left[0] -= 1
        return left[0] < 0

    return matches


# Field case C01: the library's own retry. C39: its time-outs. C46: the user's own client.


def test_a_slow_server_runs_a_take_once(private: OwnServer, raw: redis.Redis, namespace: str) -> None:
    """C01: with the library's default retry and a short time-out a command ran twice."""
    with (
        redis.Redis.from_url(private.url, socket_timeout=0.2) as client,
        Engine.from_client(client, namespace=namespace) as engine,
    ):
        queue = engine.queue("jobs")
        queue.offer_many(["one", "two"])
        with freeze(raw, 0.5):
            held = taken(queue)
        counts = queue.counts()
        assert (counts[JobState.LEASED], counts[JobState.READY]) == (1, 1)
        with freeze(raw, 0.5):
            failure = queue.fail(held, "no")
        assert failure.state is JobState.SCHEDULED
        assert len(queue.attempts(held.id)) == 1


def test_an_idle_wait_outlives_the_socket_timeout(
    private: OwnServer, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """C39."""
    for timeout in (0.5, None):
        with (
            redis.Redis.from_url(private.url, socket_timeout=timeout) as client,
            Engine.from_client(client, namespace=namespace) as engine,
        ):
            queue = engine.queue("jobs")
            queue.pause()
            queue.resume()
            with caplog.at_level(logging.DEBUG, "redisq"):
                assert queue.take(wait=1.2) is None
            assert caplog.records == []


def test_a_silent_peer_is_noticed(open_engine: OpenEngine, proxy: Proxy, private: OwnServer) -> None:
    """C39: nothing arrives any more, and no connection ends; the wait finds another way by itself."""
    url = f"{proxy.url}?socket_timeout=0.3"
    queue = open_engine(url=url, retry_for=30).queue("jobs")
    queue.pause()
    queue.resume()
    found: list[Delivery | None] = []
    waiter = threading.Thread(target=lambda: found.append(queue.take(wait=40)))
    before = proxy.connections
    waiter.start()
    proxy.stall()
    # the waiter gives up on the silent connection and makes another
    for _ in range(1000):
        if proxy.connections > before:
            break
        threading.Event().wait(0.01)
    assert proxy.connections > before
    proxy.resume()
    open_engine(url=private.url).queue("jobs").offer("work", id="job")
    waiter.join(BOUND)
    assert [each.id for each in found if each is not None] == ["job"]


SETTINGS: list[dict[str, Any]] = [
    {"decode_responses": True},
    {"protocol": 3},
    {"protocol": 3, "decode_responses": True},
    {"encoding": "latin-1"},
    {"db": 5},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_users_own_client(settings: dict[str, Any], private: OwnServer, namespace: str) -> None:
    """C46: it works whatever its settings, or is refused at once."""
    with (
        redis.Redis(port=private.port, **settings) as client,
        Engine.from_client(client, namespace=namespace) as engine,
    ):
        queue = engine.queue("jobs", bytes, codec="msgpack")
        payload = bytes(range(256))
        queue.offer(payload, id="é☃", name="\x00")
        held = taken(queue)
        assert (held.value, held.id, held.name) == (payload, "é☃", "\x00")
        queue.ack(held, "é")
        job = queue.get("é☃")
        assert isinstance(job, Job)
        assert (job.value, job.result) == (payload, "é")
        assert client.get("nothing") is None


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_users_own_async_client(settings: dict[str, Any], private: OwnServer, namespace: str) -> None:
    async def story() -> None:
        async with (
            redis.asyncio.Redis(port=private.port, **settings) as client,
            AsyncEngine.from_client(client, namespace=namespace) as engine,
        ):
            queue = engine.queue("jobs", bytes, codec="msgpack")
            await queue.offer(bytes(range(256)), id="é☃")
            held = await queue.take()
            assert held is not None
            assert held.value == bytes(range(256))
            assert await queue.ack(held) is Ack.ACKNOWLEDGED

    asyncio.run(story())


def test_a_client_of_the_other_world_is_refused_at_once(private: OwnServer) -> None:
    with redis.Redis(port=private.port) as client, pytest.raises(InvalidInput):
        AsyncEngine.from_client(client)
    with pytest.raises(InvalidInput):
        Engine.from_client(redis.asyncio.Redis(port=private.port))


def test_the_kit_matches_what_it_should() -> None:
    """The faults above would prove nothing if they never met their request."""
    assert anything([b"PING"])
    assert command("BLPOP")([b"blpop", b"x"])
    assert not calls("jobs/take")([b"EVALSHA", b"0" * 40])
