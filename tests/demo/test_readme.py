"""The README tells the truth: its Python runs and prints what stands below it, its commands and settings exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from redisq.cli import main
from tests.support.servers import OwnServer

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PYTHON = [(code, BLOCKS[number + 1][1]) for number, (language, code) in enumerate(BLOCKS) if language == "python"]
COMMANDS = [shlex.split(line, comments=True) for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
SETTINGS = [line.split() for kind, text in BLOCKS if kind == "conf" for line in text.splitlines()]


def test_every_block_is_of_a_kind_that_is_run_here() -> None:
    assert {kind for kind, _ in BLOCKS} == {"python", "text", "sh", "conf"}
    assert len(PYTHON) == sum(kind == "text" for kind, _ in BLOCKS) >= 3


@pytest.mark.parametrize(("code", "output"), PYTHON)
def test_python_prints_what_it_says(code: str, output: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    assert (done.stdout, done.stderr) == (output, "")


@pytest.mark.parametrize("command", COMMANDS, ids=shlex.join)
def test_commands_exist(command: list[str]) -> None:
    match command:
        case ["make", target]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        case ["pip", "install", requirement]:
            extra = re.fullmatch(r"\.(?:\[(\w+)\])?", requirement)
            assert extra is not None
            project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            assert extra[1] is None or extra[1] in project["optional-dependencies"]
        case ["redisq", *words]:
            # with --help at its end a command line is parsed and nothing is done
            assert CliRunner().invoke(main, [*words, "--help"]).exit_code == 0
        case _:
            pytest.fail("a command that this test does not know")


def test_the_server_starts_with_these_settings(open_server: Callable[..., OwnServer]) -> None:
    server = open_server(*(word for name, value in SETTINGS for word in (f"--{name}", value)))
    with server.client(decode_responses=True) as client:
        assert [[name, client.config_get(name)[name]] for name, _ in SETTINGS] == SETTINGS
