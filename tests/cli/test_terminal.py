"""How it looks: tables that fit, colours, progress bars, closed pipes, help and completion."""

from __future__ import annotations

import re
from typing import Any

import click
import pytest
from click.testing import CliRunner

from redisq import Queue
from redisq.cli import main, show, units
from tests.cli.conftest import Cli

ESCAPE = re.compile("\x1b\\[[0-9;]*[A-Za-z]")


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    """Every command with its words."""
    found: list[tuple[tuple[str, ...], click.Command]] = []
    for name, command in group.commands.items():
        found.append(((*path, name), command))
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
    return found


COMMANDS = commands(main)


def test_the_commands_are_those_of_the_contract() -> None:
    assert {" ".join(path) for path, command in COMMANDS if not isinstance(command, click.Group)} == {
        "demo", "queues", "stats", "jobs list", "jobs show", "jobs offer", "jobs retry", "jobs cancel", "jobs promote",
        "jobs remove", "jobs purge", "dead list", "dead errors", "dead retry", "dead purge", "events list",
        "events show", "events emit", "events archived", "subs list", "subs add", "subs remove", "subs dead", "pause",
        "resume", "policy show", "policy set", "maintain", "sweep", "worker", "top", "check", "doctor", "bench",
    }  # fmt: skip


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(path) for path, _ in COMMANDS])
def test_every_help_has_an_example_and_every_option_a_text(path: tuple[str, ...], command: click.Command) -> None:
    shown = CliRunner().invoke(main, [*path, "--help"])
    assert shown.exit_code == 0
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            assert option.help, option.name
    if not isinstance(command, click.Group) and path != ("demo",):
        assert f"Examples:\n    redisq {' '.join(path)}" in shown.output


def test_queue_comes_first() -> None:
    for path, command in COMMANDS:
        arguments = [each.name for each in command.params if isinstance(each, click.Argument)]
        if "queue" in arguments:
            assert arguments[0] == "queue", path


@pytest.mark.parametrize("columns", [60, 100])
def test_tables_fit_the_terminal(columns: int, cli: Cli, mails: Queue[Any]) -> None:
    mails.offer("x" * 500, id="a-long-id-" * 10, name="n" * 100)
    mails.offer("表" * 200, id="b")
    for words in ("jobs list mails", "queues", "top --count 1"):
        lines = ESCAPE.sub("", cli.terminal(*words.split(), columns=columns).out).splitlines()
        assert max(show.width(line) for line in lines) <= columns
        assert words != "jobs list mails" or all("…" in line for line in lines[1:3])
    assert "x" * 500 in cli("jobs", "list", "mails").out, "nothing is cut in a pipe"


def test_colours_are_for_terminals_alone(cli: Cli, furnished: Queue[Any]) -> None:
    assert "\x1b[31mdead" in cli.terminal("jobs", "list", "mails", columns=200).out
    assert "\x1b" not in cli.terminal("jobs", "list", "mails", env={"NO_COLOR": "1"}).out
    assert "\x1b" not in cli("jobs", "list", "mails").out


def test_top_redraws_a_terminal(cli: Cli, furnished: Queue[Any]) -> None:
    shown = cli.terminal("top", "--count", "2", "--interval", "10ms").out
    assert shown.count("\x1b[H") == 2
    assert "FLIGHT" in shown


def test_long_work_draws_a_bar_on_a_terminal_only(cli: Cli, mails: Queue[Any]) -> None:
    mails.offer_many(range(300))
    assert "%" in cli.terminal("jobs", "purge", "mails", "--state", "ready", "--yes").out
    mails.offer_many(range(300))
    assert cli("jobs", "purge", "mails", "--state", "ready", "--yes").err == ""


def test_a_purge_asks_on_a_terminal(cli: Cli, mails: Queue[Any]) -> None:
    mails.offer(1)
    shown = cli.terminal("jobs", "purge", "mails", "--state", "ready", typed="n\n")
    assert "delete the ready jobs of queue mails? [y/N]" in shown.out
    assert shown.code == 1
    assert cli.terminal("jobs", "purge", "mails", "--state", "ready", typed="y\n").code == 0
    assert mails.jobs().items == []


@pytest.mark.parametrize("words", ["jobs list mails --limit 2000", "jobs list mails --limit 2000 --json", "--help"])
def test_a_closed_pipe_ends_quietly(words: str, cli: Cli, mails: Queue[Any]) -> None:
    mails.offer_many("x" * 200 for _ in range(2000))
    shown = cli.shell(f"redisq {words} | head -c 10")
    assert (shown.code, len(shown.out), shown.err) == (0, 10, "")


def test_the_shell_completes_commands_and_queues(cli: Cli, mails: Queue[Any]) -> None:
    mails.offer(1)
    env = {"_REDISQ_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    assert "plain,mails" in cli(env={**env, "COMP_WORDS": "redisq stats "}).out
    assert "plain,purge" in cli(env={**env, "COMP_WORDS": "redisq jobs pu"}).out
    dead = {"REDISQ_URL": "redis://127.0.0.1:1"}
    assert cli(env={**env, **dead, "COMP_WORDS": "redisq stats "}).out.strip() == ""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 10), ("5m", 300), ("2h", 7200), ("1d", 86_400), ("500ms", 0.5), ("1.5h", 5400), ("0s", 0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert units.duration(text) == seconds
    assert units.duration(units.written(seconds)) == seconds


@pytest.mark.parametrize("text", ["10", "s", "-1s", "1w", "1 s", "1e3s", "١s", "", "1s1s"])
def test_what_is_no_duration(text: str) -> None:
    assert units.duration(text) is None


@pytest.mark.parametrize(
    "character", ["\x00", "\x1b", "\x7f", "\x9b", "\r", "\n", "\u202e", "\u200b", "\u2028", "\udc80"]
)
def test_what_a_terminal_may_act_on_is_escaped(character: str) -> None:
    assert show.escaped(f"a{character}b").isprintable()
    assert character not in show.escaped(f"a{character}b")
    if character != "\udc80":
        assert show.encoded({"key": f"a{character}b"}).isprintable()


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "0ms"), (999, "999ms"), (12_000, "12s"), (150_000, "2m"), (90_000_000, "1d")]
)
def test_spans(ms: int, text: str) -> None:
    assert show.span(ms) == text
