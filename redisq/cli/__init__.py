"""The `redisq` command. Each file here holds the `command` of its name (`pause` also `resume`), listed in `COMMANDS`;
`app`, `show`, `units` and `bulk` are what they share.

Exit codes: 0 done, 1 refused or not found, 2 usage, 3 no server, 4 `check` or `doctor` found something, 130 interrupted
(a worker or a sweep: by a second signal).
"""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from redisq.cli import (
    bench,
    check,
    dead,
    demo,
    doctor,
    events,
    jobs,
    maintain,
    pause,
    policy,
    queues,
    stats,
    subs,
    sweep,
    top,
    worker,
)
from redisq.cli.app import App, examples
from redisq.cli.show import escaped
from redisq.errors import InvalidInput, RedisqError, Unavailable

COMMANDS: tuple[click.Command, ...] = (
    queues.command, stats.command, top.command, jobs.command, dead.command, events.command, subs.command,
    pause.command, pause.resume, policy.command, worker.command, sweep.command, maintain.command, check.command,
    doctor.command, bench.command, demo.command,
)  # fmt: skip


class BadInput(click.ClickException):
    exit_code = 2


class NoServer(click.ClickException):
    exit_code = 3


class Interrupted(click.ClickException):
    exit_code = 130


class Commands(click.Group):
    """Turns the library's errors into messages without a traceback and exit codes, for all commands alike."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - in the order of COMMANDS
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Unavailable as error:
            raise NoServer(_told(error)) from error
        except InvalidInput as error:
            raise BadInput(_told(error)) from error
        except RedisqError as error:
            raise click.ClickException(_told(error)) from error
        except KeyboardInterrupt as error:
            raise Interrupted("interrupted") from error

        except BrokenPipeError as error:
            raise _quiet_end() from error

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError as error:  # help, too, is printed into a pipe
            raise _quiet_end() from error


@click.group(
    cls=Commands,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "redisq --url redis://localhost:6379/0 queues",
        "redisq jobs list mails --state dead --limit 20",
        "redisq worker shop.tasks:engine --concurrency 32",
        "redisq doctor",
    ),
)
@click.option(
    "--url",
    envvar="REDISQ_URL",
    show_envvar=True,
    metavar="URL",
    help="The server; redis://127.0.0.1:6379/0 when nothing says otherwise. Other users of the machine can see what is "
    "on a command line: give a URL that holds a password by the environment.",
)
@click.option("--namespace", envvar="REDISQ_NAMESPACE", show_envvar=True, default="redisq", metavar="NAME",
              help="The namespace of the queues; redisq by default.")  # fmt: skip
@click.version_option(package_name="redisq", prog_name="redisq")
@click.pass_context
def main(ctx: click.Context, url: str | None, namespace: str) -> None:
    """Queues of jobs and events on Redis or Valkey.

    Looking changes nothing: queues, stats, top, list, show, errors, check and doctor only read.
    """
    ctx.obj = App(url, namespace)
    ctx.call_on_close(ctx.obj.close)
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def _quiet_end() -> click.exceptions.Exit:
    """The reader went away (`| head -1`): nothing is wrong on this side. What is still to be flushed goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return click.exceptions.Exit(0)


def _told(error: Exception) -> str:
    """One line of an error; a part of it may come from stored data."""
    return escaped(str(error))
