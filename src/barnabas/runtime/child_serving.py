"""The child process of a `ChildApplication`: it serves the requests that its parent passes on."""

from __future__ import annotations

import asyncio
import logging
import pickle
import signal
import socket
from typing import TYPE_CHECKING, Any

from barnabas.runtime.child_frames import (
    ALIVE_S,
    FRAME_BYTES_MAX,
    PIECE_BYTES,
    WINDOW_BYTES,
    Kind,
    encode,
    read_content,
    read_frame,
)
from barnabas.runtime.loop import new_loop
from barnabas.runtime.offload_task import end_with_parent
from barnabas.runtime.system_calls import limit_freed_memory, limit_memory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Application = Callable[..., Awaitable[None]]

_log = logging.getLogger("barnabas.console")

# Freed memory that the process keeps, and the size from which on a block returns to the kernel.
_KEPT_BYTES = 8 * 1024 * 1024
_BLOCK_BYTES = 1024 * 1024
# The task has the settings of a console with its rules.
_TASK_BYTES_MAX = 64 * 1024 * 1024


def main(descriptor: int, parent: int, memory: int) -> None:
    """Serve the process `parent` over a socket until it closes the socket or dies."""
    end_with_parent(parent)
    # The parent ends this process, also after SIGTERM to a group that has both.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_memory(memory)
    limit_freed_memory(_KEPT_BYTES, _BLOCK_BYTES)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_serve(socket.socket(fileno=descriptor)))


async def _serve(connection: socket.socket) -> None:
    connection.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=connection)
    content = await read_content(reader, _TASK_BYTES_MAX)
    if content is None:
        return
    make, argument = pickle.loads(content)  # noqa: S301 - the bytes come from the parent
    async with make(argument) as application:
        serving = _Serving(application, writer)
        alive = asyncio.get_running_loop().create_task(serving.give_signs())
        try:
            while (frame := await read_frame(reader)) is not None:
                serving.on_frame(frame)
        finally:
            alive.cancel()
            await serving.end()
            writer.close()


class _Serving:
    """The requests of the parent that are being served."""

    def __init__(self, application: Application, writer: asyncio.StreamWriter) -> None:
        self._application = application
        self._writer = writer
        self._exchanges: dict[int, _Exchange] = {}

    def on_frame(self, frame: list[Any]) -> None:
        """Handle a frame of the parent."""
        kind, number, *parts = frame
        if kind == Kind.REQUEST:
            exchange = _Exchange(number, self._writer)
            self._exchanges[number] = exchange
            task = asyncio.get_running_loop().create_task(self._run(exchange, *parts))
            exchange.task = task
            return
        known = self._exchanges.get(number)
        if known is None:
            return
        if kind == Kind.TAKEN:
            known.take(parts[0])
        elif known.task is not None:
            known.task.cancel()

    async def _run(self, exchange: _Exchange, head: dict[str, Any], session: bytes) -> None:
        scope = {
            **head,
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "root_path": "",
            "raw_path": head["path"].encode(),
            "headers": [(bytes(name), bytes(value)) for name, value in head["headers"]],
            "session": pickle.loads(session),  # noqa: S301 - the bytes come from the parent
        }
        try:
            await self._application(scope, exchange.receive, exchange.send)
        except asyncio.CancelledError:
            return
        except Exception:  # noqa: BLE001 - logged, and the parent sends an error
            _log.exception("A page of records failed")
        finally:
            self._exchanges.pop(exchange.number, None)
        if not exchange.has_ended:
            # The client must not take the part that it has for the whole.
            self._writer.write(encode(Kind.FAILED, exchange.number))

    async def give_signs(self) -> None:
        """Show the parent that the event loop runs."""
        while True:
            self._writer.write(encode(Kind.ALIVE, 0))
            await asyncio.sleep(ALIVE_S)

    async def end(self) -> None:
        """Cancel all requests."""
        tasks = [each.task for each in self._exchanges.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Exchange:
    """One request of the parent."""

    def __init__(self, number: int, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self._writer = writer
        self.task: asyncio.Task[None] | None = None
        self.has_ended = False
        # Bytes that may be sent before the client takes some.
        self._window = WINDOW_BYTES
        self._has_window = asyncio.Event()
        self._has_received = False

    def take(self, count: int) -> None:
        """Note that the client has taken bytes."""
        self._window += count
        self._has_window.set()

    async def receive(self) -> dict[str, Any]:
        """Return the empty body; then wait, because the parent cancels requests."""
        if self._has_received:
            await asyncio.get_running_loop().create_future()
        self._has_received = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message: dict[str, Any]) -> None:
        """Send a part of the response to the parent."""
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            self._writer.write(encode(Kind.START, self.number, message["status"], headers))
            return
        body = memoryview(message.get("body", b""))
        while body:
            while self._window <= 0:
                self._has_window.clear()
                await self._has_window.wait()
            piece, body = body[:PIECE_BYTES], body[PIECE_BYTES:]
            self._window -= len(piece)
            self._writer.write(encode(Kind.BODY, self.number, piece))
            await self._writer.drain()
        if not message.get("more_body", False):
            self.has_ended = True
            self._writer.write(encode(Kind.END, self.number))


assert PIECE_BYTES < FRAME_BYTES_MAX
