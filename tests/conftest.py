"""Fixtures of the whole suite. How to write a test stands in tests/README.md."""

from __future__ import annotations

import secrets
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio
import redis

from redisq import AsyncEngine, Engine, Queue
from redisq.testing import ManualClock
from redisq.testing.check import check
from tests.support.fronts import LoopThread, OpenEngine, sync_face_of
from tests.support.servers import NoServer, OwnServer, Pool, Server, own_server as start_own_server

FRONTS = ("sync", "async")
POOL = pytest.StashKey[Pool]()
VERSIONS = pytest.StashKey[dict[str, str]]()


def pytest_configure(config: pytest.Config) -> None:
    # a shell that starts the suite in its background has SIGINT ignored, by us and by all that we start
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[POOL] = Pool()
    config.stash[VERSIONS] = {}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Both fronts on the main server and on fakeredis, whose asyncio side is another one; the sync front on the others.

    What differs between servers is behind the wire, and what differs between fronts is before it.
    """
    fronts = FRONTS if "front" in metafunc.fixturenames else ()
    chosen_itself = any(mark.args[0] == "server" for mark in metafunc.definition.iter_markers("parametrize"))
    if "server" not in metafunc.fixturenames or chosen_itself:
        if fronts:
            metafunc.parametrize("front", fronts)
        return
    every = metafunc.definition.get_closest_marker("every_server") is not None
    real = metafunc.definition.get_closest_marker("real_server") is not None
    names = metafunc.config.stash[POOL].names(every=every, fake=not real)
    if not fronts:
        metafunc.parametrize("server", names, indirect=True, scope="session")
        return
    both = (names[0], "fakeredis")
    pairs = [(front, name) for name in names for front in fronts if front == "sync" or name in both]
    metafunc.parametrize(("front", "server"), pairs, indirect=["server"], scope="session")


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Server:
    """The server that the test runs on."""
    pool = request.config.stash[POOL]
    try:
        return pool.get(request.param)
    except NoServer as error:
        if pool.kinds[request.param].required:
            pytest.fail(f"the suite needs this server: {error}", pytrace=False)
        pytest.skip(str(error))


@pytest.fixture
def open_server() -> Iterator[Callable[..., OwnServer]]:
    """Starts private servers of the main kind, with more options if given (`"--appendonly", "yes"`)."""
    servers: list[OwnServer] = []

    def start(*options: str) -> OwnServer:
        servers.append(start_own_server(*options))
        return servers[-1]

    yield start
    for each in servers:
        each.stop()


@pytest.fixture
def own_server(open_server: Callable[..., OwnServer]) -> OwnServer:
    """A private server, for a test that stops, fills or flushes it."""
    return open_server()


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test uses."""
    return f"t{secrets.token_hex(6)}"


@pytest.fixture
def raw(server: Server) -> Iterator[redis.Redis]:
    """A plain client of the same server, for looks and for damage."""
    with server.client() as client:
        yield client


@pytest.fixture
def clock() -> ManualClock:
    """The time that `engine` and `queue` live in."""
    return ManualClock()


@pytest.fixture
def open_engine(server: Server, front: str, namespace: str, request: pytest.FixtureRequest) -> Iterator[OpenEngine]:
    """Opens engines of the test's front end; all share the test's namespace unless told otherwise."""
    default_namespace, namespaces = namespace, {namespace}
    thread = LoopThread() if front == "async" else None
    engines: list[Engine] = []

    def open_one(namespace: str | None = None, clock: ManualClock | None = None, **options: Any) -> Engine:
        namespace = namespace or default_namespace
        namespaces.add(namespace)
        options = {"url": server.url, "namespace": namespace, "clock": clock, **options}
        engine = Engine(**options) if thread is None else sync_face_of(thread, lambda: AsyncEngine(**options))
        engines.append(engine)
        return engine

    try:
        yield open_one
    finally:
        for engine in engines:
            engine.close()
        if thread is not None:
            thread.close()
    if request.node.get_closest_marker("leaves_damage") is None:
        assert [found for each in sorted(namespaces) for found in damage(server, each)] == []


@pytest_asyncio.fixture
async def open_async_engine(server: Server, namespace: str) -> AsyncIterator[Callable[..., AsyncEngine]]:
    """Opens `AsyncEngine`s as they are, for tests of what only async code can do."""
    engines: list[AsyncEngine] = []

    def open_one(**options: Any) -> AsyncEngine:
        engines.append(AsyncEngine(**{"url": server.url, "namespace": namespace, **options}))
        return engines[-1]

    yield open_one
    for engine in engines:
        await engine.aclose()


@pytest.fixture
def engine(open_engine: OpenEngine, clock: ManualClock) -> Engine:
    """An engine whose time is `clock`."""
    return open_engine(clock=clock)


@pytest.fixture
def queue(engine: Engine) -> Queue[Any]:
    """The job queue "jobs" of `engine`."""
    return engine.queue("jobs")


@pytest.fixture
def keys(raw: redis.Redis, namespace: str) -> Callable[..., list[str]]:
    """Lists the keys of the test's namespace, or of an engine's, sorted."""

    def names(of: Engine | None = None) -> list[str]:
        wanted = namespace if of is None else of.namespace
        return sorted(key.decode() for key in raw.scan_iter(match=f"*{wanted}*", count=1000))

    return names


def damage(server: Server, namespace: str) -> list[str]:
    """What `check` finds in the queues of a namespace."""
    found: list[str] = []
    with Engine(server.url, namespace=namespace) as engine:
        for info in engine.queues():
            found += check(engine.queue(info.name) if info.kind == "jobs" else engine.events(info.name))
    return found


# What the summary says about servers: each worker process of xdist reports the ones that it started.


def pytest_sessionfinish(session: pytest.Session) -> None:
    pool = session.config.stash[POOL]
    session.config.stash[VERSIONS].update(pool.versions)
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["servers"] = pool.versions
    pool.close()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    node.config.stash[VERSIONS].update(getattr(node, "workeroutput", {}).get("servers", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.section("servers")
    for name, version in sorted(config.stash[VERSIONS].items()):
        terminalreporter.line(f"{name}: {version}")
    for reason in config.stash[POOL].skipped():
        terminalreporter.line(f"SKIPPED {reason}", yellow=True)
