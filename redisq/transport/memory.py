"""fakeredis in this process, for unit tests: named stores that the engines of one process share."""

from __future__ import annotations

import threading
from typing import Any

from redisq.errors import InvalidInput

_stores: dict[str, Any] = {}
_lock = threading.Lock()


def client(name: str, *, asynchronous: bool) -> Any:
    """A fakeredis client of the store called `name`; of a new private store without a name."""
    try:
        import fakeredis
        import lupa  # noqa: F401 (fakeredis runs scripts only with it, and would say so late)
    except ImportError as error:
        raise InvalidInput(f"memory:// needs an extra: pip install 'redisq[memory]' ({error})") from None
    with _lock:
        server = _stores.get(name) or fakeredis.FakeServer(version=(7,))
        if name:
            _stores[name] = server
    made = fakeredis.FakeAsyncRedis if asynchronous else fakeredis.FakeRedis
    return made(server=server)


def is_fake(connection_class: type[Any]) -> bool:
    """Whether connections of this class end in fakeredis. Asks by name, so that fakeredis need not be installed."""
    return any(base.__module__.partition(".")[0] == "fakeredis" for base in connection_class.__mro__)
