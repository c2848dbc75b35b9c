"""The Lua that is measured: this checkout's own, or a copy of it elsewhere to compare with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from redisq import scripts

HOT = ("offer", "take", "settle", "exchange", "renew", "remove")


@contextmanager
def lua_from(folder: Path | None) -> Iterator[None]:
    """Inside, calls are built from the scripts of `folder` (None: this checkout's)."""
    if folder is None:
        yield
        return
    with patch.object(scripts, "_folder", lambda: folder):
        _forget()
        for name in HOT:
            scripts.script(f"jobs/{name}")
        try:
            yield
        finally:
            _forget()


def _forget() -> None:
    scripts.script.cache_clear()
    scripts._read.cache_clear()
