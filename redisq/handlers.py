"""Handlers: what runs for the jobs of a queue, how it is registered, and how it steers.

Names from stored data only ever select among handlers that this program registered; nothing is imported by name.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import typing
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

import msgspec

from redisq.calls.core import EventCore
from redisq.codec import Codec
from redisq.errors import InvalidInput, LeaseLost
from redisq.model import Delivery, NewJob, Offer
from redisq.values import Duration, duration_ms, text

P = ParamSpec("P")
R = TypeVar("R")
Function = TypeVar("Function", bound=Callable[..., Any])
Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
_log = logging.getLogger("redisq")

MAX_PROGRESS_BYTES = 4096
MAX_TOLD = 10_000
"""Keys of which a task remembers that it has logged a duplicate."""


class Reject(Exception):
    """Raised by a handler: fail the job for good, with this reason, whatever attempts are left."""


class RetryIn(Exception):
    """Raised by a handler: fail this attempt and try again in `seconds`, instead of the policy's back-off."""

    def __init__(self, seconds: Duration, reason: str = "the handler asked for a later retry") -> None:
        super().__init__(reason)
        duration_ms("seconds", seconds)
        self.seconds = seconds


class Context:
    """What a handler may know and say of its run. A handler gets one when a parameter is annotated with this class.

    `cancelled` turns True when somebody asks for the job's cancel, `lost` when its lease is lost or its worker's grace
    is over: an async handler is cancelled then; a plain one has to look. `log` is a stdlib logger that names the job.
    """

    def __init__(self, delivery: Delivery, store: Callable[[bytes], Coroutine[Any, Any, None]]) -> None:
        self.job = delivery
        self.cancelled = False
        self.log = logging.LoggerAdapter(_log, {"job": delivery.id, "queue": delivery.queue})
        self._store = store
        self._loop = asyncio.get_running_loop()

    @property
    def attempt(self) -> int:
        return self.job.attempt

    @property
    def fence(self) -> int:
        return self.job.fence

    @property
    def lost(self) -> bool:
        return self.job.lost

    def progress(self, value: Any) -> Awaitable[None]:
        """Store how far the job has come, at most 4 KiB as JSON, for `Job.progress`. Awaited in an async handler; in a
        plain one the call itself waits. Raises LeaseLost when the lease is lost."""
        data = _JSON.encode("progress", value, limit=MAX_PROGRESS_BYTES, validate=False)
        try:
            inside = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            inside = False
        if inside:
            return self._store(data)
        if self._loop.is_closed():
            raise LeaseLost(f"the worker of job {self.job.id} has ended")
        asyncio.run_coroutine_threadsafe(self._store(data), self._loop).result()
        return _Done()


class Handler:
    """A registered function, with what its parameters ask for. `decode` turns a stored value into its arguments."""

    def __init__(self, function: Callable[..., Any], decode: Callable[[Any], dict[str, Any]] | None = None) -> None:
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_called(function))
        self.context = _context_parameter(function)
        self._function = function
        self._decode = decode
        if decode is None:
            self._prove_call()

    def _prove_call(self) -> None:
        named = {} if self.context is None else {self.context: None}
        try:
            inspect.signature(self._function).bind(None, **named)
        except TypeError as error:
            raise InvalidInput(
                f"handler {self._function!r} must take the value first, and may take a parameter annotated with "
                f"Context: {error}"
            ) from error
        except ValueError:  # a function written in C without a signature
            return

    def arguments(self, value: Any) -> Arguments:
        """What the function is called with; raises `msgspec.ValidationError` for a payload that is not of its types."""
        return ((value,), {}) if self._decode is None else ((), self._decode(value))

    def call(self, arguments: Arguments, context: Context | None) -> Any:
        positional, named = arguments
        if self.context is not None:
            named = {**named, self.context: context}
        return self._function(*positional, **named)

    def outcome(self, arguments: Arguments, context: Context | None) -> tuple[Any, BaseException | None]:
        """The result or the error of a call in a thread: a future does not take every exception."""
        try:
            return self.call(arguments, context), None
        except BaseException as error:  # noqa: BLE001 - raised again in the worker
            return None, error


class Handlers:
    """The handlers of one queue, by job name; None catches every name without its own."""

    def __init__(self) -> None:
        self._by_name: dict[str | None, Handler] = {}

    def add(self, name: str | None, handler: Handler) -> None:
        if name in self._by_name:
            shown = "every other name" if name is None else f"the name {name!r}"
            raise InvalidInput(f"a handler for {shown} is registered already")
        self._by_name[name] = handler

    def find(self, name: str) -> Handler | None:
        return self._by_name.get(name) or self._by_name.get(None)

    def items(self) -> list[tuple[str | None, Handler]]:
        return list(self._by_name.items())

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def register(self, name: str | None) -> Callable[[Function], Function]:
        """A decorator that registers a function and leaves it as it is."""
        if name is not None:
            text("name", name, empty=True)

        def decorate(function: Function) -> Function:
            self.add(name, Handler(function))
            return function

        return decorate


class Registered:
    """The part of a queue object that registers handlers; `Queue` and `AsyncQueue` share it."""

    def __init__(self) -> None:
        self._handlers = Handlers()

    def handler(self, name: str | None = None) -> Callable[[Function], Function]:
        """A decorator: the function runs for jobs of this `name`; None is for every name without its own.

        It takes the decoded value, and a `Context` when a parameter is annotated so. `async def` and `def` both work;
        a plain function runs in a thread. Its return value is the job's result. Raise `Reject` or `RetryIn` to steer.
        """
        return self._handlers.register(name)

    def _task(
        self,
        function: Callable[P, Any],
        offer: Callable[[NewJob, Task[P, R]], R],
        name: str | None,
        options: dict[str, Any],
        key: Callable[..., str] | None,
    ) -> Task[P, R]:
        """Makes a task and registers it for its name."""
        named = text("name", function.__name__ if name is None else name, empty=True)
        task = Task(function, offer, name=named, options=options, key=key)
        self._handlers.add(named, Handler(function, task.arguments))
        return task


class Subscribers:
    """The part of an event queue object that registers handlers; `EventQueue` and `AsyncEventQueue` share it."""

    _core: EventCore

    def __init__(self) -> None:
        self._handlers = Handlers()

    def subscriber(self, name: str) -> Callable[[Function], Function]:
        """A decorator: the function handles the events of the subscription `name`, which a worker makes when it starts.

        As `Queue.handler`; nothing is kept of what it returns. An event is owed until it was handled.
        """
        return self._handlers.register(text("name", name))


class Task(Generic[P, R]):
    """A function that is a typed job: calling it runs it here; `offer` enqueues it with its own signature.

    The payload is a JSON object of the parameters by name, defaults left out. Its types are checked at the offer and at
    the take.
    """

    __name__: str

    def __init__(
        self,
        function: Callable[P, Any],
        offer: Callable[[NewJob, Task[P, R]], R],
        *,
        name: str,
        options: dict[str, Any],
        key: Callable[..., str] | None,
        told: dict[str, None] | None = None,
    ) -> None:
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise InvalidInput(f"offer has no option {', '.join(unknown)}; it has {', '.join(sorted(_OPTIONS))}")
        functools.update_wrapper(self, function)
        self.name = name
        self._function = function
        self._offer = offer
        self._options = options
        self._key = key
        self._told: dict[str, None] = {} if told is None else told
        self._signature, self._struct = _parameters(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self._function(*args, **kwargs)

    def offer(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Enqueue a call; the answer is that of `Queue.offer`."""
        return self._offer(self._job(args, kwargs), self)

    def options(self, **options: Any) -> Task[P, R]:
        """The same task with other options of `offer`: `send.options(delay=5).offer(…)`."""
        merged = {**self._options, **options}
        return Task(self._function, self._offer, name=self.name, options=merged, key=self._key, told=self._told)

    def arguments(self, value: Any) -> dict[str, Any]:
        """The arguments in a stored payload; raises `msgspec.ValidationError` when they are not of the right types."""
        return msgspec.structs.asdict(msgspec.convert(value, self._struct, str_keys=True))

    def note(self, offer: Offer) -> Offer:
        """Logs, once per key, that an offer was ignored as a duplicate."""
        if self._key is not None and offer.duplicate and offer.id not in self._told:
            if len(self._told) >= MAX_TOLD:
                del self._told[next(iter(self._told))]
            self._told[offer.id] = None
            _log.info("task %s: a job of key %s exists already (%s), so this offer is ignored", self.name, offer.id,
                      offer.state or "removed")  # fmt: skip
        return offer

    def _job(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob:
        bound = self._signature.bind(*args, **kwargs)
        try:
            every = msgspec.to_builtins(self._struct(**bound.arguments), str_keys=True)
            payload = {name: value for name, value in every.items() if name in bound.arguments}
            self.arguments(payload)
        except (msgspec.ValidationError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidInput(f"task {self.name}: {error}") from error
        options = dict(self._options)
        if self._key is not None and options.get("id") is None:
            options["id"] = text("key", self._key(*args, **kwargs))
        return NewJob(payload, name=self.name, **options)


_OPTIONS = frozenset(NewJob.__struct_fields__) - {"value", "name"}


def _parameters(function: Callable[..., Any]) -> tuple[inspect.Signature, type[msgspec.Struct]]:
    """The signature of a task without its context, and a struct of its parameters."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise InvalidInput(f"task {function.__name__}: its annotations must be known at run time: {error}") from error
    kept, fields = [], []
    for parameter in inspect.signature(function).parameters.values():
        if _is_context(hints.get(parameter.name)):
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InvalidInput(f"task {function.__name__}: parameter {parameter} can't be passed by name")
        kept.append(parameter)
        hint = hints.get(parameter.name, Any)
        default = () if parameter.default is parameter.empty else (_default(parameter.default),)
        fields.append((parameter.name, hint, *default))
    struct = msgspec.defstruct(function.__name__, fields, kw_only=True, omit_defaults=True, forbid_unknown_fields=True)
    return inspect.Signature(kept), struct


def _default(value: Any) -> Any:
    """A default as msgspec takes it: mutable ones are made anew for each payload, and left out of it when empty."""
    if isinstance(value, list | dict | set | bytearray):
        return msgspec.field(default_factory=value.copy if value else type(value))
    return value


def _context_parameter(function: Callable[..., Any]) -> str | None:
    try:
        hints = typing.get_type_hints(_called(function))
    except (NameError, TypeError):
        hints = getattr(_called(function), "__annotations__", {})
    return next((name for name, hint in hints.items() if name != "return" and _is_context(hint)), None)


def _called(function: Any) -> Any:
    """What runs when `function` is called: of an object with a `__call__`, that."""
    plain = inspect.isroutine(function) or inspect.isclass(function)
    return function if plain else function.__call__


def _is_context(hint: Any) -> bool:
    """Whether an annotation asks for the context; it may be optional, so that the function can be called without."""
    if isinstance(hint, str):
        return hint.removeprefix("redisq.").removesuffix(" | None") == "Context"
    return hint is Context or (Context in typing.get_args(hint) and type(None) in typing.get_args(hint))


class _Done:
    """An awaitable that is done: nobody has to await it."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


_JSON = Codec("json", Any)
