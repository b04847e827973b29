"""The asyncio session: calls by callback become awaitables on the running loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from barnabas.client.aio.session import AsyncSession
from barnabas.client.config import ClientConfig
from barnabas.client.errors import ClientClosedError, ClientError, ClientTimeoutError

if TYPE_CHECKING:
    from barnabas.client.retries.retrying import OnDone

CONFIG = ClientConfig.parse({"bootstrap.servers": "127.0.0.1:1"})


def test_a_session_needs_a_running_loop() -> None:
    with pytest.raises(ClientError, match="async def"):
        AsyncSession(CONFIG, "consumer")


def test_a_call_is_awaited_for_immediate_later_and_failed_ends() -> None:
    async def main() -> None:
        session = AsyncSession(CONFIG)

        def later(done: OnDone[str]) -> None:
            session.runtime.timer.call_soon(lambda: done("later", None))

        assert await session.wait(lambda done: done("at once", None)) == "at once"
        assert await session.wait(later) == "later"
        error = ClientTimeoutError("too late")
        outcomes = await session.wait_all(
            {
                "good": later,
                "bad": lambda done: done(None, error),
            }
        )
        assert outcomes == {"good": "later", "bad": error}
        await session.close()
        await session.close()
        with pytest.raises(ClientClosedError):
            await session.wait(later)

    asyncio.run(main())
