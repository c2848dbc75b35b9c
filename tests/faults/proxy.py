"""A TCP proxy in front of a server that loses replies, stalls and cuts connections when told to.

with Proxy(server.url) as proxy:
    engine = open_engine(url=proxy.url)
    proxy.eat_replies(1, calls("jobs/take"))    # the next take runs, and its reply never arrives
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self

import redis

from redisq.scripts import script
from tests.faults.resp import PUSH, frame_end, words

Match = Callable[[Sequence[bytes]], bool]


def anything(words: Sequence[bytes]) -> bool:
    return True


def command(name: str) -> Match:
    """Matches requests of one command, such as `command("BLPOP")`."""
    return lambda words: words[0].upper() == name.upper().encode()


def calls(name: str) -> Match:
    """Matches calls of one script, such as `calls("jobs/take")`, by EVALSHA."""
    wanted = script(name)
    shas = {wanted.sha.encode(), wanted.plain_sha.encode()}
    return lambda words: words[0].upper() == b"EVALSHA" and words[1] in shas


class Proxy:
    """Forwards 127.0.0.1 to the server of `upstream`, a `redis://` or `unix://` URL. `url` is for clients."""

    def __init__(self, upstream: str) -> None:
        options: dict[str, Any] = redis.ConnectionPool.from_url(upstream).connection_kwargs
        self._upstream = options
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._meals = 0
        self._match: Match = anything
        self._flowing = threading.Event()
        self._flowing.set()
        self.connections = 0
        self.eaten: list[list[bytes]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/{options.get('db', 0)}"
        self._acceptor = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._acceptor.start()

    def eat_replies(self, count: int, match: Match = anything) -> None:
        """Forward the next `count` requests that match, then close their connections instead of handing on a reply.

        `eaten` collects them. A connection is closed when the server has answered, so the request did run.
        """
        with self._lock:
            self._meals, self._match = count, match

    def stall(self) -> None:
        """Hand on nothing any more, in either direction, and keep connections open."""
        self._flowing.clear()

    def resume(self) -> None:
        """Hand on again, and first what came in meanwhile."""
        self._flowing.set()

    def cut(self) -> None:
        """Close every open connection; new ones are taken."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.close()

    @property
    def open_connections(self) -> int:
        with self._lock:
            return len(self._links)

    def close(self) -> None:
        """Take no connections any more and close those that are open: to clients the server is gone."""
        # close alone does not wake a thread that waits in accept
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()
        self.cut()
        self._flowing.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            with self._lock:
                self.connections += 1
                self._links.add(_Link(self, client, self._connect()))

    def _connect(self) -> socket.socket:
        if "path" in self._upstream:
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._upstream["path"])
            return server
        return socket.create_connection((self._upstream.get("host", "127.0.0.1"), self._upstream.get("port", 6379)))

    def wait_flowing(self) -> None:
        self._flowing.wait()

    def swallows(self, request: bytes) -> bool:
        """Whether the reply to this request is to be eaten; counts it if so."""
        with self._lock:
            if self._meals == 0 or not self._match(said := words(request)):
                return False
            self._meals -= 1
            self.eaten.append(said)
            return True

    def forget(self, link: _Link) -> None:
        with self._lock:
            self._links.discard(link)


class _Link:
    """One client's connection, and ours to the server."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._to_eat: deque[bool] = deque()  # per request in flight
        for run in (self._requests, self._replies):
            threading.Thread(target=self._guarded, args=(run,), name=f"proxy {run.__name__}", daemon=True).start()

    def close(self) -> None:
        self._proxy.forget(self)
        for side in (self._client, self._server):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except OSError:
            pass  # either side closed, or we did
        finally:
            self.close()

    def _requests(self) -> None:
        for request in self._frames(self._client):
            self._to_eat.append(self._proxy.swallows(request))
            self._server.sendall(request)

    def _replies(self) -> None:
        for reply in self._frames(self._server):
            if not reply.startswith(PUSH) and self._to_eat.popleft():
                return
            self._client.sendall(reply)

    def _frames(self, side: socket.socket) -> Any:
        data = bytearray()
        while chunk := side.recv(65536):
            self._proxy.wait_flowing()
            data += chunk
            while (end := frame_end(data)) is not None:
                yield bytes(data[:end])
                del data[:end]
