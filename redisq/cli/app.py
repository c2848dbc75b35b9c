"""What the commands share: the engine that the group's options name, the arguments QUEUE and ID, and `--json`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from redisq.calls import Call, Flow, broadcast, operate
from redisq.calls.core import directory
from redisq.errors import RedisqError
from redisq.frontend import Registry
from redisq.sync import Engine, EventQueue, Queue, drive

T = TypeVar("T")
Decorated = TypeVar("Decorated", bound=Callable[..., Any])

PATIENCE = 3.0
"""Seconds that one operation may spend on reconnects: somebody waits at a terminal."""


class App:
    """The engine of the group's `--url` and `--namespace`, opened when a command first needs it."""

    def __init__(self, url: str | None, namespace: str) -> None:
        self.url = url
        self.namespace = namespace
        self._engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = Engine(self.url, namespace=self.namespace, retry_for=PATIENCE)
        return self._engine

    @property
    def registry(self) -> Registry[Queue[Any], EventQueue[Any]]:
        return self.engine._registry

    def run(self, call: Call[T]) -> T:
        return self.engine._sender.run(call)

    def commands(self, *commands: tuple[str | bytes | int, ...]) -> list[Any]:
        """The raw replies of plain commands."""
        return self.engine._sender.run_commands(commands)

    def tell(self, story: Flow[T]) -> T:
        return drive(self.engine._sender, story)

    def listed(self) -> list[tuple[str, str]]:
        """Kind and name of every queue that the namespace lists, by name."""
        (entries,) = self.commands(("HKEYS", directory(self.namespace)))
        pairs = (entry.decode().partition(":") for entry in entries)
        return sorted(((kind, name) for kind, _, name in pairs), key=lambda pair: (pair[1], pair[0]))

    def jobs(self, name: str) -> Queue[Any]:
        """The job queue `name`, which must be there: looking at a misspelt name is an error, not an empty list."""
        queue = self.engine.queue(name)
        if self.run(operate.info_if_there(queue._core)) is None:
            raise self._absent(f"job queue {name!r}")
        return queue

    def events(self, name: str) -> EventQueue[Any]:
        """The event queue `name`, which must be there."""
        queue = self.engine.events(name)
        if self.run(broadcast.info_if_there(queue._core)) is None:
            raise self._absent(f"event queue {name!r}")
        return queue

    def queue(self, name: str, kind: str | None) -> Queue[Any] | EventQueue[Any]:
        """The queue `name` of whichever kind there is; where there are both, `kind` has to say which."""
        found = [kind] if kind is not None else [each for each, named in self.listed() if named == name]
        if not found:
            raise self._absent(f"queue {name!r}")
        if len(found) > 1:
            raise click.UsageError(f"there are two queues {name!r}: add --kind jobs or --kind events")
        return self.jobs(name) if found[0] == "jobs" else self.events(name)

    def _absent(self, what: str) -> click.ClickException:
        return refuse(f"there is no {what} in namespace {self.namespace!r}")

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()


pass_app = click.make_pass_decorator(App)


class QueueName(click.ParamType):  # type: ignore[type-arg]
    """The name of a queue; a shell completes it from what the server lists."""

    name = "queue"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:  # noqa: ARG002
        options = ctx.find_root().params
        app = App(options.get("url"), options.get("namespace") or "redisq")
        try:
            return [CompletionItem(name) for _, name in app.listed() if name.startswith(incomplete)]
        except RedisqError:
            return []  # a shell has no place for an error
        finally:
            app.close()


queue_argument = click.argument("queue", type=QueueName())
id_argument = click.argument("id")
ids_argument = click.argument("ids", metavar="ID...", nargs=-1, required=True)
kind_option = click.option("--kind", type=click.Choice(["jobs", "events"]), help="Which one, where there are two.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead.")


def examples(*lines: str) -> str:
    """The end of a command's help; `\\b` keeps click from joining the lines."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def refuse(message: str) -> click.ClickException:
    """An end with exit code 1: refused, or not found."""
    return click.ClickException(message)


def walk(pages: Callable[[str | None, int], Any], limit: int, cursor: str | None) -> Generator[Any, None, str | None]:
    """The items of a listing, `limit` of them at most; returns where to go on."""
    left = limit
    while left > 0:
        page = pages(cursor, min(left, 1000))
        yield from page.items
        left, cursor = left - len(page.items), page.cursor
        if cursor is None:
            break
    return cursor
