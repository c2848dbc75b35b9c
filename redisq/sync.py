"""The synchronous front end: `Engine` and `Queue`. Every method is a bound call or flow; there is no logic here."""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast

import msgspec

from redisq import eventflows, flows
from redisq.calls import (
    Call,
    Commands,
    Flow,
    Handle,
    HandlerExit,
    NoQueue,
    Sleep,
    Step,
    Wait,
    broadcast,
    consume,
    deliveries,
    operate,
    subscribing,
)
from redisq.calls.core import EventCore, Opened, QueueCore
from redisq.errors import InvalidInput, LeaseLost, RedisqError
from redisq.frontend import EngineBase, lost_lease, name_method
from redisq.handlers import Registered, Subscribers, Task
from redisq.model import NewJob, Offer, QueueInfo
from redisq.transport import SyncSender, connect_sync, sync_from_client

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")
_log = logging.getLogger("redisq")


class call(Generic[P, T]):  # noqa: N801 - a word of the class bodies below
    """A method that is one script call, made by a builder of `redisq.calls`."""

    def __init__(self, build: Callable[Concatenate[Any, P], Call[T]]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, queue: Any, owner: type) -> Callable[P, T]:
        if queue is None:
            return cast("Callable[P, T]", self)
        build, core, sender = self._build, queue._core, queue._sender

        def method(*args: P.args, **kwargs: P.kwargs) -> T:
            made = build(core, *args, **kwargs)
            if core.settled:
                try:
                    return cast("T", sender.run(made))
                except NoQueue:
                    core.opened = Opened.NO
            return drive(sender, flows.use(core, lambda: build(core, *args, **kwargs)))

        return name_method(method, build, queue, self._name)


class flow(Generic[P, T]):  # noqa: N801 - as `call`
    """A method that is a story of several steps, told in `redisq.flows`."""

    def __init__(self, tell: Callable[Concatenate[Any, P], Flow[T]]) -> None:
        self._tell = tell
        self.__doc__ = tell.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, queue: Any, owner: type) -> Callable[P, T]:
        if queue is None:
            return cast("Callable[P, T]", self)
        tell, core, sender = self._tell, queue._core, queue._sender

        def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return drive(sender, tell(core, *args, **kwargs))

        return name_method(method, tell, queue, self._name)


def drive(sender: SyncSender, story: Flow[T]) -> T:
    """Runs a flow: does each step it yields, and sends the outcome back in."""
    try:
        step = next(story)
        while True:
            try:
                outcome = _do(sender, step)
            except BaseException as error:  # noqa: BLE001 - the story decides what to do with it
                step = story.throw(error)
            else:
                step = story.send(outcome)
    except StopIteration as stop:
        return cast("T", stop.value)


def _do(sender: SyncSender, step: Step) -> Any:
    if isinstance(step, Call):
        return sender.run(step)
    if isinstance(step, Wait):
        return sender.run_wait(step)
    if isinstance(step, Commands):
        return sender.run_commands(step.commands)
    if isinstance(step, Sleep):
        return time.sleep(step.seconds)
    return _handle(sender, step)


def _handle(sender: SyncSender, step: Handle) -> Any:
    """Calls the handler here while a thread renews; a lost lease is told by `delivery.lost`."""
    keeper = _Keeper(sender, step)
    keeper.start()
    try:
        result = step.handler(step.delivery)
    except Exception as error:
        keeper.stop()
        if step.delivery.lost:
            raise lost_lease(step) from error
        raise
    except GeneratorExit as error:
        raise HandlerExit from error
    finally:
        keeper.stop()
    if step.delivery.lost:
        raise lost_lease(step)
    if inspect.isawaitable(result):
        close = getattr(result, "close", None)
        if close is not None:
            close()
        raise InvalidInput("an async handler needs an AsyncEngine")
    return result


class _Keeper:
    """Renews one lease from a thread, and marks the delivery lost when the server refuses or the lease has run out."""

    def __init__(self, sender: SyncSender, step: Handle) -> None:
        self._sender = sender
        self._step = step
        self._done = threading.Event()
        self._renewed = threading.Event()
        self._ends = time.monotonic() + step.lease
        self._threads = [
            threading.Thread(target=target, name=f"redisq-{target.__name__.strip('_')}", daemon=True)
            for target in (self._renew, self._watch)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._done.set()
        self._renewed.set()
        self._threads[1].join()

    def _renew(self) -> None:
        pause = self._step.every
        while not self._done.wait(pause):
            sent = time.monotonic()
            try:
                self._sender.run(self._step.renew())
            except LeaseLost:
                self._lose()
                return
            except RedisqError as error:
                _log.warning("can't renew the lease of job %s yet: %s", self._step.delivery.id, error)
                pause = min(self._step.every, 0.2)
                continue
            pause = self._step.every
            self._ends = sent + self._step.lease
            self._renewed.set()

    def _watch(self) -> None:
        while not self._done.is_set():
            left = self._ends - time.monotonic()
            if left <= 0:
                self._lose()
                return
            self._renewed.wait(left)
            self._renewed.clear()

    def _lose(self) -> None:
        if not self._done.is_set():
            msgspec.structs.force_setattr(self._step.delivery, "lost", True)
            self._done.set()
            self._renewed.set()


class Queue(Registered, Generic[V]):
    """One job queue. Made by `Engine.queue`; safe to use from several threads."""

    def __init__(self, core: QueueCore, sender: SyncSender) -> None:
        super().__init__()
        self._core = core
        self._sender = sender

    @property
    def name(self) -> str:
        return self._core.name

    offer = flow(flows.offer)
    offer_many = flow(flows.offer_many)
    take = flow(flows.take)
    take_many = flow(flows.take_many)
    exchange = flow(flows.exchange)
    process_one = flow(flows.process_one)
    ack = call(consume.ack)
    ack_many = flow(flows.ack_many)
    renew = call(consume.renew)
    renew_many = flow(flows.renew_many)
    release = call(consume.release)
    fail = call(consume.fail)
    quarantine = call(consume.quarantine)
    get = call(operate.get)
    attempts = call(operate.attempts)
    history = call(operate.history)
    jobs = call(operate.jobs)
    counts = call(operate.counts)
    info = call(operate.info)
    cancel = call(operate.cancel)
    retry = call(operate.retry)
    promote = call(operate.promote)
    remove = call(operate.remove)
    pause = call(operate.pause)
    resume = call(operate.resume)
    alter = call(operate.alter)
    maintain = call(operate.maintain)
    retry_many = flow(flows.retry_many)
    purge = flow(flows.purge)
    errors = flow(flows.errors)
    delete = flow(flows.delete)
    wait_result = flow(flows.wait_result)

    def task(
        self,
        *,
        name: str | None = None,
        key: Callable[..., str] | None = None,
        **options: Any,
    ) -> Callable[[Callable[P, Any]], Task[P, Offer]]:
        """A decorator that makes a function a typed job: `send(to="x")` runs it here, `send.offer(to="x")` enqueues.

        name: the job's, the function's own by default. key: derives the id from the arguments, so that a repeated offer
        is a duplicate. Other options are those of `offer` (max_attempts, timeout, keep, priority, delay …). Only on a
        queue whose `type` is `Any`.
        """
        if self._core.type is not Any:
            raise InvalidInput(f"queue {self.name} has a payload type of its own: tasks need a queue of type Any")
        return lambda function: self._task(function, self._offer_task, name, options, key)

    def _offer_task(self, job: NewJob, task: Task[Any, Offer]) -> Offer:
        return task.note((self.offer_many([job]))[0])

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"


class EventQueue(Subscribers, Generic[V]):
    """One event queue. Made by `Engine.events`; safe to use from several threads."""

    def __init__(self, core: EventCore, sender: SyncSender) -> None:
        super().__init__()
        self._core = core
        self._sender = sender

    @property
    def name(self) -> str:
        return self._core.name

    subscribe = call(subscribing.subscribe)
    unsubscribe = flow(eventflows.unsubscribe)
    subscriptions = flow(eventflows.subscriptions)
    emit = flow(eventflows.emit)
    emit_many = flow(eventflows.emit_many)
    get = call(broadcast.get)
    take = flow(eventflows.take)
    take_many = flow(eventflows.take_many)
    exchange = flow(eventflows.exchange)
    process_one = flow(eventflows.process_one)
    ack = call(deliveries.ack)
    acknowledge = call(deliveries.ack)
    ack_many = flow(eventflows.ack_many)
    renew = call(deliveries.renew)
    renew_many = flow(eventflows.renew_many)
    release = call(deliveries.release)
    fail = call(deliveries.fail)
    dead = call(subscribing.dead)
    retry = call(subscribing.retry)
    discard = call(subscribing.discard)
    list_archived = call(broadcast.list_archived)
    info = call(broadcast.info)
    alter = call(operate.alter)
    maintain = flow(eventflows.maintain)

    def __repr__(self) -> str:
        return f"EventQueue({self.name!r})"


class Engine(EngineBase[Queue[Any], EventQueue[Any], SyncSender]):
    """A client of one server and namespace; its calls block. Safe to use from several threads.

    See `EngineBase` for the options.
    """

    _connect = staticmethod(connect_sync)
    _adopt = staticmethod(sync_from_client)
    _queue_class = Queue
    _events_class = EventQueue

    def queues(self) -> list[QueueInfo]:
        """Every queue of the namespace, by name."""
        return drive(self._sender, flows.queues(self._registry))

    def close(self) -> None:
        """Close the connections; an embedded server ends with them."""
        self._sender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
