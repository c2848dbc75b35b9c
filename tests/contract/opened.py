"""Which columns a script opens, seen by running its start against an empty store."""

from __future__ import annotations

from typing import Any

from lupa.lua51 import LuaRuntime

from redisq.scripts import script

ROOT = "{n:jobs:q}"


def opened_columns(name: str) -> set[str]:
    """The columns whose type the script asks for before it reads the root's settings, and finds none."""
    lua = LuaRuntime()
    asked: list[str] = []

    def call(command: str, *args: Any) -> Any:
        if command == "TYPE":
            asked.append(args[0])
            return lua.table(ok="hash" if args[0] == ROOT else "none")
        if command == "EXISTS":
            return 1
        if command == "TIME":
            return lua.table("1700000000", "0")
        if command == "HMGET":
            return lua.table(*[False] * (len(args) - 1))
        raise AssertionError(f"{name} called {command} before it had opened its columns")

    lua.globals().redis = lua.table(call=call, error_reply=lambda text: lua.table(err=text))
    lua.globals().KEYS = lua.table(ROOT)
    lua.globals().ARGV = lua.table("", "slot", "1", *["1"] * 40)
    refusal = lua.execute(script(name).plain_source)
    assert str(refusal.err).startswith("CORRUPT"), f"{name} goes on with a root that has no format"
    return {key.removeprefix(f"{ROOT}:") for key in asked if key != ROOT}
