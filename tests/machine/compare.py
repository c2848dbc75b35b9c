"""What has to be equal in the answers of two queues, and what may differ."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import msgspec

from redisq.errors import RedisqError
from redisq.model import TERMINAL, Delivery, ErrorGroup, Job, JobState


class Raised(msgspec.Struct, frozen=True):
    """An answer that was an error: the exact type counts, its words don't."""

    type: str


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except RedisqError as error:
        return Raised(type(error).__name__)


def must_equal(what: str, real: Any, model: Any) -> None:
    """The queue under test says what the model says, or the difference is shown."""
    if real == model:
        return
    if isinstance(real, list) and isinstance(model, list) and len(real) == len(model):
        place = next(place for place, (one, other) in enumerate(zip(real, model, strict=True)) if one != other)
        must_equal(f"{what}, item {place}", real[place], model[place])
    raise AssertionError(f"{what}:\n  queue: {real}\n  model: {model}")


def plain(answer: Any) -> Any:
    """An answer without what each side makes for itself: tokens and fences, and orders that nobody promised."""
    if isinstance(answer, Delivery):
        fields = msgspec.structs.asdict(answer)
        del fields["token"], fields["fence"]
        return fields
    if isinstance(answer, list) and answer and isinstance(answer[0], ErrorGroup):
        return sorted((group.name, group.type, group.count, group.newest_ms) for group in answer)
    if isinstance(answer, list | tuple):
        return [plain(each) for each in answer]
    return answer


def listed(jobs: list[Job]) -> Any:
    """A listing in one form for all orders that are right: jobs of the same time may come in any order."""
    runs = [(where, sorted(run, key=lambda job: job.id)) for where, run in groupby(jobs, key=_place)]
    return [job for _, run in runs for job in run]


def _place(job: Job) -> tuple[JobState, Any]:
    if job.state is JobState.READY:
        return job.state, job.id
    if job.state in TERMINAL:
        return job.state, job.finished_ms
    return job.state, job.due_ms if job.state is JobState.SCHEDULED else job.lease_expires_ms
