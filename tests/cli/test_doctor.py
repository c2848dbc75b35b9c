"""`doctor` says what to do about a server; `bench` leaves nothing behind."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from redisq import Engine, Queue
from tests.cli.conftest import Cli, stopped, until
from tests.faults.damage import used_memory
from tests.support.servers import OwnServer

SAFE = ("--appendonly", "yes")


@pytest.fixture
def ask(cli: Cli) -> Callable[..., dict[str, dict[str, Any]]]:
    """What `doctor` finds on a server: the worst finding of each subject."""
    rank = ["ok", "note", "warning", "problem"]

    def asked(server: OwnServer, code: int) -> dict[str, dict[str, Any]]:
        found = cli("doctor", "--json", code=code, env={"REDISQ_URL": server.url}).json
        return {each["subject"]: each for each in sorted(found, key=lambda each: rank.index(each["level"]))}

    return asked


def test_a_good_server(open_server: Callable[..., OwnServer], ask: Any) -> None:
    found = ask(open_server(*SAFE), 0)
    assert {name: each["level"] for name, each in found.items()} == {
        "version": "ok", "memory": "ok", "persistence": "ok", "replication": "note", "clock": "ok", "latency": "ok",
    }  # fmt: skip
    assert "Valkey" in found["version"]["message"]


def test_what_is_wrong_and_what_to_do(open_server: Callable[..., OwnServer], ask: Any) -> None:
    found = ask(open_server("--maxmemory-policy", "allkeys-lru", "--maxmemory", "1mb"), 4)
    assert found["memory"]["level"] == "problem"
    assert "noeviction" in found["memory"]["advice"]
    assert found["persistence"]["level"] == "warning"
    assert "nothing is kept over a restart" in found["persistence"]["message"]
    found = ask(open_server(*SAFE, "--appendfsync", "no"), 4)
    assert "appendfsync everysec" in found["persistence"]["advice"]


def test_a_server_that_is_nearly_full_is_told_before(open_server: Callable[..., OwnServer], ask: Any) -> None:
    server = open_server(*SAFE)
    with server.client() as client:
        used = used_memory(client)
        client.config_set("maxmemory", used * 2)
        assert ask(server, 0)["memory"]["level"] == "ok"
        client.config_set("maxmemory", int(used_memory(client) * 1.05))
        found = ask(server, 4)["memory"]
    assert found["level"] == "warning"
    assert "a full server takes no new jobs" in found["message"]
    assert "raise maxmemory" in found["advice"]


def test_replicas_their_lag_and_clocks(open_server: Callable[..., OwnServer], ask: Any) -> None:
    master = open_server(*SAFE)
    replica = open_server("--replicaof", "127.0.0.1", str(master.port))
    with master.client() as client:
        until(lambda: "state=online" in str(client.info("replication")).replace("': '", "="), "the replica")
    found = ask(master, 4)
    assert "min-replicas-to-write is 0" in found["replication"]["message"]
    with master.client() as client:
        client.config_set("min-replicas-to-write", 1)
    message = ask(master, 0)["replication"]["message"]
    assert f"replica 127.0.0.1:{replica.port} is online, " in message
    assert "off the master's" in message
    assert ask(replica, 4)["replication"]["advice"] == "give the master's URL, or sentinel://"


def test_every_queue(cli: Cli, shop: Engine, furnished: Queue[Any], raw: redis.Redis) -> None:
    bills = shop.queue("bills")
    bills.offer(1, delay=0.001)
    bills.offer(2)
    root = bills._core.root
    (id,) = (job.id for job in bills.jobs(state="scheduled").items)
    raw.zadd(f"{root}:sched", {id: 1})
    shown = cli("doctor", code=4)
    assert "6 jobs, 1 dead, 1 quarantined, the next one is" in shown.out
    assert "see `redisq dead errors mails`" in shown.out
    assert "a job that was due" in shown.out
    assert "no worker takes from this queue" in shown.out


def test_a_user_who_may_not_ask_gets_fewer_answers(own_server: OwnServer, cli: Cli) -> None:
    with own_server.client() as client:
        client.execute_command("ACL", "SETUSER", "eye", "on", ">pw", "~*", "+@all", "-config", "-info")
    found = cli("doctor", "--json", env={"REDISQ_URL": own_server.url.replace("//", "//eye:pw@")}).json
    assert {each["subject"]: each["level"] for each in found}["version"] == "note"


def test_bench_measures_and_cleans_up(own_server: OwnServer, cli: Cli, tmp_path: Path) -> None:
    measured = cli("bench", "--jobs", "20", "--batch", "10", "--json", env={"REDISQ_URL": own_server.url}).json
    assert [(each["verb"], each["batch"]) for each in measured] == [
        (verb, batch) for batch in (1, 10) for verb in ("offer", "take", "ack", "exchange")
    ]
    assert all(each["jobs_per_second"] > 0 for each in measured)
    beside_the_limit = {each["verb"] for each in measured if (each["limit_jobs_per_second"] or 0) > 0}
    assert beside_the_limit == {"offer", "exchange"}
    with own_server.client() as client:
        assert client.dbsize() == 0
    assert cli("bench", "--jobs", "10", "--batch", "5", env={"REDISQ_URL": own_server.url}).lines[0].startswith("VERB")
    assert "bench" in cli.terminal("bench", "--jobs", "10", columns=120, env={"REDISQ_URL": own_server.url}).out


def test_bench_interrupted_leaves_nothing_behind(own_server: OwnServer, cli: Cli) -> None:
    process = cli.start("bench", "--jobs", "1000000", env={"REDISQ_URL": own_server.url})
    with own_server.client() as client:
        until(lambda: bool(client.keys("*:limit}:ready")), "both sides' jobs")
        stopped(process, signal.SIGINT)
        assert client.dbsize() == 0
