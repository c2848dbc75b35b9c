"""The server that this process owns: it lives as long as its owner, and its directory has one owner."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from redisq import errors
from redisq.transport import connect_async, connect_sync
from redisq.transport.embedded import EmbeddedServer
from redisq.transport.urls import parse
from tests.transport import faces, tiny
from tests.transport.test_failures import until

_OWNER = """
import os, signal, sys, time
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
from redisq.transport import connect_sync
sender = connect_sync(sys.argv[1])
sender.run_commands([("SET", "left", "behind")])
if "fork" in sys.argv and os.fork() == 0:
    sys.stdout.close()
    time.sleep(60)
print(sender.url, flush=True)
time.sleep(60)
"""


@contextlib.contextmanager
def owner(url: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process that owns an embedded server; its url."""
    command = [sys.executable, "-c", _OWNER, url, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def is_up(url: str) -> bool:
    with redis.Redis.from_url(url) as client:
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False


def socket_of(url: str) -> Path:
    return Path(parse(url).options["path"])


def test_it_serves_and_ends_with_its_sender(world: str, key: str) -> None:
    with faces.connect(world, "embedded://") as sender:
        url = sender.sender.url
        assert sender.run(tiny.call(tiny.ONCE, key)) == [b"first", 1]
        with redis.Redis.from_url(url) as other:
            assert other.llen(key) == 1
            assert "0" in other.config_get("port").values()
        folder = socket_of(url).parent
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not is_up(url)
    assert not folder.exists()


def test_closing_twice_is_closing_once() -> None:
    sender = connect_sync("embedded://")
    sender.close()
    sender.close()


@pytest.mark.parametrize("name", ["plain", "with space", "q?u#e%s&t='\"$(x)`\\", "ünïcödé\n日本", "x" * 200, "-n"])
def test_data_is_kept_in_a_directory(world: str, tmp_path: Path, name: str, key: str) -> None:
    url = f"embedded://{quoted(tmp_path / name)}"
    for length in (1, 2):
        with faces.connect(world, url) as sender:
            assert sender.run_commands(("RPUSH", key, "kept")) == [length]
    assert (tmp_path / name / "appendonlydir").is_dir()


def quoted(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3F").replace("#", "%23").replace("\n", "%0A")


def test_one_owner_per_directory(world: str, tmp_path: Path) -> None:
    url = f"embedded://{tmp_path}"
    refused = pytest.raises(errors.Unavailable, match=f"{tmp_path} is owned by .* {os.getpid()}")
    with faces.connect(world, url), refused:
        connect_sync(url)
    # free again, at once
    connect_sync(url).close()
    with owner(url) as (process, _), pytest.raises(errors.Unavailable, match=f"process {process.pid}"):
        connect_async(url)


def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.Unavailable, match="file/sub"):
        connect_sync(f"embedded://{tmp_path}/file/sub")


def test_a_server_that_does_not_start(tmp_path: Path) -> None:
    data = tmp_path / "appendonlydir"
    data.mkdir()
    (data / "appendonly.aof.manifest").write_text("nonsense\n")
    with pytest.raises(errors.Unavailable, match=f"for {tmp_path} did not start: .*AOF"):
        connect_sync(f"embedded://{tmp_path}")
    # nothing is left of the try
    shutil.rmtree(data)
    connect_sync(f"embedded://{tmp_path}").close()


def test_it_dies_with_its_owner(tmp_path: Path) -> None:
    with owner(f"embedded://{tmp_path}", "fork") as (process, url):
        assert is_up(url)
        process.kill()
        process.wait()
        # the owner's forked child lives on
        until(lambda: not is_up(url))
        until(lambda: not socket_of(url).parent.exists())
        os.killpg(process.pid, 0)
    # the next owner finds what was written
    sender = connect_sync(f"embedded://{tmp_path}")
    assert sender.run_commands([("GET", "left")]) == [b"behind"]
    sender.close()


def test_the_next_owner_waits_for_the_end_of_a_killed_ones_server(tmp_path: Path) -> None:
    url = f"embedded://{tmp_path}"
    with owner(url) as (process, _):
        process.kill()
        process.wait()
        sender = connect_sync(url)
        assert sender.run_commands([("GET", "left")]) == [b"behind"]
        sender.close()


def test_ctrl_c_is_not_for_the_server() -> None:
    with owner("embedded://") as (process, url):
        # as a terminal does: to the whole group
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline() == "interrupted\n"
        for _ in range(5):
            assert is_up(url)


def test_it_outlives_the_thread_that_started_it() -> None:
    started: list[EmbeddedServer] = []
    thread = threading.Thread(target=lambda: started.append(EmbeddedServer()))
    thread.start()
    thread.join()
    assert is_up(started[0].url)
    started[0].stop()


def test_a_long_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    sender = connect_sync("embedded://")
    assert sender.run_commands([("PING",)]) == [b"PONG"]
    sender.close()
    assert list(deep.iterdir()) == []


def test_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(errors.InvalidInput, match=r"redisq\[embedded\]"):
        connect_sync("embedded://")
