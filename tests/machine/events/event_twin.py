"""An engine made of the model, so that the machine can be proven without a server, and wrong ones to catch."""

from __future__ import annotations

from typing import Any

from redisq.errors import EventNotActive, LeaseLost
from redisq.model import EventStatus
from redisq.policy import EventPolicy
from redisq.testing import ManualClock, ReferenceEventQueue


class TwinEngine:
    """Has of `Engine` what the machine uses. Engines with one `queues` dict share their queues."""

    def __init__(
        self, queues: dict[str, ReferenceEventQueue], clock: ManualClock, made_of: type[ReferenceEventQueue]
    ) -> None:
        self._queues = queues
        self._clock = clock
        self._made_of = made_of

    def events(self, name: str, type: Any = Any, *, policy: EventPolicy | None = None) -> ReferenceEventQueue:
        queue = self._queues.setdefault(name, self._made_of(name, self._clock))
        return queue.client(policy=policy, type=type)


class ReleaseCounts(ReferenceEventQueue):
    def _release(self, delivery: Any, delay_ms: int) -> Any:
        answer = super()._release(delivery, delay_ms)
        obligation = _obligation(self, delivery)
        if obligation is not None and obligation.settled == (delivery.token, "release", answer):
            obligation.attempts += 1
        return answer


class LeaseOutlivesTheDeadline(ReferenceEventQueue):
    @staticmethod
    def _granted(obligation: Any, now: int, lease_ms: int) -> int:
        return now + lease_ms


class RenewalOfARetriedOneEndsAtTheDeadline(ReferenceEventQueue):
    @staticmethod
    def _granted(obligation: Any, now: int, lease_ms: int) -> int:
        return min(now + lease_ms, max(obligation.event.expires_ms or now + lease_ms, now + 1))


class LateAckIsALostLease(ReferenceEventQueue):
    def _holder(self, delivery: Any, verb: str) -> Any:
        try:
            return super()._holder(delivery, verb)
        except EventNotActive:
            raise LeaseLost("late") from None


class SettlesAtTheCleanup(ReferenceEventQueue):
    def _settle_event(self, event: Any, status: EventStatus, at: int) -> None:
        super()._settle_event(event, status, self.clock.now_ms)


class DiesAtTheRecovery(ReferenceEventQueue):
    def _die(self, obligation: Any, at: int, error: Any) -> None:
        super()._die(obligation, self.clock.now_ms, error)


class RetriedOneBlocksCompletionAgain(ReferenceEventQueue):
    def retry(self, subscription: Any, id: str) -> bool:
        done = super().retry(subscription, id)
        if done:
            self._dead_or_retried(subscription, id).freed_ms = None  # type: ignore[union-attr]
        return done


class RetryKeepsTheAttempts(ReferenceEventQueue):
    def retry(self, subscription: Any, id: str) -> bool:
        obligation = self._dead_or_retried(subscription, id)
        attempts = 0 if obligation is None else obligation.attempts
        done = super().retry(subscription, id)
        if done and obligation is not None:
            obligation.attempts = attempts
        return done


class DeadOnesHoldNothing(ReferenceEventQueue):
    def _is_gone(self, event: Any) -> bool:
        return event.settled_ms is not None and self._policy.on_completion == "delete"


class UnsubscribingForgetsAcks(ReferenceEventQueue):
    def unsubscribe(self, subscription: Any) -> bool:
        owed = [each for each in self._obligations() if _of(each, subscription)]
        done = super().unsubscribe(subscription)
        for each in owed:
            each.settled = None if done else each.settled
        return done


class NewSubscriptionsGetOldEvents(ReferenceEventQueue):
    def subscribe(self, name: str) -> Any:
        known = set(self._store.subscriptions)
        subscription = super().subscribe(name)
        if name not in known:
            for event in self._store.events.values():
                owing = self._store.subscriptions[name]
                event.obligations.append(type(event.obligations[0])(event, owing, 0)) if event.obligations else None
        return subscription


class ForgetsIds(ReferenceEventQueue):
    def _let_time_pass(self) -> int:
        now = super()._let_time_pass()
        self._store.memory.clear()
        return now


class DropsTheNewest(ReferenceEventQueue):
    def _of(self, subscription: Any) -> Any:
        return super()._of(subscription)[::-1]


class BacklogCountsLeasedOnes(ReferenceEventQueue):
    @staticmethod
    def _counts(obligation: Any) -> bool:
        return bool(obligation.owed)


class TakingIsIdle(ReferenceEventQueue):
    def _take(self, subscription: Any, limit: int, lease_ms: int) -> Any:
        taken = super()._take(subscription, limit, lease_ms)
        subscription.last_take_ms = 0
        return taken


class ListsWhatIsPastRetention(ReferenceEventQueue):
    def list_archived(self, **options: Any) -> Any:
        for event in self._store.events.values():
            event.past = False
        return super().list_archived(**options)

    def _read(self) -> int:
        return self.clock.now_ms


def _obligation(queue: ReferenceEventQueue, delivery: Any) -> Any:
    generation = delivery.subscription.generation
    found = (each for each in queue._obligations() if each.event.id == delivery.id)
    return next((each for each in found if each.subscription.generation == generation), None)


def _of(obligation: Any, subscription: Any) -> bool:
    return bool(obligation.subscription.generation == subscription.generation)


BROKEN = [
    ReleaseCounts,
    LeaseOutlivesTheDeadline,
    RenewalOfARetriedOneEndsAtTheDeadline,
    LateAckIsALostLease,
    SettlesAtTheCleanup,
    DiesAtTheRecovery,
    RetriedOneBlocksCompletionAgain,
    RetryKeepsTheAttempts,
    DeadOnesHoldNothing,
    UnsubscribingForgetsAcks,
    NewSubscriptionsGetOldEvents,
    ForgetsIds,
    DropsTheNewest,
    BacklogCountsLeasedOnes,
    TakingIsIdle,
    ListsWhatIsPastRetention,
]
