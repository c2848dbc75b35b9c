"""The verbs that are measured, each several times in a row at one batch size, on a queue that is left as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.meter import Meter, Reading
from redisq import Delivery, Engine, Failed, NewJob, Queue, QueuePolicy

PAYLOAD = "x" * 98  # 100 bytes as JSON
VERBS = ("offer", "take", "renew", "ack", "exchange", "fail")
RETRY_IN = 86_400.0
LEASE = 3_600.0  # none lapses while it is measured, on however slow a machine


class Verbs:
    """One queue at one batch size; each verb is measured over `calls` calls."""

    def __init__(self, queue: Queue[str], meter: Meter, batch: int, calls: int) -> None:
        self._queue = queue
        self._meter = meter
        self._batch = batch
        self._calls = calls

    def measure(self) -> dict[str, Reading]:
        """One round of all verbs: what is offered is taken, renewed and acked; the rest is exchanged and failed."""
        held: list[list[Delivery]] = []
        return {
            "offer": self._each(self._offer),
            "take": self._each(lambda: held.append(self._take())),
            "renew": self._over(held, self._renew),
            "ack": self._over(held, self._ack),
            "exchange": self._exchange(),
            "fail": self._fail(),
        }

    def _each(self, action: Callable[[], object]) -> Reading:
        with self._meter.section() as reading:
            for _ in range(self._calls):
                action()
        return reading

    def _over(self, held: Sequence[list[Delivery]], action: Callable[[list[Delivery]], object]) -> Reading:
        with self._meter.section() as reading:
            for batch in held:
                action(batch)
        return reading

    def _offer(self) -> None:
        if self._batch == 1:
            self._queue.offer(PAYLOAD)
        else:
            self._queue.offer_many([PAYLOAD] * self._batch)

    def _take(self) -> list[Delivery]:
        if self._batch > 1:
            return self._queue.take_many(self._batch)
        delivery = self._queue.take()
        assert delivery is not None
        return [delivery]

    def _renew(self, held: list[Delivery]) -> None:
        if self._batch == 1:
            self._queue.renew(held[0])
        else:
            self._queue.renew_many(held)

    def _ack(self, held: list[Delivery]) -> None:
        if self._batch == 1:
            self._queue.ack(held[0])
        else:
            self._queue.ack_many(held)

    def _exchange(self) -> Reading:
        """Each call settles a batch and takes the next one."""
        for _ in range(self._calls + 1):
            self._offer()
        held = self._take()

        def step() -> None:
            nonlocal held
            _, held = self._queue.exchange(held, self._batch)

        reading = self._each(step)
        self._ack(held)
        return reading

    def _fail(self) -> Reading:
        """Each call fails a batch, to be retried much later; the jobs are removed afterwards."""
        for _ in range(self._calls):
            self._offer()
        held = [self._take() for _ in range(self._calls)]

        def fail(batch: list[Delivery]) -> None:
            if self._batch == 1:
                self._queue.fail(batch[0], "no answer", retry_in=RETRY_IN)
            else:
                self._queue.exchange([Failed(each, "no answer", retry_in=RETRY_IN) for each in batch], 0)

        reading = self._over(held, fail)
        for batch in held:
            for each in batch:
                self._queue.remove(each.id)
        return reading


def calls_for(batch: int) -> int:
    """How many calls make a section long enough to be read."""
    return max(4, 200 // batch)


def queue_on(engine: Engine, name: str, **policy: object) -> Queue[str]:
    """A queue of text jobs with default settings, but for a lease that outlasts a benchmark."""
    return engine.queue(name, str, policy=QueuePolicy(lease=LEASE, **policy))  # type: ignore[arg-type]


def fill(queue: Queue[str], count: int, *, delay: float | None = None) -> None:
    """Offers `count` jobs: ready, or due after `delay` seconds."""
    job = NewJob(PAYLOAD, delay=delay)
    for start in range(0, count, 10_000):
        queue.offer_many([job] * min(10_000, count - start))


def finish(queue: Queue[str], count: int) -> None:
    """Offers `count` jobs to a queue with nothing ready, and runs them to completed."""
    fill(queue, count)
    held: list[Delivery] = []
    for _ in range(0, count + 500, 500):
        _, held = queue.exchange(held, 500)
    assert not held
