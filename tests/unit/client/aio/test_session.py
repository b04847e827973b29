"""The asyncio session: calls by callback become awaitables on the running loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from barnabas.client.aio.session import AsyncSession
from barnabas.client.config import ClientConfig
from barnabas.client.errors import ClientClosedError, ClientError, ClientTimeoutError

if TYPE_CHECKING:
    from barnabas.client.retries import OnDone

CONFIG = ClientConfig.parse({"bootstrap.servers": "127.0.0.1:1"})


class Owner:
    """A client that counts how often its event loop ended before it was closed."""

    def __init__(self) -> None:
        self.ends = 0

    async def on_end_of_loop(self) -> None:
        self.ends += 1


def test_a_session_needs_a_running_loop() -> None:
    with pytest.raises(ClientError, match="async def"):
        AsyncSession(CONFIG, "consumer", Owner().on_end_of_loop)


def test_a_call_is_awaited_for_immediate_later_and_failed_ends() -> None:
    async def main() -> None:
        session = AsyncSession(CONFIG, "client", Owner().on_end_of_loop)

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


@pytest.mark.parametrize("is_closed", [True, False])
def test_the_owner_of_an_open_session_hears_of_the_end_of_the_loop(is_closed: bool) -> None:
    owner = Owner()

    async def main() -> AsyncSession:
        session = AsyncSession(CONFIG, "client", owner.on_end_of_loop)
        if is_closed:
            await session.close()
            owner.ends = 0
        return session

    asyncio.run(main())
    assert owner.ends == int(not is_closed)
