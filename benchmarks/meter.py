"""What a section of work cost: on the server by its own books, on the client by the clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import redis

from redisq import Engine

OWN = (
    "config|resetstat",
    "info",
    "client|setinfo",
    "script|load",
)  # not a verb's: the meter's, and a connection's first


@dataclass
class Reading:
    """The cost of one section. Times in microseconds, sizes in bytes.

    `server_us` is the time in scripts, `cpu_us` all that the server process used, reading and replying included.
    `commands` are those that ran inside scripts: name -> (calls, µs).
    """

    calls: int = 0
    server_us: float = 0.0
    cpu_us: float = 0.0
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
        self._trips = [0] if engine is None else _count_trips(engine)

    @contextmanager
    def section(self) -> Iterator[Reading]:
        """Fills the reading when the section ends."""
        reading = Reading()
        self._client.config_resetstat()
        trips, cpu = self._trips[0], self._cpu()
        overhead: Any = self._client.info("stats")
        started = time.perf_counter()
        yield reading
        reading.client_us = (time.perf_counter() - started) * 1e6
        net: Any = self._client.info("stats")
        reading.cpu_us = self._cpu() - cpu
        reading.trips = self._trips[0] - trips
        reading.received = net["total_net_input_bytes"] - overhead["total_net_input_bytes"]
        reading.sent = net["total_net_output_bytes"] - overhead["total_net_output_bytes"]
        self._read_commands(reading)

    def _read_commands(self, reading: Reading) -> None:
        books: Any = self._client.info("commandstats")
        for name, book in books.items():
            command = name.removeprefix("cmdstat_")
            if command == "evalsha":
                reading.calls, reading.server_us = book["calls"], book["usec"]
            elif command not in OWN:
                reading.commands[command] = (book["calls"], book["usec"])

    def _cpu(self) -> float:
        books: Any = self._client.info("cpu")
        return float(books["used_cpu_user"] + books["used_cpu_sys"]) * 1e6

    def memory(self) -> int:
        """Bytes that the server uses for its data now. It empties the books: their histograms weigh something too."""
        self._client.config_resetstat()
        books: Any = self._client.info("memory")
        return int(books["used_memory"])

    def settled_memory(self) -> int:
        """The same once the server has freed, in the background, what was removed."""
        self._client.config_resetstat()
        while True:
            books: Any = self._client.info("memory")
            if not books["lazyfree_pending_objects"]:
                return int(books["used_memory"])
            time.sleep(0.01)


def _count_trips(engine: Engine) -> list[int]:
    """A counter, from now on, of the packets that the engine sends and awaits the replies of."""
    wire = engine._sender._wire
    talk, count = wire.talk, [0]

    def counted(*args: Any, **options: Any) -> Any:
        count[0] += 1
        return talk(*args, **options)

    wire.talk = counted  # type: ignore[method-assign]
    return count
