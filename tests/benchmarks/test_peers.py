"""What can be said of the peers' harness without the peers."""

from __future__ import annotations

import pytest

from benchmarks.peers.contract import DIGITS, Tally, payload
from benchmarks.peers.environment import FOLDER, HERE, OURS, PEERS, REQUIREMENTS


def test_every_peer_has_an_adapter_and_an_environment() -> None:
    adapters = {path.stem for path in (HERE / "adapters").glob("*.py")}
    assert adapters == {*PEERS, *OURS}


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_requirements_are_pinned(name: str) -> None:
    lines = (HERE / name).read_text().splitlines()
    assert lines
    assert all(line.startswith("#") or "==" in line for line in lines)
    assert not FOLDER.is_relative_to(HERE)


@pytest.mark.parametrize("number", [0, 59_999, 2**63])
def test_a_payload_is_100_bytes_of_json_that_begin_with_its_number(number: int) -> None:
    text = payload(number)
    assert len(text) + len('""') == 100
    assert int(text[:DIGITS]) == number


def test_a_tally_is_done_with_the_last_job() -> None:
    tally = Tally(2)
    tally.add(payload(1))
    assert not tally.done.is_set()
    tally.add(payload(0))
    assert tally.done.is_set()
    assert sorted(tally.numbers) == [0, 1]
    assert tally.ended >= tally.started
