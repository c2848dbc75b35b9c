"""What the recorder leaves behind, whatever becomes of the call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from redisq import LeaseLost, Unavailable
from tests.history.record import Answer, Call, History, Reply, Settle, read


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    history = History(tmp_path, "p0")
    yield history
    history.close()


def broken(error: Exception) -> None:
    raise error


def test_a_call_and_its_answer(history: History, tmp_path: Path) -> None:
    settle = Settle("release", "job", "token", 30)
    with history.call(Call("p0.1", "release", "jobs", settles=[settle])) as reply:
        reply.settled = [Answer("released")]
    (file, call), (_, end) = read(tmp_path)
    assert file == "p0"
    assert isinstance(call, Call)
    assert isinstance(end, Reply)
    assert (call.settles, end.settled, end.error) == ([settle], [Answer("released")], "")
    assert 0 < call.at <= end.at


def test_an_error_of_the_engine_is_an_answer(history: History, tmp_path: Path) -> None:
    with history.call(Call("p0.1", "take", "jobs")) as reply:
        broken(Unavailable("no server"))
    assert reply.error == "Unavailable"
    assert [line.error for _, line in read(tmp_path) if isinstance(line, Reply)] == ["Unavailable"]


def test_another_error_is_a_call_without_an_end(history: History, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), history.call(Call("p0.1", "take", "jobs")):
        raise ZeroDivisionError
    assert [type(line) for _, line in read(tmp_path)] == [Call]


def test_a_line_that_a_kill_cut_short_is_left_out(history: History, tmp_path: Path) -> None:
    with history.call(Call("p0.1", "take", "jobs")):
        broken(LeaseLost("late"))
    with (tmp_path / "p0.jsonl").open("ab") as file:
        file.write(b'{"is":"reply","n":2')
    assert [type(line) for _, line in read(tmp_path)] == [Call, Reply]


def test_calls_have_numbers_of_their_own(history: History, tmp_path: Path) -> None:
    with history.call(Call("p0.1", "take", "jobs")) as first, history.call(Call("p0.2", "take", "jobs")) as second:
        pass
    assert first.n != second.n
    assert [line.n for _, line in read(tmp_path)] == [first.n, second.n, second.n, first.n]  # type: ignore[union-attr]
