"""Just enough of the Redis protocol to see where a request or a reply ends."""

from __future__ import annotations

_LINE = b"+-:_#,("
_BULK = b"$!="
_NESTED = b"*~>%|"
_PAIRS = b"%|"
PUSH = b">"


def frame_end(data: bytes | bytearray, start: int = 0) -> int | None:
    """Where the frame that starts at `start` ends, or None while it is incomplete."""
    stop = data.find(b"\r\n", start)
    if stop < 0:
        return None
    kind, end = data[start : start + 1], stop + 2
    if kind in _LINE:
        return end
    size = int(data[start + 1 : stop])
    if kind in _BULK:
        end += 0 if size < 0 else size + 2
        return end if end <= len(data) else None
    if kind not in _NESTED:
        raise ValueError(f"not a RESP frame: {bytes(data[start : start + 20])!r}")
    # an attribute (|) precedes the value that it belongs to
    items = max(size, 0) * (2 if kind in _PAIRS else 1) + (kind == b"|")
    for _ in range(items):
        inner = frame_end(data, end)
        if inner is None:
            return None
        end = inner
    return end


def words(request: bytes) -> list[bytes]:
    """The words of one request, which is an array of bulk strings."""
    found: list[bytes] = []
    at = request.index(b"\r\n") + 2
    while at < len(request):
        stop = request.index(b"\r\n", at)
        size = int(request[at + 1 : stop])
        found.append(request[stop + 2 : stop + 2 + size])
        at = stop + 2 + size + 2
    return found
