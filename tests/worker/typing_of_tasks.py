"""What type checkers see of tasks: mypy proves this file, and that each ignored line is an error (it never runs)."""

from __future__ import annotations

from typing import assert_type

from redisq import AsyncEngine, Context, Engine, Offer


def of_an_engine(engine: Engine) -> None:
    queue = engine.queue("mails")

    @queue.task(max_attempts=3)
    def send(to: str, *, times: int = 1) -> str:
        return to * times

    assert_type(send.offer("x", times=2), Offer)
    assert_type(send.options(delay=5).offer(to="x"), Offer)
    send("x")
    send.offer()  # type: ignore[call-arg]
    send.offer(3)  # type: ignore[arg-type]
    send.offer("x", often=2)  # type: ignore[call-arg]
    send.options(delay=5).offer(times="x", to="x")  # type: ignore[arg-type]

    @queue.handler("a")
    async def handle(value: int, context: Context) -> None:
        await context.progress(value)

    @queue.handler()
    def handle_plainly(value: int) -> int:
        return value

    assert_type(handle_plainly(1), int)


async def of_an_async_engine(engine: AsyncEngine) -> None:
    @engine.queue("mails").task()
    async def send(to: str) -> None: ...

    assert_type(await send.offer(to="x"), Offer)
    await send.offer(to=3)  # type: ignore[arg-type]
