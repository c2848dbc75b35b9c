"""The asynchronous front end: `AsyncEngine` and `AsyncQueue`, the same names and results as the sync one, awaited."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Coroutine
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
from redisq.errors import InvalidInput, LeaseLost, RedisqError, UnsupportedServer
from redisq.frontend import EngineBase, lost_lease, name_method
from redisq.handlers import Registered, Subscribers, Task
from redisq.model import NewJob, Offer, QueueInfo
from redisq.sync import Engine
from redisq.transport import AsyncSender, async_from_client, connect_async

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

    def __get__(self, queue: Any, owner: type) -> Callable[P, Coroutine[Any, Any, T]]:
        if queue is None:
            return cast("Callable[P, Coroutine[Any, Any, T]]", self)
        build, core, sender = self._build, queue._core, queue._sender

        async def method(*args: P.args, **kwargs: P.kwargs) -> T:
            made = build(core, *args, **kwargs)
            if core.settled:
                try:
                    return cast("T", await sender.run(made))
                except NoQueue:
                    core.opened = Opened.NO
            return await drive(sender, flows.use(core, lambda: build(core, *args, **kwargs)))

        return name_method(method, build, queue, self._name)


class flow(Generic[P, T]):  # noqa: N801 - as `call`
    """A method that is a story of several steps, told in `redisq.flows`."""

    def __init__(self, tell: Callable[Concatenate[Any, P], Flow[T]]) -> None:
        self._tell = tell
        self.__doc__ = tell.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, queue: Any, owner: type) -> Callable[P, Coroutine[Any, Any, T]]:
        if queue is None:
            return cast("Callable[P, Coroutine[Any, Any, T]]", self)
        tell, core, sender = self._tell, queue._core, queue._sender

        async def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return await drive(sender, tell(core, *args, **kwargs))

        return name_method(method, tell, queue, self._name)


async def drive(sender: AsyncSender, story: Flow[T]) -> T:
    """Runs a flow: does each step it yields, and sends the outcome back in."""
    try:
        step = next(story)
        while True:
            try:
                outcome = await _do(sender, step)
            except BaseException as error:  # noqa: BLE001 - the story decides what to do with it
                step = story.throw(error)
            else:
                step = story.send(outcome)
    except StopIteration as stop:
        return cast("T", stop.value)


async def _do(sender: AsyncSender, step: Step) -> Any:
    if isinstance(step, Call):
        return await sender.run(step)
    if isinstance(step, Wait):
        return await sender.run_wait(step)
    if isinstance(step, Commands):
        return await sender.run_commands(step.commands)
    if isinstance(step, Sleep):
        return await asyncio.sleep(step.seconds)
    return await _handle(sender, step)


async def _handle(sender: AsyncSender, step: Handle) -> Any:
    """Runs the handler as a task while another renews; the one that ends first ends the other."""
    keeper = asyncio.ensure_future(_keep(sender, step))
    work = asyncio.ensure_future(_call(step))
    try:
        await asyncio.wait({keeper, work}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        msgspec.structs.force_setattr(step.delivery, "lost", True)
        raise lost_lease(step)
    finally:
        await _end(keeper)
        await _end(work)


async def _call(step: Handle) -> Any:
    try:
        result = step.handler(step.delivery)
        return await result if inspect.isawaitable(result) else result
    except GeneratorExit as error:
        raise HandlerExit from error


async def _end(task: asyncio.Future[Any]) -> None:
    """Cancels a task and waits until it has ended; how it ended is of no more interest."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and task.exception() is not None:
        _log.debug("a cancelled handler ended with %r", task.exception())


async def _keep(sender: AsyncSender, step: Handle) -> None:
    """Renews until the server refuses or the lease has run out since the last good renewal; then returns."""
    ends = time.monotonic() + step.lease
    pause = step.every
    while True:
        left = ends - time.monotonic()
        if left <= 0:
            return
        await asyncio.sleep(min(pause, left))
        sent = time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, ends - sent)):
                await sender.run(step.renew())
        except (LeaseLost, TimeoutError):
            return
        except RedisqError as error:
            _log.warning("can't renew the lease of job %s yet: %s", step.delivery.id, error)
            pause = min(step.every, 0.2)
        else:
            pause = step.every
            ends = sent + step.lease


class AsyncQueue(Registered, Generic[V]):
    """One job queue. Made by `AsyncEngine.queue`; it belongs to the event loop that first used it."""

    def __init__(self, core: QueueCore, sender: AsyncSender) -> None:
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
    ) -> Callable[[Callable[P, Any]], Task[P, Coroutine[Any, Any, Offer]]]:
        """A decorator that makes a function a typed job: `send(to="x")` runs it here, `send.offer(to="x")` enqueues.

        name: the job's, the function's own by default. key: derives the id from the arguments, so that a repeated offer
        is a duplicate. Other options are those of `offer` (max_attempts, timeout, keep, priority, delay …). Only on a
        queue whose `type` is `Any`.
        """
        if self._core.type is not Any:
            raise InvalidInput(f"queue {self.name} has a payload type of its own: tasks need a queue of type Any")
        return lambda function: self._task(function, self._offer_task, name, options, key)

    async def _offer_task(self, job: NewJob, task: Task[Any, Coroutine[Any, Any, Offer]]) -> Offer:
        return task.note((await self.offer_many([job]))[0])

    def __repr__(self) -> str:
        return f"AsyncQueue({self.name!r})"


class AsyncEventQueue(Subscribers, Generic[V]):
    """One event queue. Made by `AsyncEngine.events`; it belongs to the event loop that first used it."""

    def __init__(self, core: EventCore, sender: AsyncSender) -> None:
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
        return f"AsyncEventQueue({self.name!r})"


class AsyncEngine(EngineBase[AsyncQueue[Any], AsyncEventQueue[Any], AsyncSender]):
    """The same as `Engine`, awaited. It belongs to the event loop that first used it.

    See `EngineBase` for the options.
    """

    _connect = staticmethod(connect_async)
    _adopt = staticmethod(async_from_client)
    _queue_class = AsyncQueue
    _events_class = AsyncEventQueue

    async def queues(self) -> list[QueueInfo]:
        """Every queue of the namespace, by name."""
        return await drive(self._sender, flows.queues(self._registry))

    async def aclose(self) -> None:
        """Close the connections; an embedded server ends with them."""
        await self._sender.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def twin(engine: Engine | AsyncEngine) -> tuple[AsyncEngine, bool]:
    """An engine for asyncio on the same server and namespace, and whether it was made for this."""
    if isinstance(engine, AsyncEngine):
        return engine, False
    registry = engine._registry
    made = AsyncEngine(
        engine.url,
        namespace=registry.namespace,
        clock=registry.clock,
        retry_for=registry.retry_for,
        worker=registry.worker,
    )
    return made, True


async def refuse_eviction(engine: AsyncEngine) -> None:
    """Raises UnsupportedServer when the server may evict any key: it would lose jobs without a word."""
    try:
        (memory,) = await engine._sender.run_commands([("INFO", "memory")])
    except UnsupportedServer:
        raise
    except RedisqError as error:
        _log.warning("can't read the eviction policy: %s", error)
        return
    text = memory.decode() if isinstance(memory, bytes) else str(memory)
    lines = (line.partition(":") for line in text.splitlines())
    policy = next((value.strip() for name, _, value in lines if name == "maxmemory_policy"), "")
    if policy.startswith("allkeys-"):
        raise UnsupportedServer(
            f"maxmemory-policy is {policy}: the server may evict jobs. Set it to noeviction, or allow_eviction=True"
        )
