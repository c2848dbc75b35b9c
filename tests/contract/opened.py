"""Which columns a script opens, seen by running its start against an empty store, and which it uses."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from lupa.lua51 import LuaRuntime

from redisq.scripts import script

ROOT = "{n:jobs:q}"


class _Opened(Exception):
    """The script has opened its columns and goes on to its work."""


def opened_columns(name: str) -> set[str]:
    """The columns whose type the script asks for after it has read the root's settings, and before anything else."""
    lua = LuaRuntime()
    asked: list[str] = []

    def call(command: str, *args: Any) -> Any:
        if command == "TYPE":
            asked.append(args[0])
            return lua.table(ok="none")
        if command == "EXISTS":
            return 1
        if command == "TIME":
            return lua.table("1700000000", "0")
        if command == "HMGET" and args[0] == ROOT and args[1] == "format":
            return lua.table("1", *[False] * (len(args) - 2))
        raise _Opened

    lua.globals().redis = lua.table(call=call, pcall=call, error_reply=lambda text: lua.table(err=text))
    lua.globals().KEYS = lua.table(ROOT)
    lua.globals().ARGV = lua.table("", "slot", "1", *["1"] * 40)
    # the error would end in the script's own account of what went wrong
    lua.globals().pcall = lambda script: (True, script())
    with contextlib.suppress(_Opened):
        lua.execute(script(name).plain_source)
    # what has a second part is one of many, and its name is only known from the arguments
    return {column for key in asked if ":" not in (column := key.removeprefix(f"{ROOT}:"))}


def used_columns(name: str) -> set[str]:
    """The columns that a script and its modules name in their text."""
    found = re.findall(r'(?:queue|M)\.key\.(\w+)|filled\("(\w+)"\)', script(name).plain_source)
    return {first or second for first, second in found}
