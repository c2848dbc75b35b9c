"""Rules for the text of scripts and modules, and that every server compiles them."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
import redis

from redisq.scripts import script
from tests.contract.heads import LUA, code, modules, scripts

FILES = [*(f"{name}.lua" for name in scripts()), *modules()]
REDISQ = LUA.parent / "redisq"
_UNLINKED = re.compile(r"local \w+ = (?:require|lazy)\(|\s*--")
_FUNCTION = re.compile(r"(?:local )?function ")


@pytest.mark.parametrize("path", FILES)
def test_it_uses_no_library_that_decodes_user_bytes_or_is_missing_in_fakeredis(path: str) -> None:
    assert not re.findall(r"\b(?:cjson|cmsgpack|struct|bit)\s*[.\[]", code(path))


@pytest.mark.parametrize("path", FILES)
def test_numbers_become_text_by_format_only(path: str) -> None:
    """Lua's own conversion keeps 14 digits, fewer than a stamp has."""
    text = code(path)
    number = r"(?:tonumber\([^()]*\)|\w+\.(?:ms|us)\b|math\.\w+\([^()]*\))"
    assert not re.findall(rf"\btostring\((?:{number}|[\d#])", text)
    assert not re.findall(rf"\.\.\s*{number}|{number}\s*\.\.", text)
    # arithmetic binds tighter than .. does, so its neighbour there is a number
    assert not re.findall(r"\.\.\s*[\w.]+\s*[-+*/%]\s*[\w(]|[-+*/%]\s*[\w.]+\s*\.\.", text)


@pytest.mark.parametrize("path", FILES)
def test_it_reads_no_whole_keyspace_and_no_whole_set(path: str) -> None:
    text = (LUA / path).read_text(encoding="utf-8")
    assert not re.findall(r'"(KEYS|SCAN|SMEMBERS|SORT|FLUSHALL|FLUSHDB)"', text)


@pytest.mark.parametrize("path", modules())
def test_a_module_starts_with_its_name_and_has_a_user(path: str) -> None:
    name = path.removesuffix(".lua")
    first = (LUA / path).read_text(encoding="utf-8").partition("\n")[0]
    assert re.fullmatch(rf"-- {name.rpartition('/')[2]}: \S.*", first)
    wanted = re.compile(rf'(?:require|lazy)\("{name.replace("/", ".")}"\)')
    assert [user for user in FILES if wanted.search((LUA / user).read_text(encoding="utf-8"))]


def test_python_calls_every_script_and_no_other() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in REDISQ.rglob("*.py"))
    named = set(re.findall(r'\bscript\("([\w/]+)"\)', sources))
    # a builder that serves several scripts takes the last part of the name from its operation
    shared = set(re.findall(r'\bscript\(f"(\w+/)\{operation\}"\)', sources))
    for name in set(scripts()) - named:
        folder, _, operation = name.rpartition("/")
        assert f"{folder}/" in shared, name
        assert f'"{operation}"' in sources, name
    assert named <= set(scripts())


def test_luacheck_has_nothing_to_say() -> None:
    luacheck = shutil.which("luacheck")
    if luacheck is None:
        pytest.skip("no luacheck on PATH")
    done = subprocess.run(
        [luacheck, "--no-color", "-q", "lua"], cwd=LUA.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.every_server
@pytest.mark.real_server
@pytest.mark.parametrize("name", scripts())
def test_every_server_compiles_it(name: str, raw: redis.Redis) -> None:
    assert raw.script_load(script(name).source) == script(name).sha


@pytest.mark.parametrize("name", scripts())
def test_fakeredis_compiles_the_form_without_a_shebang(name: str) -> None:
    from fakeredis import FakeRedis

    with FakeRedis() as client:
        assert client.script_load(script(name).plain_source) == script(name).plain_sha


@pytest.mark.parametrize("name", scripts())
def test_an_error_of_the_server_reads_as_a_line_of_its_file(name: str) -> None:
    linked = script(name)
    seen: set[str] = set()
    for number, line in enumerate(linked.source.splitlines(), 1):
        where = linked.locate(f"user_script:{number}: broken")
        found = re.fullmatch(r"lua/([\w/]+\.lua):(\d+): broken", where)
        assert found is not None
        path, at = found.group(1), int(found.group(2))
        ending = linked.locate(f"broken script: {linked.sha}, on @user_script:{number}.")
        assert ending == f"broken script: {linked.sha}, on lua/{path}:{at}."
        if at > 1:  # what linking adds counts as line 0 of a module, or as the head of the script
            assert line == (LUA / path).read_text(encoding="utf-8").splitlines()[at - 1]
            seen.add(line)
    own = (LUA / f"{name}.lua").read_text(encoding="utf-8").splitlines()
    assert [line for line in own if line.strip() and line not in seen and not _UNLINKED.match(line)] == []


def test_every_function_of_a_module_is_used_by_some_script() -> None:
    linked = set().union(*(set(script(name).plain_source.splitlines()) for name in scripts()))
    functions = [line for path in modules() for line in code(path).splitlines() if _FUNCTION.match(line)]
    assert [line for line in functions if line not in linked] == []
