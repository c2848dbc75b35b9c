"""Every error that redisq raises on purpose; all derive from `RedisqError`.

A message says what was wrong, with what, and what to do about it. No message ever holds a password.
"""

from __future__ import annotations

from collections.abc import Sequence


class RedisqError(Exception):
    """Base of all errors of this library."""


class InvalidInput(RedisqError, ValueError):
    """An argument is outside its range. Nothing was sent to the server."""


class ConfigurationConflict(RedisqError):
    """The queue is stored with other settings than the ones this client declared."""


class CapacityExceeded(RedisqError):
    """A fixed limit of the queue is reached (for example 1,000 active subscriptions)."""


class LeaseLost(RedisqError):
    """The token no longer owns its lease: it ran out, was settled, or the job is gone. Nothing was changed."""


class SubscriptionGone(RedisqError):
    """This generation of the subscription was removed."""


class EventNotActive(RedisqError):
    """The event settled before this delivery did."""


class CorruptRecord(RedisqError):
    """Stored data is damaged: a key of the wrong type, a missing field, a reply of the wrong shape."""


class SchemaMismatch(RedisqError):
    """A stored result or event does not decode as the declared type."""


class JobFailed(RedisqError):
    """The awaited job ended dead or quarantined; `error` is the recorded `ErrorDetail`, or None."""

    def __init__(self, message: str, *, error: object = None) -> None:
        super().__init__(message)
        self.error = error


class JobCancelled(RedisqError):
    """The awaited job was cancelled."""


class JobGone(RedisqError):
    """The awaited job is unknown or was removed."""


class QueueNotEmpty(RedisqError):
    """The queue still holds live work, so it was not deleted."""


class UnsupportedServer(RedisqError):
    """The server is too old, a cluster, or may evict keys of the queue."""


class Unavailable(RedisqError):
    """The server could not be used, and the operation was certainly not applied."""


class IndeterminateWrite(RedisqError):
    """The operation may or may not have been applied: the reply was lost and could not be asked for again.

    `operation` is the verb, `ids` the records it was about. `done` holds what is certain of a verb of several steps:
    the offers or events of the chunks before, the answers to the settlements of an exchange that then waited.
    """

    def __init__(
        self, message: str, *, operation: str = "", ids: Sequence[str] = (), done: Sequence[object] = ()
    ) -> None:
        super().__init__(message)
        self.operation = operation
        self.ids = tuple(ids)
        self.done = tuple(done)


class OutOfMemory(RedisqError):
    """The server is at its maxmemory: nothing new is stored, while finishing and removing go on.

    `done` holds what a bulk verb (offer_many, emit_many) had stored before; the rest was not applied.
    """

    done: tuple[object, ...] = ()
