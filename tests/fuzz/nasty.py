"""Bytes that a stored field should not hold, ways to spoil those that it does, and what may come out of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from redisq import CorruptRecord, RedisqError

FIELDS: dict[str, bytes] = {
    "empty": b"",
    "zero": b"0",
    "no text": b"\xff\x00\xfe garbage",
    "20 digits": b"9" * 20,
    "400 digits": b"9" * 400,
    "5000 digits": b"9" * 5000,
    "infinity": b"inf",
    "not a number": b"nan",
    "negative": b"-1",
    "a fraction": b"1.5",
    "an exponent": b"1e308",
    "hexadecimal": b"0x7fffffff",
    "a megabyte": b"x" * 1_000_000,
    "a format": b"%s%d%n%%",
    "commas": b"," * 40,
    "semicolons": b";" * 40,
    "pipes": b"|" * 40,
    "colons": b":" * 40,
    "a long row": b"1,1,c,99999999:",
    "a negative row": b"1,1,c,-5:abc",
    "white space": b" 1 \n",
    "a nested document": b"[" * 5000,
}

SPOILED: dict[str, Callable[[bytes], bytes]] = {
    "first half": lambda data: data[: len(data) // 2],
    "second half": lambda data: data[len(data) // 2 :],
    "twice": lambda data: data + data,
    "reversed": lambda data: data[::-1],
    "digits grown": lambda data: b"".join(bytes([each]) * (30 if bytes([each]).isdigit() else 1) for each in data),
    "digits gone": lambda data: bytes(each for each in data if not bytes([each]).isdigit()),
    "other separators": lambda data: data.translate(bytes.maketrans(b",;|:", b";,:|")),
    "no separators": lambda data: data.translate(None, b",;|:"),
    "one byte more": lambda data: data + b"\xff",
    "upper case": lambda data: data.upper(),
    "signs": lambda data: data.replace(b"1", b"-1"),
}

SCORES = {
    "infinite": "+inf", "minus infinite": "-inf", "negative": -5, "a fraction": 0.5, "huge": 1e300, "2^63": 2.0**63,
    "zero": 0, "tiny": 5e-324,
}  # fmt: skip

MEMBERS = [b"", b"\xff\xfe", b"nobody", b"x" * 100_000, b"a|b", b";", b"0", b"9" * 400]


def spoilings(stored: bytes) -> dict[str, bytes]:
    """Every replacement of a stored field that differs from it, and from the others."""
    found = {name: spoil(stored) for name, spoil in SPOILED.items()} | FIELDS
    names = {data: name for name, data in found.items() if data != stored}
    return {name: data for data, name in names.items()}


def some_spoilings(stored: bytes, turn: int) -> dict[str, bytes]:
    """Every second one of `spoilings`: with an even `turn` these, with an odd one those."""
    return dict(list(spoilings(stored).items())[turn % 2 :: 2])


def entries() -> list[tuple[str, bytes | None, Any]]:
    """What to put into a sorted set: a name, the member (None: one that is there), its score."""
    cases: list[tuple[str, bytes | None, Any]] = [(f"score {name}", None, score) for name, score in SCORES.items()]
    return cases + [(f"member {member[:20]!r}", member, 1.0) for member in MEMBERS]


_RAW = re.compile(r"user_script")
_LOCATED = re.compile(r"lua/[\w/]+\.lua:\d+")


class Trial:
    """Calls on a struck queue, and what came out of them that should not have."""

    def __init__(self) -> None:
        self.escaped: list[str] = []

    def try_out(self, what: str, call: Callable[[], Any]) -> Any:
        """What `call` returns. A refusal is fine; only one that names damage may tell where a script stumbled."""
        try:
            return call()
        except RedisqError as refusal:
            if _RAW.search(str(refusal)) or (_LOCATED.search(str(refusal)) and not isinstance(refusal, CorruptRecord)):
                self.escaped.append(f"{what}: {refusal!r}")
        except Exception as error:  # noqa: BLE001 - this is what is looked for
            self.escaped.append(f"{what}: {error!r}")
        return None
