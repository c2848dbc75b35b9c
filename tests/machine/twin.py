"""An engine made of the model, so that the machine can be proven without a server, and wrong ones to catch."""

from __future__ import annotations

from typing import Any

from redisq import model
from redisq.policy import QueuePolicy
from redisq.testing import ManualClock, ReferenceQueue


class TwinEngine:
    """Has of `Engine` what the machine uses. Engines with one `queues` dict share their queues."""

    def __init__(
        self, queues: dict[str, ReferenceQueue], clock: ManualClock, worker: str, made_of: type[ReferenceQueue]
    ) -> None:
        self._queues = queues
        self._clock = clock
        self._worker = worker
        self._made_of = made_of

    def queue(self, name: str, type: Any = Any, *, policy: QueuePolicy | None = None) -> ReferenceQueue:
        queue = self._queues.setdefault(name, self._made_of(name, self._clock))
        return queue.client(policy=policy, type=type, worker=self._worker)


class ReleaseCounts(ReferenceQueue):
    def _wait(self, call: Any, job: Any, *args: Any, **options: Any) -> None:
        if options.get("to_head"):
            job.attempts += 1
        super()._wait(call, job, *args, **options)


class ReleasesToTail(ReferenceQueue):
    def _wait(self, *args: Any, **options: Any) -> None:
        super()._wait(*args, **{**options, "to_head": False})


class LeaseHoldsAtItsEnd(ReferenceQueue):
    @staticmethod
    def _live(job: Any, delivery: model.Delivery, now: int) -> bool:
        return ReferenceQueue._live(job, delivery, now - 1)


class ClaimSettlesOlderTokens(ReferenceQueue):
    def _claim(self, *args: Any) -> model.Delivery:
        delivery = super()._claim(*args)
        self._store.jobs[delivery.id].settled = None
        return delivery


class CancelKeepsOlderTokens(ReferenceQueue):
    def cancel(self, id: str) -> model.Cancel:
        job = self._store.jobs.get(id)
        settled = None if job is None else job.settled
        answer = super().cancel(id)
        if job is not None:
            job.settled = settled
        return answer


class RenewalShortens(ReferenceQueue):
    def _renew(self, call: Any, delivery: model.Delivery, lease_ms: int) -> model.Renewal:
        renewal = super()._renew(call, delivery, lease_ms)
        job = self._store.jobs[delivery.id]
        job.lease_ends_ms = call.now + lease_ms
        return model.Renewal(job.lease_ends_ms, renewal.cancel_requested)


class LapseBacksOffFromNow(ReferenceQueue):
    def _lapse(self, call: Any, job: Any) -> None:
        super()._lapse(call, job)
        if job.state is model.JobState.SCHEDULED:
            job.due_ms += call.now - job.lease_ends_ms


class LosesThePriority(ReferenceQueue):
    def promote(self, id: str) -> bool:
        done = super().promote(id)
        if done:
            self._store.jobs[id].priority = 0
        return done


class RetryNumbersFromOne(ReferenceQueue):
    def retry(self, id: str) -> bool:
        done = super().retry(id)
        if done:
            self._store.jobs[id].attempts_before_retry = 0
        return done


class PrunesOneTooFew(ReferenceQueue):
    def _rule(self, job: Any, state: model.JobState) -> tuple[int | None, int | None]:
        most, age_ms = super()._rule(job, state)
        return (None if most is None else most + 1), age_ms


class ForgetsPurgedIds(ReferenceQueue):
    def _remove(self, job: Any, now: int, *, frees_id: bool = False) -> None:
        super()._remove(job, now, frees_id=True)


class RemovesLeasedJobs(ReferenceQueue):
    def remove(self, id: str) -> bool:
        job = self._store.jobs.get(id)
        if job is not None and job.state is model.JobState.LEASED:
            self._remove(job, self.clock.now_ms, frees_id=True)
            return True
        return super().remove(id)


class UnstartedLapseCounts(ReferenceQueue):
    def _lapse(self, call: Any, job: Any) -> None:
        job.started = True
        super()._lapse(call, job)


class TakesWhilePaused(ReferenceQueue):
    def pause(self) -> None:
        super().pause()
        self._store.paused = False


class DuePromotionsInOfferOrder(ReferenceQueue):
    def _due(self, now: int) -> list[Any]:
        return sorted(super()._due(now), key=lambda job: job.created_ms)


class RecordsDuePromotions(ReferenceQueue):
    def _promote_due(self, call: Any, limit: int | None = None) -> int:
        due = self._due(call.now)[:limit]
        for job in due:
            self._move(call, job, model.JobState.READY, call.now)
        return len(due)


class ListingSkipsAnItem(ReferenceQueue):
    def jobs(self, **options: Any) -> model.Page:
        page = super().jobs(**options)
        return model.Page(items=page.items[:-1] if page.cursor else page.items, cursor=page.cursor)


class ListingShowsAnItemTwice(ReferenceQueue):
    def jobs(self, **options: Any) -> model.Page:
        page = super().jobs(**options)
        repeated = page.items[:1] if options.get("cursor") else []
        return model.Page(items=[*repeated, *page.items], cursor=page.cursor)


BROKEN = [
    ReleaseCounts,
    ReleasesToTail,
    LeaseHoldsAtItsEnd,
    ClaimSettlesOlderTokens,
    CancelKeepsOlderTokens,
    RenewalShortens,
    LapseBacksOffFromNow,
    LosesThePriority,
    RetryNumbersFromOne,
    PrunesOneTooFew,
    ForgetsPurgedIds,
    RemovesLeasedJobs,
    UnstartedLapseCounts,
    TakesWhilePaused,
    DuePromotionsInOfferOrder,
    RecordsDuePromotions,
    ListingSkipsAnItem,
    ListingShowsAnItemTwice,
]
