"""redisq: a queue engine on Redis whose every state transition is one atomic script."""

from msgspec import UNSET

from redisq.aio import AsyncEngine, AsyncQueue
from redisq.errors import (
    CapacityExceeded,
    ConfigurationConflict,
    CorruptRecord,
    EventNotActive,
    IndeterminateWrite,
    InvalidInput,
    JobCancelled,
    JobFailed,
    JobGone,
    LeaseLost,
    OutOfMemory,
    QueueNotEmpty,
    RedisqError,
    SchemaMismatch,
    SubscriptionGone,
    Unavailable,
    UnsupportedServer,
)
from redisq.model import (
    Ack,
    Attempt,
    Bulk,
    Cancel,
    DamagedRecord,
    Delivery,
    Done,
    ErrorDetail,
    ErrorGroup,
    EventStatus,
    Failed,
    Failure,
    History,
    Job,
    JobHistory,
    JobState,
    Maintenance,
    NewJob,
    ObligationStatus,
    Offer,
    Outcome,
    Page,
    QueueInfo,
    Released,
    Renewal,
    Transition,
)
from redisq.policy import Backoff, Keep, QueuePolicy
from redisq.sync import Engine, Queue

__all__ = [
    "UNSET", "Ack", "AsyncEngine", "AsyncQueue", "Attempt", "Backoff", "Bulk", "Cancel", "CapacityExceeded",
    "ConfigurationConflict", "CorruptRecord", "DamagedRecord", "Delivery", "Done", "Engine", "ErrorDetail",
    "ErrorGroup", "EventNotActive", "EventStatus", "Failed", "Failure", "History", "IndeterminateWrite",
    "InvalidInput", "Job", "JobCancelled", "JobFailed", "JobGone", "JobHistory", "JobState", "Keep", "LeaseLost",
    "Maintenance", "NewJob", "ObligationStatus", "Offer", "OutOfMemory", "Outcome", "Page", "Queue", "QueueInfo",
    "QueueNotEmpty", "QueuePolicy", "RedisqError", "Released", "Renewal", "SchemaMismatch", "SubscriptionGone",
    "Transition", "Unavailable", "UnsupportedServer",
]  # fmt: skip
