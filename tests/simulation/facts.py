"""What the ledgers share: a broken promise, and what a step told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from redisq import Ack, EventNotActive, Failure, LeaseLost
from redisq.calls import Call

Held = TypeVar("Held")
Sabotage = Callable[[Call[Any], Any], Any]
"""Sees every call with its raw reply, and answers with the reply that the client shall see."""


class Broken(AssertionError):
    """A promise was broken; `rule` names it."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule
        self.message = message


@dataclass(eq=False)
class Claim(Generic[Held]):
    """What a client was handed out, `of` a record of its ledger; `verb` and `led_to` once it is settled."""

    of: Held
    token: str
    attempt: int
    expires: int
    verb: str = ""
    led_to: tuple[str, int | None] | None = None


def is_stale(answer: Any) -> bool:
    """Whether an answer says that the token had no power any more."""
    return isinstance(answer, LeaseLost | EventNotActive) or answer in (Ack.LEASE_LOST, Ack.GONE, Ack.NOT_ACTIVE)


def told_state(answer: Any) -> tuple[str, int | None] | None:
    """State and due time, where an answer tells them."""
    return (answer.state.value, answer.due_ms) if isinstance(answer, Failure) else None
