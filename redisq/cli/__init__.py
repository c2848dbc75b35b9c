"""The `redisq` command. Each of its commands is the `command` of one file in this folder, listed in `COMMANDS`.

Exit codes: 0 done, 1 refused or not found, 2 usage, 3 no server.
"""

from __future__ import annotations

from typing import Any

import click

from redisq.cli import demo
from redisq.errors import InvalidInput, RedisqError, Unavailable

COMMANDS: tuple[click.Command, ...] = (demo.command,)


class Failed(click.ClickException):
    """An error that the user should read as one line, without a traceback."""

    def __init__(self, error: RedisqError) -> None:
        super().__init__(str(error))
        self.exit_code = 3 if isinstance(error, Unavailable) else 2 if isinstance(error, InvalidInput) else 1


class Commands(click.Group):
    """Turns the errors of the library into messages and exit codes, for all commands alike."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except RedisqError as error:
            raise Failed(error) from error


@click.group(cls=Commands, commands=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="redisq", prog_name="redisq")
def main() -> None:
    """Queues of jobs and events on Redis or Valkey."""
