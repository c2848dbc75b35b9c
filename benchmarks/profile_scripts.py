"""Where the time of one script call goes: in the commands that it runs, and in Lua itself, step by step.

    python -m benchmarks.profile_scripts [--against FOLDER]

A script's own time is what its commands do not account for: moving arguments and replies, building its modules, opening
the queue, and its body. The first three are measured with the same arguments on the same script cut short there. With
`--against` another copy of lua/ is measured in turn with this one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import click
import redis

from benchmarks.folders import lua_from
from benchmarks.meter import Meter, Reading
from benchmarks.report import Spread, machine, save, say, short, table
from benchmarks.servers import connected, rounds_option, running, servers_option
from benchmarks.verbs import PAYLOAD, VERBS, Verbs, calls_for, fill, finish, queue_on
from redisq import Engine, NewJob, Queue
from redisq.calls import Call, consume, produce
from redisq.demo.screen import Progress
from tests.support.servers import OwnServer

KEPT = 10_000
READY = 100
CUT_CALLS = 100
OPENING = "local refusal = queue.open("
OPENED = "if refusal then return refusal end"
STOP = "do return 0 end"


class Cut(NamedTuple):
    """A script that ends early, with the arguments of a real call of it; it writes nothing."""

    verb: str
    batch: int
    stage: str
    sha: str
    arguments: list[Any]


@click.command()
@servers_option
@rounds_option(7)
@click.option("--against", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Another lua/ folder.")
@click.option("--batch", "batches", multiple=True, type=click.IntRange(1, 1000), default=(1, 100), show_default=True)
def main(kinds: tuple[str, ...], rounds: int, against: Path | None, batches: tuple[int, ...]) -> None:
    """A table of the parts of each hot script's time, and of the commands that it runs."""
    folders: list[Path | None] = [None] if against is None else [None, against]
    rows: list[dict[str, Any]] = []
    with running(kinds) as servers:
        about = machine(servers)
        for server in servers:
            rows += _profile(server, folders, batches, rounds)
    for server in servers:
        shown = [row for row in rows if row["server"] == server.name]
        say(_parts_table(server.name, shown))
        if against is None:
            say(_commands_table(server.name, shown))
    save("profile", about, rows)


def _profile(
    server: OwnServer, folders: list[Path | None], batches: tuple[int, ...], rounds: int
) -> list[dict[str, Any]]:
    client = connected(server)
    readings: dict[tuple[str, str, int], list[Reading]] = {}
    stages: dict[tuple[str, str, int, str], list[float]] = {}
    with Engine(server.unix_url, namespace="profile") as engine:
        meter = Meter(client, engine)
        queues, cuts = {}, {}
        for folder in folders:
            with lua_from(folder):
                queues[folder] = queue_on(engine, _label(folder))
                finish(queues[folder], KEPT)
                fill(queues[folder], READY)
                cuts[folder] = _cuts(client, queues[folder], batches)
        progress = Progress(rounds)
        for number in range(rounds):
            for folder in folders:
                label = _label(folder)
                for cut in cuts[folder]:
                    cost = _run(client, meter, cut)
                    stages.setdefault((label, cut.verb, cut.batch, cut.stage), []).append(cost)
                with lua_from(folder):
                    for batch in batches:
                        for verb, reading in Verbs(queues[folder], meter, batch, calls_for(batch)).measure().items():
                            readings.setdefault((label, verb, batch), []).append(reading)
            progress.update(number + 1, server.name)
        progress.end()
    return [
        _parts(server, _label(folder), verb, batch, readings[_label(folder), verb, batch], stages)
        for verb in VERBS for batch in batches for folder in folders
    ]  # fmt: skip


def _label(folder: Path | None) -> str:
    return "lua" if folder is None else str(folder)


def _calls(queue: Queue[str], batch: int) -> dict[str, Call[Any]]:
    """A call of each verb, as it would be sent."""
    core = queue._core
    held = queue.take_many(batch)
    jobs = [produce.encode(core, NewJob(PAYLOAD), id) for id in core.ids.make(batch)]
    calls: dict[str, Call[Any]] = {
        "offer": produce.offers(core, jobs),
        "take": consume.take(core, batch, None),
        "renew": consume.renew_many(core, held, None),
        "ack": consume.ack_many(core, held),
        "exchange": consume.exchange(core, held, batch, None),
    }
    queue.ack_many(held)
    return calls


def _cuts(client: redis.Redis, queue: Queue[str], batches: tuple[int, ...]) -> list[Cut]:
    cuts = []
    for batch in batches:
        fill(queue, batch)
        for verb, call in _calls(queue, batch).items():
            for stage, source in _shortened(call.script.source).items():
                sha = str(client.script_load(source))
                cuts.append(Cut(verb, batch, stage, sha, [call.key, "", "profile", 1, *call.args]))
    return cuts


def _shortened(source: str) -> dict[str, str]:
    """A linked script that ends at once, with its modules built, and with its queue opened."""
    lines = source.splitlines()
    opening = max(i for i, line in enumerate(lines) if line.strip().startswith(OPENING))
    opened = min(i for i in range(opening, len(lines)) if lines[i].strip() == OPENED) + 1
    return {
        "arguments": "\n".join([lines[0], STOP]),
        "modules": "\n".join([*lines[:opening], STOP, *lines[opening:]]),
        "opening": "\n".join([*lines[:opened], STOP, *lines[opened:]]),
    }


def _run(client: redis.Redis, meter: Meter, cut: Cut) -> float:
    """Microseconds of one call."""
    with meter.section() as reading:
        for _ in range(CUT_CALLS):
            client.evalsha(cut.sha, 1, *cut.arguments)
    return reading.server_us / reading.calls


def _parts(
    server: OwnServer, label: str, verb: str, batch: int, readings: list[Reading],
    stages: dict[tuple[str, str, int, str], list[float]],
) -> dict[str, Any]:  # fmt: skip
    upto = [
        Spread.of(stages.get((label, verb, batch, stage), [0.0])).median
        for stage in ("arguments", "modules", "opening")
    ]
    total = Spread.of(each.server_us / each.calls for each in readings)
    inside = Spread.of(each.inner_us / each.calls for each in readings)
    names = {name for each in readings for name in each.commands}
    return {
        "server": server.name, "lua": label, "verb": verb, "batch": batch, "total": total, "commands": inside,
        "calls": Spread.of(each.inner_calls / each.calls for each in readings).median,
        "in_lua": total.median - inside.median, "arguments": upto[0], "modules": upto[1] - upto[0],
        "opening": upto[2] - upto[1], "body": total.median - upto[2],
        "by_command": {name: [Spread.of(each.commands.get(name, (0, 0))[i] / each.calls for each in readings).median
                              for i in (0, 1)] for name in names},
    }  # fmt: skip


def _parts_table(name: str, rows: list[dict[str, Any]]) -> str:
    heads = ["script", "batch", "lua", "µs a call", "of that commands", "in Lua", "commands run", "arguments",
             "modules", "opening", "body", "a job"]  # fmt: skip
    return table(f"{name}: parts of a call, µs", heads, [
        (row["verb"], row["batch"], Path(row["lua"]).name, row["total"], short(row["commands"].median),
         short(row["in_lua"]), short(row["calls"]),
         *(short(row[part]) if row["arguments"] else "" for part in ("arguments", "modules", "opening", "body")),
         short(row["total"].median / row["batch"]))
        for row in rows
    ])  # fmt: skip


def _commands_table(name: str, rows: list[dict[str, Any]]) -> str:
    return table(f"{name}: commands inside a call, times and µs", ["script", "batch", "commands"], [
        (row["verb"], row["batch"], ", ".join(
            f"{command} {short(calls)}× {short(us)}"
            for command, (calls, us) in sorted(row["by_command"].items(), key=lambda item: -item[1][1])[:9]
        ))
        for row in rows
    ])  # fmt: skip


if __name__ == "__main__":
    main()
