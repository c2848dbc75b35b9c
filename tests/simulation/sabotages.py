"""Ways to break each promise: wrappers that change what the store holds, or what it answers. Each must be caught.

A sabotage sees every call with its raw reply, reaches the keys by a client of its own, and gives the reply that the
simulated client gets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis

from redisq.calls import Call
from tests.simulation.facts import Sabotage

Make = Callable[[redis.Redis], Sabotage]


def _once(change: Callable[[Any, Call[Any], Any], Any], *operations: str, after: int = 0) -> Make:
    """Applies `change` to replies of some operations until it once did something (returned another reply)."""

    def make(client: Any) -> Sabotage:
        seen = {"count": 0, "done": False}

        def sabotage(call: Call[Any], reply: Any) -> Any:
            if seen["done"] or call.operation not in operations:
                return reply
            seen["count"] += 1
            if seen["count"] <= after:
                return reply
            changed = change(client, call, reply)
            seen["done"] = changed is not None
            return reply if changed is None else changed

        return sabotage

    return make


def _always(change: Callable[[Any, Call[Any], Any], Any], *operations: str) -> Make:
    def make(client: Any) -> Sabotage:
        def sabotage(call: Call[Any], reply: Any) -> Any:
            changed = change(client, call, reply) if call.operation in operations else None
            return reply if changed is None else changed

        return sabotage

    return make


def _is_jobs(call: Call[Any]) -> bool:
    return ":jobs:" in call.key


def _heads(reply: Any) -> list[Any]:
    """The heads or headers of what a take claimed."""
    jobs = 11  # fields of a reply of jobs/take
    return list(reply[8] if len(reply) == jobs else reply[6])


def drops_a_job_at_take(client: Any, call: Call[Any], reply: Any) -> Any:
    """A job is in no answer, and in no key any more."""
    if not _is_jobs(call):
        return None
    (id, *_) = client.lrange(f"{call.key}:ready", 0, 0) or [None]
    if id is None:
        return None
    for column in ("head", "body", "meta"):
        client.hdel(f"{call.key}:{column}", id)
    client.lpop(f"{call.key}:ready")
    return reply


def forgets_to_hand_out(client: Any, call: Call[Any], reply: Any) -> Any:
    """A job stays where it is, and every take says that there is none."""
    if not _is_jobs(call) or client.llen(f"{call.key}:ready") == 0:
        return None
    return reply


def lapses_a_lease_at_once(client: Any, call: Call[Any], reply: Any) -> Any:
    """The lease ends at once: the next take hands the job out while the holder believes in its lease."""
    if not _is_jobs(call) or not _heads(reply):
        return None
    client.zadd(f"{call.key}:leased", {reply[7][0]: 1})
    return reply


def repeats_a_fence(client: Any, call: Call[Any], reply: Any) -> Any:
    """Every claim comes with fence 1; where nonces repeat too, with the same token."""
    in_exchange = call.operation == "exchange"
    taken = list(reply[1] if in_exchange else reply)
    if not _heads(taken):
        return None
    taken[2 if _is_jobs(call) else 1] = b"1"
    return [reply[0], taken] if in_exchange else taken


def accepts_a_stale_token(client: Any, call: Call[Any], reply: Any) -> Any:
    """A refused ack is answered as if it had been applied."""
    return b"A" if reply == b"L" else None


def finishes_twice(client: Any, call: Call[Any], reply: Any) -> Any:
    """The second ack with a token says that it was the one that finished the job."""
    return b"A" if reply == b"B" else None


def lets_a_stale_token_change_something(client: Any, call: Call[Any], reply: Any) -> Any:
    """A settlement is refused, and moves the lease's end all the same."""
    if reply != b"L" or not _is_jobs(call):
        return None
    score = client.zscore(f"{call.key}:leased", call.ids[0])
    if score is None:
        return None
    client.zadd(f"{call.key}:leased", {call.ids[0]: float(str(score)) + 1000})
    return reply


def miscounts(client: Any, call: Call[Any], reply: Any) -> Any:
    changed = list(reply)
    changed[2] += 1
    return changed


def loses_an_emission_for_one(client: Any, call: Call[Any], reply: Any) -> Any:
    """One subscription is moved past what was just emitted."""
    newest = client.zrange(f"{call.key}:log", -1, -1, withscores=True)
    cursors: Any = client.hgetall(f"{call.key}:cursor")
    if not newest or not cursors:
        return None
    generation, cursor = next(iter(cursors.items()))
    _, comma, rest = cursor.partition(b",")
    client.hset(f"{call.key}:cursor", generation, b"%.0f" % newest[0][1] + comma + rest)
    return reply


def owes_it_to_nobody(client: Any, call: Call[Any], reply: Any) -> Any:
    """The roster that emitters are told lacks a subscription."""
    if not reply[5]:
        return None
    changed = list(reply)
    changed[5] = reply[5][2:]
    return changed


def answers_a_repeat_anew(client: Any, call: Call[Any], reply: Any) -> Any:
    """The caller's last answer is forgotten, so that its repeat runs again."""
    client.hdel(call.key, *[field for field in client.hkeys(call.key) if field.startswith(b"s.")])
    return reply


def leaves_something_behind(client: Any, call: Call[Any], reply: Any) -> Any:
    if not _is_jobs(call):
        return None
    client.hset(f"{call.key}:result", "left", "behind")
    return reply


def breaks_an_index(client: Any, call: Call[Any], reply: Any) -> Any:
    """Something that no reader meets, and `check` does."""
    if not _is_jobs(call):
        return None
    client.hset(f"{call.key}:groups", "completed:nobody", "1")
    client.zadd(f"{call.key}:group:completed:nobody", {"nobody": 1})
    return reply


def hands_out_before_due(client: Any, call: Call[Any], reply: Any) -> Any:
    waiting = client.zrange(f"{call.key}:sched", -1, -1)
    if not waiting:
        return None
    client.zadd(f"{call.key}:sched", {waiting[0]: 1})
    return reply


def hands_out_while_paused(client: Any, call: Call[Any], reply: Any) -> Any:
    client.hdel(call.key, "paused")
    return reply


def changes_a_payload(client: Any, call: Call[Any], reply: Any) -> Any:
    bodies: Any = client.hkeys(f"{call.key}:body")
    if not bodies:
        return None
    client.hset(f"{call.key}:body", bodies[-1], b'"another"')
    return reply


def accepts_an_id_again(client: Any, call: Call[Any], reply: Any) -> Any:
    """An offer that is a duplicate of a waiting job is answered as accepted."""
    return reply.replace(b"R", b"r").replace(b"S", b"s") if b"R" in reply or b"S" in reply else None


def says_ready_of_what_is_delayed(client: Any, call: Call[Any], reply: Any) -> Any:
    return reply.replace(b"s", b"r") if b"s" in reply else None


def only_requests_a_cancel(client: Any, call: Call[Any], reply: Any) -> Any:
    return b"requested" if reply == b"cancelled" else None


def calls_it_damaged(client: Any, call: Call[Any], reply: Any) -> Any:
    return b"!" if reply == b"A" else None


def lists_twice(client: Any, call: Call[Any], reply: Any) -> Any:
    rest, (version, most, timeout, ids, *columns) = reply
    if not ids:
        return None
    return [rest, [version, most, timeout, ids + ids[:1], *(column and column + column[:1] for column in columns)]]


def leaves_a_key_behind(client: Any, call: Call[Any], reply: Any) -> Any:
    client.set(f"{call.key.strip('{}').partition(':')[0]}:left", "behind")
    return reply


def ends_otherwise(client: Any, call: Call[Any], reply: Any) -> Any:
    """A failed job with attempts left is said to be dead."""
    return b"d" if reply[:1] == b"s" else None


def refuses_a_live_token(client: Any, call: Call[Any], reply: Any) -> Any:
    return b"L" if reply == b"A" and _is_jobs(call) else None


def forgets_an_attempt(client: Any, call: Call[Any], reply: Any) -> Any:
    """A taken job's header says that it was taken more often than it was."""
    if not _is_jobs(call) or not _heads(reply):
        return None
    changed = list(reply)
    changed[8] = [b"w7" + head[head.index(b";") :] for head in reply[8]]
    return changed


def makes_a_job_up(client: Any, call: Call[Any], reply: Any) -> Any:
    if not _is_jobs(call):
        return None
    client.hset(f"{call.key}:head", "ghost", "w;5;;")
    client.hset(f"{call.key}:body", "ghost", "1")
    client.rpush(f"{call.key}:ready", "ghost")
    return reply


def changes_a_generation(client: Any) -> Sabotage:
    """A name that is active is subscribed as another generation."""
    known: set[bytes] = set()

    def sabotage(call: Call[Any], reply: Any) -> Any:
        if call.operation != "subscribe" or reply not in known:
            known.update([reply] if call.operation == "subscribe" else [])
            return reply
        return reply + b"x"

    return sabotage


SABOTAGES: dict[str, tuple[str, Make]] = {
    "drops a job at take": ("lost", _once(drops_a_job_at_take, "take", after=20)),
    "loses an emission for one": ("lost", _once(loses_an_emission_for_one, "emit", after=2)),
    "hands a job out twice": ("lease", _once(lapses_a_lease_at_once, "take", after=5)),
    "repeats a token": ("token", _always(repeats_a_fence, "take", "exchange")),
    "repeats a fence": ("fence", _once(repeats_a_fence, "take", after=30)),
    "accepts a stale token": ("stale", _once(accepts_a_stale_token, "ack")),
    "finishes twice": ("finished", _once(finishes_twice, "ack")),
    "a stale token changes something": (
        "stale", _once(lets_a_stale_token_change_something, "ack", "fail", "release", "quarantine"),
    ),
    "miscounts": ("counts", _once(miscounts, "counts", after=3)),
    "owes an event to one less": ("recipients", _once(owes_it_to_nobody, "emit", after=2)),
    "runs a repeat anew": ("repeat", _always(answers_a_repeat_anew, "ack", "fail")),
    "leaves a field behind": ("check", _once(leaves_something_behind, "take", after=10)),
    "leaves a key behind": ("left", _once(leaves_a_key_behind, "take", after=10)),
    "says ready of what is delayed": ("state", _once(says_ready_of_what_is_delayed, "offer")),
    "only requests a cancel": ("cancel", _once(only_requests_a_cancel, "cancel")),
    "calls it damaged": ("corrupt", _once(calls_it_damaged, "ack", after=3)),
    "lists twice": ("listing", _once(lists_twice, "jobs", after=3)),
    "breaks an index": ("check", _once(breaks_an_index, "take", after=10)),
    "hands out before due": ("early", _always(hands_out_before_due, "take")),
    "hands out while paused": ("pause", _once(hands_out_while_paused, "pause")),
    "changes a payload": ("payload", _once(changes_a_payload, "offer", after=10)),
    "accepts an id again": ("dedup", _once(accepts_an_id_again, "offer")),
    "ends otherwise": ("outcome", _once(ends_otherwise, "fail")),
    "refuses a live token": ("refused", _once(refuses_a_live_token, "ack", after=3)),
    "counts a wrong attempt": ("attempts", _once(forgets_an_attempt, "take", after=5)),
    "makes a job up": ("ghost", _once(makes_a_job_up, "offer", after=5)),
    "changes a generation": ("generation", changes_a_generation),
}  # fmt: skip
