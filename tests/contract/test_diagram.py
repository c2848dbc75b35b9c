"""The diagram in lua/README.md is the one that the scripts' own MOVES lines give."""

from __future__ import annotations

from tests.contract.diagram import diagram, shown


def test_the_readme_shows_the_moves_of_the_scripts() -> None:
    assert shown() == diagram()
