"""What a queue promises about retries, leases and retention; stored with the queue as text fields.

The text forms are read by the scripts (`lua/lib/retry.lua`, `lua/lib/retention.lua`), so every worker and the sweep
go by the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from msgspec import UNSET, UnsetType

from redisq.errors import InvalidInput
from redisq.model import TERMINAL, History, JobState
from redisq.values import Duration, duration_ms, integer, number

MAX_ATTEMPTS = 1_000_000
_PRIME = 2**32 - 5


class Backoff:
    """The delay before the next attempt. Made by `exponential`, `fixed` or `delays`; compared by value.

    The delay after attempt n depends on n alone (with jitter also on the id), so it needs no stored state.
    """

    __slots__ = ("_wire",)

    def __init__(self, wire: str) -> None:
        self._wire = wire

    @classmethod
    def exponential(cls, base: Duration = 1, factor: float = 2, cap: Duration = 300, jitter: float = 0) -> Backoff:
        """`base`, then times `factor` (above 0, at most 1,000) after each attempt, never over `cap`.

        `jitter` (0…1) shortens each delay by up to that share.
        """
        base_ms, cap_ms = duration_ms("base", base), duration_ms("cap", cap)
        number("factor", factor, 1e-3, 1000)
        return cls(f"e,{base_ms},{float(factor)!r},{cap_ms},{_share(jitter)!r}")

    @classmethod
    def fixed(cls, seconds: Duration, *, jitter: float = 0) -> Backoff:
        """The same delay after every attempt."""
        return cls.delays(seconds, jitter=jitter)

    @classmethod
    def delays(cls, *seconds: Duration, jitter: float = 0) -> Backoff:
        """One delay per attempt, 1 to 64 of them; the last one repeats."""
        if not 1 <= len(seconds) <= 64:
            raise InvalidInput(f"delays takes 1 to 64 delays, not {len(seconds)}")
        steps = ";".join(str(duration_ms("delays", each)) for each in seconds)
        return cls(f"d,{_share(jitter)!r},{steps}")

    def delay(self, attempt: int, id: str = "") -> float:
        """Seconds to wait after attempt `attempt` (1-based) of the job `id`."""
        attempt = integer("attempt", attempt, 1, 2**53)
        kind, *fields = self._wire.split(",")
        if kind == "e":
            base, factor, cap, jitter = (float(field) for field in fields)
            ms = min(cap, base * _power(factor, attempt - 1)) if base else 0.0
        else:
            jitter, steps = float(fields[0]), fields[1].split(";")
            ms = float(steps[min(attempt, len(steps)) - 1])
        if jitter:
            ms *= 1 - jitter * _chance(id, attempt)
        return math.ceil(ms) / 1000

    @property
    def wire(self) -> str:
        return self._wire

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Backoff) and self._wire == other._wire

    def __hash__(self) -> int:
        return hash(self._wire)

    def __repr__(self) -> str:
        kind, *fields = self._wire.split(",")
        if kind == "e":
            base, factor, cap, jitter = (float(field) for field in fields)
            return (
                f"Backoff.exponential(base={base / 1000:g}, factor={factor:g}, cap={cap / 1000:g}, jitter={jitter:g})"
            )
        steps = ", ".join(f"{float(step) / 1000:g}" for step in fields[1].split(";"))
        return f"Backoff.delays({steps}, jitter={float(fields[0]):g})"


def _share(jitter: float) -> float:
    return number("jitter", jitter, 0, 1)


def _power(factor: float, exponent: int) -> float:
    """factor ** exponent by squaring: the very steps of lua/lib/retry.lua, and infinity where ** would raise."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= factor
        exponent >>= 1
        factor *= factor
    return result


def _chance(id: str, attempt: int) -> float:
    """0 to below 1 from the id and the attempt, by the very steps of lua/lib/retry.lua."""
    hash = 0
    for byte in f"{id}:{attempt}".encode() + bytes(3):
        hash = (hash * 1664525 + byte + 1) % _PRIME
    return hash / _PRIME


class Keep:
    """How long finished jobs stay: flat `Keep(count=…, age=…)` for every terminal state, or split by state.

    `count` keeps the newest so many of one name and state, `age` those that finished less long ago. Both hold. What is
    not given keeps; `Keep()` keeps all, `Keep(count=0)` nothing. Mixing the forms is a ValueError.
    """

    __slots__ = ("_rules",)
    _rules: tuple[tuple[int | None, int | None], ...]

    def __init__(
        self,
        *,
        count: int | None = None,
        age: Duration | None = None,
        completed: Keep | None = None,
        dead: Keep | None = None,
        cancelled: Keep | None = None,
        quarantined: Keep | None = None,
    ) -> None:
        split = {"completed": completed, "dead": dead, "cancelled": cancelled, "quarantined": quarantined}
        given = {state: rule for state, rule in split.items() if rule is not None}
        if given and (count is not None or age is not None):
            raise InvalidInput(f"keep: give either count and age, or a rule per state ({', '.join(given)}), not both")
        flat = (
            None if count is None else integer("count", count, 0, 2**53 - 1),
            None if age is None else duration_ms("age", age),
        )
        rules: list[tuple[int | None, int | None]] = []
        for state, rule in split.items():
            if rule is not None and not isinstance(rule, Keep):
                raise InvalidInput(f"keep: {state} must be a Keep, not {type(rule).__name__}")
            if rule is not None and len(set(rule._rules)) != 1:
                raise InvalidInput(f"keep: the rule for {state} must be flat, Keep(count=…, age=…)")
            rules.append(flat if not given else (None, None) if rule is None else rule._rules[0])
        self._rules = tuple(rules)

    def rule(self, state: JobState) -> tuple[int | None, int | None]:
        """The (count, age in ms) that holds for a terminal state."""
        return self._rules[TERMINAL.index(state)]

    @property
    def wire(self) -> str:
        return "/".join(f"{_blank(count)}:{_blank(age)}" for count, age in self._rules)

    @classmethod
    def from_wire(cls, wire: str) -> Keep:
        keep = cls()
        pairs = [part.split(":") for part in wire.split("/")]
        keep._rules = tuple((_optional(count), _optional(age)) for count, age in pairs)
        return keep

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keep) and self._rules == other._rules

    def __hash__(self) -> int:
        return hash(self._rules)

    def __repr__(self) -> str:
        def flat(rule: tuple[int | None, int | None]) -> str:
            parts = [] if rule[0] is None else [f"count={rule[0]}"]
            parts += [] if rule[1] is None else [f"age={rule[1] / 1000:g}"]
            return f"Keep({', '.join(parts)})"

        if len(set(self._rules)) == 1:
            return flat(self._rules[0])
        split = (
            f"{state}={flat(rule)}"
            for state, rule in zip(TERMINAL, self._rules, strict=True)
            if any(r is not None for r in rule)
        )
        return f"Keep({', '.join(split)})"


KEEP_ALL = Keep()
DEFAULT_KEEP = Keep(completed=Keep(count=10_000, age=86_400), cancelled=Keep(count=10_000, age=86_400))
NEVER = ""


class Policy:
    """What the policies of both kinds of queue share: fields given and fields stored, compared by value."""

    __slots__ = ("_given", "_stored")

    DEFAULTS: ClassVar[dict[str, str]]

    def _fill(self, given: dict[str, str]) -> None:
        stored = {**self.DEFAULTS, **given}
        self._given, self._stored = given, stored
        if self.DEFAULTS:
            self._read(stored)

    def _read(self, stored: dict[str, str]) -> None:
        """Sets the attribute of every field from its stored text."""
        raise NotImplementedError

    @property
    def given(self) -> dict[str, str]:
        """The stored text of the fields that were passed explicitly."""
        return dict(self._given)

    @property
    def stored(self) -> dict[str, str]:
        """The stored text of every field, defaults included."""
        return dict(self._stored)

    @classmethod
    def from_stored(cls, fields: Mapping[str, str]) -> Self:
        """The policy that a queue holds; all its fields count as given."""
        policy = cls.__new__(cls)
        policy._fill({name: fields[name] for name in cls.DEFAULTS})
        return policy

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Policy) or type(self) is not type(other):
            return False
        return self._stored == other._stored and self._given == other._given

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._stored.items())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._given)})"


class QueuePolicy(Policy):
    """The rules of a job queue. Options that are not given are adopted from what the queue stores, else the default.

    max_attempts: attempts until a job is dead, 1…1,000,000. backoff: the wait between them. lease: how long a claim
    holds without renewal, at least 1 ms. timeout: a handler's time limit, None for none. keep: see `Keep`; None keeps
    all. history_ttl: a ceiling on the age of finished jobs, one duration or a mapping by terminal state. history: see
    `History`. transition_cap, attempt_cap: rows kept per job, 1…10,000. dedup: how long a custom id stays taken after
    its job finished and its record went; 0 only while the record lives.
    """

    __slots__ = (
        "attempt_cap", "backoff", "dedup", "history", "history_ttl", "keep", "lease", "max_attempts", "timeout",
        "transition_cap",
    )  # fmt: skip

    DEFAULTS: ClassVar[dict[str, str]] = {}

    def __init__(
        self,
        *,
        max_attempts: int | UnsetType = UNSET,
        backoff: Backoff | UnsetType = UNSET,
        lease: Duration | UnsetType = UNSET,
        timeout: Duration | None | UnsetType = UNSET,
        keep: Keep | None | UnsetType = UNSET,
        history_ttl: Duration | Mapping[str, Duration] | None | UnsetType = UNSET,
        history: History | str | UnsetType = UNSET,
        transition_cap: int | UnsetType = UNSET,
        attempt_cap: int | UnsetType = UNSET,
        dedup: Duration | UnsetType = UNSET,
    ) -> None:
        given: dict[str, str] = {}
        if max_attempts is not UNSET:
            given["max_attempts"] = str(integer("max_attempts", max_attempts, 1, MAX_ATTEMPTS))
        if backoff is not UNSET:
            given["backoff"] = _backoff(backoff)
        if lease is not UNSET:
            given["lease"] = str(duration_ms("lease", lease, least=1))
        if timeout is not UNSET:
            given["timeout"] = _duration_or_never("timeout", timeout, least=1)
        if keep is not UNSET:
            given["keep"] = keep_wire(keep)
        if history_ttl is not UNSET:
            given["history_ttl"] = _ceiling(history_ttl)
        if history is not UNSET:
            try:
                given["history"] = History(history).value
            except ValueError:
                raise InvalidInput(f"history must be one of {', '.join(History)}, not {history!r}") from None
        if transition_cap is not UNSET:
            given["transition_cap"] = str(integer("transition_cap", transition_cap, 1, 10_000))
        if attempt_cap is not UNSET:
            given["attempt_cap"] = str(integer("attempt_cap", attempt_cap, 1, 10_000))
        if dedup is not UNSET:
            given["dedup"] = str(duration_ms("dedup", dedup))
        self._fill(given)

    def _read(self, stored: dict[str, str]) -> None:
        self.max_attempts = int(stored["max_attempts"])
        self.backoff = Backoff(stored["backoff"])
        self.lease = int(stored["lease"]) / 1000
        self.timeout = _seconds(stored["timeout"])
        self.keep = Keep.from_wire(stored["keep"])
        ceilings = (_optional(ms) for ms in stored["history_ttl"].split("/"))
        self.history_ttl = {s: ms / 1000 for s, ms in zip(TERMINAL, ceilings, strict=True) if ms is not None} or None
        self.history = History(stored["history"])
        self.transition_cap = int(stored["transition_cap"])
        self.attempt_cap = int(stored["attempt_cap"])
        self.dedup = int(stored["dedup"]) / 1000


class EventPolicy(Policy):
    """The rules of an event queue. Options that are not given are adopted from what the queue stores, else the default.

    on_completion: "delete" or "archive" what is completed or expired, by the policy of that moment. ttl: the deadline
    of an event that states none, from its emission; None for none. archive_retention: how long archived events stay,
    from their settlement; None for ever. max_attempts: attempts until an obligation is dead, 1…1,000,000, None for no
    limit. backoff: the wait after a failed attempt. dedup: how long an id stays taken after its event settled and its
    record went. dead_retention: how long a dead obligation holds its event; None until it is retried or discarded.
    max_backlog: events that may wait for one subscription, 1 or more. idle_after: how long a subscription may leave its
    oldest event waiting without taking anything; the sweep drops what is beyond either, None drops nothing.
    """

    __slots__ = (
        "archive_retention", "backoff", "dead_retention", "dedup", "idle_after", "max_attempts", "max_backlog",
        "on_completion", "ttl",
    )  # fmt: skip

    DEFAULTS: ClassVar[dict[str, str]] = {}

    def __init__(
        self,
        *,
        on_completion: str | UnsetType = UNSET,
        ttl: Duration | None | UnsetType = UNSET,
        archive_retention: Duration | None | UnsetType = UNSET,
        max_attempts: int | None | UnsetType = UNSET,
        backoff: Backoff | UnsetType = UNSET,
        dedup: Duration | UnsetType = UNSET,
        dead_retention: Duration | None | UnsetType = UNSET,
        max_backlog: int | None | UnsetType = UNSET,
        idle_after: Duration | None | UnsetType = UNSET,
    ) -> None:
        given: dict[str, str] = {}
        if on_completion is not UNSET:
            if on_completion not in ("delete", "archive"):
                raise InvalidInput(f"on_completion must be 'delete' or 'archive', not {on_completion!r}")
            given["on_completion"] = on_completion
        if ttl is not UNSET:
            given["ttl"] = _duration_or_never("ttl", ttl)
        if archive_retention is not UNSET:
            given["archive_retention"] = _duration_or_never("archive_retention", archive_retention)
        if max_attempts is not UNSET:
            given["max_attempts"] = (
                NEVER if max_attempts is None else str(integer("max_attempts", max_attempts, 1, MAX_ATTEMPTS))
            )
        if backoff is not UNSET:
            given["backoff"] = _backoff(backoff)
        if dedup is not UNSET:
            given["dedup"] = str(duration_ms("dedup", dedup))
        if dead_retention is not UNSET:
            given["dead_retention"] = _duration_or_never("dead_retention", dead_retention)
        if max_backlog is not UNSET:
            given["max_backlog"] = (
                NEVER if max_backlog is None else str(integer("max_backlog", max_backlog, 1, 2**53 - 1))
            )
        if idle_after is not UNSET:
            given["idle_after"] = _duration_or_never("idle_after", idle_after, least=1)
        self._fill(given)

    def _read(self, stored: dict[str, str]) -> None:
        self.on_completion = stored["on_completion"]
        self.ttl = _seconds(stored["ttl"])
        self.archive_retention = _seconds(stored["archive_retention"])
        self.max_attempts = _optional(stored["max_attempts"])
        self.backoff = Backoff(stored["backoff"])
        self.dedup = int(stored["dedup"]) / 1000
        self.dead_retention = _seconds(stored["dead_retention"])
        self.max_backlog = _optional(stored["max_backlog"])
        self.idle_after = _seconds(stored["idle_after"])


def keep_wire(keep: Any) -> str:
    """The stored text of a `keep` option; None keeps all."""
    if keep is None:
        return KEEP_ALL.wire
    if not isinstance(keep, Keep):
        raise InvalidInput(f"keep must be a Keep or None, not {type(keep).__name__}")
    return keep.wire


def _ceiling(value: Duration | Mapping[str, Duration] | None) -> str:
    if value is None:
        return "/".join([NEVER] * len(TERMINAL))
    if not isinstance(value, Mapping):
        return "/".join([str(duration_ms("history_ttl", value))] * len(TERMINAL))
    unknown = sorted(str(state) for state in value if state not in TERMINAL)
    if unknown or not value:
        wanted = ", ".join(TERMINAL)
        raise InvalidInput(f"history_ttl maps states ({wanted}) to durations; it holds {', '.join(unknown) or 'none'}")
    return "/".join(
        str(duration_ms(f"history_ttl[{state}]", value[state])) if state in value else NEVER for state in TERMINAL
    )


def _backoff(backoff: Any) -> str:
    if not isinstance(backoff, Backoff):
        raise InvalidInput(f"backoff must be a Backoff, not {type(backoff).__name__}")
    return backoff.wire


def _duration_or_never(name: str, value: Duration | None, *, least: int = 0) -> str:
    return NEVER if value is None else str(duration_ms(name, value, least=least))


def _seconds(stored: str) -> float | None:
    return int(stored) / 1000 if stored else None


def _blank(value: int | None) -> str:
    return "" if value is None else str(value)


def _optional(value: str) -> int | None:
    return int(value) if value else None


QueuePolicy.DEFAULTS = QueuePolicy(
    max_attempts=10,
    backoff=Backoff.exponential(base=1, factor=2, cap=300, jitter=0),
    lease=30,
    timeout=None,
    keep=DEFAULT_KEEP,
    history_ttl=None,
    history=History.FULL,
    transition_cap=64,
    attempt_cap=64,
    dedup=30 * 86_400,
).given

EventPolicy.DEFAULTS = EventPolicy(
    on_completion="delete",
    ttl=None,
    archive_retention=None,
    max_attempts=None,
    backoff=Backoff.fixed(1),
    dedup=60,
    dead_retention=None,
    max_backlog=None,
    idle_after=None,
).given
