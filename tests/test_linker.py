"""What linking keeps, what it leaves out, and what it refuses."""

from __future__ import annotations

import pytest
from lupa.lua51 import LuaRuntime

from redisq.linker import Linker

SCRIPT = """\
-- main: for the test
local first = require("lib.first")
local late = lazy("lib.late")

local function unused() return "unused" end
if ARGV == "late" then return late.answer() end
return first.answer()
"""
FIRST = """\
-- first: a module
local deep = require("lib.deep")
local M = { made = "made" }

-- a comment that mentions M.other and spare()
local function helper()
  return "helped " .. deep.word() .. " M.quoted "
end

local function spare()
  return "spare"
end

function M.answer()
  return helper()
end

function M.other()
  return spare()
end

function M.quoted()
  return "quoted"
end

return M
"""
DEEP = """\
-- deep: a module
local M = {}
local ran = true

function M.word()
  return "deep"
end

function M.later()
  return ran and "later"
end

return M
"""
LATE = """\
-- late: runs at its first use
local deep = require("lib.deep")
local only = require("lib.only")
local M = {}

function M.answer()
  return deep.later() .. only.here
end

return M
"""
FILES = {
    "main.lua": SCRIPT,
    "lib/first.lua": FIRST,
    "lib/deep.lua": DEEP,
    "lib/late.lua": LATE,
    "lib/only.lua": 'return { here = " only" }\n',
}


def linked(files: dict[str, str], script: str = "main") -> str:
    return "\n".join(line.text for line in Linker(script, files.__getitem__).link())


def run(text: str, argv: str = "") -> object:
    lua = LuaRuntime()
    lua.globals().ARGV = argv
    return lua.execute(text)


def test_it_runs_with_all_that_it_uses() -> None:
    text = linked(FILES)
    assert run(text) == "helped deep M.quoted "
    assert run(text, "late") == "later only"


def test_what_nothing_mentions_is_left_out() -> None:
    text = linked(FILES)
    for gone in ("unused", "spare", "M.other", "function M.quoted", "comment"):
        assert gone not in text
    for kept in ("helper", "M.later", "local ran = true", 'made = "made"'):
        assert kept in text


def test_a_module_is_lazy_only_when_every_way_to_it_is() -> None:
    text = linked(FILES)
    assert "local late = lazy(" in text
    assert "local only = lazy(" in text
    assert "local deep = (function()" in text


def test_a_module_handed_on_as_a_value_is_kept_whole() -> None:
    text = linked({**FILES, "main.lua": FILES["main.lua"].replace("first.answer()", "pairs(first)")})
    assert "function M.other()" in text
    assert "spare" in text
    own = FIRST.replace("  return helper()", "  return pairs(M)")
    assert "function M.other()" in linked({**FILES, "lib/first.lua": own})


def test_a_module_on_its_own_is_whole() -> None:
    assert "function M.other()" in linked(FILES, "lib/first")


def test_nothing_is_lazy_where_nothing_is_needed_late() -> None:
    text = linked({**FILES, "main.lua": FILES["main.lua"].replace("late.answer()", '"late"')})
    assert "lazy" not in text
    assert "later" not in text


def test_every_line_has_its_place() -> None:
    for line in Linker("main", FILES.__getitem__).link():
        if line.number > 1:
            assert FILES[line.path].splitlines()[line.number - 1] == line.text


BACK = 'local first = require("lib.first")\nlocal M = { of = first.made }'


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("lib/deep.lua", "local M = {}", BACK, "circle: main"),
        ("main.lua", "local first =", "local other =", "lua/main.lua:2: name the local as the module: lib.first"),
        (
            "lib/first.lua",
            "end\n\nlocal function spare",
            "local function spare",
            "lua/lib/first.lua:8: the function before",
        ),
    ],
)
def test_what_would_go_wrong_is_refused(file: str, old: str, new: str, words: str) -> None:
    with pytest.raises(ImportError, match=words):
        linked({**FILES, file: FILES[file].replace(old, new)})
