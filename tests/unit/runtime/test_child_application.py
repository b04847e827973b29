"""Requests that a child process serves, and children that die, stop or send too much."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from barnabas.runtime.child_application import ChildApplication, ChildDiedError, ChildTask
from barnabas.runtime.child_frames import PIECE_BYTES, WINDOW_BYTES
from unit.runtime.child_applications import answering

SECONDS = 120
MEMORY = 4 << 30


class Client:
    """A client of one request."""

    def __init__(self, path: str) -> None:
        self.scope = {
            "method": "GET", "path": path, "query_string": b"q=1", "http_version": "1.1",
            "scheme": "http", "headers": [(b"host", b"x")],
        }  # fmt: skip
        self.parts: list[bytes] = []
        self.status = 0
        self.has_ended = False
        self.leaving = asyncio.Event()
        # Cleared: the client does not read.
        self.reading = asyncio.Event()
        self.reading.set()

    async def receive(self) -> dict[str, Any]:
        await self.leaving.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        await self.reading.wait()
        self.status = message.get("status", self.status)
        self.parts.append(message.get("body", b""))
        if message["type"] == "http.response.body" and not message["more_body"]:
            self.has_ended = True

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)


def run(test: Callable[[ChildApplication], Awaitable[None]], silence_s: float = SECONDS) -> None:
    async def main() -> None:
        child = ChildApplication(ChildTask(answering, "hello"), MEMORY, silence_s)
        try:
            async with asyncio.timeout(SECONDS):
                await test(child)
        finally:
            await child.close()

    asyncio.run(main())


async def respond(child: ChildApplication, client: Client) -> None:
    await child.respond(client.scope, "session", client.receive, client.send)


def test_another_process_answers_requests_with_the_session_of_each() -> None:
    async def test(child: ChildApplication) -> None:
        clients = [Client("/"), Client("/large"), Client("/")]
        await asyncio.gather(*(respond(child, each) for each in clients))
        words = clients[0].body.decode().split()
        assert words[:3] == ["hello", "session", "q=1"]
        assert int(words[3]) == child.process_id != os.getpid()
        assert clients[2].body == clients[0].body
        assert len(clients[1].body) == 3_000_000
        assert max(map(len, clients[1].parts)) <= PIECE_BYTES
        assert all(each.has_ended and each.status == 200 for each in clients)

    run(test)


def test_a_client_that_does_not_read_holds_little_and_delays_no_other() -> None:
    async def test(child: ChildApplication) -> None:
        slow, quick = Client("/large"), Client("/")
        slow.reading.clear()
        running = asyncio.ensure_future(respond(child, slow))
        await respond(child, quick)
        assert quick.has_ended
        assert child._child is not None
        [exchange] = child._child._exchanges.values()
        assert exchange.size <= WINDOW_BYTES + PIECE_BYTES
        slow.reading.set()
        await running
        assert len(slow.body) == 3_000_000

    run(test)


@pytest.mark.parametrize("path", ["/die", "/fail"])
def test_a_page_that_fails_is_an_error_and_the_next_one_is_served(path: str) -> None:
    async def test(child: ChildApplication) -> None:
        client, next_one = Client(path), Client("/")
        with pytest.raises(ChildDiedError):
            await respond(child, client)
        assert client.parts == []
        await respond(child, next_one)
        assert next_one.status == 200

    run(test)


def test_a_client_that_leaves_ends_its_page_only() -> None:
    async def test(child: ChildApplication) -> None:
        leaving, other = Client("/wait"), Client("/")
        running = asyncio.ensure_future(respond(child, leaving))
        while b"begun" not in leaving.body:
            await asyncio.sleep(0)
        before = child.process_id
        leaving.leaving.set()
        await running
        await respond(child, other)
        assert (other.status, child.process_id) == (200, before)

    run(test)


def test_a_child_without_a_sign_of_life_is_killed() -> None:
    async def test(child: ChildApplication) -> None:
        with pytest.raises(ChildDiedError):
            await respond(child, Client("/stop"))

    # A child that does not start within this time is killed too, with the same error.
    run(test, silence_s=5.0)
