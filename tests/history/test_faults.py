"""A small, seeded part of every fault run: some hundred calls, and the fault at least once."""

from __future__ import annotations

import pytest

from tests.history.faults import FAULTS, run


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", [name for name in FAULTS if name not in ("none", "network-hasty")])
def test_every_promise_is_kept(name: str) -> None:
    outcome = run(name, 120, seed=3)
    shown = "\n".join([*map(str, outcome.verdict.broken[:3]), *outcome.damage[:3]])
    assert outcome.good, f"{outcome.verdict}; the history is kept in {outcome.kept}\n{shown}"
    assert outcome.faults >= 1
