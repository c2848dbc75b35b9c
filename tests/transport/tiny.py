"""Throw-away scripts for the tests of the transport, and calls of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redisq.calls import Call, Kind
from redisq.linker import Line
from redisq.scripts import Script

# appends who asked to the list at the root, once per slot and number, and answers with how long the list is
ONCE = """
local mark = ARGV[2] .. ':' .. ARGV[3]
if redis.call('LPOS', KEYS[1], mark) then return {'repeated', redis.call('LLEN', KEYS[1])} end
return {'first', redis.call('RPUSH', KEYS[1], mark)}
"""
# what a caller took and gave back, in the order in which it ran
TAKE = "redis.call('RPUSH', KEYS[1], 'take ' .. ARGV[2] .. ':' .. ARGV[3]) return 'taken'"
GIVE_BACK = "redis.call('RPUSH', KEYS[1], 'back ' .. ARGV[2] .. ':' .. ARGV[3]) return 'back'"
ECHO = "return {ARGV[1], ARGV[2], ARGV[3], ARGV[4]}"


def script(body: str, flags: str = "allow-oom", name: str = "tiny") -> Script:
    lines = [f"-- {name}", *body.strip().splitlines()]
    return Script(name, flags, [Line(line, f"{name}.lua", number) for number, line in enumerate(lines, 1)])


def same(reply: Any) -> Any:
    return reply


def call(
    body: str,
    key: str,
    *args: str | bytes | int,
    kind: Kind = Kind.WRITE,
    flags: str = "allow-oom",
    decode: Callable[[Any], Any] = same,
    **options: Any,
) -> Call[Any]:
    return Call("test", script(body, flags), key, args, decode, kind=kind, **options)


def take(key: str) -> Call[Any]:
    """A take that knows how to be given back."""
    return call(TAKE, key, kind=Kind.TAKE, undo=call(GIVE_BACK, key))
