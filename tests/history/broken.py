"""What a run broke, told so that it can be followed: the promise, and the steps of the one thing that show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.history.life import NEVER, State, Step
from tests.history.search import Unexplained

LOST, DOUBLED, STUCK, OTHER = "lost", "doubled", "stuck", "other"


@dataclass
class Broken:
    """A promise that the run broke: which, of what, and the steps that show it."""

    kind: str
    rule: str
    what: str
    lines: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([f"{self.kind}: {self.what}: {self.rule}", *(f"    {line}" for line in self.lines)])


def rule_of(step: Step, states: Sequence[State]) -> tuple[str, str]:
    """Which promise is broken when nothing explains `step` in any of `states`."""
    kinds = {state.kind for state in states}
    if step.verb == "found":
        if step.answer == "absent":
            return _gone(kinds)
        if kinds == {"absent"}:
            return OTHER, f"it is {step.answer}, and was never put in"
        if step.answer in ("waiting", "leased"):
            return DOUBLED, f"it is {step.answer} again, and had ended"
        return OTHER, f"it is {step.answer}, and nobody ended it so"
    if step.verb == "fault":
        return LOST, "its replicas had it, and the fault undid it"
    if step.verb == "put":
        return (LOST, "put in before, and new again") if step.answer == "new" else (OTHER, "a duplicate of nothing")
    if step.verb == "take":
        return _rule_of_take(step, states)
    if step.answer in ("lease-lost", "gone", "already-acknowledged", "not-active"):
        return _gone(kinds) if step.answer == "gone" else (OTHER, f"{step.verb} answered {step.answer}")
    if any(state.kind == "leased" and state.token == step.token and step.start < state.high for state in states):
        return OTHER, f"the answer to {step.verb} does not fit"
    if kinds & {"done", "dead"}:
        return DOUBLED, f"it had ended, and {step.verb} was accepted"
    return DOUBLED, f"a stale token was accepted by {step.verb}"


def _gone(kinds: set[str]) -> tuple[str, str]:
    return (LOST, "it was accepted, and is gone") if kinds & {"waiting", "leased"} else (OTHER, "its end is gone")


def _rule_of_take(step: Step, states: Sequence[State]) -> tuple[str, str]:
    kinds = {state.kind for state in states}
    if "waiting" in kinds or any(state.kind == "leased" and state.low < step.end for state in states):
        return OTHER, "it was handed out before its time, or with the wrong attempt number"
    if "leased" in kinds:
        return DOUBLED, "it was handed out while another lease on it was live"
    if kinds == {"absent"}:
        return OTHER, "it was handed out, and was never accepted"
    return DOUBLED, "it had ended, and was handed out again"


def story_of(steps: list[Step], reason: Unexplained | None = None) -> list[str]:
    """The steps of one thing in the order of their starts, up to the one that nothing explains, which is marked."""
    zero = min(step.start for step in steps)
    until = NEVER if reason is None else reason.step.end
    lines = []
    for step in sorted((step for step in steps if step.start <= until), key=lambda step: step.start):
        mark = "!" if reason is not None and step is reason.step else " "
        end = "?" if step.end == NEVER else _seconds(step.end, zero)
        attempt = f" attempt {step.attempt}" if step.verb == "take" else ""
        number = "" if step.number is None else f" {_seconds(step.number, zero)}"
        lines.append(
            f"{mark} {_seconds(step.start, zero):>9} {end:>9}  {step.client:8} {step.verb} {step.token[-12:]}"
            f"{attempt} -> {step.answer or 'unknown'}{number}"
        )
    for state in [] if reason is None else reason.states[:8]:
        text = f"  before: {state.kind}, attempts {state.attempts}"
        if state.kind == "leased":
            high = "?" if state.high >= NEVER else _seconds(state.high, zero)
            text += f", by {state.token[-12:]} until {_seconds(state.low, zero)}…{high}"
        lines.append(text)
    return lines


def _seconds(moment: int, zero: int) -> str:
    return f"{(moment - zero) / 1e9:.4f}"
