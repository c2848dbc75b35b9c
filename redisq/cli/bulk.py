"""What `jobs` and `dead` share: verbs on several ids, and bulk operations with a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import click

from redisq import flows
from redisq.calls import operate
from redisq.calls.consume import MAX_BATCH
from redisq.cli import show
from redisq.cli.app import App, refuse
from redisq.model import Bulk, JobState
from redisq.sync import Queue

T = TypeVar("T")

name_option = click.option("--name", help="Only jobs of this name.")
error_option = click.option("--error", metavar="TYPE", help="Only jobs whose error is of this type; see `dead errors`.")
yes_option = click.option("--yes", is_flag=True, help="Don't ask.")


def each(
    ids: Sequence[str],
    verb: Callable[[str], Any],
    good: Callable[[Any], bool],
    said: Callable[[Any], str],
    as_json: bool,
) -> None:
    """Does a verb to every id and prints the answers; the end is exit code 1 when one was refused."""
    answers = []
    for id in ids:
        answers.append(verb(id))
        if not as_json:
            click.echo(f"{show.escaped(id)}: {said(answers[-1])}")
    if as_json:
        show.document(answers)
    refused = sum(not good(answer) for answer in answers)
    if refused:
        raise refuse(f"refused for {refused} of {len(ids)}")


def said(done: str, refused: str) -> Callable[[bool], str]:
    """What to print for an answer that is a bool."""
    return lambda answer: done if answer else refused


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Slices of one script call, so that progress can be drawn between them."""
    return (items[at : at + MAX_BATCH] for at in range(0, len(items), MAX_BATCH))


def change(
    app: App, queue: Queue[Any], verb: str, state: JobState, name: str | None, error: str | None, as_json: bool
) -> None:
    """Retries or purges the jobs of a state in bounded steps, and prints how many."""
    done = vanished = 0
    cursor = b""
    try:
        with progress(verb, queue.counts()[state]) as bar:
            while True:
                some = _slice(queue, verb, state, name, error, cursor)
                changed, gone, cursor = app.tell(flows.use(queue._core, some))
                done, vanished = done + changed, vanished + gone
                if bar is not None:
                    bar.update(changed)
                if not cursor:
                    break
    finally:
        if cursor:
            show.note(f"{done} jobs were done before the end")
    result = Bulk(done=done, vanished=vanished)
    if as_json:
        show.document(result)
        return
    vanishing = f", {vanished} vanished meanwhile" if vanished else ""
    click.echo(f"{'retried' if verb == 'retry' else 'purged'} {done}{vanishing}")


def _slice(
    queue: Queue[Any], verb: str, state: JobState, name: str | None, error: str | None, cursor: bytes
) -> Callable[[], Any]:
    return lambda: operate.bulk(queue._core, verb, state, name, error, cursor)


def confirm(question: str, yes: bool) -> None:
    """Asks before something that can't be undone; without a terminal `--yes` has to say it."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("this can't be undone: add --yes")
    click.confirm(question, abort=True, err=True)


def progress(label: str, length: int) -> AbstractContextManager[Any]:
    """A progress bar on stderr when that is a terminal; else None is in its place."""
    if not show.on_terminal():
        return nullcontext(None)
    return click.progressbar(length=length, label=label, file=sys.stderr)
