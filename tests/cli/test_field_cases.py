"""Cases from the field: what went wrong in the command lines of other queues."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from redisq import Engine, JobState, Queue
from redisq.worker import Worker
from tests.cli.conftest import PATIENCE, Cli, stopped, until
from tests.support.servers import OwnServer

MANY = 30_000
NASTY = ["\x1b]0;x\x07", "\x1b[2J", "<script>", "a\r\nb", "\u202egpj.exe"]
SECRET = "s3cret"

APP = """
import asyncio, os
from redisq import Engine
engine = Engine(namespace=os.environ["REDISQ_NAMESPACE"])
mails = engine.queue("mails")
@mails.handler()
async def mail(value):
    if value == "hang":
        engine.queue("said").offer("begun")
        await asyncio.sleep(60)
"""


@pytest.fixture
def app(cli: Cli) -> Path:
    file = cli.folder / "app.py"
    file.write_text(APP)
    return file


def test_a_signal_in_the_middle_of_takes_loses_no_attempt(cli: Cli, app: Path, mails: Queue[Any]) -> None:
    mails.offer_many(range(5000))
    process = cli.start("worker", "app:engine")
    until(lambda: mails.counts()[JobState.COMPLETED] > 0, "the first job")
    assert stopped(process)[0] == 0
    counts = mails.counts()
    assert counts[JobState.LEASED] == 0
    assert counts[JobState.READY] + counts[JobState.COMPLETED] == 5000
    assert all(delivery.attempt == 1 for delivery in mails.take_many(1000))


def test_what_a_killed_worker_held_lapses(cli: Cli, app: Path, mails: Queue[Any], shop: Engine) -> None:
    mails.offer("hang", id="a")
    process = cli.start("worker", "app:engine")
    assert shop.queue("said").take(wait=PATIENCE) is not None
    assert stopped(process, signal.SIGKILL)[0] == -signal.SIGKILL
    job = mails.get("a")
    assert job is not None
    assert (job.state, job.attempts) == (JobState.LEASED, 1)


def test_a_worker_in_a_thread_is_stopped_by_its_method(shop: Engine, mails: Queue[Any]) -> None:
    done = threading.Event()
    mails.handler()(lambda value: done.set())
    worker, codes = Worker(shop, mails), []
    thread = threading.Thread(target=lambda: codes.append(worker.run()))
    thread.start()
    mails.offer(1)
    assert done.wait(PATIENCE)
    worker.stop()
    thread.join(PATIENCE)
    assert codes == [0]


@pytest.fixture
def crowd(own_server: OwnServer, cli: Cli, namespace: str) -> Any:
    """30,000 jobs: one without its payload, one that does not decode, one with control bytes in all its texts."""
    cli.env["REDISQ_URL"] = own_server.url
    with Engine(own_server.url, namespace=namespace) as engine, own_server.client() as raw:
        mails = engine.queue("mails")
        mails.offer_many(range(MANY - 3))
        mails.offer(1, id="empty")
        mails.offer(1, id="odd")
        mails.offer("".join(NASTY), id="".join(NASTY), name="".join(NASTY))
        raw.hdel(f"{mails._core.root}:body", "empty")
        raw.hset(f"{mails._core.root}:body", "odd", b"\xff{")
        yield mails


@pytest.mark.leaves_damage
@pytest.mark.timeout(180)
def test_looking_never_breaks_blocks_or_lies(crowd: Queue[Any], cli: Cli, own_server: OwnServer) -> None:
    with own_server.client() as raw:
        raw.config_resetstat()
        page = cli("jobs", "list", "mails", "--limit", str(MANY * 2), "--json").json
        assert len(page["items"]) == MANY
        assert [item["id"] for item in page["items"] if "reason" in item] == ["empty"]
        rows = cli("jobs", "list", "mails", "--limit", str(MANY * 2)).out
        assert rows.count("\n") == MANY + 1
        assert rows.isascii()
        assert all(line.isprintable() for line in rows.splitlines())
        for words in ("jobs list mails --limit 30000", "jobs list mails --limit 30000 --json", "jobs show mails odd"):
            shown = cli.shell(f"redisq {words} | head -n 1")
            assert (shown.code, shown.err) == (0, "")
        assert "b'\\xff{'" in cli("jobs", "show", "mails", "odd").out
        assert "its payload is missing" in cli("jobs", "show", "mails", "empty", code=1).err
        books: Any = raw.info("commandstats")
        assert not {"cmdstat_keys", "cmdstat_scan", "cmdstat_smembers"} & set(books)


@pytest.mark.leaves_damage
@pytest.mark.timeout(180)
def test_looking_and_changing_while_another_deletes(crowd: Queue[Any], cli: Cli, namespace: str) -> None:
    stop = threading.Event()

    def delete() -> None:
        with Engine(cli.env["REDISQ_URL"], namespace=namespace) as engine:
            mails = engine.queue("mails")
            while not stop.is_set():
                for delivery in mails.take_many(50):
                    mails.fail(delivery, "x", final=True)
                for job in mails.jobs(state="dead").items:
                    mails.remove(job.id)

    thread = threading.Thread(target=delete)
    thread.start()
    try:
        for words in (["jobs", "list", "mails", "--limit", str(MANY)], ["dead", "list", "mails", "--limit", "1000"]):
            assert all("id" in item for item in cli(*words, "--json").json["items"])
        for words in (["dead", "retry", "mails", "--all"], ["dead", "purge", "mails", "--yes"]):
            assert set(cli(*words, "--json").json) == {"done", "vanished"}
    finally:
        stop.set()
        thread.join()


def test_text_of_jobs_is_never_interpreted(cli: Cli, mails: Queue[Any]) -> None:
    text = "".join(NASTY)
    mails.offer({text: text}, id=text, name=text, metadata={text: text})
    delivery = mails.take()
    assert delivery is not None
    mails.fail(delivery, ValueError(text), final=True)
    for words in (["jobs", "list", "mails"], ["jobs", "show", "mails", text], ["dead", "list", "mails"],
                  ["dead", "errors", "mails"], ["jobs", "retry", "mails", text]):  # fmt: skip
        document = cli(*words, "--json").out if words[1] != "retry" else "[]"
        shown = cli(*words)
        for line in (*shown.out.splitlines(), *shown.err.splitlines(), *document.splitlines()):
            assert line.isprintable(), ascii(line)
        json.loads(document)
    assert json.loads(cli("jobs", "show", "mails", text, "--json").out)["id"] == text


SECRET_URLS = [
    f"redis://user:{SECRET}@127.0.0.1:1/0", f"redis://127.0.0.1:1/0?password={SECRET}", f"redis://:{SECRET}@[bad/0",
    f"sentinel://user:{SECRET}@127.0.0.1:1/shop?sentinel_password={SECRET}", f"http://user:{SECRET}@host",
]  # fmt: skip


@pytest.mark.parametrize("url", SECRET_URLS)
def test_a_secret_is_nowhere_in_what_is_said(url: str, cli: Cli) -> None:
    code = 2 if url.startswith("http") or "[bad" in url else 3
    shown = cli("queues", code=code, env={"REDISQ_URL": url})
    assert SECRET not in shown.out + shown.err + cli("--help", env={"REDISQ_URL": url}).out
    if not url.startswith("http") and "[bad" not in url:
        with Engine(url) as engine:
            assert SECRET not in repr(engine) + repr(engine.queue("x"))


def test_a_refused_login_does_not_tell_it(own_server: OwnServer, cli: Cli) -> None:
    url = own_server.url.replace("//", f"//nobody:{SECRET}@")
    assert SECRET not in cli("queues", code=3, env={"REDISQ_URL": url}).err


def test_a_secret_is_not_in_the_banner_nor_in_ps(own_server: OwnServer, cli: Cli, app: Path, namespace: str) -> None:
    with own_server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "worker", "on", f">{SECRET}", "~*", "+@all")
    url = own_server.url.replace("//", f"//worker:{SECRET}@")
    (cli.folder / "app.py").write_text(APP + "import logging, sys\nengine.queue('mails').offer(sys.argv)\n")
    process = cli.start("--url", url, "worker", "app:engine", "--processes", "2", "--log-level", "debug")
    with Engine(own_server.url, namespace=namespace) as engine:
        mails = engine.queue("mails")
        until(lambda: mails.counts()[JobState.COMPLETED] == 3, "three processes")
        for job in mails.jobs(state="completed").items:
            if "--parent" in job.value:
                assert SECRET not in str(job.value)
    code, err = stopped(process)
    assert code == 0
    assert "worker:***@" in err
    assert SECRET not in err


def test_a_user_without_any_rights_gets_one_line(own_server: OwnServer, cli: Cli) -> None:
    with own_server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "nothing", "on", ">pw", "~*", "-@all")
    shown = cli("queues", code=3, env={"REDISQ_URL": own_server.url.replace("//", "//nothing:pw@")})
    assert shown.err.count("\n") == 1
    assert "ACL SETUSER" in shown.err
