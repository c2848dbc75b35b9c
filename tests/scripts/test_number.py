"""lib/number: whole numbers as text, without the 14 digits of Lua's own conversion."""

from __future__ import annotations

import pytest
import redis

from tests.scripts.direct import lua


@pytest.mark.every_server
@pytest.mark.real_server
def test_a_number_keeps_all_its_digits(raw: redis.Redis) -> None:
    for value in (0, 7, -7, 10**14 + 1, 1_796_069_127_483_001, 2**53, -(2**53)):
        assert lua(raw, "number", "return M.text(tonumber(ARGV[1]))", value) == str(value).encode()
