"""One worker process: takes rows in batches, handles them, settles them while it takes the next batch.

It says `ready` on its standard output, `half-way` in the middle of one batch, and waits each time for a line on its
standard input. When its input ends, it settles what it holds and leaves. The server is the one in $REDISQ_URL, which
other users of the machine can't read, unlike an argument.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from redisq import Ack, Delivery, Done, Engine, Failed, Failure
from redisq.demo.ledger import Ledger, Line, Step
from redisq.demo.rows import Row, read, whole
from redisq.demo.work import BrokenRow, OutOfLuck, Place, handle, places

QUEUE = "airports"
LEASE_S = 2.0
IDLE_S = 0.5

READY = "ready"
HALF_WAY = "half-way"


class Worker:
    """`pause_after`: after so many rows, in the middle of the batch at hand, it asks whether to go on."""

    def __init__(self, engine: Engine, ledger: Ledger, others: list[Place], batch: int, pause_after: int) -> None:
        self._queue = engine.queue(QUEUE, Row)
        self._ledger = ledger
        self._others = others
        self._batch = batch
        self._pause_after = pause_after
        self._held: list[Delivery] = []
        self._handled = 0
        self._stop = threading.Event()
        self._go_on = threading.Event()

    def run(self) -> None:
        threading.Thread(target=self._watch_input, daemon=True).start()
        threading.Thread(target=self._renew, daemon=True).start()
        self._ask(READY)
        settlements: list[Done | Failed] = []
        while settlements or not self._stop.is_set():
            limit, wait = (0, 0.0) if self._stop.is_set() else (self._batch, IDLE_S)
            answers, taken = self._queue.exchange(settlements, limit, wait=wait)
            self._note_answers(settlements, answers)
            settlements = self._handle_all(taken)

    def _handle_all(self, taken: list[Delivery]) -> list[Done | Failed]:
        self._held = taken
        for delivery in taken:
            self._ledger.write(Line(Step.TOOK, delivery.id, delivery.fence))
        settlements = []
        for count, delivery in enumerate(taken, 1):
            settlements.append(self._handle_one(delivery))
            self._handled += 1
            if 2 * count >= len(taken) and self._handled >= self._pause_after:
                self._pause_after = sys.maxsize
                self._ask(HALF_WAY)
        return settlements

    def _handle_one(self, delivery: Delivery) -> Done | Failed:
        try:
            metres = handle(delivery.value, delivery.attempt, self._others)
        except (BrokenRow, OutOfLuck) as error:
            self._ledger.write(Line(Step.FAILED, delivery.id, delivery.fence, note=str(error)))
            return Failed(delivery, error, final=isinstance(error, BrokenRow))
        self._ledger.write(Line(Step.DONE, delivery.id, delivery.fence, metres))
        return Done(delivery, metres)

    def _note_answers(self, settlements: Sequence[Done | Failed], answers: Sequence[Ack | Failure]) -> None:
        for settlement, answer in zip(settlements, answers, strict=True):
            delivery = settlement.delivery
            note = answer.state if isinstance(answer, Failure) else answer
            self._ledger.write(Line(Step.SETTLED, delivery.id, delivery.fence, note=note))

    def _renew(self) -> None:
        """Extends the leases of the batch in hand while it is worked on. Without it a slow batch is taken by others."""
        while not self._stop.wait(LEASE_S / 3):
            if held := self._held:
                self._queue.renew_many(held)

    def _ask(self, word: str) -> None:
        """Say `word` to the parent and wait for its answer, or for its end."""
        self._go_on.clear()
        sys.stdout.write(f"{word}\n")
        sys.stdout.flush()
        self._go_on.wait()

    def _watch_input(self) -> None:
        for _ in sys.stdin:
            self._go_on.set()
        self._stop.set()
        self._go_on.set()


def main(arguments: Sequence[str]) -> None:
    """Arguments: namespace, name of the worker, ledger file, rows of the file in use, batch size, where to pause."""
    namespace, name, path, rows, batch, pause_after = arguments
    others = places(whole(read(int(rows))))
    with Engine(namespace=namespace, worker=name) as engine, Ledger(Path(path)) as ledger:
        Worker(engine, ledger, others, int(batch), int(pause_after)).run()


if __name__ == "__main__":
    main(sys.argv[1:])
