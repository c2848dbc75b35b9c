"""Random steps: an endless feed that looks at the ledgers, so that most of what it does meets something."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.simulation.transport import INTERRUPTED, LATE, LOST, REPEATED
from tests.simulation.world import EVENT_QUEUES, JOB_QUEUES, Step, World

CROWD = 60
"""Live jobs of a queue, and events, from which on less is offered than taken."""

CUSTOM_IDS = 25
NAMES = ("", "mail", "scan")
SUBSCRIBERS = ("audit", "billing", "email", "search")


class Steps:
    """A feed of `count` steps for `world`, all from one seed."""

    def __init__(self, world: World, seed: int, count: int) -> None:
        self._world = world
        self._random = random.Random(seed)
        self._count = count
        self._made = 0
        self._kinds: dict[Callable[[], Step | None], int] = {
            self._offer: 16, self._take: 16, self._settle: 34, self._renew: 4, self._exchange: 10, self._operate: 8,
            self._bulk: 1, self._pause: 1, self._alter: 1, self._maintain: 4, self._subscribe: 2, self._unsubscribe: 1,
            self._emit: 9, self._receive: 12, self._resolve: 3, self._advance: 20, self._crash: 1,
        }  # fmt: skip

    def __iter__(self) -> Iterator[Step]:
        return self

    def __next__(self) -> Step:
        if self._made >= self._count:
            raise StopIteration
        self._made += 1
        step = None
        while step is None:
            (kind,) = self._random.choices(list(self._kinds), list(self._kinds.values()))
            step = kind()
        return {"n": self._made, **step}

    def _client(self) -> int:
        return self._random.randrange(len(self._world.clients))

    def _fault(self, *, take: bool = False) -> Step:
        if self._random.random() > 0.06:
            return {}
        fault = self._random.choice([LOST, REPEATED, LATE, LATE, INTERRUPTED if take else REPEATED])
        return {"fault": fault, "hold": self._random.randint(1, 6)} if fault == LATE else {"fault": fault}

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _job_queue(self) -> str:
        return self._random.choice(list(JOB_QUEUES))

    # job queues

    def _offer(self) -> Step | None:
        queue = self._job_queue()
        if len(self._world.jobs[queue].alive) > CROWD and self._chance(0.9):
            return None
        jobs = [self._spec(at) for at in range(self._random.choice([1, 1, 1, 2, 5]))]
        return {"do": "offer", "client": self._client(), "queue": queue, "jobs": jobs, **self._fault()}

    def _spec(self, at: int) -> Step:
        spec: Step = {"value": f"v{self._made}.{at}"}
        if self._chance(0.3):
            spec["id"] = f"id{self._random.randrange(CUSTOM_IDS)}"
        if self._chance(0.3):
            spec["delay"] = self._random.choice([1, 500, 3000, 30_000])
        if self._chance(0.3):
            spec["priority"] = self._random.choice([-1000, -1, 1, 7])
        if self._chance(0.2):
            spec["max_attempts"] = self._random.choice([1, 2, 5])
        if self._chance(0.5):
            spec["name"] = self._random.choice(NAMES)
        return spec

    def _take(self) -> Step:
        lease = self._random.choice([None, None, 1, 5000, 60_000])
        return {"do": "take", "client": self._client(), "queue": self._job_queue(), "lease": lease,
                "limit": self._random.choice([1, 1, 2, 10]), **self._fault(take=True)}  # fmt: skip

    def _some_delivery(self, client: int, wanted: str | None = None) -> tuple[str, str, Any] | None:
        """A delivery that the client has, most often a recent one: label, queue and the delivery."""
        found = [(label, queue, each) for label, (queue, each) in self._world.clients[client].deliveries.items()
                 if wanted in (None, queue)]  # fmt: skip
        if not found:
            return None
        live = [each for each in found if self._ledger(each[1]).live(self._world.now, each[2].token)]
        return self._random.choice(live if live and self._chance(0.85) else found)

    def _ledger(self, queue: str) -> Any:
        return self._world.jobs.get(queue) or self._world.events[queue]

    def _verb(self, queue: str, *, batch: bool = False) -> Step:
        verbs = ["ack"] * 6 + ["fail"] * 3 + ["release"] * 2
        if queue in JOB_QUEUES and not batch:
            verbs.append("quarantine")
        step: Step = {"verb": self._random.choice(verbs)}
        if step["verb"] == "ack" and self._chance(0.3) and queue in JOB_QUEUES:
            step["result"] = {"n": self._made}
        if step["verb"] == "fail":
            if self._chance(0.3):
                step["retry_in"] = self._random.choice([0, 1, 700, 15_000])
            step["final"] = self._chance(0.15)
        if step["verb"] == "release" and self._chance(0.4):
            step["delay"] = self._random.choice([1, 900, 20_000])
        return step

    def _settle(self) -> Step | None:
        client = self._client()
        found = self._some_delivery(client)
        if found is None:
            return None
        label, queue, _ = found
        return {"do": "settle", "client": client, "delivery": label, **self._verb(queue), **self._fault()}

    def _renew(self) -> Step | None:
        client = self._client()
        found = self._some_delivery(client)
        if found is None:
            return None
        lease = self._random.choice([1, 3000, 20_000, 90_000])
        return {"do": "renew", "client": client, "delivery": found[0], "lease": lease, **self._fault()}

    def _exchange(self) -> Step | None:
        client = self._client()
        queue = self._random.choice([*JOB_QUEUES, *EVENT_QUEUES])
        step: Step = {"do": "exchange", "client": client, "queue": queue, "limit": self._random.choice([0, 1, 3, 8])}
        if queue in EVENT_QUEUES:
            handle = self._handle(queue)
            if handle is None:
                return None
            step["to"] = handle
        chosen: dict[str, Step] = {}
        for _ in range(self._random.randint(0, 4)):
            found = self._some_delivery(client, queue)
            if found is not None:
                # one settlement for each job: the second one in a call would be answered as a repeat
                chosen[found[2].id] = {"delivery": found[0], **self._verb(queue, batch=True)}
        return {**step, "settle": list(chosen.values()), **self._fault(take=step["limit"] > 0)}

    def _operate(self) -> Step | None:
        queue = self._job_queue()
        ledger = self._world.jobs[queue]
        verb = self._random.choice(["cancel", "cancel", "retry", "promote", "remove"])
        suits = {"retry": ("dead", "quarantined"), "promote": ("waiting",)}.get(verb)
        lives = [each for each in ledger.lives.values() if suits is None or each.state in suits or self._chance(0.05)]
        if not lives:
            return None
        life = self._random.choice(lives)
        label = life.label if ledger.labels.get(life.label) == life.id else life.id
        return {"do": "operate", "verb": verb, "client": self._client(), "queue": queue, "job": label, **self._fault()}

    def _bulk(self) -> Step | None:
        if self._chance(0.6):
            return None
        verb = self._random.choice(["purge", "retry_many"])
        states = ["dead", "quarantined"] + (["completed", "cancelled"] if verb == "purge" else [])
        return {"do": "bulk", "verb": verb, "client": self._client(), "queue": self._job_queue(),
                "state": self._random.choice(states)}  # fmt: skip

    def _pause(self) -> Step:
        queue = self._job_queue()
        verb = "resume" if self._world.jobs[queue].paused or self._chance(0.5) else "pause"
        return {"do": "pause", "verb": verb, "client": self._client(), "queue": queue, **self._fault()}

    def _alter(self) -> Step | None:
        backoff = self._random.choice([1000, 2000, 5000])
        return (
            {"do": "alter", "client": self._client(), "backoff": backoff, **self._fault()}
            if self._chance(0.3)
            else None
        )

    def _maintain(self) -> Step:
        queue = self._random.choice([*JOB_QUEUES, *EVENT_QUEUES])
        limit = self._random.choice([1, 5, 100])
        # a sweep of events is several calls, each with an identity of its own
        fault = self._fault() if queue in JOB_QUEUES else {}
        return {"do": "maintain", "client": self._client(), "queue": queue, "limit": limit, **fault}

    # event queues

    def _event_queue(self) -> str:
        return self._random.choice(list(EVENT_QUEUES))

    def _handle(self, queue: str) -> str | None:
        """The label of a subscription, nearly always an active one."""
        active = set(self._world.events[queue].active.values())
        labels = [label for label, each in self._world.handles.items() if each.queue == queue]
        good = [label for label in labels if self._world.handles[label] in active]
        if good and self._chance(0.97):
            return self._random.choice(good)
        return self._random.choice(labels) if labels else None

    def _subscribe(self) -> Step | None:
        queue = self._event_queue()
        name = self._random.choice(SUBSCRIBERS)
        if name in self._world.events[queue].active and self._chance(0.6):
            return None
        return {"do": "subscribe", "client": self._client(), "queue": queue, "name": name, **self._fault()}

    def _unsubscribe(self) -> Step | None:
        handle = self._handle(self._event_queue()) if self._chance(0.3) else None
        return None if handle is None else {"do": "unsubscribe", "client": self._client(), "to": handle}

    def _emit(self) -> Step | None:
        queue = self._event_queue()
        if len(self._world.events[queue].alive) > CROWD and self._chance(0.9):
            return None
        events = []
        for at in range(self._random.choice([1, 1, 2, 4])):
            spec: Step = {"value": f"e{self._made}.{at}"}
            if self._chance(0.2):
                spec["id"] = f"id{self._random.randrange(CUSTOM_IDS)}"
            if self._chance(0.4):
                spec["ttl"] = self._random.choice([1, 4000, 25_000, 100_000])
            events.append(spec)
        return {"do": "emit", "client": self._client(), "queue": queue, "events": events, **self._fault()}

    def _receive(self) -> Step | None:
        handle = self._handle(self._event_queue())
        if handle is None:
            return None
        lease = self._random.choice([1, 5000, 20_000])
        return {"do": "receive", "client": self._client(), "to": handle, "lease": lease,
                "limit": self._random.choice([1, 2, 10]), **self._fault(take=True)}  # fmt: skip

    def _resolve(self) -> Step | None:
        queue = self._event_queue()
        ledger = self._world.events[queue]
        dead = [debt for each in ledger.alive for debt in each.debts.values() if debt.state in ("dead", "retried")]
        handle = self._handle(queue)
        if not dead or handle is None:
            return None
        debt = self._random.choice(dead)
        labels = [label for label, each in self._world.handles.items()
                  if (each.queue, each.generation) == (queue, debt.generation)]  # fmt: skip
        return {"do": "resolve", "client": self._client(), "to": self._random.choice(labels or [handle]),
                "event": debt.emission.label, "verb": self._random.choice(["retry", "retry", "discard"]),
                **self._fault()}  # fmt: skip

    # time

    def _advance(self) -> Step:
        ms = self._random.choice([0, 1, 1, 50, 300, 1000, 1000, 2500, 6000, 25_000])
        if self._chance(0.01):
            ms = self._random.choice([130_000, 700_000])
        return {"do": "advance", "ms": ms}

    def _crash(self) -> Step | None:
        return {"do": "crash", "client": self._client()} if self._chance(0.5) else None
