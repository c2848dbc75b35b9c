"""`redisq subs`: the subscriptions of an event queue, and what they gave up."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from redisq.cli import bulk, show
from redisq.cli.app import App, examples, json_option, pass_app, queue_argument, refuse, walk
from redisq.cli.jobs import MOST, cursor_option, yield_into
from redisq.cli.show import Cell
from redisq.model import DamagedRecord, DeadObligation, Page, Subscription, SubscriptionInfo
from redisq.sync import EventQueue

name_argument = click.argument("name")


@click.group("subs", help="List, add and remove the subscriptions of an event queue, and see what they gave up.")
def command() -> None:
    pass


@command.command("list", epilog=examples("redisq subs list news", "redisq subs list news --json | jq '.[].lag'"))
@queue_argument
@json_option
@pass_app
def list_subs(app: App, queue: str, as_json: bool) -> None:
    """List the active subscriptions: what is pending for each, what is in flight, what is dead or was dropped."""
    infos = app.events(queue).subscriptions()
    if as_json:
        show.document(infos)
        return
    headers = ["NAME", "LAG", "IN FLIGHT", "OLDEST", "DEAD", "DROPPED", "GENERATION"]
    show.table(headers, [_row(info) for info in infos], right=("LAG", "IN FLIGHT", "DEAD", "DROPPED"))


@command.command("add", epilog=examples("redisq subs add news billing"))
@queue_argument
@name_argument
@json_option
@pass_app
def add(app: App, queue: str, name: str, as_json: bool) -> None:
    """Subscribe a name to the events emitted from now on. They wait for it, whether or not anybody takes them."""
    subscription = app.engine.events(queue).subscribe(name)
    if as_json:
        show.document(subscription)
    else:
        click.echo(f"{show.escaped(name)}: generation {subscription.generation}")


@command.command("remove", epilog=examples("redisq subs remove news billing --yes"))
@queue_argument
@name_argument
@bulk.yes_option
@pass_app
def remove(app: App, queue: str, name: str, yes: bool) -> None:
    """End a subscription: what it is still owed is waived. It can't be undone."""
    found = app.events(queue)
    subscription = _active(app, found, name)
    bulk.confirm(f"remove subscription {name} of queue {queue}, and all that waits for it?", yes)
    if not found.unsubscribe(subscription):
        raise _absent(queue, name)
    show.note(f"subscription {name} of queue {queue} is removed")


@command.command(
    "dead", epilog=examples("redisq subs dead news billing", "redisq subs dead news billing --retry 0Q8hRrmZ")
)
@queue_argument
@name_argument
@click.option("--retry", "retried", multiple=True, metavar="ID", help="Let it take this event again; again for more.")
@click.option(
    "--discard", "discarded", multiple=True, metavar="ID", help="Give this event up for good; again for more."
)
@click.option("--limit", type=click.IntRange(1, MOST), default=50, show_default=True, help="How many.")
@cursor_option
@json_option
@pass_app
def dead(
    app: App, /, queue: str, name: str, retried: tuple[str, ...], discarded: tuple[str, ...], as_json: bool,
    **where: Any,
) -> None:  # fmt: skip
    """List what a subscription gave up, the latest first; or retry or discard some of it.

    With --json the document is a page, or the list of answers.
    """
    found = app.events(queue)
    subscription = _active(app, found, name)
    if retried and discarded:
        raise click.UsageError("give either --retry or --discard")
    if retried:
        said = bulk.said("retried", "is not dead")
        bulk.each(retried, partial(found.retry, subscription), bool, said, as_json)
    elif discarded:
        said = bulk.said("discarded", "is not dead")
        bulk.each(discarded, partial(found.discard, subscription), bool, said, as_json)
    else:
        _list_dead(found, subscription, as_json, **where)


def _list_dead(
    queue: EventQueue[Any], subscription: Subscription, as_json: bool, limit: int, cursor: str | None
) -> None:
    items: list[Any] = []
    pages = walk(lambda at, size: queue.dead(subscription, limit=size, cursor=at), limit, cursor)
    following = yield_into(items, pages)
    if as_json:
        show.document(Page(items=items, cursor=following))
        return
    headers = ["EVENT", "TRIES", "DIED", "ERROR", "VALUE"]
    show.table(headers, [_dead_row(item) for item in items], right=("TRIES",))
    if following is not None:
        show.note(f"there may be more: add --cursor {following}")


def _active(app: App, queue: EventQueue[Any], name: str) -> Subscription:
    """The active generation of a name; read, so that looking for a misspelt name makes none."""
    (generation,) = app.commands(("HGET", f"{queue._core.root}:subs", name))
    if generation is None:
        raise _absent(queue.name, name)
    return Subscription(queue=queue.name, name=name, generation=generation.decode())


def _absent(queue: str, name: str) -> click.ClickException:
    return refuse(f"queue {queue} has no subscription {name!r}")


def _row(info: SubscriptionInfo | DamagedRecord) -> list[Cell]:
    if isinstance(info, DamagedRecord):
        return [info.id, show.coloured("damaged"), "", "", "", "", info.reason]
    dead: Cell = (f"{info.dead}", "red") if info.dead else "0"
    return [info.name, f"{info.lag}", f"{info.in_flight}", show.ago(info.oldest_pending_ms), dead, f"{info.dropped}",
            info.generation]  # fmt: skip


def _dead_row(item: DeadObligation | DamagedRecord) -> list[Cell]:
    if isinstance(item, DamagedRecord):
        return [item.id, "", show.coloured("damaged"), item.reason, ""]
    return [item.event_id, f"{item.attempts}", show.ago(item.dead_ms), show.error_text(item.error),
            show.value_text(item.value)]  # fmt: skip
