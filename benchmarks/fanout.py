"""What one event costs with 1, 10, 100 and 1,000 subscriptions, beside a script that copies an entry to each recipient.

    python -m benchmarks.fanout [--server valkey9] [--subscriptions 1 --subscriptions 1000]

Server microseconds by the server's own books, commands inside the scripts, and bytes of memory, per event or per
delivery. The goal: an emission at 1,000 subscriptions costs at most 1.2 times what it costs at one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import click
import redis

from benchmarks.meter import Meter, Reading
from benchmarks.report import Spread, machine, save, say, short, table
from benchmarks.servers import connected, rounds_option, running, servers_option
from redisq import Engine, EventQueue, Subscription
from redisq.demo.screen import Progress

SUBSCRIPTIONS = (1, 10, 100, 1000)
EVENTS = 500
BATCH = 100
PAYLOAD = "x" * 98  # 100 bytes as JSON

NAIVE_EMIT = """#!lua
redis.call('HSET', KEYS[1] .. ':e:' .. ARGV[1], 'body', ARGV[2], 'owed', ARGV[3])
for i = 1, ARGV[3] do redis.call('ZADD', KEYS[1] .. ':d:' .. i, ARGV[4], ARGV[1]) end
return 1
"""
NAIVE_TAKE = """#!lua
local ids = redis.call('ZRANGE', KEYS[1] .. ':d:1', 0, ARGV[1] - 1)
local bodies = {}
for i = 1, #ids do
  redis.call('ZADD', KEYS[1] .. ':d:1', ARGV[2], ids[i])
  bodies[i] = redis.call('HGET', KEYS[1] .. ':e:' .. ids[i], 'body')
end
return { ids, bodies }
"""
NAIVE_ACK = """#!lua
for i = 1, #ARGV do
  redis.call('ZREM', KEYS[1] .. ':d:1', ARGV[i])
  if redis.call('HINCRBY', KEYS[1] .. ':e:' .. ARGV[i], 'owed', -1) == 0 then
    redis.call('UNLINK', KEYS[1] .. ':e:' .. ARGV[i])
  end
end
return 1
"""


@click.command(help=__doc__)
@servers_option
@rounds_option(3)
@click.option("--subscriptions", "counts", multiple=True, type=click.IntRange(1, 1000), default=SUBSCRIPTIONS)
def main(kinds: tuple[str, ...], rounds: int, counts: tuple[int, ...]) -> None:
    costs: dict[Place, list[Cost]] = {}
    with running(kinds) as servers:
        about = machine(servers)
        places = [(server, count) for server in servers for count in counts]
        progress = Progress(rounds * len(places))
        for number in range(rounds):
            for step, (server, count) in enumerate(places, 1):
                for design, cost in _measure(server.unix_url, connected(server), count):
                    costs.setdefault(Place(server.name, design, count), []).append(cost)
                progress.update(number * len(places) + step, f"{server.name}, {count:,} subscriptions")
        progress.end()
    rows = [_row(place, found) for place, found in costs.items()]
    heads = list(rows[0])
    say(table("Events: µs of server time, and commands inside the scripts", heads,
              [[_cell(row[head]) for head in heads] for row in rows]))  # fmt: skip
    save("fanout", about, rows)


class Place(NamedTuple):
    server: str
    design: str
    subscriptions: int


class Cost(NamedTuple):
    """Of one emission, of one of a hundred at once, and of one delivery; bytes of an event."""

    one: Reading
    many: Reading | None
    size: float
    delivery: Reading


def _measure(url: str, client: redis.Redis, count: int) -> Iterator[tuple[str, Cost]]:
    client.flushall()
    with Engine(url) as engine:
        events = engine.events("fanout", str)
        subscriptions = [events.subscribe(f"subscriber {n}") for n in range(count)]
        yield "redisq", _redisq(Meter(client, engine), events, subscriptions)
    client.flushall()
    yield "naive", _naive(Meter(client), client, count)


def _row(place: Place, found: list[Cost]) -> dict[str, Any]:
    many = [each.many for each in found if each.many is not None]
    return {
        "server": place.server, "design": place.design, "subscriptions": place.subscriptions,
        "emit": _us([each.one for each in found]), "emit commands": found[0].one.inner_calls / EVENTS,
        "emit of 100": _us(many) if many else None, "bytes an event": Spread.of(each.size for each in found),
        "take and ack": _us([each.delivery for each in found]),
    }  # fmt: skip


def _us(readings: list[Reading]) -> Spread:
    return Spread.of(each.server_us / EVENTS for each in readings)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return short(value) if isinstance(value, float) else str(value)


def _redisq(meter: Meter, events: EventQueue[str], subscriptions: list[Subscription]) -> Cost:
    events.emit(PAYLOAD)
    one = _repeated(meter, EVENTS, lambda: events.emit(PAYLOAD))
    before = meter.memory()
    many = _repeated(meter, EVENTS // BATCH, lambda: events.emit_many([PAYLOAD] * BATCH))
    size = (meter.memory() - before) / EVENTS

    def deliver() -> None:
        events.ack_many(events.take_many(subscriptions[0], BATCH))

    deliver()
    return Cost(one, many, size, _repeated(meter, EVENTS // BATCH, deliver))


def _naive(meter: Meter, client: redis.Redis, count: int) -> Cost:
    emit, take, ack = (client.register_script(text) for text in (NAIVE_EMIT, NAIVE_TAKE, NAIVE_ACK))
    ids = iter(range(10 * EVENTS))

    def emit_one() -> None:
        number = next(ids)
        emit(keys=["{naive}"], args=[f"event-{number:016}", PAYLOAD, count, number])

    def deliver() -> None:
        taken, _ = take(keys=["{naive}"], args=[BATCH, 10**9])
        ack(keys=["{naive}"], args=taken)

    emit_one()
    before = meter.memory()
    one = _repeated(meter, EVENTS, emit_one)
    size = (meter.memory() - before) / EVENTS
    deliver()
    return Cost(one, None, size, _repeated(meter, EVENTS // BATCH - 1, deliver))


def _repeated(meter: Meter, times: int, action: Callable[[], object]) -> Reading:
    with meter.section() as reading:
        for _ in range(times):
            action()
    return reading


if __name__ == "__main__":
    main()
