"""Finds and hashes the Lua scripts, and maps a server's script error back to its source line."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from redisq.linker import Line, Linker

# Redis 7 also ends a message with "on @user_script:17."
_ERROR_LINE = re.compile(r"(?:@?user_script|\[string \"[^\"]*\"\]):(\d+)(?=[:.])")
_FLAGS = re.compile(r"^-- FLAGS\s+(.*)$", re.MULTILINE)


class Script:
    """A linked script. `sha` is what EVALSHA takes; `plain_*` is the form for servers without shebang support."""

    __slots__ = ("_origins", "name", "plain_sha", "plain_source", "sha", "source")

    def __init__(self, name: str, flags: str, linked: list[Line]) -> None:
        self.name = name
        lines = [line.text for line in linked]
        self.plain_source = "\n".join(lines) + "\n"
        # the shebang takes the place of the first line, a comment, so that line numbers stay
        self.source = "\n".join([f"#!lua flags={flags}" if flags else "#!lua", *lines[1:]]) + "\n"
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        self.plain_sha = hashlib.sha1(self.plain_source.encode(), usedforsecurity=False).hexdigest()
        self._origins = [(line.path, line.number) for line in linked]

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
    found = _FLAGS.search(_read(f"{name}.lua"))
    flags = "" if found is None or found.group(1).strip() == "-" else ",".join(found.group(1).split())
    return Script(name, flags, Linker(name, _read).link())


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
