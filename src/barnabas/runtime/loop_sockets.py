"""The machine's network over the event loop: listeners and outgoing connections."""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING

from barnabas.runtime.loop_stream import LoopStream, WatchedStream
from barnabas.runtime.sockets import USUAL_OPTIONS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from barnabas.runtime.loop_watch import LoopWatch
    from barnabas.runtime.sockets import Listening, ListenOptions, StreamHandler
    from barnabas.runtime.timer import Cancellable

_MS_PER_S = 1000.0


class LoopSockets:
    """TCP of the machine."""

    __slots__ = ("_loop", "_watch")

    def __init__(self, loop: asyncio.AbstractEventLoop, watch: LoopWatch | None = None) -> None:
        """Store the loop; `watch` measures what outgoing connections receive."""
        self._loop = loop
        self._watch = watch

    def listen(
        self,
        host: str,
        port: int,
        factory: Callable[[], StreamHandler],
        options: ListenOptions = USUAL_OPTIONS,
    ) -> Listening:
        """Bind now; connections that come before the loop runs wait in the backlog."""
        bound = _bind(host, port, options.backlog)
        # Accepted connections inherit these. Without keep-alive, the connection of a machine that
        # lost its power would stay for as long as a request of it waits.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if options.send_buffer_bytes > 0:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)
        if options.receive_buffer_bytes > 0:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)
        return _LoopListening(self._loop, bound, factory, options.backlog)

    def connect(
        self,
        host: str,
        port: int,
        handler: StreamHandler,
        on_failed: Callable[[OSError], None],
        timeout_ms: float,
    ) -> Cancellable:
        """Connect, or fail after `timeout_ms`."""
        attempt = _Attempt(self._loop, handler, on_failed, self._watch)
        return attempt.start(host, port, timeout_ms)


class _LoopListening:
    __slots__ = ("_server", "_starting", "host", "port")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        bound: socket.socket,
        factory: Callable[[], StreamHandler],
        backlog: int,
    ) -> None:
        self.host: str
        self.port: int
        self.host, self.port = bound.getsockname()[:2]
        self._server: asyncio.Server | None = None
        # The loop's own server, not an accept loop of ours: it accepts in C.
        self._starting = loop.create_task(
            loop.create_server(lambda: LoopStream(loop, factory()), sock=bound, backlog=backlog)
        )
        self._starting.add_done_callback(self._on_started)

    def close(self) -> None:
        """Accept no more."""
        self._starting.cancel()
        if self._server is not None:
            self._server.close()
            self._server = None

    def _on_started(self, task: asyncio.Task[asyncio.Server]) -> None:
        if not task.cancelled():
            self._server = task.result()


class _Attempt:
    """One outgoing connection until it stands or has failed."""

    __slots__ = ("_deadline", "_loop", "_on_failed", "_settled", "_stream", "_task")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: StreamHandler,
        on_failed: Callable[[OSError], None],
        watch: LoopWatch | None,
    ) -> None:
        self._loop = loop
        self._on_failed = on_failed
        # True once connected, failed or cancelled: whoever comes later does nothing.
        self._settled = False
        if watch is None:
            self._stream = LoopStream(loop, handler, self._on_opened)
        else:
            self._stream = WatchedStream(loop, handler, watch, self._on_opened)
        self._deadline: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None

    def start(self, host: str, port: int, timeout_ms: float) -> _Attempt:
        self._deadline = self._loop.call_later(timeout_ms / _MS_PER_S, self._on_timed_out)
        self._task = self._loop.create_task(
            self._loop.create_connection(lambda: self._stream, host, port)
        )
        self._task.add_done_callback(self._on_task_done)
        return self

    def cancel(self) -> None:
        """Give up without telling anyone."""
        if not self._settled:
            self._settle()
            if self._task is not None:
                self._task.cancel()

    def _on_opened(self, _: LoopStream) -> bool:
        if self._settled:
            return False
        self._settle()
        return True

    def _on_timed_out(self) -> None:
        if not self._settled:
            self.cancel()
            self._on_failed(TimeoutError(errno.ETIMEDOUT, "connection attempt timed out"))

    def _on_task_done(self, task: asyncio.Task[object]) -> None:
        # Looked at even when settled, or the loop would complain of a result never retrieved.
        error = None if task.cancelled() else task.exception()
        if self._settled:
            return
        self._settle()
        if error is None:
            self._on_failed(ConnectionResetError(errno.ECONNRESET, "closed while connecting"))
        elif isinstance(error, OSError):
            self._on_failed(_in_plain_words(error))
        else:
            self._on_failed(OSError(errno.EINVAL, f"cannot connect: {error}"))

    def _settle(self) -> None:
        self._settled = True
        if self._deadline is not None:
            self._deadline.cancel()


def _bind(host: str, port: int, backlog: int) -> socket.socket:
    """A bound, listening socket on the first address that the host name has.

    An empty host is every interface, IPv6 and IPv4 in one socket where the machine has both.
    """
    if not host:
        if socket.has_dualstack_ipv6():
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True
            )
        return socket.create_server(("", port), backlog=backlog)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    return socket.create_server((str(address[0]), port), family=family, backlog=backlog)


def _in_plain_words(error: OSError) -> OSError:
    """The system's words for a failure to connect: loops have their own, which name the address."""
    if isinstance(error, socket.gaierror) or not error.errno:
        return error
    return OSError(error.errno, os.strerror(error.errno))
