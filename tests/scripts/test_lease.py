"""lib/lease: who holds a job, read alike by the scripts and the client."""

from __future__ import annotations

import pytest
import redis

from redisq.calls import heads
from tests.scripts.direct import lua

READ = """
local held = M.parse(ARGV[1])
return held and { held.token, tostring(held.attempt), held.started and "s" or "u", held.cancel and "c" or "-" }
"""


@pytest.mark.parametrize(("mark", "wanted"), [("s", "s-"), ("u", "u-"), ("S", "sc"), ("U", "uc")])
def test_a_lease_reads_alike(mark: str, wanted: str, raw: redis.Redis) -> None:
    text = f"9-n,3,{mark},12,host:1:x".encode()
    assert lua(raw, "lease", READ, text) == [b"9-n", b"3", wanted[0].encode(), wanted[1].encode()]
    assert heads.lease(text) == heads.Lease("9-n", 3, wanted[1] == "c", 12)


@pytest.mark.parametrize(
    "text",
    [b"", b"9-n", b"9-n,3", b"9-n,3,s", b"9-n,3,s,12", b"9-n,x,s,12,w", b"9-n,3,z,12,w", b"9-n,3,s,,w",
     b"9-n,3,s,1,w,x", b"9-n," + b"9" * 17 + b",s,1,w", b"9-n,3,s," + b"9" * 17 + b",w"],
)  # fmt: skip
def test_a_damaged_lease_is_damaged_for_both(text: bytes, raw: redis.Redis) -> None:
    assert lua(raw, "lease", READ, text) is None
    with pytest.raises(ValueError):  # noqa: PT011 - any text will do
        heads.lease(text)


@pytest.mark.parametrize(("token", "held"), [("9-n", True), ("9-", False), ("9-nn", False), ("", False), ("-n", False)])
def test_a_token_holds_whole_or_not_at_all(token: str, held: bool, raw: redis.Redis) -> None:
    assert lua(raw, "lease", "return M.has('9-n,3,s,12,w', ARGV[1])", token) == (1 if held else None)
