"""`redisq doctor`: is this server set up for queues, and how are they?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import click
import msgspec
import redis

from redisq.calls import operate
from redisq.calls.core import QueueCore
from redisq.cli import show
from redisq.cli.app import App, examples, json_option, pass_app
from redisq.cli.check import FOUND
from redisq.errors import CorruptRecord, RedisqError
from redisq.model import JobState, QueueInfo

OK, NOTE, WARNING, PROBLEM = "ok", "note", "warning", "problem"

MANY_JOBS = 4_000_000
"""Jobs of one queue from which a rehash of its tables stops the server for a noticeable while."""
SLOW_MS = 5.0
"""A script that does next to nothing takes less than this on a healthy server of one network."""
CLOCK_MS = 1000
OVERDUE_MS = 60_000
LAG_S = 10
PROBES = 20
MASTER = "master"


class Finding(msgspec.Struct, frozen=True):
    """`level` ok and note are no findings; a warning or problem makes the exit code 4, and `advice` says what to do."""

    subject: str
    level: str
    message: str
    advice: str = ""


class Server:
    """The sections of INFO as one mapping; what access rules hide is absent."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.fields: dict[str, str] = {}
        for section in ("server", "memory", "persistence", "replication", "stats"):
            self.fields.update(_info(app, section))

    def __getitem__(self, name: str) -> str:
        return self.fields.get(name, "")

    def number(self, name: str) -> int:
        return int(self[name] or 0)

    def setting(self, name: str) -> str | None:
        """A setting that INFO does not tell; None when it may not be read."""
        try:
            (reply,) = self.app.commands(("CONFIG", "GET", name))
        except RedisqError:
            return None
        return reply[1].decode() if len(reply) > 1 else None


@click.command("doctor", epilog=examples("redisq doctor", "redisq doctor --json"))
@json_option
@pass_app
def command(app: App, as_json: bool) -> None:
    """Look at the server and at every queue of the namespace, and say what to do about what is wrong.

    It only reads. Exit code 4 means that there is a warning or a problem.

    --json prints the list of what was looked at: subject, level (ok, note, warning or problem), message, advice.
    """
    findings = list(_examine(app))
    if as_json:
        show.document(findings)
    else:
        room = max(len(finding.subject) for finding in findings)
        for finding in findings:
            level = click.style(f"{finding.level:<7}", fg=show.COLOURS.get(finding.level))
            click.echo(f"{level}  {finding.subject:<{room}}  {show.escaped(finding.message)}")
            if finding.advice:
                click.echo(f"{'':<{room + 9}}  -> {finding.advice}")
    if any(finding.level in (WARNING, PROBLEM) for finding in findings):
        raise SystemExit(FOUND)


def _examine(app: App) -> Iterator[Finding]:
    app.commands(("PING",))  # no server is an error of its own, and not twenty findings
    server = Server(app)
    for look in (_version, _eviction, _persistence, _replication, _clock):
        yield from look(server)
    if server["role"] in ("", MASTER):  # a replica runs no script
        yield from _latency(server)
        yield from _queues(app)


def _version(server: Server) -> Iterator[Finding]:
    product = "Valkey" if server["valkey_version"] else "Redis"
    version = server["valkey_version"] or server["redis_version"]
    if version:
        # one that is too old is refused before anything else
        yield Finding("version", OK, f"{product} {version}")
    else:
        yield Finding("version", NOTE, "the server does not tell", "let doctor see more: grant this user +info")


def _eviction(server: Server) -> Iterator[Finding]:
    policy = server["maxmemory_policy"]
    limit, used = server.number("maxmemory"), server.number("used_memory")
    if not policy:
        yield Finding("memory", NOTE, "the server does not tell")
        return
    room = f"{used / 1e6:.0f} MB used of {limit / 1e6:.0f} MB" if limit else f"{used / 1e6:.0f} MB used, no limit"
    if policy.startswith("allkeys-"):
        yield Finding("memory", PROBLEM, f"maxmemory-policy is {policy}: a full server deletes jobs",
                      "CONFIG SET maxmemory-policy noeviction, and the same in its file")  # fmt: skip
    elif policy != "noeviction":
        yield Finding("memory", OK, f"maxmemory-policy is {policy}: keys of queues have no time to live; {room}")
    else:
        yield Finding("memory", OK, f"maxmemory-policy is noeviction; {room}")
    if limit and used > 0.9 * limit:
        yield Finding("memory", WARNING, f"{room}: a full server takes no new jobs",
                      "raise maxmemory, purge finished jobs, or keep fewer of them (redisq policy set)")  # fmt: skip


def _persistence(server: Server) -> Iterator[Finding]:
    if server["aof_enabled"] == "1":
        fsync = server.setting("appendfsync")
        if fsync == "no":
            yield Finding("persistence", WARNING, "appendfsync is no: a crash of the machine loses half a minute",
                          "CONFIG SET appendfsync everysec")  # fmt: skip
        else:
            yield Finding("persistence", OK, f"append-only file, appendfsync {fsync or 'not told'}")
        if server["aof_last_write_status"] not in ("", "ok"):
            yield Finding("persistence", PROBLEM, "the last write to the append-only file failed",
                          "see the server's log; is the disk full?")  # fmt: skip
    elif server["aof_enabled"] == "0":
        saves = server.setting("save")
        kept = "nothing is kept over a restart" if saves == "" else "jobs since the last snapshot are lost with a crash"
        yield Finding("persistence", WARNING, f"no append-only file: {kept}",
                      "CONFIG SET appendonly yes, and the same in its file")  # fmt: skip
    if server["rdb_last_bgsave_status"] not in ("", "ok"):
        yield Finding("persistence", PROBLEM, "the last snapshot failed", "see the server's log; is the disk full?")


def _replication(server: Server) -> Iterator[Finding]:
    role, replicas = server["role"], server.number("connected_slaves")
    if not role:
        yield Finding("replication", NOTE, "the server does not tell")
        return
    if role != MASTER:
        yield Finding("replication", PROBLEM, "this server is a replica: it takes no writes",
                      "give the master's URL, or sentinel://")  # fmt: skip
        return
    if not replicas:
        yield Finding("replication", NOTE, "no replica: what this machine loses is lost")
        return
    behind = server.number("master_repl_offset")
    for at in range(replicas):
        replica = dict(pair.partition("=")[::2] for pair in server[f"slave{at}"].split(","))
        yield _replica(server, replica, behind)
    if server.setting("min-replicas-to-write") == "0":
        yield Finding("replication", WARNING, "min-replicas-to-write is 0: a master that is cut off goes on",
                      "CONFIG SET min-replicas-to-write 1 min-replicas-max-lag 10")  # fmt: skip


def _replica(server: Server, replica: dict[str, str], written: int) -> Finding:
    name = f"{replica.get('ip')}:{replica.get('port')}"
    lag, state = int(replica.get("lag") or 0), replica.get("state", "")
    missing = max(written - int(replica.get("offset") or 0), 0)
    told = f"replica {name} is {state}, {missing:,} bytes and {lag} s behind{_replica_clock(server, replica)}"
    if state != "online" or lag > LAG_S:
        return Finding(
            "replication", WARNING, told, "a failover to it loses what it lacks: see its log, and the network"
        )
    return Finding("replication", OK, told)


def _replica_clock(server: Server, replica: dict[str, str]) -> str:
    """How far its clock is off the master's: fences grow across a failover that takes longer than that."""
    options = server.app.engine._sender._target.options
    access = {name: options[name] for name in ("username", "password") if options.get(name)}
    client = redis.Redis(host=replica.get("ip", ""), port=int(replica.get("port") or 0), socket_timeout=2,
                         socket_connect_timeout=2, **access)  # fmt: skip
    with client:
        try:
            theirs = _offset_ms(client.time)
        except (redis.RedisError, OSError):
            return ", its clock can't be asked from here"
    ours = _offset_ms(lambda: server.app.commands(("TIME",))[0])
    return f", its clock is {show.span(abs(theirs - ours))} off the master's"


def _clock(server: Server) -> Iterator[Finding]:
    off = min((_offset_ms(lambda: server.app.commands(("TIME",))[0]) for _ in range(3)), key=abs)
    told = f"the server's clock is {show.span(abs(off))} {'ahead of' if off > 0 else 'behind'} this machine's"
    if abs(off) < CLOCK_MS:
        yield Finding("clock", OK, told)
    else:
        yield Finding("clock", WARNING, told, "queues go by the server's, and `at` is meant by yours: run NTP on both")


def _offset_ms(ask: Callable[[], Any]) -> float:
    """How far ahead another clock is, by the middle of a round trip."""
    sent = time.time()
    seconds, micros = ask()
    got = time.time()
    return (int(seconds) + int(micros) / 1e6 - (sent + got) / 2) * 1000


def _latency(server: Server) -> Iterator[Finding]:
    core = _nowhere(server.app)
    server.app.run(operate.info_if_there(core))  # loads the script
    taken = []
    for _ in range(PROBES):
        started = time.perf_counter()
        server.app.run(operate.info_if_there(core))
        taken.append((time.perf_counter() - started) * 1000)
    told = f"a script takes {statistics.median(taken):.2f} ms there and back, at most {max(taken):.2f}"
    if statistics.median(taken) < SLOW_MS:
        yield Finding("latency", OK, told)
    else:
        yield Finding("latency", WARNING, told, "see SLOWLOG GET and LATENCY DOCTOR there, and the network between")


def _nowhere(app: App) -> QueueCore:
    """A queue that nobody has: a read of it costs a call and nothing else."""
    return app.registry.core("redisq doctor: no such queue")


def _queues(app: App) -> Iterator[Finding]:
    now = time.time() * 1000 + _offset_ms(lambda: app.commands(("TIME",))[0])
    for kind, name in app.listed():
        subject = f"{kind} {show.escaped(name)}"
        try:
            info = app.queue(name, kind).info()
        except click.ClickException:
            continue  # listed, and gone
        except CorruptRecord as error:
            yield Finding(subject, PROBLEM, str(error), f"redisq check {show.escaped(name)}")
            continue
        yield from _queue(subject, info, now)
        if kind == "jobs":
            yield from _overdue(app, subject, info, now)


def _queue(subject: str, info: QueueInfo, now: float) -> Iterator[Finding]:
    total = sum(info.counts.values())
    aside = info.counts.get(JobState.QUARANTINED, 0)  # type: ignore[call-overload]
    oldest = "" if info.oldest_ms is None else f", the next one is {show.span(now - info.oldest_ms)} old"
    quarantined = f", {aside:,} quarantined" if info.kind == "jobs" else ""
    told = f"{total:,} {'jobs' if info.kind == 'jobs' else 'active'}, {info.dead:,} dead{quarantined}{oldest}"
    if total >= MANY_JOBS:
        yield Finding(subject, WARNING, told, "its tables grow by stopping the server for a moment: "
                      "purge finished jobs, keep fewer (redisq policy set), or split the queue")  # fmt: skip
    elif info.dead or aside:
        verb = "dead errors" if info.kind == "jobs" else "subs list"
        yield Finding(subject, NOTE, told, f"nobody removes those: see `redisq {verb} {show.escaped(info.name)}`")
    else:
        yield Finding(subject, OK, told)
    if info.paused:
        yield Finding(subject, NOTE, "it is paused", f"go on with `redisq resume {show.escaped(info.name)}`")


def _overdue(app: App, subject: str, info: QueueInfo, now: float) -> Iterator[Finding]:
    """Jobs whose time came long ago: nobody takes and nobody sweeps."""
    if info.paused:
        return
    root = app.registry.core(info.name).root
    for index, what in (("leased", "a lease that ran out"), ("sched", "a job that was due")):
        (first,) = app.commands(("ZRANGE", f"{root}:{index}", 0, 0, "WITHSCORES"))
        if first and now - float(first[1]) > OVERDUE_MS:
            yield Finding(subject, WARNING, f"{what} {show.span(now - float(first[1]))} ago still lies there",
                          "no worker takes from this queue: start one, or at least `redisq sweep`")  # fmt: skip


def _info(app: App, section: str) -> dict[str, str]:
    try:
        (reply,) = app.commands(("INFO", section))
    except RedisqError:
        return {}
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines() if ":" in line)
    return {name: value.strip() for name, _, value in lines}
