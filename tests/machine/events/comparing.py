"""What has to be equal in the answers of two event queues, and what may differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from redisq.model import DeadObligation, ErrorDetail, Event, EventDelivery, Maintenance


def plain(answer: Any) -> Any:
    """An answer without what each side makes for itself (tokens, fences) and without the order of recipients."""
    if isinstance(answer, EventDelivery):
        fields = msgspec.structs.asdict(answer)
        del fields["token"], fields["fence"]
        return fields
    if isinstance(answer, Event):
        recipients = sorted(answer.recipients, key=lambda each: (each.name, each.generation))
        return msgspec.structs.replace(answer, recipients=tuple(recipients))
    if isinstance(answer, list | tuple):
        return [plain(each) for each in answer]
    return answer


def drained(queue: Any, limit: int) -> int:
    """How many obligations sweeps dropped until nothing was pending."""
    dropped = 0
    for _ in range(200):
        swept: Maintenance = queue.maintain(limit)
        assert swept.processed == sum(swept.by_category.values())
        assert all(0 <= done <= limit for done in swept.by_category.values()), swept
        dropped += swept.by_category["dropped"]
        if not swept.pending:
            return dropped
    raise AssertionError("still pending after 200 sweeps")


def all_dead(queue: Any, subscription: Any, limit: int) -> list[DeadObligation]:
    """The dead obligations in one form for all right orders: the latest first, and by id at the same time."""
    items: list[DeadObligation] = []
    cursor = None
    while True:
        page = queue.dead(subscription, limit=limit, cursor=cursor)
        items += page.items
        cursor = page.cursor
        if cursor is None:
            break
    return in_order([_without_words(each) for each in items], lambda each: -each.dead_ms, lambda each: each.event_id)


def _without_words(dead: DeadObligation) -> DeadObligation:
    """How an error of the queue's own is told is left open."""
    if dead.error is None or dead.error.type != "LeaseLapsed":
        return dead
    return msgspec.structs.replace(dead, error=ErrorDetail(dead.error.type))


def all_archived(queue: Any, limit: int, settled_ms: Callable[[str], int]) -> list[str]:
    """The archived ids in one form for all right orders: by settlement, and by id at the same time."""
    ids: list[str] = []
    while True:
        page = queue.list_archived(offset=len(ids), limit=limit)
        ids += page
        if len(page) < limit:
            return in_order(ids, settled_ms, str)


def in_order(items: Sequence[Any], by: Callable[[Any], Any], then: Callable[[Any], Any]) -> list[Any]:
    """The items must be ordered by `by`; those that are equal there are put in the order of `then`."""
    keys = [by(each) for each in items]
    assert keys == sorted(keys), f"out of order: {items}"
    return sorted(items, key=lambda each: (by(each), then(each)))
