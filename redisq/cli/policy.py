"""`redisq policy`: the rules that a queue stores, read and changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from redisq.cli import show, units
from redisq.cli.app import App, examples, json_option, kind_option, pass_app, queue_argument
from redisq.errors import InvalidInput
from redisq.model import TERMINAL, History
from redisq.policy import Backoff, EventPolicy, Keep, Policy, QueuePolicy
from redisq.sync import EventQueue, Queue

KEEP_HELP = (
    "How long finished jobs stay: all, or count=N,age=DURATION for every state, or STATE:count=N,age=DURATION, again "
    "for more states; it replaces the whole rule, and a state that is not named keeps all."
)


@click.group("policy", help="Show or change the rules that a queue stores: attempts, back-off, lease, retention.")
def command() -> None:
    pass


@command.command("show", epilog=examples("redisq policy show mails", "redisq policy show mails --json"))
@queue_argument
@kind_option
@json_option
@pass_app
def show_policy(app: App, queue: str, kind: str | None, as_json: bool) -> None:
    """Show the rules of a queue, written as `policy set` takes them."""
    found = app.queue(queue, kind)
    _print(_stored(app, found), as_json)
    if not as_json and not _declared(app, found):
        show.note("no client has declared a policy yet: these are the defaults")


@command.command("set", epilog=examples(
    "redisq policy set mails --max-attempts 5 --lease 1m",
    "redisq policy set mails --backoff exponential:base=1s,factor=2,cap=5m,jitter=0.2",
    "redisq policy set mails --keep completed:count=1000,age=1d --keep dead:age=14d",
    "redisq policy set news --kind events --on-completion archive --archive-retention 7d",
))  # fmt: skip
@queue_argument
@click.option("--max-attempts", metavar="N|none", help="Attempts until a job is dead; none for events alone.")
@click.option("--backoff", metavar="CURVE", help="The wait between attempts: fixed:5s, delays:1s,5s,30s or "
              "exponential:base=1s,factor=2,cap=5m; each takes jitter=0.2, too.")  # fmt: skip
@click.option("--dedup", type=units.DURATION, help="How long an id stays taken after its record went.")
@click.option("--lease", type=units.DURATION, help="Jobs: how long a claim holds without renewal.")
@click.option("--timeout", type=units.DURATION_OR_NONE, help="Jobs: a handler's time limit.")
@click.option("--keep", multiple=True, metavar="RULE", help=f"Jobs: {KEEP_HELP[0].lower()}{KEEP_HELP[1:]}")
@click.option("--history-ttl", multiple=True, metavar="DURATION|STATE:DURATION|none",
              help="Jobs: a ceiling on the age of finished ones; again for more states.")  # fmt: skip
@click.option("--history", type=click.Choice([rung.value for rung in History]), help="Jobs: what is recorded.")
@click.option("--transition-cap", type=int, help="Jobs: transitions kept of each.")
@click.option("--attempt-cap", type=int, help="Jobs: attempts kept of each.")
@click.option("--on-completion", type=click.Choice(["delete", "archive"]), help="Events: what becomes of settled ones.")
@click.option("--ttl", type=units.DURATION_OR_NONE, help="Events: the deadline of one that states none.")
@click.option("--archive-retention", type=units.DURATION_OR_NONE, help="Events: how long archived ones stay.")
@click.option("--dead-retention", type=units.DURATION_OR_NONE, help="Events: how long dead obligations hold them.")
@click.option("--max-backlog", metavar="N|none", help="Events: how many may wait for one subscription.")
@click.option("--idle-after", type=units.DURATION_OR_NONE, help="Events: when a subscription that takes nothing drops.")
@kind_option
@json_option
@pass_app
def set_policy(app: App, /, queue: str, kind: str | None, as_json: bool, **given: Any) -> None:
    """Change the rules given, in one step, and show what they were before.

    Workers that run go by the new rules at once. A program that declares an old value of one of them no longer starts:
    change it there, too. A queue that is not there yet is made, which needs --kind.
    """
    fields = {name: _READ.get(name, units.or_none)(value) for name, value in given.items() if value not in (None, ())}
    if not fields:
        raise click.UsageError("say what to change, for example --max-attempts 5")
    found = _queue(app, queue, kind)
    policy_type = QueuePolicy if isinstance(found, Queue) else EventPolicy
    foreign = sorted(name for name in fields if name not in policy_type.DEFAULTS)
    if foreign:
        raise click.UsageError(f"a queue of {found._core.kind} has no --{foreign[0].replace('_', '-')}")
    old = found.alter(policy_type(**fields))
    if as_json:
        show.document(_written(old))
        return
    new = _stored(app, found)
    show.table(["RULE", "BEFORE", "NOW"], [
        [name, _text(_written(old)[name]), _text(_written(new)[name])] for name in fields
    ])  # fmt: skip


def _queue(app: App, name: str, kind: str | None) -> Queue[Any] | EventQueue[Any]:
    """The queue to change: with a kind given it may be one that is made by that."""
    if kind is None:
        return app.queue(name, None)
    return app.engine.queue(name) if kind == "jobs" else app.engine.events(name)


def _stored(app: App, queue: Queue[Any] | EventQueue[Any]) -> Policy:
    """The policy as it lies there; read, so that looking writes nothing."""
    policy_type = queue._core.policy_type
    names = list(policy_type.DEFAULTS)
    (values,) = app.commands(("HMGET", queue._core.root, *names))
    stored = {name: value.decode() for name, value in zip(names, values, strict=True) if value is not None}
    return policy_type.from_stored({**policy_type.DEFAULTS, **stored})


def _declared(app: App, queue: Queue[Any] | EventQueue[Any]) -> bool:
    (value,) = app.commands(("HGET", queue._core.root, "declared"))
    return bool(value == b"1")


def _print(policy: Policy, as_json: bool) -> None:
    fields = _written(policy)
    if as_json:
        show.document(fields)
    else:
        show.fields((name, _text(value)) for name, value in fields.items())


def _written(policy: Policy) -> dict[str, Any]:
    """Every field in the words of `policy set`."""
    return {name: _WRITE.get(name, lambda value: value)(getattr(policy, name)) for name in policy.stored}


def _text(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else units.NONE if value is None else f"{value}"


def _pairs(text: str, known: Sequence[str], what: str) -> dict[str, str]:
    """The parts of `a=1,b=2`."""
    found = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or name not in known or name in found:
            raise InvalidInput(f"{what}: {part!r} is not one of {', '.join(f'{each}=…' for each in known)}")
        found[name] = value
    return found


def _seconds(text: str, what: str) -> float:
    seconds = units.duration(text)
    if seconds is None:
        raise InvalidInput(f"{what}: {text!r} is not a duration: write 10s, 5m, 2h or 1d")
    return seconds


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{what}: {text!r} is not a number") from None


def _whole(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput(f"{what}: {text!r} is not a whole number")
    return int(text)


def _count_or_none(what: str) -> Callable[[str], int | None]:
    return lambda text: None if text == units.NONE else _whole(text, what)


def _read_backoff(text: str) -> Backoff:
    kind, _, rest = text.partition(":")
    if kind == "exponential":
        parts = _pairs(rest, ("base", "factor", "cap", "jitter"), "--backoff") if rest else {}
        options: dict[str, float] = {n: _seconds(parts[n], "--backoff") for n in ("base", "cap") if n in parts}
        options |= {n: _number(parts[n], "--backoff") for n in ("factor", "jitter") if n in parts}
        return Backoff.exponential(**options)
    if kind not in ("fixed", "delays"):
        raise InvalidInput(f"--backoff {text!r}: write fixed:5s, delays:1s,5s or exponential:base=1s,factor=2,cap=5m")
    steps = rest.split(",")
    jitter = _number(steps.pop().removeprefix("jitter="), "--backoff") if steps[-1].startswith("jitter=") else 0.0
    if kind == "fixed" and len(steps) != 1:
        raise InvalidInput("--backoff fixed takes one duration; write delays:… for several")
    return Backoff.delays(*(_seconds(step, "--backoff") for step in steps), jitter=jitter)


def _write_backoff(backoff: Backoff) -> str:
    kind, *parts = backoff.wire.split(",")
    if kind == "e":
        base, factor, cap, jitter = parts
        text = f"exponential:base={_of_ms(base)},factor={float(factor):g},cap={_of_ms(cap)}"
    else:
        jitter, steps = parts
        listed = steps.split(";")
        text = f"{'fixed' if len(listed) == 1 else 'delays'}:{','.join(_of_ms(step) for step in listed)}"
    return f"{text},jitter={float(jitter):g}" if float(jitter) else text


def _of_ms(ms: str) -> str:
    return units.written(int(ms) / 1000)


def _read_keep(rules: Sequence[str]) -> Keep | None:
    if tuple(rules) == ("all",):
        return None
    split: dict[str, Any] = {}
    for rule in rules:
        state, colon, text = rule.rpartition(":")
        if colon and (state not in TERMINAL or state in split):
            raise InvalidInput(f"--keep {rule!r}: name each of {', '.join(TERMINAL)} once at most")
        parts = {} if text == "all" else _pairs(text, ("count", "age"), "--keep")
        split[state] = Keep(
            count=_whole(parts["count"], "--keep") if "count" in parts else None,
            age=_seconds(parts["age"], "--keep") if "age" in parts else None,
        )
    if "" in split:
        if len(split) > 1:
            raise InvalidInput("--keep takes one rule for every state, or rules that name their state, not both")
        flat: Keep = split[""]
        return flat
    return Keep(**split)


def _write_keep(keep: Keep) -> list[str]:
    rules = {state: keep.rule(state) for state in TERMINAL}
    if len(set(rules.values())) == 1:
        return [_write_rule(keep.rule(TERMINAL[0]))]
    return [f"{state}:{_write_rule(rule)}" for state, rule in rules.items() if rule != (None, None)]


def _write_rule(rule: tuple[int | None, int | None]) -> str:
    count, age = rule
    parts = [] if count is None else [f"count={count}"]
    parts += [] if age is None else [f"age={units.written(age / 1000)}"]
    return ",".join(parts) or "all"


def _read_ceiling(rules: Sequence[str]) -> Any:
    if tuple(rules) == (units.NONE,):
        return None
    if len(rules) == 1 and ":" not in rules[0]:
        return _seconds(rules[0], "--history-ttl")
    return {state: _seconds(text, "--history-ttl") for state, _, text in (rule.partition(":") for rule in rules)}


def _write_ceiling(ceiling: dict[str, float] | None) -> list[str]:
    if ceiling is None:
        return [units.NONE]
    if len(ceiling) == len(TERMINAL) and len(set(ceiling.values())) == 1:
        return [units.written(ceiling[TERMINAL[0]])]
    return [f"{state}:{units.written(seconds)}" for state, seconds in ceiling.items()]


_READ: dict[str, Callable[[Any], Any]] = {
    "backoff": _read_backoff,
    "keep": _read_keep,
    "history_ttl": _read_ceiling,
    "max_attempts": _count_or_none("--max-attempts"),
    "max_backlog": _count_or_none("--max-backlog"),
}
_WRITE: dict[str, Callable[[Any], Any]] = {
    "backoff": _write_backoff,
    "keep": _write_keep,
    "history_ttl": _write_ceiling,
    **dict.fromkeys(
        ("lease", "timeout", "dedup", "ttl", "archive_retention", "dead_retention", "idle_after"), units.written
    ),
}
