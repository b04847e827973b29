"""An ASGI application whose requests a child process serves.

A page that decodes bytes of strangers can take long and much memory. A thread would hold the
interpreter's lock, and one allocation can stop the event loop. So the parent passes such a request
to the child, and the parts of the response to the client, each of at most 64 KiB. A slow client
slows its own response only: the child waits above a window for each response.

The child starts with the first request, and again after it died. It has a limit of memory, and is
killed if it gives no sign of life for a minute while a request waits.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import subprocess
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.runtime.child_frames import (
    PIECE_BYTES,
    WINDOW_BYTES,
    FrameError,
    Kind,
    encode,
    read_frame,
)
from barnabas.runtime.child_process import reap, start_python
from barnabas.runtime.offload_task import encode_frame

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping
    from contextlib import AbstractAsyncContextManager

    Application = Callable[..., Awaitable[None]]
    Scope = MutableMapping[str, Any]

_MAIN = "import sys; from barnabas.runtime.child_serving import main; main(*map(int, sys.argv[1:]))"
# Without a sign of life for this time (s), a child that has requests is killed.
_SILENCE_S = 60.0
_CHECK_S = 5.0
_MEMORY_BYTES = 4 << 30
# The parts of a scope that the child gets.
_SCOPE = (
    "method", "path", "query_string", "http_version", "scheme", "headers", "client", "server"
)  # fmt: skip


class ChildDiedError(RuntimeError):
    """The child process ended before it had sent the response."""


class ChildTask(NamedTuple):
    """What the child runs. Both can be pickled."""

    # A function of a module, with the argument: it makes the application of the child.
    make: Callable[[Any], AbstractAsyncContextManager[Application]]
    argument: object


class ChildApplication:
    """Passes requests to a child process.

    Args:
        task: What the child runs.
        memory: The limit for the address space of the child (bytes).
        silence_s: Without a sign of life for this time (s), a child that has requests is killed.
    """

    def __init__(
        self, task: ChildTask, memory: int = _MEMORY_BYTES, silence_s: float = _SILENCE_S
    ) -> None:
        self._task = task
        self._memory = memory
        self._silence_s = silence_s
        # None before the first request, and after the child died.
        self._child: _Child | None = None
        self._starting = asyncio.Lock()

    @property
    def process_id(self) -> int | None:
        """The id of the child; None if it does not run."""
        return None if self._child is None or self._child.is_dead else self._child.process.pid

    async def respond(
        self, scope: Scope, session: object, receive: Callable[..., Any], send: Callable[..., Any]
    ) -> None:
        """Serve a request without a body.

        Args:
            scope: The scope of the request.
            session: A further value for the child, which can be pickled: its `scope["session"]`.
            receive: Tells that the client has left.
            send: Takes the response.

        Raises:
            ChildDiedError: The child ended before it had sent the response.
        """
        child = await self._running()
        head = {name: scope.get(name) for name in _SCOPE}
        exchange = child.begin(head, pickle.dumps(session))
        leaving = asyncio.ensure_future(_until_left(receive))
        passing = asyncio.ensure_future(child.pass_response(exchange, send))
        try:
            await asyncio.wait((leaving, passing), return_when=asyncio.FIRST_COMPLETED)
            if passing.done():
                passing.result()
        finally:
            child.end(exchange)
            for each in (leaving, passing):
                each.cancel()
            await asyncio.gather(leaving, passing, return_exceptions=True)

    async def _running(self) -> _Child:
        async with self._starting:
            if self._child is None or self._child.is_dead:
                child = _Child(self._memory, self._silence_s)
                await child.start(self._task)
                self._child = child
            return self._child

    async def close(self) -> None:
        """End the child."""
        if self._child is not None:
            await self._child.close()


async def _until_left(receive: Callable[..., Any]) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


class _Exchange:
    """One request in the child."""

    __slots__ = ("arrived", "number", "parts", "size")

    def __init__(self, number: int) -> None:
        self.number = number
        # Frames of the response that are not sent yet, and the bytes of the body in them.
        self.parts: deque[list[Any]] = deque()
        self.size = 0
        # Set when a frame arrives, and when the child dies.
        self.arrived = asyncio.Event()


class _Child:
    """A child process and the socket to it."""

    def __init__(self, memory: int, silence_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._silence_s = silence_s
        self._exchanges: dict[int, _Exchange] = {}
        self._count = 0
        self._heard_s = self._loop.time()
        # Whether the process has ended or was killed. Stays true.
        self.is_dead = False
        self._socket, other = socket.socketpair()
        with other:
            self.process = start_python(
                _MAIN,
                other.fileno(),
                os.getpid(),
                memory,
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
            )

    async def start(self, task: ChildTask) -> None:
        """Send the task, and read what the child sends from now on."""
        self._socket.setblocking(False)
        self._reader, self._writer = await asyncio.open_connection(sock=self._socket)
        self._writer.write(encode_frame(tuple(task)))
        self._reading = self._loop.create_task(self._read())

    def begin(self, head: dict[str, Any], session: bytes) -> _Exchange:
        """Send a request."""
        self._count += 1
        exchange = self._exchanges[self._count] = _Exchange(self._count)
        self._write(Kind.REQUEST, exchange.number, head, session)
        return exchange

    def end(self, exchange: _Exchange) -> None:
        """Forget a request; the child ends it if it still runs."""
        if self._exchanges.pop(exchange.number, None) is not None:
            self._write(Kind.GONE, exchange.number)

    def _write(self, kind: Kind, *parts: Any) -> None:
        if not self.is_dead:
            self._writer.write(encode(kind, *parts))

    async def pass_response(self, exchange: _Exchange, send: Callable[..., Any]) -> None:
        """Pass the response to the client.

        Raises:
            ChildDiedError: The child ended before the response did, or failed before its begin.
        """
        while True:
            while not exchange.parts:
                if self.is_dead:
                    raise ChildDiedError("the process that reads records has ended")
                await self._wait(exchange)
            kind, _, *parts = exchange.parts.popleft()
            match kind:
                case Kind.START:
                    headers = [(bytes(name), bytes(value)) for name, value in parts[1]]
                    start = {"type": "http.response.start", "status": parts[0]}
                    await send({**start, "headers": headers})
                case Kind.BODY:
                    exchange.size -= len(parts[0])
                    body = {"type": "http.response.body", "body": parts[0], "more_body": True}
                    await send(body)
                    self._write(Kind.TAKEN, exchange.number, len(parts[0]))
                case Kind.FAILED:
                    raise ChildDiedError("the process that reads records sent no whole response")
                case _:
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                    return

    async def _wait(self, exchange: _Exchange) -> None:
        """Wait for a frame of an exchange; kill a child that gives no sign of life."""
        exchange.arrived.clear()
        try:
            async with asyncio.timeout(min(_CHECK_S, self._silence_s)):
                await exchange.arrived.wait()
        except TimeoutError:
            if self._loop.time() - self._heard_s > self._silence_s:
                self.kill()

    async def _read(self) -> None:
        """Hand out the frames of the child until it ends."""
        try:
            while (frame := await read_frame(self._reader)) is not None:
                self._heard_s = self._loop.time()
                self._on_frame(frame)
        except (FrameError, OSError, ValueError, TypeError, IndexError):
            # The child is broken, or was broken into: it is not asked again.
            pass
        finally:
            self.kill()

    def _on_frame(self, frame: list[Any]) -> None:
        kind, number = frame[0], frame[1]
        exchange = self._exchanges.get(number)
        if exchange is None or kind not in (Kind.START, Kind.BODY, Kind.END, Kind.FAILED):
            return
        if kind == Kind.BODY:
            exchange.size += len(frame[2])
            if exchange.size > WINDOW_BYTES + PIECE_BYTES:
                raise FrameError("the child does not wait for the client")
        exchange.parts.append(frame)
        exchange.arrived.set()

    def kill(self) -> None:
        """Kill the child; the requests that it has not answered fail."""
        if not self.is_dead:
            self.is_dead = True
            self.process.kill()
            self._writer.close()
            for each in self._exchanges.values():
                each.arrived.set()
            reap(self.process, self._loop)

    async def close(self) -> None:
        """Kill the child, and wait until it has ended."""
        self.kill()
        await asyncio.gather(self._reading, return_exceptions=True)
        await asyncio.to_thread(self.process.wait)
