"""The discipline of repeats, driven by hand: no server, no sleep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import exceptions as library
from redis.connection import DefaultParser

from redisq import errors
from redisq.calls import Call, Kind, NoQueue
from redisq.transport.retry import Pause, Request, Send, conduct
from redisq.transport.wire import Command, Lost
from tests.transport import tiny

COMMAND: Command = ("EVALSHA", "sha")
LOAD: Command = ("SCRIPT", "LOAD", "source")
CALL: Call[Any] = Call("offer", tiny.script("return 1"), "k", (), tiny.same, kind=Kind.WRITE, ids=("a", "b"))
REFUSED_CONNECTION = library.ConnectionError("Error 111 connecting")


def reply_error(text: str) -> Exception:
    """The error that redis-py makes of an error reply."""
    parse: Callable[[str], Exception] = DefaultParser.parse_error
    return parse(text)


def not_sent(cause: Exception = REFUSED_CONNECTION) -> Lost:
    return Lost(cause, sent=False)


def maybe_sent() -> Lost:
    return Lost(library.ConnectionError("Connection closed by server"), sent=True)


class Drive:
    """Drives the generator: hands out `outcomes` in order, the last one for ever, and lets the pauses pass."""

    def __init__(self, *outcomes: Any, writes: bool = True, retry_for: float = 10.0, started: bool = True) -> None:
        self.now = 100.0
        self.pauses: list[float] = []
        self.sent: list[tuple[Command, ...]] = []
        self._outcomes = outcomes
        self._given = 0
        self._steps = conduct(
            Request("offer", (COMMAND,), CALL, LOAD),
            self._next() if started else None,
            retry_for,
            writes=writes,
            now=lambda: self.now,
            dice=lambda: 1.0,
        )

    def _next(self) -> Any:
        self._given += 1
        return self._outcomes[min(self._given, len(self._outcomes)) - 1]

    def replies(self) -> list[Any]:
        answer = None
        while True:
            try:
                step = self._steps.send(answer)
            except StopIteration as stop:
                return list(stop.value)
            answer = None
            if isinstance(step, Pause):
                self.pauses.append(step.seconds)
                self.now += step.seconds
            else:
                assert isinstance(step, Send)
                self.sent.append(step.commands)
                answer = self._next()


def test_a_good_reply_is_the_end() -> None:
    drive = Drive([b"ok"])
    assert (drive.replies(), drive.sent, drive.pauses) == ([b"ok"], [], [])


def test_without_a_first_try_it_sends_at_once() -> None:
    drive = Drive([b"ok"], started=False)
    assert (drive.replies(), drive.sent, drive.pauses) == ([b"ok"], [(COMMAND,)], [])


def test_an_unknown_script_is_loaded_and_run_at_once() -> None:
    drive = Drive([reply_error("NOSCRIPT No matching script")], [b"sha", b"ok"], retry_for=0)
    assert drive.replies()[-1] == b"ok"
    assert drive.sent == [(LOAD, COMMAND)]
    assert drive.pauses == []


def test_a_script_that_stays_unknown_is_not_loaded_in_a_spin() -> None:
    unknown = reply_error("NOSCRIPT No matching script")
    drive = Drive([unknown], [b"sha", unknown], [b"sha", unknown], [b"sha", b"ok"])
    assert drive.replies()[-1] == b"ok"
    assert len(drive.sent) == 3
    assert len(drive.pauses) == 2


def test_a_script_that_may_not_be_loaded() -> None:
    refused = reply_error("NOPERM User x has no permissions to run the 'script|load' command")
    with pytest.raises(errors.Unavailable, match=r"script\|load"):
        Drive(
            [reply_error("NOSCRIPT No matching script")], [refused, reply_error("NOSCRIPT No matching script")]
        ).replies()


@pytest.mark.parametrize(
    "text",
    [
        "LOADING Redis is loading the dataset in memory",
        "READONLY You can't write against a read only replica.",
        "MASTERDOWN Link with MASTER is down",
        "BUSY Redis is busy running a script.",
        "NOREPLICAS Not enough good replicas to write.",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "UNBLOCKED client unblocked via CLIENT UNBLOCK",
        "CLUSTERDOWN The cluster is down",
    ],
)
@pytest.mark.parametrize("writes", [True, False])
def test_what_passes_is_waited_for(text: str, writes: bool) -> None:
    assert Drive([reply_error(text)], [reply_error(text)], [b"ok"], writes=writes).replies() == [b"ok"]
    with pytest.raises(errors.Unavailable, match=text.partition(" ")[2][:12]):
        Drive([reply_error(text)], writes=writes).replies()


def test_pauses_grow_up_to_a_second_and_fill_the_time() -> None:
    drive = Drive(not_sent(), retry_for=10)
    with pytest.raises(errors.Unavailable):
        drive.replies()
    assert drive.pauses[:4] == [0.02, 0.04, 0.08, 0.16]
    assert max(drive.pauses) == 1.0
    assert sum(drive.pauses) == pytest.approx(10)


@pytest.mark.parametrize("outcome", [not_sent, maybe_sent])
def test_without_time_nothing_is_repeated(outcome: Callable[[], Lost]) -> None:
    with pytest.raises((errors.Unavailable, errors.IndeterminateWrite)):
        Drive(outcome(), [b"too late"], retry_for=0).replies()


def test_a_lost_connection_is_replaced() -> None:
    assert Drive(not_sent(), maybe_sent(), [b"ok"]).replies() == [b"ok"]


def test_never_sent_is_certainly_not_applied() -> None:
    with pytest.raises(errors.Unavailable, match="offer: Error 111 connecting"):
        Drive(not_sent()).replies()


def test_one_doubtful_try_leaves_the_doubt() -> None:
    for last in (not_sent(), [reply_error("LOADING wait")]):
        with pytest.raises(errors.IndeterminateWrite) as caught:
            Drive(maybe_sent(), last).replies()
        assert caught.value.operation == "offer"
        assert caught.value.ids == ("a", "b")


def test_a_read_is_never_in_doubt() -> None:
    with pytest.raises(errors.Unavailable):
        Drive(maybe_sent(), writes=False).replies()


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", errors.OutOfMemory, "maxmemory"),
        ("NOAUTH Authentication required.", errors.Unavailable, "give a user and password"),
        ("WRONGPASS invalid username-password pair", errors.Unavailable, "invalid username-password pair"),
        ("NOPERM User x has no permissions to access one of the keys", errors.Unavailable, "ACL SETUSER"),
        ("ERR ACL failure in script: User x has no permissions", errors.Unavailable, "ACL SETUSER"),
        ("MISCONF Errors writing to the AOF file", errors.Unavailable, "cannot persist"),
        ("MOVED 1234 10.0.0.1:6379", errors.UnsupportedServer, "does not own the queue's slot"),
    ],
)
def test_a_rule_of_the_server_is_named_at_once(text: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        Drive([reply_error(text)], [b"too late"]).replies()
    with pytest.raises(errors.IndeterminateWrite):
        Drive(maybe_sent(), [reply_error(text)]).replies()


@pytest.mark.parametrize(
    ("text", "kind"),
    [("ERR DB index is out of range", errors.Unavailable), ("WRONGPASS invalid", errors.Unavailable)],
)
def test_a_refused_login_is_final(text: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        Drive(not_sent(reply_error(text)), [b"too late"]).replies()


def test_a_server_that_loads_while_we_log_in_is_waited_for() -> None:
    assert Drive(not_sent(reply_error("LOADING wait")), [b"ok"]).replies() == [b"ok"]


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("LEASELOST", errors.LeaseLost),
        ("CONFLICT", errors.ConfigurationConflict),
        ("CAPACITY", errors.CapacityExceeded),
        ("CORRUPT", errors.CorruptRecord),
        ("SUBGONE", errors.SubscriptionGone),
        ("NOTACTIVE", errors.EventNotActive),
        ("NOTEMPTY", errors.QueueNotEmpty),
    ],
)
def test_a_refusal_is_raised_with_its_text(word: str, kind: type[Exception]) -> None:
    for first in ([reply_error(f"{word} the reason why")], maybe_sent()):
        with pytest.raises(kind) as caught:
            Drive(first, [reply_error(f"{word} the reason why")]).replies()
        assert type(caught.value) is kind
        assert str(caught.value) == "the reason why"


def test_a_missing_queue_names_its_call() -> None:
    with pytest.raises(NoQueue) as caught:
        Drive([reply_error("NOQUEUE no such queue")]).replies()
    assert caught.value.call is CALL


def test_a_used_up_request_number() -> None:
    with pytest.raises(errors.RedisqError, match="another call used this request number"):
        Drive([reply_error("STALE 7 after 8")]).replies()
    with pytest.raises(errors.IndeterminateWrite):
        Drive(maybe_sent(), [reply_error("STALE 7 after 8")]).replies()


def test_an_error_inside_a_script_names_its_source_line() -> None:
    with pytest.raises(errors.RedisqError, match=r"lua/tiny\.lua:2: boom"):
        Drive([reply_error("ERR user_script:2: boom script: abc, on @user_script:2.")]).replies()
    with pytest.raises(errors.CorruptRecord, match="wrong type"):
        Drive([reply_error("WRONGTYPE Operation against a key holding the wrong kind of value")]).replies()


def test_interruptions_pass_through() -> None:
    steps = conduct(Request("offer", (COMMAND,)), not_sent(), 10, writes=True)
    assert isinstance(next(steps), Pause)
    with pytest.raises(KeyboardInterrupt):
        steps.throw(KeyboardInterrupt())
