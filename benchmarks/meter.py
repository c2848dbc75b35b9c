"""What a section of work cost: on the server by its own books, on the client by the clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import redis

from redisq import Engine

SCRIPTS = "evalsha"
OWN = ("config|resetstat", "info", "select")  # the meter's own commands


@dataclass
class Reading:
    """The cost of one section. Times in microseconds, sizes in bytes; `commands` are those that ran inside scripts."""

    calls: int = 0
    server_us: float = 0.0
    client_us: float = 0.0
    trips: int = 0
    received: int = 0
    sent: int = 0
    commands: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def inner_calls(self) -> int:
        return sum(calls for calls, _ in self.commands.values())

    @property
    def inner_us(self) -> int:
        return sum(us for _, us in self.commands.values())


class Meter:
    """Reads the books of one server. Nothing else may use the server while a section runs."""

    def __init__(self, client: redis.Redis, engine: Engine | None = None) -> None:
        self._client = client
        self._trips = _count_trips(engine) if engine is not None else [0]
        self._overhead = (0, 0)
        with self.section() as empty:
            pass
        self._overhead = (empty.received, empty.sent)

    @contextmanager
    def section(self) -> Iterator[Reading]:
        """Fills the reading when the section ends."""
        reading = Reading()
        self._client.config_resetstat()
        trips, started = self._trips[0], time.perf_counter()
        yield reading
        reading.client_us = (time.perf_counter() - started) * 1e6
        reading.trips = self._trips[0] - trips
        net: Any = self._client.info("stats")
        books: Any = self._client.info("commandstats")
        reading.received = net["total_net_input_bytes"] - self._overhead[0]
        reading.sent = net["total_net_output_bytes"] - self._overhead[1]
        for name, book in books.items():
            command = name.removeprefix("cmdstat_")
            if command == SCRIPTS:
                reading.calls, reading.server_us = book["calls"], book["usec"]
            elif command not in OWN:
                reading.commands[command] = (book["calls"], book["usec"])

    def memory(self) -> int:
        """Bytes that the server uses now."""
        books: Any = self._client.info("memory")
        return int(books["used_memory"])


def _count_trips(engine: Engine) -> list[int]:
    """A counter, from now on, of the packets that the engine sends and awaits the replies of."""
    wire = engine._sender._wire
    talk, count = wire.talk, [0]

    def counted(*args: Any, **options: Any) -> Any:
        count[0] += 1
        return talk(*args, **options)

    wire.talk = counted  # type: ignore[method-assign]
    return count
