"""`redisq worker`: serves the queues of a program, in one process or several."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from redisq.aio import AsyncEngine
from redisq.cli import crew, logs
from redisq.cli.app import App, examples, pass_app
from redisq.errors import InvalidInput
from redisq.sync import Engine
from redisq.worker import Worker

_log = logging.getLogger("redisq.cli")


@click.command("worker", epilog=examples(
    "redisq worker shop.tasks:worker", "redisq worker shop.tasks:engine --queues mails,bills --concurrency 32",
    "redisq worker shop.tasks:engine --processes 4 --health run/worker", "redisq worker shop.tasks:engine --burst",
))  # fmt: skip
@click.argument("target", metavar="MODULE:ATTR")
@click.option("--concurrency", type=click.IntRange(1, 10_000), help="Jobs at once in each process; 16 by default.")
@click.option("--processes", type=click.IntRange(1, 256), default=1, show_default=True,
              help="Worker processes: for handlers that compute more than they wait.")  # fmt: skip
@click.option("--queues", metavar="NAME,NAME", help="Only these, in this order of preference.")
@click.option("--burst", is_flag=True, help="End when nothing is takeable any more.")
@click.option("--health", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Touched about every second: missing, or older than 30 s, means unhealthy.")  # fmt: skip
@click.option("--parent", type=int, hidden=True)
@logs.options
@pass_app
@click.pass_context
def command(
    ctx: click.Context, app: App, /, target: str, processes: int, health: Path | None, parent: int | None,
    **options: Any,
) -> None:  # fmt: skip
    """Run the handlers of a program. MODULE:ATTR is a Worker, or an Engine whose queues with handlers are served.

    Modules of the current directory can be imported. The URL is the one that the engine was made with; one made without
    uses --url, then $REDISQ_URL.

    The first SIGTERM or SIGINT stops: nothing more is taken, what runs may end within the grace, the rest is handed
    back without costing an attempt. Exit codes: 0 stopped; 1 a handler's thread was left behind; 130 a second signal.
    With --processes signals are passed on, a process that ends by itself ends all, and the worst code counts.
    """
    if app.url is not None:
        os.environ["REDISQ_URL"] = app.url
    sys.path.insert(0, str(Path.cwd()))
    worker = _worker(target, options)
    _refuse_ignored(ctx, app, worker._given)
    if processes > 1:
        raise SystemExit(crew.run(worker, target, _arguments(ctx), processes, health))
    pulse = None if health is None else crew.Pulse(health)
    worker.on_tick = lambda: _tick(worker, pulse, parent)
    told = f"concurrency {worker.concurrency}, queues {', '.join(worker.queues)}"
    logs.banner("worker", worker._given, told + (", burst" if worker.burst else ""))
    try:
        code = worker.run()
    finally:
        if pulse is not None:
            pulse.end()
    raise SystemExit(code)


def _tick(worker: Worker, pulse: crew.Pulse | None, parent: int | None) -> None:
    if pulse is not None:
        pulse.beat()
    if parent is not None and os.getppid() != parent:
        _log.error("the parent process is gone: stopping")
        worker.stop()


def _worker(target: str, options: dict[str, Any]) -> Worker:
    """The worker that MODULE:ATTR names, with the options of the command line."""
    found = _import(target)
    names = None if options["queues"] is None else [name.strip() for name in options["queues"].split(",")]
    if isinstance(found, Worker):
        worker = found if names is None else found.only(names)
    elif isinstance(found, Engine | AsyncEngine):
        handled = _handled(found)
        if not handled:
            raise click.UsageError(f"{target} has no queue with a handler: register one with @queue.handler()")
        worker = Worker(found, handled)
        worker = worker if names is None else worker.only(names)
    else:
        raise click.UsageError(f"{target} is a {type(found).__name__}, and must be a Worker or an Engine")
    if options["concurrency"] is not None:
        worker.concurrency = options["concurrency"]
    worker.burst = options["burst"]
    return worker


def _handled(engine: Engine | AsyncEngine) -> list[Any]:
    """The job queues with handlers and the event queues with subscribers, in the order in which they were made."""
    registry = engine._registry
    return [queue for queue in (*registry.queues.all(), *registry.events.all()) if queue._handlers]


def _import(target: str) -> Any:
    """What MODULE:ATTR names. An error inside the module keeps its traceback: it is the user's to read."""
    module, colon, path = target.partition(":")
    if not (module and colon and path):
        raise click.UsageError(f"{target!r}: write MODULE:ATTR, for example shop.tasks:engine")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise
        raise click.UsageError(f"there is no module {module!r} here: run it from the folder that holds it") from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise click.UsageError(f"{module} has no {path!r}")
        found = getattr(found, name)
    return found


def _refuse_ignored(ctx: click.Context, app: App, engine: Engine | AsyncEngine) -> None:
    """The engine has the last word on url and namespace: an option that it would ignore is an error."""
    asked = ctx.find_root().get_parameter_source
    if asked("namespace") is ParameterSource.COMMANDLINE and app.namespace != engine.namespace:
        raise InvalidInput(f"the engine has the namespace {engine.namespace!r}: leave --namespace out")
    if asked("url") is ParameterSource.COMMANDLINE and app.url != engine.url and engine._sender._target.owned is None:
        raise InvalidInput("the engine was made with a url of its own: leave --url out")


def _arguments(ctx: click.Context) -> list[str]:
    """The command line of each process, without what the parent does itself."""
    given: list[str] = []
    for name in ("concurrency", "queues", "log_format", "log_level"):
        if name in ctx.params and ctx.params[name] is not None:
            given += [f"--{name.replace('_', '-')}", str(ctx.params[name])]
    return [*given, "--burst"] if ctx.params["burst"] else given
