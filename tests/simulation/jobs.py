"""The ledger of one job queue: what its clients were told, and what must hold if all of it was true.

It is no model of the queue: it knows neither order nor indexes. Where a fact has not been told yet (was a lapsed lease
recovered? did a sweep remove an old record?) it allows each possible answer, and remembers the one that it gets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from redisq import Ack, Cancel, CorruptRecord, Delivery, Job, Offer, Renewal
from tests.simulation.facts import Broken, Claim, is_stale, told_state

WAITING, HELD, GONE = "waiting", "leased", "gone"
COMPLETED, DEAD, CANCELLED, QUARANTINED = "completed", "dead", "cancelled", "quarantined"
READY, SCHEDULED = "ready", "scheduled"


@dataclass
class Terms:
    """What was agreed for a queue, in milliseconds. `ages`: how long a record of each state stays, None: for ever."""

    lease: int
    max_attempts: int
    backoffs: tuple[int, ...]  # by attempt, the last one repeats
    dedup: int
    ages: dict[str, int]
    count: int | None = None
    softest: int = 0  # the shortest back-off that ever was agreed
    hardest: int = 0  # the longest one

    def __post_init__(self) -> None:
        self.softest, self.hardest = min(self.backoffs), max(self.backoffs)

    def backoff(self, attempt: int) -> int:
        return self.backoffs[min(attempt, len(self.backoffs)) - 1]

    def alter(self, backoffs: tuple[int, ...]) -> None:
        self.backoffs = backoffs
        self.softest, self.hardest = min(self.softest, *backoffs), max(self.hardest, *backoffs)


@dataclass(eq=False)
class Life:
    """One accepted job, until it is gone."""

    id: str
    label: str
    value: Any
    name: str
    custom: bool
    max_attempts: int
    state: str = WAITING
    due: int | None = None
    attempts: int = 0
    claim: Claim[Life] | None = None
    cancel: bool = False
    finished: int = 0
    blocks_until: int = 0  # once gone: how long the id is remembered

    def held(self, now: int) -> bool:
        return self.state == HELD and self.claim is not None and now < self.claim.expires

    def lapsed(self, now: int) -> bool:
        return self.state == HELD and self.claim is not None and now >= self.claim.expires


@dataclass
class JobLedger:
    name: str
    terms: Terms
    lives: dict[str, Life] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    claims: dict[str, Claim[Life]] = field(default_factory=dict)
    ends: defaultdict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    fence: int = 0
    paused: bool = False
    accepted: int = 0
    finishes: int = 0

    # what was told

    def offered(self, now: int, spec: dict[str, Any], label: str, answer: Any) -> None:
        if not isinstance(answer, Offer):
            raise Broken("offer", f"an offer was refused: {answer!r}")
        old = self.lives.get(answer.id)
        if answer.duplicate:
            self._duplicate(now, answer, old)
            return
        if old is not None:
            self._may_have_ended(old, now)
        if old is not None and not self._may_be_forgotten(old, now):
            raise Broken("dedup", f"{answer.id} was accepted a second time at {now}, and its first job counts: {old}")
        delay = spec.get("delay", 0)
        self.accepted += 1
        self.labels[label] = answer.id
        self.lives[answer.id] = Life(
            id=answer.id, label=label, value=spec["value"], name=spec.get("name", ""),
            custom=spec.get("id") is not None, due=now + delay if delay else None,
            max_attempts=spec.get("max_attempts") or self.terms.max_attempts,
        )  # fmt: skip
        self._agree("offer", answer.id, answer.state, {SCHEDULED if delay else READY})

    def _duplicate(self, now: int, answer: Offer, old: Life | None) -> None:
        if old is None or (old.state == GONE and now >= old.blocks_until):
            raise Broken("dedup", f"{answer.id} is called a duplicate, and nothing of that id is left")
        if answer.state is None:
            if old.state != GONE and not self._may_vanish(old, now):
                raise Broken("lost", f"only the id of {answer.id} is remembered, and it never went")
        else:
            self._agree("offer", answer.id, answer.state, self._permitted(old, now))

    def claimed(self, now: int, delivery: Delivery, lease: int) -> None:
        id = delivery.id
        if delivery.token in self.claims:
            raise Broken("token", f"the token {delivery.token} of {id} was handed out before")
        if delivery.fence <= self.fence:
            raise Broken("fence", f"{id} came with fence {delivery.fence} after {self.fence}")
        self.fence = delivery.fence
        life = self.lives.get(id)
        if life is None or life.state == GONE:
            raise Broken("ghost", f"{id} was handed out, and no such job is there")
        if self.paused:
            raise Broken("pause", f"{id} was handed out while the queue is paused")
        if life.held(now):
            raise Broken("lease", f"{id} was handed out while another lease of it lives")
        if life.lapsed(now):
            self._recover(life, now)
        if life.state != WAITING:
            raise Broken("finished", f"{id} was handed out after it ended {life.state}")
        if life.due is not None and life.due > now:
            raise Broken("early", f"{id} was handed out {life.due - now} ms before it was due")
        if (delivery.attempt, delivery.max_attempts) != (life.attempts + 1, life.max_attempts):
            raise Broken("attempts", f"{id} came as attempt {delivery.attempt} of {delivery.max_attempts}, not as "
                                     f"{life.attempts + 1} of {life.max_attempts}")  # fmt: skip
        if delivery.value != life.value:
            raise Broken("payload", f"{id} came with {delivery.value!r}, it was offered with {life.value!r}")
        if delivery.expires_ms != now + lease:
            raise Broken("lease", f"the lease of {id} ends at {delivery.expires_ms}, not at {now + lease}")
        life.state, life.due = HELD, None
        life.claim = self.claims[delivery.token] = Claim(life, delivery.token, delivery.attempt, now + lease)

    def _recover(self, life: Life, now: int) -> None:
        """A lapsed job that was handed out again had attempts left, and its back-off had passed."""
        assert life.claim is not None
        if life.cancel or life.claim.attempt >= life.max_attempts:
            raise Broken("attempts", f"{life.id} was handed out although its last lease could not be followed by one")
        life.state, life.attempts, life.due = WAITING, life.claim.attempt, life.claim.expires + self.terms.softest

    def live(self, now: int, token: str) -> bool:
        claim = self.claims[token]
        return claim.of.claim is claim and claim.of.held(now) and self.lives.get(claim.of.id) is claim.of

    def settled(self, now: int, verb: str, token: str, answer: Any, spec: dict[str, Any]) -> None:
        claim = self.claims[token]
        life = claim.of
        if isinstance(answer, CorruptRecord):
            raise Broken("corrupt", str(answer))
        if not self.live(now, token):
            self._stale(verb, claim, answer)
            return
        if is_stale(answer) or isinstance(answer, Exception) or answer is Ack.ALREADY_ACKNOWLEDGED:
            raise Broken("refused", f"{verb} of {life.id} with its live token was answered {answer!r}")
        state, due = self._expected(now, verb, claim, spec)
        if verb != "ack" and told_state(answer) not in (None, (state, due)):
            raise Broken("outcome", f"{verb} of {life.id} led to {told_state(answer)}, not to {(state, due)}")
        claim.verb, claim.led_to = verb, (state, due)
        if verb == "fail":
            life.attempts = claim.attempt
        if state in (READY, SCHEDULED):
            life.state, life.due = WAITING, due
        else:
            self._finish(life, state, now)

    def _stale(self, verb: str, claim: Claim[Life], answer: Any) -> None:
        repeated = claim.verb == verb
        if verb == "ack":
            if answer is Ack.ACKNOWLEDGED:
                rule = "finished" if claim.of.state == COMPLETED else "stale"
                raise Broken(rule, f"{claim.of.id} was finished by a token without a lease (it is {claim.of.state})")
            fine = is_stale(answer) or (answer is Ack.ALREADY_ACKNOWLEDGED and repeated)
        else:
            fine = is_stale(answer) or (repeated and told_state(answer) in (None, claim.led_to))
        if not fine:
            raise Broken("stale", f"{verb} of {claim.of.id} with a stale token was answered {answer!r}")

    def _expected(self, now: int, verb: str, claim: Claim[Life], spec: dict[str, Any]) -> tuple[str, int | None]:
        life = claim.of
        if verb == "ack":
            return COMPLETED, None
        if verb == "quarantine":
            return QUARANTINED, None
        if life.cancel:
            return CANCELLED, None
        wait = spec.get("delay", 0)
        if verb == "fail":
            if spec.get("final") or claim.attempt >= life.max_attempts:
                return DEAD, None
            wait = spec["retry_in"] if spec.get("retry_in") is not None else self.terms.backoff(claim.attempt)
        return (SCHEDULED, now + wait) if wait else (READY, None)

    def renewed(self, now: int, token: str, lease: int, answer: Any) -> None:
        claim = self.claims[token]
        if not self.live(now, token):
            if not is_stale(answer):
                raise Broken("stale", f"a lease of {claim.of.id} was renewed with a stale token: {answer!r}")
            return
        wanted = Renewal(max(claim.expires, now + lease), claim.of.cancel)
        if answer != wanted:
            raise Broken("lease", f"the renewal of {claim.of.id} was answered {answer!r}, not {wanted!r}")
        claim.expires = wanted.expires_ms

    def cancelled(self, now: int, id: str, answer: Any) -> None:
        life = self.lives.get(id)
        if answer is Cancel.UNKNOWN:
            self._unknown(life, now, "cancel")
            return
        if life is None or life.state == GONE:
            raise Broken("ghost", f"cancel of {id}, which is not there, says {answer!r}")
        if answer is Cancel.REQUESTED:
            if life.state != HELD:
                raise Broken("cancel", f"{id} is {life.state}, and its cancel was only requested")
            life.cancel = True
        elif answer is Cancel.CANCELLED:
            if life.state != WAITING and not life.lapsed(now):
                raise Broken("finished", f"{id} is {life.state}, and was cancelled")
            self._finish(life, CANCELLED, now)
        elif life.state == WAITING or life.held(now):
            raise Broken("cancel", f"the cancel of {id}, which is {life.state}, came {answer!r}")

    def stepped(self, now: int, verb: str, id: str, answer: Any) -> None:
        """`retry`, `promote` and `remove`, answered by a boolean."""
        life = self.lives.get(id)
        if life is None or life.state == GONE:
            if answer is not False:
                raise Broken("ghost", f"{verb} of {id}, which is not there, says {answer!r}")
            return
        permitted = self._permitted(life, now)
        could = {"retry": {DEAD, QUARANTINED}, "promote": {SCHEDULED}}.get(verb, permitted - {HELD})
        if answer is not True:
            if permitted <= could and not self._may_vanish(life, now):
                raise Broken("refused", f"{verb} of {id}, which is {life.state}, says {answer!r}")
            return
        if not permitted & could:
            raise Broken("finished", f"{verb} of {id}, which is {life.state}, says True")
        self._may_have_ended(life, now)
        if verb == "remove":
            life.state, life.blocks_until = GONE, 0
        else:
            if verb == "retry":
                life.attempts = 0
            elif life.lapsed(now) and life.claim is not None:
                life.attempts = life.claim.attempt
            life.state, life.due, life.cancel = WAITING, None, False

    def swept(self, now: int, by_category: dict[str, int]) -> None:
        could = sum(1 for life in self.lives.values() if life.lapsed(now))
        if by_category["lapsed"] > could:
            raise Broken("lease", f"a sweep recovered {by_category['lapsed']} leases, {could} had run out")

    def bulk(self, now: int, verb: str, state: str, done: int, look: Callable[[str], Job | None]) -> None:
        """`purge` or `retry_many` of a state, all slices of it."""
        sure = maybe = 0
        for life in [life for life in self.lives.values() if life.state != GONE]:
            permitted = self._permitted(life, now)
            if state not in permitted:
                continue
            certain = permitted == {state} and not self._may_vanish(life, now)
            sure += certain
            maybe += not certain
            job = look(life.id)
            if verb == "purge":
                if certain and job is not None:
                    raise Broken("finished", f"{life.id} is {state}, and a purge left it there")
                if job is None:
                    self._may_have_ended(life, now)
                    self._go(life, self._ended(life, now) + self.terms.dedup)
                else:
                    self._adopt(life, job, now)
            elif job is None:
                self._missing(life, now)
            elif job.state.value == READY:
                self._may_have_ended(life, now)
                if life.state == HELD and life.claim is not None:
                    life.attempts = life.claim.attempt
                if life.lapsed(now) or life.state == state:
                    life.attempts = job.attempts
                life.state, life.due, life.cancel = WAITING, None, False
            else:
                self._adopt(life, job, now)
        if not sure <= done <= sure + maybe:
            raise Broken("counts", f"{verb} of {state} did {done}, between {sure} and {sure + maybe} were there")

    def handed_back(self, token: str) -> None:
        """The caller of a take is gone, and its client gave the lease back: no attempt counted."""
        life = self.claims[token].of
        life.state, life.due = WAITING, None
        self.claims[token].verb = "handed back"
        if life.cancel:
            raise AssertionError("a claim that was only just made can't have been cancelled")

    # what must hold

    def nothing_left(self, now: int) -> None:
        """A take found less than it could have handed out: then no accepted job is takeable."""
        if self.paused:
            return
        for life in self.lives.values():
            if life.state == WAITING and (life.due is None or life.due <= now):
                raise Broken("lost", f"{life.id} waits since it was due, and a take did not find it")
            if self._is_back(life, now):
                raise Broken("lost", f"the lease of {life.id} lapsed, its back-off passed, and a take did not find it")

    def _is_back(self, life: Life, now: int) -> bool:
        """Whether a lapsed job has attempts left, and its back-off has passed."""
        if not life.lapsed(now) or life.claim is None or life.cancel or life.claim.attempt >= life.max_attempts:
            return False
        return life.claim.expires + self.terms.hardest <= now

    def walked(self, now: int, jobs: Iterable[Any], counts: dict[Any, int]) -> None:
        """Everything that the queue lists, and its counts, at one moment."""
        seen: dict[str, Job] = {}
        tally: defaultdict[str, int] = defaultdict(int)
        for job in jobs:
            if not isinstance(job, Job):
                raise Broken("corrupt", f"{job.id}: {job.reason}")
            if job.id in seen:
                raise Broken("listing", f"{job.id} is listed twice: {seen[job.id].state} and {job.state}")
            seen[job.id] = job
            tally[job.state.value] += 1
        for id in seen.keys() - self.lives.keys():
            raise Broken("ghost", f"{id} is listed, and nobody offered it")
        for life in list(self.lives.values()):
            job_now = seen.get(life.id)
            if life.state == GONE:
                if job_now is not None:
                    raise Broken("ghost", f"{life.id} was removed, and is listed as {job_now.state}")
                if now >= life.blocks_until:
                    del self.lives[life.id]
            elif job_now is None:
                self._missing(life, now)
            else:
                self._adopt(life, job_now, now)
        if {state.value: count for state, count in counts.items() if count} != dict(tally):
            raise Broken("counts", f"the queue counts {counts}, and lists {dict(tally)}")
        if len(self.lives) > 5000:
            raise AssertionError(f"the ledger of {self.name} keeps {len(self.lives)} jobs")

    def _adopt(self, life: Life, job: Job, now: int) -> None:
        state = job.state.value
        self._agree("a look", life.id, state, self._permitted(life, now))
        if life.lapsed(now) and state != HELD and life.claim is not None:
            life.attempts = life.claim.attempt
            if state in (READY, SCHEDULED):
                life.state, life.due = WAITING, job.due_ms
            else:
                self._finish(life, state, life.claim.expires)
        elif state == READY:
            life.due = None
        attempts = life.claim.attempt if life.state == HELD and life.claim is not None else life.attempts
        if life.state in (WAITING, HELD) and job.attempts != attempts:
            raise Broken("attempts", f"{life.id} says {job.attempts} attempts, {attempts} were made")
        if job.value != life.value:
            raise Broken("payload", f"{life.id} holds {job.value!r}, it was offered with {life.value!r}")
        if job.cancel_requested != (life.cancel and life.state == HELD):
            raise Broken("cancel", f"{life.id}: cancel_requested is {job.cancel_requested}")

    def _missing(self, life: Life, now: int) -> None:
        if not self._may_vanish(life, now):
            raise Broken("lost", f"{life.id}, which was accepted, is not there at {now}: {life}")
        self._may_have_ended(life, now)
        self._go(life, self._ended(life, now) + self.terms.dedup)

    def _ended(self, life: Life, now: int) -> int:
        """When a job that is not there any more ended; one that never did is remembered from its removal on."""
        if life.lapsed(now) and life.claim is not None:
            return life.claim.expires
        return life.finished if life.state in self.terms.ages else now

    def _go(self, life: Life, blocks_until: int) -> None:
        life.state, life.blocks_until = GONE, blocks_until if life.custom else 0

    def _unknown(self, life: Life | None, now: int, verb: str) -> None:
        if life is not None and life.state != GONE and not self._may_vanish(life, now):
            raise Broken("lost", f"{verb}: {life.id} is unknown, and it is {life.state}")

    def _finish(self, life: Life, state: str, at: int) -> None:
        self.finishes += 1
        life.state, life.finished, life.cancel = state, at, False
        self._ends_at(state, life.name, at)

    def _ends_at(self, state: str, name: str, at: int) -> None:
        ends = self.ends[state, name]
        ends.append(at)
        del ends[:-50]

    def _may_have_ended(self, life: Life, now: int) -> None:
        """A lapsed job may have ended, and pushed others out, before it was seen to be something else."""
        if life.lapsed(now) and life.claim is not None:
            for state in self._permitted(life, now) & {DEAD, CANCELLED}:
                self._ends_at(state, life.name, life.claim.expires)

    def _permitted(self, life: Life, now: int) -> set[str]:
        """The states in which the job may be read."""
        if life.state == WAITING:
            return {READY} if life.due is None else {SCHEDULED} if life.due > now else {READY, SCHEDULED}
        if not life.lapsed(now) or life.claim is None:
            return {life.state}
        if life.cancel:
            return {HELD, CANCELLED}
        if life.claim.attempt >= life.max_attempts:
            return {HELD, DEAD}
        return {HELD, SCHEDULED, READY}

    def _may_vanish(self, life: Life, now: int) -> bool:
        """Whether retention may have removed its record by now."""
        if life.lapsed(now) and life.claim is not None:
            return any(self._past(life, state, life.claim.expires, now) for state in self._permitted(life, now))
        return self._past(life, life.state, life.finished, now)

    def _past(self, life: Life, state: str, ended: int, now: int) -> bool:
        if state not in self.terms.ages:
            return state == GONE
        if now >= ended + self.terms.ages[state]:
            return True
        if self.terms.count is None:
            return False
        newer = sum(1 for at in self.ends[state, life.name] if at >= ended) - (life.state == state)
        return newer + sum(1 for other in self.lives.values() if other.lapsed(now)) >= self.terms.count

    def _may_be_forgotten(self, life: Life, now: int) -> bool:
        if life.state == GONE:
            return now >= life.blocks_until
        ended = self._ended(life, now)
        return self._may_vanish(life, now) and now >= ended + (self.terms.dedup if life.custom else 0)

    @staticmethod
    def _agree(what: str, id: str, state: Any, permitted: set[str]) -> None:
        told = getattr(state, "value", state)
        if told not in permitted:
            raise Broken(
                "state", f"{what} says that {id} is {told}, and it can only be {' or '.join(sorted(permitted))}"
            )

    @property
    def alive(self) -> list[Life]:
        return [life for life in self.lives.values() if life.state in (WAITING, HELD)]
