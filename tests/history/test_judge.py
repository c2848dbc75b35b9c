"""The judge itself: each rule flags a minimal history that breaks it, and passes the nearest one that does not."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from redisq import Engine
from tests.history import scene
from tests.history.broken import DOUBLED, LOST, OTHER, STUCK
from tests.history.judge import MS, Verdict, judge_records
from tests.history.record import Answer, Call, Claim, Fault, Found, History, Put, Record, Reply, Settle, Setup, read
from tests.history.workload import JOBS, Client, lanes_of
from tests.support.servers import own_server

LEASE = 100


class Tape:
    """A history made by hand. Times are ms; `at` is the start of a call and its end, None for one that never ended."""

    def __init__(self, *, subs: tuple[str, ...] = (), brief: bool = False) -> None:
        self.queue = "q"
        names = {"q": list(subs)} if subs else {}
        self.lines: list[Record] = [Setup(0, 0, names, ["q"] if brief else [], {"q": 20})]
        self._fence = 0

    def call(self, verb: str, at: tuple[int, int | None], error: str = "", **parts: Any) -> Tape:
        answers = {name: parts.pop(name) for name in ("added", "settled", "claimed") if name in parts}
        n = len(self.lines)
        self.lines.append(Call("c", verb, self.queue, n=n, at=at[0] * MS, **parts))
        if at[1] is not None:
            self.lines.append(Reply(n, at[1] * MS, error=error, **({} if error else answers)))
        return self

    def put(self, at: tuple[int, int | None] = (0, 10), word: str = "new", error: str = "", **terms: Any) -> Tape:
        return self.call("offer", at, error, puts=[Put("a", **terms)], added=[word])

    def take(
        self, token: str, at: tuple[int, int], attempt: int = 1, fence: int | None = None, ends: int | None = None,
        sub: str = "",
    ) -> Tape:  # fmt: skip
        self._fence = self._fence + 1 if fence is None else fence
        ends = (at[0] + at[1]) // 2 + LEASE if ends is None else ends
        claim = Claim("a", token, self._fence, attempt, ends)
        return self.call("take", at, sub=sub, limit=1, lease_ms=LEASE, claimed=[claim])

    def lost_take(self, at: tuple[int, int | None], error: str = "") -> Tape:
        return self.call("take", at, error, limit=1, lease_ms=LEASE)

    def settle(
        self, verb: str, token: str, at: tuple[int, int | None], word: str = "", due: int | None = None,
        error: str = "", sub: str = "", **more: Any,
    ) -> Tape:  # fmt: skip
        answer = Answer(word, due)
        return self.call(verb, at, error, sub=sub, settles=[Settle(verb, "a", token, **more)], settled=[answer])

    def ack(self, token: str, at: tuple[int, int | None], word: str = "acknowledged", **more: Any) -> Tape:
        return self.settle("ack", token, at, word, **more)

    def fault(self, at: tuple[int, int], window: int, undone: int | None = None) -> Tape:
        """window: what was written so long before may be undone. undone: what was written after that is."""
        undone = at[0] if undone is None else undone
        self.lines.append(Fault("f", (at[0] - window) * MS, undone * MS, at[0] * MS, at[1] * MS))
        return self

    def found(self, *states: str, sub: str = "") -> Tape:
        self.lines += (Found(self.queue, sub, "a", state) for state in states)
        return self

    def verdict(self) -> Verdict:
        return judge_records(("file", line) for line in self.lines)


def done() -> Tape:
    """Put in, taken as T1, finished."""
    return Tape().put().take("T1", (20, 30)).ack("T1", (40, 50))


def taken() -> Tape:
    """Put in, taken as T1 until 125."""
    return Tape().put().take("T1", (20, 30))


def again(tape: Tape) -> Tape:
    """Finished by another take, after 200."""
    return tape.take("T2", (200, 210), 2).ack("T2", (220, 230)).found("done")


GOOD: dict[str, Callable[[], Tape]] = {
    "finished": lambda: done().found("done"),
    "never taken, never accepted": lambda: Tape().put(error="Unavailable"),
    "an offer that was not answered, and was not done": lambda: Tape().put((0, None)),
    "an offer that was not answered, and was done": (
        lambda: Tape().put((0, None)).take("T1", (200, 210)).ack("T1", (220, 230)).found("done")
    ),
    "a doubtful offer that is done later": (
        lambda: Tape().put(error="IndeterminateWrite").take("T1", (200, 210)).ack("T1", (220, 230)).found("done")
    ),
    "run again after a lapse": lambda: again(taken()),
    "run again after a failure": lambda: again(taken().settle("fail", "T1", (40, 50), "scheduled", 100)),
    "released, so the attempt does not count": (
        lambda: taken().settle("release", "T1", (40, 50), "released").take("T2", (60, 70)).ack("T2", (80, 90))
        .found("done")
    ),
    "run again after an ack that was not answered": lambda: again(taken().ack("T1", (40, None))),
    "an ack that was not answered counts": lambda: taken().ack("T1", (40, None)).found("done"),
    "an ack overlaps the lease's end, and won": lambda: taken().ack("T1", (120, 300)).found("done"),
    "an ack overlaps the lease's end, and lost": lambda: again(taken().ack("T1", (120, 190), "lease-lost")),
    "a late ack is refused": lambda: again(taken().ack("T1", (150, 160), "lease-lost")),
    "acked twice": lambda: done().ack("T1", (60, 70), "already-acknowledged").found("done"),
    "renewed in time": (
        lambda: taken().settle("renew", "T1", (60, 70), "renewed", 165, ms=LEASE).ack("T1", (140, 150)).found("done")
    ),
    "renewed, perhaps": (
        lambda: taken().settle("renew", "T1", (90, None), ms=LEASE).ack("T1", (180, 190)).found("done")
    ),
    "a claim that nobody saw takes an attempt": lambda: (
        Tape().put().lost_take((20, None)).take("T2", (200, 210), 2).ack("T2", (220, 230)).found("done")
    ),
    "the last ones, too": lambda: (
        Tape().put(most=2).take("T1", (20, 30)).settle("fail", "T1", (40, 50), "scheduled", 70).lost_take((200, None))
        .call("take", (400, 410), limit=1, lease_ms=LEASE).found("dead")
    ),
    "so does one whose call was repeated past its lease": lambda: (
        Tape().put().lost_take((20, 190)).take("T2", (200, 210), 2).ack("T2", (220, 230)).found("done")
    ),
    "dead after its last attempt": (
        lambda: Tape().put(most=1).take("T1", (20, 30)).settle("fail", "T1", (40, 50), "dead").found("dead")
    ),
    "dead when its last lease ran out": (
        lambda: Tape().put(most=1).take("T1", (20, 30)).call("take", (200, 210), limit=1, lease_ms=LEASE).found("dead")
    ),
    "removed by its rule": lambda: Tape().put(brief=True).take("T1", (20, 30)).ack("T1", (40, 50)),
    "put in twice": lambda: done().put((60, 70), "duplicate").found("done"),
    "an offer undone by a fault": lambda: Tape().put().fault((50, 60), 50),
    "an ack undone by a fault": lambda: again(done().fault((60, 70), 20)),
    "a take undone by a fault, its ack refused": lambda: (
        taken().fault((40, 50), 20).ack("T1", (60, 70), "lease-lost").take("T2", (80, 90)).ack("T2", (95, 99))
        .found("done")
    ),
    "a safe offer stays": (
        lambda: Tape().put(safe=True).take("T1", (20, 30)).fault((60, 70), 45)
        .take("T2", (200, 210)).ack("T2", (220, 230)).found("done")
    ),
    "a safe offer undone while it was made, and made again": (
        lambda: Tape().put((0, 90), safe=True).take("T1", (20, 30)).ack("T1", (31, 35)).fault((50, 60), 15)
        .take("T2", (100, 110)).ack("T2", (120, 130)).found("done")
    ),
    "a safe offer that was not answered is not safe": lambda: Tape().put((0, None), safe=True).fault((50, 60), 50),
    "what a fault may undo may stay": lambda: taken().fault((40, 50), 30).ack("T1", (60, 70)).found("done"),
    "each subscription by itself": lambda: (
        Tape(subs=("x", "y")).put().take("T1", (20, 30), sub="x").ack("T1", (40, 50), sub="x")
        .take("T2", (20, 30), sub="y").ack("T2", (40, 50), sub="y").found("done", sub="x").found("done", sub="y")
    ),
}  # fmt: skip

BAD: dict[str, tuple[str, Callable[[], Tape]]] = {
    # (a) no accepted job is lost
    "accepted, and gone": (LOST, Tape().put),
    "taken, and gone": (LOST, taken),
    "failed, and gone": (LOST, lambda: taken().settle("fail", "T1", (40, 50), "scheduled", 100)),
    "gone for its holder": (LOST, lambda: taken().ack("T1", (40, 50), "gone")),
    "finished, and its record gone": (OTHER, done),
    "new again": (LOST, lambda: taken().put((40, 50)).ack("T1", (60, 70)).found("done")),
    "an offer undone before the window": (LOST, lambda: Tape().put().fault((150, 160), 100)),
    "a safe offer undone": (LOST, lambda: Tape().put(safe=True).fault((50, 60), 50)),
    "a safe offer undone for certain": (LOST, lambda: Tape().put((20, 90), safe=True).fault((50, 60), 50, 10)),
    "a safe offer undone before it was answered": (LOST, lambda: Tape().put((0, 90), safe=True).fault((50, 60), 50)),
    "a safe offer undone after it was answered, and run again": (
        LOST,
        lambda: Tape().put((0, 10), safe=True).take("T1", (20, 30)).ack("T1", (31, 35)).fault((50, 60), 0, 50)
        .put((70, 80)).take("T2", (100, 110)).ack("T2", (120, 130)).found("done"),
    ),
    "an offer undone after the fault": (LOST, lambda: Tape().put((70, 80)).fault((50, 60), 50)),
    "brief, and gone before its end": (LOST, lambda: Tape().put(brief=True).take("T1", (20, 30))),
    # (b) never two live leases
    "taken twice": (DOUBLED, lambda: taken().take("T2", (40, 50), 2).ack("T2", (60, 70)).found("done")),
    "taken again while renewed": (
        DOUBLED, lambda: again(taken().settle("renew", "T1", (115, 120), "renewed", 217, ms=LEASE)),
    ),
    "two records of one job": (DOUBLED, lambda: done().found("done", "waiting")),
    # (c) a finished job stays finished, a stale token does nothing
    "finished twice": (DOUBLED, lambda: again(taken().ack("T1", (40, 50)).take("T3", (60, 70), 2))),
    "acked after it was acked": (
        DOUBLED, lambda: again(taken()).ack("T1", (240, 250)),
    ),
    "a late ack is accepted": (DOUBLED, lambda: taken().ack("T1", (140, 150)).found("done")),
    "an ack after a release": (
        DOUBLED, lambda: taken().settle("release", "T1", (40, 50), "released").ack("T1", (60, 70)).found("done"),
    ),
    "a late renewal is accepted": (
        DOUBLED, lambda: again(taken().settle("renew", "T1", (140, 150), "renewed", 245, ms=LEASE)),
    ),
    "failed by another's token": (DOUBLED, lambda: again(taken().settle("fail", "T9", (40, 50), "scheduled", 60))),
    "its ack is refused in time": (OTHER, lambda: again(taken().ack("T1", (40, 50), "lease-lost"))),
    "its ack was only said to be repeated": (
        OTHER, lambda: taken().ack("T1", (40, 50), "already-acknowledged").found("done"),
    ),
    # (d) attempts, fences, tokens
    "an attempt number is repeated": (
        OTHER, lambda: taken().take("T2", (200, 210), 1).ack("T2", (220, 230)).found("done"),
    ),
    "an attempt number is left out": (
        OTHER, lambda: taken().take("T2", (200, 210), 3).ack("T2", (220, 230)).found("done"),
    ),
    "a fence goes back": (OTHER, lambda: taken().take("T2", (200, 210), 2, 1).ack("T2", (220, 230)).found("done")),
    "a fence goes back after a fault": (
        OTHER, lambda: done().fault((60, 70), 60).take("T2", (200, 210), 1, 1).ack("T2", (220, 230)).found("done"),
    ),
    "a token is given twice": (OTHER, lambda: taken().take("T1", (200, 210), 2).ack("T1", (220, 230)).found("done")),
    "a renewal that does not extend": (
        OTHER, lambda: taken().settle("renew", "T1", (60, 70), "renewed", 125, ms=LEASE).ack("T1", (80, 90))
        .found("done"),
    ),
    # (e) each subscription gets it
    "one subscription never got it": (
        LOST, lambda: Tape(subs=("x", "y")).put().take("T1", (20, 30), sub="x").ack("T1", (40, 50), sub="x")
        .found("done", sub="x"),
    ),
    "one subscription got it twice": (
        DOUBLED, lambda: Tape(subs=("x",)).put().take("T1", (20, 30), sub="x").ack("T1", (40, 50), sub="x")
        .take("T2", (60, 70), 2, sub="x").ack("T2", (80, 90), sub="x").found("done", sub="x"),
    ),
    # (f) no delivery without a cause
    "never accepted": (OTHER, lambda: Tape().take("T1", (20, 30)).ack("T1", (40, 50)).found("done")),
    "certainly not accepted": (
        OTHER, lambda: Tape().put(error="Unavailable").take("T1", (20, 30)).ack("T1", (40, 50)).found("done"),
    ),
    "before it is due": (
        OTHER, lambda: Tape().put(delay_ms=500).take("T1", (20, 30)).ack("T1", (40, 50)).found("done"),
    ),
    "before its back-off ends": (
        OTHER, lambda: again(taken().settle("fail", "T1", (40, 50), "scheduled", 400)),
    ),
    "after its last attempt": (
        OTHER, lambda: again(Tape().put(most=1).take("T1", (20, 30)).settle("fail", "T1", (40, 50), "scheduled", 60)),
    ),
    "an ack undone before the window": (DOUBLED, lambda: again(done().fault((150, 160), 80))),
    "a lease that a fault undid for certain": (
        DOUBLED, lambda: taken().fault((50, 60), 45, 10).ack("T1", (70, 80)).found("done"),
    ),
    "more claims unseen than were asked for": (
        DOUBLED, lambda: Tape().put().lost_take((20, 190)).take("T2", (350, 360), 3).ack("T2", (370, 380))
        .found("done"),
    ),
    # (g) nothing is stuck
    "still waiting": (STUCK, lambda: Tape().put().found("waiting")),
    "still leased": (STUCK, lambda: taken().found("leased")),
    "waiting again": (DOUBLED, lambda: done().found("waiting")),
    # and what the errors promise
    "a full memory stops an ack": (
        OTHER, lambda: taken().ack("T1", (40, 50), error="OutOfMemory").ack("T1", (60, 70)).found("done"),
    ),
    "an error that nobody expects": (
        OTHER, lambda: taken().ack("T1", (40, 50), error="CorruptRecord").ack("T1", (60, 70)).found("done"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_what_has_an_explanation_passes(name: str) -> None:
    assert GOOD[name]().verdict().broken == []


@pytest.mark.parametrize("name", BAD)
def test_what_has_none_is_flagged(name: str) -> None:
    kind, tape = BAD[name]
    broken = tape().verdict().broken
    assert [each.kind for each in broken] == [kind], [str(each) for each in broken]


def test_losses_in_a_window_are_counted() -> None:
    verdict = GOOD["an offer undone by a fault"]().verdict()
    assert (verdict.lost, verdict.undone) == (1, 1)
    verdict = GOOD["an ack undone by a fault"]().verdict()
    assert (verdict.lost, verdict.undone) == (0, 1)


def test_the_explanation_shows_the_steps() -> None:
    (broken,) = BAD["a late ack is accepted"][1]().verdict().broken
    assert "a stale token was accepted by ack" in str(broken)
    assert ["put" in line for line in broken.lines][:1] == [True]
    assert [line.startswith("! ") for line in broken.lines].count(True) == 1


# A history of real calls, and what becomes of it when one line is not what it was.

Lines = list[tuple[str, Record]]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Lines:
    """Two clients by turns, for a moment: their leases are short enough to lapse."""
    folder = tmp_path_factory.mktemp("history")
    server = own_server()
    with Engine(server.url, namespace="history") as engine, server.client() as client:
        history = History(folder, "main")
        subs = scene.prepare(engine)
        first = scene.offset(client)
        clients = [Client(lanes_of(engine, history, name, subs, 0.05), name, name) for name in ("a", "b")]
        for _ in range(150):
            for each in clients:
                each.step()
        history.write(scene.setup(first, scene.offset(client)))
        scene.drain(engine, history, subs)
        assert scene.note_end(engine, history, folder) == []
        history.close()
    server.stop()
    return list(read(folder))


def test_a_real_history_passes(real: Lines) -> None:
    verdict = judge_records(copy.deepcopy(real))
    assert verdict.broken == []
    assert verdict.jobs > 30
    assert verdict.obligations > 30
    assert verdict.refused > 0


def replies_with(lines: Lines, part: str, word: str = "") -> list[Reply]:
    """Those that claimed something, or settled something with that answer."""
    replies = [line for _, line in lines if isinstance(line, Reply)]
    if part == "claimed":
        return [reply for reply in replies if reply.claimed]
    return [reply for reply in replies if any(answer.word == word for answer in reply.settled)]


def drop_a_claim(lines: Lines, dice: random.Random) -> None:
    dice.choice(replies_with(lines, "claimed")).claimed.pop()


def drop_an_offer(lines: Lines, dice: random.Random) -> None:
    calls = [line for _, line in lines if isinstance(line, Call) and line.puts]
    call = dice.choice(calls)
    (reply,) = [line for _, line in lines if isinstance(line, Reply) and line.n == call.n]
    reply.error = "Unavailable"


def swap_tokens(lines: Lines, dice: random.Random) -> None:
    """Each of two claims of different jobs gets the other's token; both were settled in time."""
    calls = {line.n: line for _, line in lines if isinstance(line, Call)}
    good = [(call, reply) for reply in replies_with(lines, "settled", "acknowledged") for call in [calls[reply.n]]]
    used = {each.token for call, reply in good for each, said in zip(call.settles, reply.settled, strict=True)
            if said.word == "acknowledged"}  # fmt: skip
    first, second = dice.sample([each for each in replies_with(lines, "claimed") if each.claimed[0].token in used], 2)
    one, other = first.claimed[0], second.claimed[0]
    first.claimed[0] = msgspec.structs.replace(one, token=other.token)
    second.claimed[0] = msgspec.structs.replace(other, token=one.token)


def refuse_an_ack(lines: Lines, dice: random.Random) -> None:
    reply = dice.choice(replies_with(lines, "settled", "acknowledged"))
    reply.settled = [Answer("lease-lost") if each.word == "acknowledged" else each for each in reply.settled]


def accept_a_stale_ack(lines: Lines, dice: random.Random) -> None:
    reply = dice.choice(replies_with(lines, "settled", "lease-lost"))
    reply.settled = [Answer("acknowledged") if each.word == "lease-lost" else each for each in reply.settled]


def shift_a_claim(lines: Lines, dice: random.Random) -> None:
    """It is said to have been made a minute before."""
    reply = dice.choice(replies_with(lines, "claimed"))
    call = next(line for _, line in lines if isinstance(line, Call) and line.n == reply.n)
    call.at -= 60_000 * MS
    reply.at -= 60_000 * MS


def repeat_a_claim(lines: Lines, dice: random.Random) -> None:
    """The same job is handed out once more, right after, under another token."""
    reply = dice.choice(replies_with(lines, "claimed"))
    call = next(line for _, line in lines if isinstance(line, Call) and line.n == reply.n)
    claim = reply.claimed[0]
    n = 1_000_000
    again = msgspec.structs.replace(claim, token="another", fence=claim.fence + 1, attempt=claim.attempt + 1)
    took = reply.at - call.at
    lines.append(("main", Call("c", "take", call.queue, call.sub, limit=1, lease_ms=50, n=n, at=reply.at + 1)))
    lines.append(("main", Reply(n, reply.at + took + 1, claimed=[again])))


def lose_the_end(lines: Lines, dice: random.Random) -> None:
    """A finished job is not there any more."""
    kept = [index for index, (_, line) in enumerate(lines) if isinstance(line, Found) and line.queue == JOBS]
    del lines[dice.choice(kept)]


def wake_the_finished(lines: Lines, dice: random.Random) -> None:
    found = [line for _, line in lines if isinstance(line, Found) and line.state == "done"]
    dice.choice(found).state = "waiting"


MUTATIONS = (
    drop_a_claim, drop_an_offer, swap_tokens, refuse_an_ack, accept_a_stale_ack, shift_a_claim, repeat_a_claim,
    lose_the_end, wake_the_finished,
)  # fmt: skip


@pytest.mark.parametrize("mutate", MUTATIONS)
@pytest.mark.parametrize("seed", range(2))
def test_a_mutated_history_is_flagged(real: Lines, mutate: Callable[[Lines, random.Random], None], seed: int) -> None:
    lines = copy.deepcopy(real)
    mutate(lines, random.Random(seed))
    assert judge_records(lines).broken != []
