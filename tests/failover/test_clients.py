"""Ways to the master: through Sentinels that are dead, silent or refuse, and through a client of the user's own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
import redis
import redis.asyncio.sentinel
import redis.sentinel

from redisq import AsyncEngine, Engine, Unavailable
from tests.failover.conftest import PASSWORD, SENTINEL_PASSWORD, USER
from tests.support.fronts import LoopThread, OpenEngine, sync_face_of
from tests.support.sentinel import SERVICE, Topology

SECRETS = {each for secret in (PASSWORD, SENTINEL_PASSWORD) for each in (secret, quote(secret, safe=""))}


def test_a_dead_first_sentinel_and_a_silent_second(topology: Topology, open_engine: OpenEngine) -> None:
    topology.kill_sentinel(0)
    topology.sentinels[1].freeze()
    # without any time for repeats
    assert open_engine(retry_for=0).queue("jobs").offer("work").duplicate is False


def test_no_sentinel_at_all(topology: Topology, open_engine: OpenEngine) -> None:
    """A master that answers needs none. A new client does, and says which it asked."""
    queue = open_engine().queue("jobs")
    queue.offer("work")
    for number in range(3):
        topology.kill_sentinel(number)
    assert queue.take() is not None
    with pytest.raises(Unavailable, match=f"no Sentinel names a master for '{SERVICE}': 127.0.0.1:"):
        open_engine(retry_for=0).queue("jobs").offer("work")
    topology.heal()


@pytest.mark.parametrize(
    ("secret", "named"), [(SENTINEL_PASSWORD, "Sentinel refused the login"), (PASSWORD, "")], ids=["sentinel", "server"]
)
def test_a_wrong_password_is_told_at_once(
    topology: Topology, open_engine: OpenEngine, secret: str, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = topology.url.replace(quote(secret, safe=""), "wr%23ng")
    # a repeat would take longer than the test may
    engine = open_engine(url=url, retry_for=600)
    with pytest.raises(Unavailable, match=f"{named}.*invalid username-password pair") as caught:
        engine.queue("jobs").offer("work")
    told = [*_texts(caught.value), caplog.text]
    assert [text for text in told if any(word in text for word in {*SECRETS, "wr%23ng", "wr#ng"})] == []
    open_engine().queue("jobs").offer("work")


def test_a_sentinel_that_dies_midway(
    topology: Topology, open_engine: OpenEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """And nothing that is told of a failover shows a password."""
    caplog.set_level(logging.DEBUG)
    queue, hasty = open_engine(retry_for=30).queue("jobs"), open_engine(retry_for=0).queue("jobs")
    queue.offer("first", id="a", replicas=2)
    topology.kill_sentinel(0)  # the one that was asked
    topology.kill_master()
    with pytest.raises(Unavailable) as caught:
        hasty.take()
    assert queue.offer("again", id="a").duplicate
    delivery = queue.take()
    assert delivery is not None
    assert delivery.value == "first"
    told = [*_texts(caught.value), caplog.text]
    assert [text for text in told if any(secret in text for secret in SECRETS)] == []


def _texts(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield f"{error!r} {error}"
        error = error.__cause__ or error.__context__


def test_a_client_of_the_users_own(topology: Topology, front: str, namespace: str) -> None:
    """Followed through a failover, left as it was, and good for another process."""
    asynchronous = front == "async"
    kind: Any = redis.asyncio.sentinel.Sentinel if asynchronous else redis.sentinel.Sentinel
    manager = kind(
        [("127.0.0.1", 1), *(("127.0.0.1", sentinel.port) for sentinel in topology.sentinels)],
        sentinel_kwargs={"password": SENTINEL_PASSWORD},
        min_other_sentinels=2,
        username=USER,
        password=PASSWORD,
        protocol=3,
    )
    client = manager.master_for(SERVICE, decode_responses=True)
    before = list(manager.sentinels)
    thread = LoopThread()
    options: dict[str, Any] = {"namespace": namespace, "retry_for": 20}
    with (
        sync_face_of(thread, lambda: AsyncEngine.from_client(client, **options))
        if asynchronous
        else Engine.from_client(client, **options)
    ) as engine:
        assert not any(secret in repr(engine) for secret in SECRETS)
        engine.queue("jobs").offer("work", id="a", replicas=1)
        topology.kill_master()
        with Engine(engine.url, namespace=namespace, retry_for=20) as twin:
            delivery = twin.queue("jobs").take()
            assert delivery is not None
        assert engine.queue("jobs").ack(delivery) == "acknowledged"
    thread.close()
    assert manager.sentinels == before
    assert all(sentinel.connection_pool._available_connections == [] for sentinel in before)
    if asynchronous:
        asyncio.run(client.aclose())
    else:
        client.close()
