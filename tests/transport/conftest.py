"""Fixtures of the tests of the transport."""

from __future__ import annotations

import secrets

import pytest


@pytest.fixture(params=["sync", "async"])
def world(request: pytest.FixtureRequest) -> str:
    """The senders that the test runs with."""
    return str(request.param)


@pytest.fixture
def key() -> str:
    """A key that no other test uses."""
    return f"{{t{secrets.token_hex(6)}}}"
