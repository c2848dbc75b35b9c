"""The `redisq` command. Each of its commands is the `command` of one file in this folder, listed in `COMMANDS`.

Exit codes: 0 done, 1 refused or not found, 2 usage, 3 no server.
"""

from __future__ import annotations

from typing import Any

import click

from redisq.cli import demo
from redisq.errors import InvalidInput, RedisqError, Unavailable

COMMANDS: tuple[click.Command, ...] = (demo.command,)


class BadInput(click.ClickException):
    exit_code = 2


class NoServer(click.ClickException):
    exit_code = 3


class Commands(click.Group):
    """Turns the library's errors into messages without a traceback and exit codes, for all commands alike."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Unavailable as error:
            raise NoServer(str(error)) from error
        except InvalidInput as error:
            raise BadInput(str(error)) from error
        except RedisqError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=Commands, commands=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="redisq", prog_name="redisq")
def main() -> None:
    """Queues of jobs and events on Redis or Valkey."""
