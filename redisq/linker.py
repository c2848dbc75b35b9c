"""Links a Lua script with the modules that it requires into one text, without what it never uses.

A script says `local keys = require("lib.keys")`. Linking puts each required module once, in dependency order, in front
of the script. No line is rewritten, so a line of the linked text belongs to exactly one line of one file.

The server runs the linked text anew on every call, so what a module defines costs time even when nobody uses it: 0.1 to
0.3 µs a function. So functions that nothing mentions are left out, and with them comments and modules that are not
needed. `local retry = lazy("lib.retry")` puts a module off to its first use; it is for what most calls do not need.

Two habits of the source make this simple, and are refused when they are broken: the functions of a module begin and end
in the first column, and a module is named by the local that holds it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

_REQUIRE = re.compile(r'^local (\w+) = (require|lazy)\("([\w.]+)"\)$')
_FUNCTION = re.compile(r"^(?:local function (\w+)|function M\.(\w+))\(")
_NAME = re.compile(r"(?<![\w.])([A-Za-z_]\w*)(?:\.(\w+))?")
_NO_CODE = re.compile(r'"(?:[^"\\]|\\.)*"|--.*$')
# a stand-in that runs the module's body when it is first asked for something
_LAZY = """\
local first_use = { __index = function(stand_in, name)
  local module = rawget(stand_in, 1)()
  setmetatable(stand_in, { __index = module })
  return module[name]
end }
local function lazy(body)
  return setmetatable({ body }, first_use)
end""".splitlines()


class Line(NamedTuple):
    """A line of the linked text, and where it is from."""

    text: str
    path: str
    number: int


class _Part:
    """A function of a module, or with the empty name everything else in it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.mentions: set[tuple[str, str]] = set()

    def add(self, line: str) -> None:
        self.mentions.update(_NAME.findall(_NO_CODE.sub("", line)))


class _Module:
    """A file, cut into its parts. A part is named as it is mentioned: `name` of a local function, `M.name`."""

    def __init__(self, name: str, read: Callable[[str], str]) -> None:
        self.name = name
        self.path = f"{name.replace('.', '/')}.lua"
        self.needs: dict[str, str] = {}  # the modules that it requires, by the local's name
        self.lazily: set[str] = set()
        self.parts: dict[str, _Part] = {"": _Part("")}
        self._lines: list[tuple[str, Line]] = []  # each with the name of its part
        part = self.parts[""]
        for number, text in enumerate(read(self.path).splitlines(), 1):
            if self._is_requirement(number, text):
                continue
            function = _FUNCTION.match(text)
            if function is not None and part.name:
                raise ImportError(f"lua/{self.path}:{number}: the function before this one does not end")
            if function is not None:
                local, public = function.groups()
                part = self.parts.setdefault(local or f"M.{public}", _Part(local or f"M.{public}"))
            if _NO_CODE.sub("", text).strip():
                part.add(text)
                self._lines.append((part.name, Line(text, self.path, number)))
            if text == "end" or (function is not None and text.endswith(" end")):
                part = self.parts[""]

    def _is_requirement(self, number: int, text: str) -> bool:
        required = _REQUIRE.match(text)
        if required is None:
            return False
        variable, how, wanted = required.groups()
        if wanted.rpartition(".")[2] != variable:
            raise ImportError(f"lua/{self.path}:{number}: name the local as the module: {wanted}")
        self.needs[variable] = wanted
        if how == "lazy":
            self.lazily.add(wanted)
        return True

    def lines(self, parts: set[str]) -> Iterator[Line]:
        return (line for name, line in self._lines if not name or name in parts)


class Linker:
    """Links one script; `read` gives the text of a file by its path in lua/."""

    def __init__(self, script: str, read: Callable[[str], str]) -> None:
        self._read = read
        self._modules: dict[str, _Module] = {}
        self._used: dict[str, set[str]] = {}  # module -> its parts that are mentioned
        self._eager: set[str] = set()  # modules that run whatever the script does
        self._placed: set[str] = set()
        self._linked: list[Line] = []
        self._script = script.replace("/", ".")
        self._reach(eager=True)
        self._reach(eager=False)

    def link(self) -> list[Line]:
        """The linked text; its first line is a comment that names the script."""
        root = self._module(self._script)
        self._linked = [Line(f"-- {self._script.replace('.', '/')}", root.path, 1)]
        if set(self._used) - self._eager:
            self._linked += [Line(text, root.path, 1) for text in _LAZY]
        self._place(self._script, ())
        return self._linked

    def _module(self, name: str) -> _Module:
        if name not in self._modules:
            self._modules[name] = _Module(name, self._read)
        return self._modules[name]

    def _reach(self, *, eager: bool) -> None:
        """Follows the mentions from the script's own lines on; if `eager` none into what is lazy."""
        seen: set[tuple[str, str]] = set()
        open_ends = [(self._script, "")]
        while open_ends:
            name, part = open_ends.pop()
            if (name, part) in seen:
                continue
            seen.add((name, part))
            self._used.setdefault(name, set()).add(part)
            if eager:
                self._eager.add(name)
            module = self._module(name)
            open_ends.append((name, ""))
            for first, second in module.parts[part].mentions:
                targets = self._mentioned(module, part, first, second)
                open_ends += [each for each in targets if not (eager and each[0] in module.lazily)]

    def _mentioned(self, module: _Module, part: str, first: str, second: str) -> list[tuple[str, str]]:
        """The parts that `first.second`, or a bare `first`, means in a part of a module."""
        if first in module.parts:
            return [(module.name, first)]
        if first != "M" and first not in module.needs:
            return []
        target = module if first == "M" else self._module(module.needs[first])
        if second:
            return [(target.name, f"M.{second}" if f"M.{second}" in target.parts else "")]
        if first == "M" and not part and module.name != self._script:
            return []  # where it is made and returned
        return [(target.name, each) for each in target.parts]  # handed on as a whole

    def _place(self, name: str, chain: tuple[str, ...]) -> None:
        """Adds a module after those that it needs."""
        if name in chain:
            raise ImportError(f"lua modules require each other in a circle: {' -> '.join((*chain, name))}")
        module = self._module(name)
        own = list(module.lines(self._used[name]))
        for wanted in module.needs.values():
            if wanted in self._used and wanted not in self._placed:
                self._place(wanted, (*chain, name))
        self._placed.add(name)
        if chain:
            opening = "(function()" if name in self._eager else "lazy(function()"
            closing = "end)()" if name in self._eager else "end)"
            variable = name.rpartition(".")[2]
            own = [Line(f"local {variable} = {opening}", module.path, 0), *own, Line(closing, module.path, 0)]
        self._linked += own
