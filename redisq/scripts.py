"""Finds, links and hashes the Lua scripts, and maps a server's script error back to its source line.

A script says `local keys = require("lib.keys")`. Linking puts each required module once, in dependency order, in front
of the script. Nothing else is rewritten, so a line of the linked text belongs to exactly one line of one file.

The server runs the linked text anew on every call, so what a module defines costs time even when nobody uses it (0.1 µs
a function). `local retry = lazy("lib.retry")` puts that off to the first use; it is for what most calls do not need.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

_REQUIRE = re.compile(r'^local (\w+) = (require|lazy)\("([\w.]+)"\)$')
# a stand-in that runs the module's body when it is first asked for something
_LAZY = """\
local function lazy(body)
  local stand_in = {}
  stand_in.__index = function(_, name)
    stand_in.__index = body()
    return stand_in.__index[name]
  end
  return setmetatable({}, stand_in)
end""".splitlines()
# Redis 7 also ends a message with "on @user_script:17."
_ERROR_LINE = re.compile(r"(?:@?user_script|\[string \"[^\"]*\"\]):(\d+)(?=[:.])")
_FLAGS = re.compile(r"^-- FLAGS\s+(.*)$", re.MULTILINE)


class Script:
    """A linked script. `sha` is what EVALSHA takes; `plain_*` is the form for servers without shebang support."""

    __slots__ = ("_origins", "name", "plain_sha", "plain_source", "sha", "source")

    def __init__(self, name: str, flags: str, lines: list[str], origins: list[tuple[str, int]]) -> None:
        self.name = name
        self.plain_source = "\n".join(lines) + "\n"
        # the shebang takes the place of the first line, a comment, so that line numbers stay
        self.source = "\n".join([f"#!lua flags={flags}" if flags else "#!lua", *lines[1:]]) + "\n"
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        self.plain_sha = hashlib.sha1(self.plain_source.encode(), usedforsecurity=False).hexdigest()
        self._origins = origins

    def locate(self, message: str) -> str:
        """`message` with the server's line of the linked text replaced by `lua/<file>:<line>`."""

        def source_line(match: re.Match[str]) -> str:
            number = int(match.group(1))
            if not 1 <= number <= len(self._origins):
                return match.group(0)
            path, line = self._origins[number - 1]
            return f"lua/{path}:{line}"

        return _ERROR_LINE.sub(source_line, message)

    def __repr__(self) -> str:
        return f"Script({self.name!r})"


@cache
def script(name: str) -> Script:
    """The script `lua/<name>.lua`, linked. Names are fixed in this package; none ever comes from data."""
    lines: list[str] = []
    origins: list[tuple[str, int]] = []
    done: set[str] = set()
    at_once = _reached_at_once(name.replace("/", "."))

    def add(module: str, chain: tuple[str, ...]) -> None:
        if module in chain:
            raise ImportError(f"lua modules require each other in a circle: {' -> '.join((*chain, module))}")
        path = f"{module.replace('.', '/')}.lua"
        own: list[tuple[str, int]] = []
        for number, line in enumerate(_read(path).splitlines(), 1):
            required = _REQUIRE.match(line)
            if required is None:
                own.append((line, number))
                continue
            variable, _, wanted = required.groups()
            if wanted.rpartition(".")[2] != variable:
                raise ImportError(f"lua/{path}:{number}: name the local as the module: {wanted}")
            if wanted not in done:
                add(wanted, (*chain, module))
        if chain:
            variable = module.rpartition(".")[2]
            if module in at_once:
                own = [(f"local {variable} = (function()", 0), *own, ("end)()", 0)]
            else:
                own = [(f"local {variable} = lazy(function()", 0), *own, ("end)", 0)]
            done.add(module)
        lines.extend(line for line, _ in own)
        origins.extend((path, number) for _, number in own)

    # the first line is a comment: the linked text starts with the script's own name
    lines += [f"-- {name}", *_LAZY]
    origins += [(f"{name}.lua", 1)] * len(lines)
    add(name.replace("/", "."), ())
    found = _FLAGS.search(_read(f"{name}.lua"))
    flags = "" if found is None or found.group(1).strip() == "-" else ",".join(found.group(1).split())
    return Script(name, flags, lines, origins)


def _reached_at_once(module: str) -> set[str]:
    """The modules that a script needs whatever it does: those reached without any `lazy`."""
    reached: set[str] = set()
    open_ends = [module]
    while open_ends:
        module = open_ends.pop()
        if module not in reached:
            reached.add(module)
            for line in _read(f"{module.replace('.', '/')}.lua").splitlines():
                required = _REQUIRE.match(line)
                if required is not None and required.group(2) == "require":
                    open_ends.append(required.group(3))
    return reached


@cache
def _read(path: str) -> str:
    return _folder().joinpath(path).read_text(encoding="utf-8")


@cache
def _folder() -> Traversable:
    """`redisq/lua` in an installed package; `lua/` beside the package in a source checkout."""
    package = resources.files("redisq")
    for folder in (package / "lua", package / ".." / "lua"):
        if folder.is_dir():
            return folder
    raise ImportError("redisq was installed without its lua/ folder: reinstall it")
