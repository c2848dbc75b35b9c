"""The ledger of one event queue: who owes what, by what was told. See `jobs`: it allows what has not been told yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from redisq import Ack, CorruptRecord, DeadObligation, Event, EventDelivery, Renewal, Subscription, SubscriptionInfo
from tests.simulation.facts import Broken, Claim, is_stale, told_state

OPEN, ACKED, WAIVED, DEAD = "pending", "acknowledged", "waived", "dead"
RETRIED, DISCARDED, UNSURE = "retried", "discarded", "waived or dead"
ACTIVE, COMPLETED, EXPIRED = "active", "completed", "expired"


@dataclass
class EventTerms:
    """What was agreed for a queue, in milliseconds. `kept`: how long a settled event is archived, None: not at all."""

    max_attempts: int
    backoff: int
    dedup: int
    kept: int | None
    dead_kept: int


@dataclass(eq=False)
class Debt:
    """What one generation owes one event."""

    emission: Emission
    generation: str
    state: str = OPEN
    due: int = 0
    attempts: int = 0
    claim: Claim[Debt] | None = None
    resolved: int = 0  # the last time
    first: int | None = None  # what the event's settlement goes by: a retry does not change it

    @property
    def open(self) -> bool:
        return self.state in (OPEN, RETRIED)

    def held(self, now: int) -> bool:
        return self.open and self.claim is not None and now < self.claim.expires

    def lapsed(self, now: int) -> bool:
        return self.open and self.claim is not None and now >= self.claim.expires


@dataclass(eq=False)
class Emission:
    id: str
    label: str
    value: Any
    created: int
    expires: int | None
    debts: dict[str, Debt] = field(default_factory=dict)
    settled: int | None = None  # at the latest
    earliest: int | None = None  # once it is gone
    gone: bool = False

    def over(self, now: int) -> bool:
        """Whether its deadline has come, if it did not settle before."""
        return self.expires is not None and now >= self.expires


@dataclass
class EventLedger:
    name: str
    terms: EventTerms
    emissions: dict[str, Emission] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    active: dict[str, Subscription] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    claims: dict[str, Claim[Debt]] = field(default_factory=dict)
    fence: int = 0
    accepted: int = 0
    delivered: int = 0

    # what was told

    def subscribed(self, name: str, answer: Any) -> None:
        if not isinstance(answer, Subscription):
            raise Broken("subscribe", f"{name} can't be subscribed: {answer!r}")
        known = self.active.get(name)
        if known is not None and known != answer:
            raise Broken("generation", f"{name} is active as {known.generation}, and was subscribed as {answer}")
        if known is None and answer.generation in self.removed:
            raise Broken("generation", f"{name} got the generation {answer.generation} again, which was removed")
        self.active[name] = answer

    def unsubscribed(self, now: int, subscription: Subscription, answer: Any) -> None:
        is_active = self.active.get(subscription.name) == subscription
        if answer is not is_active:
            raise Broken("generation", f"unsubscribe of {subscription} says {answer}, and it is active: {is_active}")
        if not is_active:
            return
        del self.active[subscription.name]
        self.removed.add(subscription.generation)
        for debt in self._owed(subscription.generation):
            if debt.state == OPEN and debt.emission.over(now):
                continue
            if debt.open:
                debt.state, debt.resolved = UNSURE if self._may_be_dead(debt, now) else WAIVED, now
                self._settle(debt.emission, now)

    def emitted(self, now: int, spec: dict[str, Any], label: str, answer: Any) -> None:
        if not isinstance(answer, Event):
            raise Broken("emit", f"an emission was refused: {answer!r}")
        old = self.emissions.get(answer.id)
        if answer.duplicate:
            if old is None or (old.gone and old.settled is not None and now >= old.settled + self.terms.dedup):
                raise Broken("dedup", f"{answer.id} is called a duplicate, and nothing of that id is left")
            return
        if old is not None and not (self._may_be_gone(old, now) and now >= self._earliest(old, now) + self.terms.dedup):
            raise Broken("dedup", f"{answer.id} was accepted a second time at {now}, and its first event counts: {old}")
        ttl = spec.get("ttl")
        emission = Emission(answer.id, label, spec["value"], now, None if ttl is None else now + ttl)
        for subscription in self.active.values():
            emission.debts[subscription.generation] = Debt(emission, subscription.generation)
        told = {recipient.generation for recipient in answer.recipients}
        if told != set(emission.debts):
            raise Broken("recipients", f"{answer.id} is owed to {sorted(told)}, active were {sorted(emission.debts)}")
        self.accepted += 1
        self.labels[label] = answer.id
        self.emissions[answer.id] = emission
        self._settle(emission, now)

    def claimed(self, now: int, delivery: EventDelivery, lease: int) -> None:
        id, generation = delivery.id, delivery.subscription.generation
        if delivery.token in self.claims:
            raise Broken("token", f"the token {delivery.token} of {id} was handed out before")
        if delivery.fence <= self.fence:
            raise Broken("fence", f"{id} came with fence {delivery.fence} after {self.fence}")
        self.fence = delivery.fence
        emission = self.emissions.get(id)
        debt = None if emission is None else emission.debts.get(generation)
        if emission is None or debt is None or generation in self.removed:
            raise Broken("ghost", f"{id} was handed to {generation}, which is not owed it")
        if debt.held(now):
            raise Broken("lease", f"{id} was handed to {generation} while another lease of it lives")
        if not debt.open:
            raise Broken("finished", f"{id} was handed to {generation}, whose part of it is {debt.state}")
        if debt.state == OPEN and emission.over(now):
            raise Broken("early", f"{id} was handed to {generation} after its deadline")
        if self._may_be_dead(debt, now):
            raise Broken("attempts", f"{id} was handed to {generation} after its last attempt")
        if debt.lapsed(now) and debt.claim is not None:
            debt.attempts = debt.claim.attempt
        elif now < debt.due:
            raise Broken("early", f"{id} was handed to {generation} {debt.due - now} ms before it was due")
        if delivery.attempt != debt.attempts + 1:
            raise Broken("attempts", f"{id} came as attempt {delivery.attempt}, not as {debt.attempts + 1}")
        if delivery.value != emission.value:
            raise Broken("payload", f"{id} came with {delivery.value!r}, it was emitted with {emission.value!r}")
        stop = now + lease
        if debt.state == OPEN and emission.expires is not None:
            stop = min(stop, emission.expires)
        if delivery.expires_ms != stop:
            raise Broken("lease", f"the lease of {id} ends at {delivery.expires_ms}, not at {stop}")
        self.delivered += 1
        debt.claim = self.claims[delivery.token] = Claim(debt, delivery.token, delivery.attempt, stop)

    def live(self, now: int, token: str) -> bool:
        claim = self.claims[token]
        debt = claim.of
        return debt.claim is claim and debt.held(now) and debt.generation not in self.removed

    def settled(self, now: int, verb: str, token: str, answer: Any, spec: dict[str, Any]) -> None:
        claim = self.claims[token]
        debt, id = claim.of, claim.of.emission.id
        if isinstance(answer, CorruptRecord):
            raise Broken("corrupt", str(answer))
        if not self.live(now, token):
            self._stale(verb, claim, answer)
            return
        if is_stale(answer) or isinstance(answer, Exception) or answer is Ack.ALREADY_ACKNOWLEDGED:
            raise Broken("refused", f"{verb} of {id} for {debt.generation} with its live token was answered {answer!r}")
        claim.verb, debt.claim = verb, None
        state, due = ACKED, None
        if verb == "fail":
            debt.attempts = claim.attempt
            wait = spec["retry_in"] if spec.get("retry_in") is not None else self.terms.backoff
            dead = spec.get("final") or claim.attempt >= self.terms.max_attempts
            state, due = (DEAD, None) if dead else (OPEN, now + wait if wait else None)
        elif verb == "release":
            wait = spec.get("delay", 0)
            state, due = OPEN, now + wait if wait else None
        if verb != "ack" and told_state(answer) not in (None, (state, due)):
            raise Broken("outcome", f"{verb} of {id} led to {told_state(answer)}, not to {(state, due)}")
        claim.led_to = (state, due)
        if state == OPEN:
            debt.due = due or now
            return
        debt.state, debt.resolved = state, now
        self._settle(debt.emission, now)

    def _stale(self, verb: str, claim: Claim[Debt], answer: Any) -> None:
        repeated = claim.verb == verb
        id = claim.of.emission.id
        if verb == "ack":
            if answer is Ack.ACKNOWLEDGED:
                rule = "finished" if claim.of.state == ACKED else "stale"
                raise Broken(rule, f"{id} was settled by a token without a lease (it is {claim.of.state})")
            fine = is_stale(answer) or (answer is Ack.ALREADY_ACKNOWLEDGED and repeated)
        else:
            fine = is_stale(answer) or (repeated and told_state(answer) in (None, claim.led_to))
        if not fine:
            raise Broken("stale", f"{verb} of {id} with a stale token was answered {answer!r}")

    def renewed(self, now: int, token: str, lease: int, answer: Any) -> None:
        claim = self.claims[token]
        if not self.live(now, token):
            if not is_stale(answer):
                raise Broken("stale", f"a lease of {claim.of.emission.id} was renewed with a stale token: {answer!r}")
            return
        stop, emission = now + lease, claim.of.emission
        if claim.of.state == OPEN and emission.expires is not None:
            stop = min(stop, emission.expires)
        wanted = Renewal(max(claim.expires, stop))
        if answer != wanted:
            raise Broken("lease", f"the renewal of {emission.id} was answered {answer!r}, not {wanted!r}")
        claim.expires = wanted.expires_ms

    def handed_back(self, now: int, token: str) -> None:
        claim = self.claims[token]
        claim.verb, claim.of.claim, claim.of.due = "handed back", None, now

    def operated(self, now: int, verb: str, subscription: Subscription, id: str, answer: Any) -> None:
        """`retry` and `discard` of a dead obligation, answered by a boolean."""
        emission = self.emissions.get(id)
        debt = None if emission is None else emission.debts.get(subscription.generation)
        is_active = self.active.get(subscription.name) == subscription
        if debt is None or not is_active:
            if answer is not False:
                raise Broken("ghost", f"{verb} of {id} for {subscription.generation} says {answer!r}")
            return
        maybe = self._may_be_dead(debt, now)
        sure = debt.state == DEAD and now < debt.resolved + self.terms.dead_kept
        sure = sure or (verb == "discard" and debt.state == RETRIED and not maybe)
        if answer is True:
            if debt.state != DEAD and not maybe and not sure:
                raise Broken("finished", f"{verb} of {id} for {subscription.name}, which is {debt.state}, says True")
            if debt.state == OPEN and debt.claim is not None:
                debt.state, debt.resolved = DEAD, debt.claim.expires
                self._settle(debt.emission, now)
            debt.state = RETRIED if verb == "retry" else DISCARDED
            debt.attempts, debt.claim, debt.due = 0, None, now
        elif sure:
            raise Broken("refused", f"{verb} of {id} for {subscription.name}, which is {debt.state}, says {answer!r}")

    # what must hold

    def nothing_left(self, now: int, subscription: Subscription) -> None:
        """A take found less than it could have: then this subscription has nothing takeable."""
        if self.active.get(subscription.name) != subscription:
            return
        for debt in self._owed(subscription.generation):
            ended = debt.state == OPEN and debt.emission.over(now)
            if not debt.open or ended or debt.held(now) or self._may_be_dead(debt, now):
                continue
            if debt.lapsed(now) or debt.due <= now:
                raise Broken("lost", f"{subscription.name} is owed {debt.emission.id}, and a take did not find it")

    def looked(self, now: int, emission: Emission, event: Event | None) -> None:
        if event is None:
            if not self._may_be_gone(emission, now):
                raise Broken("lost", f"{emission.id} is gone at {now}: {self._standing(emission, now)} {emission}")
            self._leave(emission, now)
            return
        if event.status not in self._standing(emission, now):
            raise Broken("state", f"{emission.id} is {event.status}, it can only be {self._standing(emission, now)}")
        statuses = {recipient.generation: recipient.status.value for recipient in event.recipients}
        if statuses.keys() != emission.debts.keys():
            raise Broken("recipients", f"{emission.id} is owed to {sorted(statuses)}, not to {sorted(emission.debts)}")
        for debt in emission.debts.values():
            self._adopt(debt, statuses[debt.generation], now)

    def _adopt(self, debt: Debt, status: str, now: int) -> None:
        maybe = self._may_be_dead(debt, now)
        permitted = {
            RETRIED: {OPEN}, DISCARDED: {DEAD}, UNSURE: {WAIVED, DEAD}, OPEN: {OPEN, DEAD} if maybe else {OPEN},
        }.get(debt.state, {debt.state})  # fmt: skip
        if debt.state == RETRIED and maybe:
            permitted = {OPEN, DEAD}
        if status not in permitted:
            raise Broken("state", f"{debt.emission.id} for {debt.generation} is {status}, not {' or '.join(permitted)}")
        if status == DEAD and debt.open and debt.claim is not None:
            debt.state, debt.resolved = DEAD, debt.claim.expires
            self._settle(debt.emission, debt.claim.expires)
        elif debt.state == UNSURE:
            debt.state = status
            if status == DEAD and debt.claim is not None:
                debt.resolved = debt.first = debt.claim.expires
                if debt.emission.settled is not None:
                    debt.emission.settled = max(each.first or 0 for each in debt.emission.debts.values())

    def listed(self, now: int, rows: list[Any]) -> None:
        """The answer of `subscriptions`."""
        for row in rows:
            if not isinstance(row, SubscriptionInfo):
                raise Broken("corrupt", f"{row.id}: {row.reason}")
        told = {row.name: row.generation for row in rows}
        known = {name: each.generation for name, each in self.active.items()}
        if told != known:
            raise Broken("generation", f"active are {known}, listed were {told}")
        for row in rows:
            debts = list(self._owed(row.generation))
            maybe = sum(1 for debt in debts if self._may_be_dead(debt, now))
            lag = sum(1 for debt in debts if debt.state == OPEN and not debt.emission.over(now))
            unsure = sum(
                1 for debt in debts if debt.state == RETRIED or (debt.state == OPEN and debt.emission.over(now))
            )
            if not lag - maybe <= row.lag <= lag + unsure:
                raise Broken(
                    "counts", f"{row.name} lags by {row.lag}, {lag} are owed, {maybe} + {unsure} of them maybe"
                )

    def dead_listed(self, now: int, subscription: Subscription, rows: list[Any]) -> None:
        for row in rows:
            if not isinstance(row, DeadObligation):
                raise Broken("corrupt", f"{row.id}: {row.reason}")
        told = {row.event_id for row in rows}
        dead = [debt for debt in self._owed(subscription.generation) if debt.state == DEAD]
        sure = {debt.emission.id for debt in dead if now < debt.resolved + self.terms.dead_kept}
        maybe = {debt.emission.id for debt in dead}
        maybe |= {debt.emission.id for debt in self._owed(subscription.generation) if self._may_be_dead(debt, now)}
        if not sure <= told <= maybe:
            raise Broken("lost", f"dead of {subscription.name} are listed {told}, not {sure} and at most {maybe}")

    def _owed(self, generation: str) -> Iterator[Debt]:
        for emission in self.emissions.values():
            debt = emission.debts.get(generation)
            if debt is not None and not emission.gone:
                yield debt

    def _may_be_dead(self, debt: Debt, now: int) -> bool:
        """A last attempt lapsed: it is dead when a take or a sweep saw that before the event expired."""
        return debt.lapsed(now) and debt.claim is not None and debt.claim.attempt >= self.terms.max_attempts

    def _settle(self, emission: Emission, now: int) -> None:
        for debt in emission.debts.values():
            if debt.state != OPEN and debt.first is None:
                debt.first = debt.resolved
        if emission.settled is None and not any(debt.state == OPEN for debt in emission.debts.values()):
            emission.settled = now

    def _standing(self, emission: Emission, now: int) -> set[str]:
        still = [debt for debt in emission.debts.values() if debt.state == OPEN]
        if emission.settled is not None:
            return {COMPLETED}
        unfinished = EXPIRED if emission.over(now) else ACTIVE
        return {unfinished} if any(not self._may_be_dead(debt, now) for debt in still) else {COMPLETED, unfinished}

    def _earliest(self, emission: Emission, now: int) -> int:
        """The first instant at which it may have settled."""
        if emission.earliest is not None:
            return emission.earliest
        if emission.settled is not None:
            unsure = [debt.claim.expires if debt.state == UNSURE and debt.claim is not None else debt.first or 0
                      for debt in emission.debts.values()]  # fmt: skip
            return min([emission.settled, max(unsure, default=emission.settled)])
        ends = [debt.claim.expires for debt in emission.debts.values() if debt.state == OPEN and debt.claim is not None]
        return min([*ends, emission.expires if emission.expires is not None else now])

    def _may_be_gone(self, emission: Emission, now: int) -> bool:
        if emission.gone:
            return True
        if self._standing(emission, now) == {ACTIVE}:
            return False
        for debt in emission.debts.values():
            if debt.generation in self.removed:
                continue
            if debt.state == RETRIED and not self._may_be_dead(debt, now):
                return False
            if debt.state == DEAD and now < debt.resolved + self.terms.dead_kept:
                return False
        return self.terms.kept is None or now >= self._earliest(emission, now) + self.terms.kept

    def _leave(self, emission: Emission, now: int) -> None:
        if not emission.gone:
            emission.earliest = self._earliest(emission, now)
            emission.settled = now if emission.settled is None else emission.settled
            emission.gone = True

    def forget(self, now: int) -> None:
        """Drop what is gone and no longer remembered by id."""
        for emission in list(self.emissions.values()):
            if emission.gone and emission.settled is not None and now >= emission.settled + self.terms.dedup:
                del self.emissions[emission.id]
        if len(self.emissions) > 5000:
            raise AssertionError(f"the ledger of {self.name} keeps {len(self.emissions)} events")

    @property
    def alive(self) -> list[Emission]:
        return [each for each in self.emissions.values() if not each.gone]
