"""The machine's network over the event loop: listeners and outgoing connections.

A listener stops accepting while few file descriptors are free, so that files can still be opened.
The kernel keeps new connections in the backlog meanwhile.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
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

_log = logging.getLogger(__name__)

_MS_PER_S = 1000.0
# Descriptors that accepted connections leave to files: this many, or that part of a small limit.
_KEPT_FREE = 64
_KEPT_FREE_PART = 8
# Until a listener that has stopped accepting looks again.
_RETRY_S = 0.2
_WARN_AGAIN_S = 60.0


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
    """A listening socket, and the loop's server on it while connections are accepted."""

    __slots__ = (
        "_backlog",
        "_bound",
        "_descriptor_max",
        "_factory",
        "_loop",
        "_retry",
        "_server",
        "_starting",
        "_warned_s",
        "host",
        "port",
    )

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
        self._loop = loop
        # Listens all the time; servers get duplicates, since they close what they listen on.
        self._bound = bound
        self._factory = factory
        self._backlog = backlog
        self._descriptor_max = _descriptor_max()
        self._server: asyncio.Server | None = None
        self._starting: asyncio.Task[asyncio.Server] | None = None
        self._retry: asyncio.TimerHandle | None = None
        # When the operator was warned last, by the loop's clock; None: never.
        self._warned_s: float | None = None
        self._start()

    def close(self) -> None:
        """Accept no more."""
        self._stop()
        if self._retry is not None:
            self._retry.cancel()
        self._bound.close()

    def _start(self) -> None:
        # The loop's own server, not an accept loop of ours: it accepts in C.
        self._starting = self._loop.create_task(
            self._loop.create_server(self._accept, sock=self._bound.dup(), backlog=self._backlog)
        )
        self._starting.add_done_callback(self._on_started)

    def _on_started(self, task: asyncio.Task[asyncio.Server]) -> None:
        if not task.cancelled():
            self._server = task.result()

    def _stop(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            self._starting = None
        if self._server is not None:
            self._server.close()
            self._server = None

    def _accept(self) -> LoopStream:
        if self._has_free_descriptors():
            return LoopStream(self._loop, self._factory())
        self._pause()
        # Accepted already: closed at once, its client connects again.
        return LoopStream(self._loop, self._factory(), lambda _: False)

    def _has_free_descriptors(self) -> bool:
        """Whether more than the kept ones are free: the kernel gives the lowest number first."""
        try:
            descriptor = os.dup(self._bound.fileno())
        except OSError:
            return False
        os.close(descriptor)
        return descriptor < self._descriptor_max

    def _pause(self) -> None:
        if self._retry is not None:
            return
        # The server must not be closed while it accepts.
        self._loop.call_soon(self._stop)
        self._retry = self._loop.call_later(_RETRY_S, self._maybe_resume)
        if self._warned_s is None or self._loop.time() - self._warned_s >= _WARN_AGAIN_S:
            self._warned_s = self._loop.time()
            _log.warning(
                "Few file descriptors are free; no connections are accepted: port=%d "
                "descriptors_max=%d. Raise the limit (ulimit -n, or LimitNOFILE= of the service)",
                self.port,
                self._descriptor_max,
            )

    def _maybe_resume(self) -> None:
        if not self._has_free_descriptors():
            self._retry = self._loop.call_later(_RETRY_S, self._maybe_resume)
            return
        self._retry = None
        self._start()


def _descriptor_max() -> int:
    """The number of a descriptor from which on no connections are accepted."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return 1 << 31
    return limit - min(_KEPT_FREE, limit // _KEPT_FREE_PART)


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
