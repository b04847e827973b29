"""Half-sent requests do not shut out other clients of the console."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar

import pytest
import uvicorn
from uvicorn.server import ServerState

from barnabas.runtime.loop import new_loop
from barnabas.runtime.web_server import CONNECTIONS_MAX, LimitedConnection

SECONDS = 60
HALF_HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n"
HALF_BODY = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf"
LARGE_REQUEST = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n"
WHOLE = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ImpatientConnection(LimitedConnection):
    """A connection whose time limit ends during a test."""

    request_s = 0.2
    reading_s = 0.2
    # Set at the end of a connection.
    lost: ClassVar[asyncio.Event] = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.lost.set()


# More than the buffers of two sockets.
LARGE = b"x" * 16 * 1024 * 1024


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Respond after the whole request; end without a response if the client disconnects."""
    while (message := await receive()).get("more_body"):
        pass
    if message["type"] == "http.request":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        body = LARGE if scope["path"] == "/large" else b""
        await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def served(
    protocol: type[LimitedConnection], connections: int = CONNECTIONS_MAX
) -> AsyncIterator[int]:
    """Serve the application, and yield the port."""
    config = uvicorn.Config(
        application, http=protocol, ws="none", log_config=None, limit_concurrency=connections
    )
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: protocol(config, state, {}), "127.0.0.1", 0
    )
    yield server.sockets[0].getsockname()[1]
    server.close()
    for each in list(state.connections):
        each.transport.abort()  # type: ignore[union-attr]  # all are connections over TCP


async def sent(port: int, data: bytes) -> Streams:
    """Open a connection and send bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    return reader, writer


async def status(streams: Streams) -> bytes:
    """Return the first line of the response; empty if the connection is closed."""
    try:
        async with asyncio.timeout(SECONDS):
            return (await streams[0].readline()).strip()
    except ConnectionResetError:
        return b""


def run(main: Any) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main)


@pytest.mark.parametrize("half", [b"", HALF_HEAD, HALF_BODY], ids=["nothing", "head", "body"])
def test_other_clients_are_served_while_there_are_many_half_sent_requests(half: bytes) -> None:
    async def main() -> None:
        async with served(LimitedConnection) as port:
            halves = [await sent(port, half) for _ in range(CONNECTIONS_MAX + 20)]
            for _ in range(3):
                assert await status(await sent(port, WHOLE)) == b"HTTP/1.1 200 OK"
            # The oldest are closed. The last one can still be completed.
            assert await status(halves[0]) == b""
            halves[-1][1].write(WHOLE[len(half) :] if half != HALF_BODY else b"other")
            assert await status(halves[-1]) == b"HTTP/1.1 200 OK"
            for _, writer in halves:
                writer.close()

    run(main())


@pytest.mark.parametrize("half", [b"", HALF_HEAD, HALF_BODY], ids=["nothing", "head", "body"])
def test_a_half_sent_request_is_closed_after_the_time_limit(half: bytes) -> None:
    async def main() -> None:
        async with served(ImpatientConnection) as port:
            assert await status(await sent(port, half)) == b""

    run(main())


def test_the_second_request_of_a_connection_has_the_time_limit_too() -> None:
    async def main() -> None:
        async with served(ImpatientConnection) as port:
            streams = await sent(port, WHOLE + HALF_HEAD)
            assert await status(streams) == b"HTTP/1.1 200 OK"
            async with asyncio.timeout(SECONDS):
                await streams[0].read()

    run(main())


def test_a_client_that_does_not_read_its_response_is_closed_after_the_time_limit() -> None:
    async def main() -> None:
        async with served(ImpatientConnection) as port:
            ImpatientConnection.lost = asyncio.Event()
            # The stream fills its buffer, and reads no more until the test reads it.
            reader, _ = await sent(port, LARGE_REQUEST)
            async with asyncio.timeout(SECONDS):
                await ImpatientConnection.lost.wait()
            with suppress(ConnectionResetError):
                async with asyncio.timeout(SECONDS):
                    assert len(await reader.read()) < len(LARGE)

    run(main())


def test_other_clients_are_served_while_many_clients_do_not_read_their_responses() -> None:
    async def main() -> None:
        async with served(LimitedConnection, connections=4) as port:
            readers = [await sent(port, LARGE_REQUEST) for _ in range(6)]
            # Each response has begun, and waits for its client.
            assert await status(readers[-1]) == b"HTTP/1.1 200 OK"
            assert await status(await sent(port, WHOLE)) == b"HTTP/1.1 200 OK"

    run(main())
