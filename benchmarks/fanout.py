"""What one event costs with 1, 10, 100 and 1,000 subscriptions, beside a script that copies an entry to each recipient.

    python -m benchmarks.fanout [--server valkey9] [--subscriptions 1 --subscriptions 1000]

Server microseconds by the server's own books, commands inside the scripts, and bytes of memory, per event or per
delivery. The goal: an emission at 1,000 subscriptions costs at most 1.2 times what it costs at one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click
import redis

from benchmarks.meter import Meter, Reading
from benchmarks.servers import connected, running, servers_option
from redisq import Engine, EventQueue, Subscription

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
@click.option("--subscriptions", "counts", multiple=True, type=click.IntRange(1, 1000), default=SUBSCRIPTIONS)
def main(kinds: tuple[str, ...], counts: tuple[int, ...]) -> None:
    with running(kinds) as servers:
        for server in servers:
            click.echo(f"\n{server.name}: µs of server time (commands); bytes")
            click.echo(
                f"{'subscriptions':>13} {'':6} {'emit':>16} {'emit of 100':>16} {'bytes/event':>12} {'take+ack':>16}"
            )
            for count in counts:
                for line in _measure(server.unix_url, connected(server), count):
                    click.echo(line)


def _measure(url: str, client: redis.Redis, count: int) -> Iterator[str]:
    client.flushall()
    with Engine(url) as engine:
        events = engine.events("fanout", str)
        subscriptions = [events.subscribe(f"subscriber {n}") for n in range(count)]
        yield _line(count, "redisq", *_redisq(Meter(client, engine), events, subscriptions))
    client.flushall()
    yield _line(count, "naive", *_naive(Meter(client), client, count))


def _line(count: int, what: str, one: Reading, many: Reading | None, size: float, delivery: Reading) -> str:
    bulk = "" if many is None else _cost(many, EVENTS)
    return f"{count:>13} {what:6} {_cost(one, EVENTS):>16} {bulk:>16} {size:>12,.0f} {_cost(delivery, EVENTS):>16}"


def _cost(reading: Reading, events: int) -> str:
    return f"{reading.server_us / events:,.1f} ({reading.inner_calls / events:,.1f})"


def _redisq(
    meter: Meter, events: EventQueue[str], subscriptions: list[Subscription]
) -> tuple[Reading, Reading, float, Reading]:
    events.emit(PAYLOAD)
    one = _repeated(meter, EVENTS, lambda: events.emit(PAYLOAD))
    before = meter.memory()
    many = _repeated(meter, EVENTS // BATCH, lambda: events.emit_many([PAYLOAD] * BATCH))
    size = (meter.memory() - before) / EVENTS

    def deliver() -> None:
        events.ack_many(events.take_many(subscriptions[0], BATCH))

    deliver()
    return one, many, size, _repeated(meter, EVENTS // BATCH, deliver)


def _naive(meter: Meter, client: redis.Redis, count: int) -> tuple[Reading, None, float, Reading]:
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
    return one, None, size, _repeated(meter, EVENTS // BATCH - 1, deliver)


def _repeated(meter: Meter, times: int, action: Callable[[], object]) -> Reading:
    with meter.section() as reading:
        for _ in range(times):
            action()
    return reading


if __name__ == "__main__":
    main()
