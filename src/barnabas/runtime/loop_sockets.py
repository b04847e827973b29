"""Listeners and outgoing connections of the machine's network, on the event loop.

A listener stops accepting connections while few file descriptors are free, so that files can still
be opened. Meanwhile, the kernel keeps new connections in the backlog.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import time
from typing import TYPE_CHECKING

from barnabas.runtime.loop_stream import BusyPoll, LoopStream, WatchedStream
from barnabas.runtime.sockets import USUAL_OPTIONS
from barnabas.runtime.system_calls import count_preemptions, open_files_limits
from barnabas.runtime.transport_stream import TransportStream

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from barnabas.runtime.clock import Cancellable
    from barnabas.runtime.loop_watch import LoopWatch
    from barnabas.runtime.sockets import Listening, ListenOptions, StreamHandler

_log = logging.getLogger(__name__)

_MS_PER_S = 1000.0
# Descriptors kept free for files: this number, or this fraction of a small limit.
_KEPT_FREE = 64
_KEPT_FREE_PART = 8
# Interval in which a paused listener checks for free descriptors, s.
_RETRY_S = 0.2
_WARN_AGAIN_S = 60.0
_STREAM = LoopStream if hasattr(os, "writev") else TransportStream


class LoopSockets:
    """TCP sockets of the operating system."""

    def __init__(self, loop: asyncio.AbstractEventLoop, watch: LoopWatch | None = None) -> None:
        """Store the loop; `watch` measures the handling of data on outgoing connections."""
        self._loop = loop
        self._watch = watch

    def listen(
        self,
        host: str,
        port: int,
        factory: Callable[[], StreamHandler],
        options: ListenOptions = USUAL_OPTIONS,
    ) -> Listening:
        """Bind and listen now. Connections before the loop runs wait in the backlog."""
        bound = _bind(host, port, options.backlog)
        # Accepted connections inherit these options. Without keep-alive, a connection to a machine
        # that lost power would stay open as long as one of its requests waits.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        _set_buffer_size(bound, socket.SO_SNDBUF, options.send_buffer_bytes)
        _set_buffer_size(bound, socket.SO_RCVBUF, options.receive_buffer_bytes)
        return _LoopListening(self._loop, bound, factory, options)

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

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        bound: socket.socket,
        factory: Callable[[], StreamHandler],
        options: ListenOptions,
    ) -> None:
        self.host: str
        self.port: int
        self.host, self.port = bound.getsockname()[:2]
        self._loop = loop
        # Listens all the time. Each server gets a duplicate, because it closes its socket.
        self._bound = bound
        self._factory = factory
        self._backlog = options.backlog
        self._busy_poll: BusyPoll | None = None
        if options.busy_poll_us > 0:
            self._busy_poll = BusyPoll(
                time.monotonic_ns, loop.call_soon, options.busy_poll_us, count_preemptions
            )
        self._descriptor_max = _descriptor_max()
        self._server: asyncio.Server | None = None
        self._starting: asyncio.Task[asyncio.Server] | None = None
        self._retry: asyncio.TimerHandle | None = None
        # Loop time of the last warning, s; None before the first.
        self._warned_s: float | None = None
        self._start()

    def close(self) -> None:
        """Stop listening."""
        self._stop()
        if self._retry is not None:
            self._retry.cancel()
        self._bound.close()

    def _start(self) -> None:
        # uvloop's server accepts connections in C, which is faster than an accept loop here.
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
            return _STREAM(self._loop, self._factory(), busy_poll=self._busy_poll)
        self._pause()
        # The connection is already accepted, so close it. The client connects again.
        return _STREAM(self._loop, self._factory(), lambda _: False)

    def _has_free_descriptors(self) -> bool:
        """Return whether enough descriptors are free.

        The kernel always assigns the lowest free number, so the number shows how many are in use.
        """
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
                "No connections are accepted, because few file descriptors are free: port=%d "
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
    """Return the descriptor number from which on no connections are accepted."""
    limit, _ = open_files_limits()
    if limit is None:
        return 1 << 31
    return limit - min(_KEPT_FREE, limit // _KEPT_FREE_PART)


class _Attempt:
    """An outgoing connection until it is established or has failed."""

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
        # True once connected, failed or cancelled; later events are ignored.
        self._settled = False
        self._stream: LoopStream
        if watch is None:
            self._stream = _STREAM(loop, handler, self._on_opened)
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
        """Stop the attempt without calling the handler or `on_failed`."""
        if not self._settled:
            self._complete()
            if self._task is not None:
                self._task.cancel()

    def _on_opened(self, _: LoopStream) -> bool:
        if self._settled:
            return False
        self._complete()
        return True

    def _on_timed_out(self) -> None:
        if not self._settled:
            self.cancel()
            self._on_failed(TimeoutError(errno.ETIMEDOUT, "connection attempt timed out"))

    def _on_task_done(self, task: asyncio.Task[object]) -> None:
        # The exception is always retrieved; otherwise asyncio logs that it was never retrieved.
        error = None if task.cancelled() else task.exception()
        if self._settled:
            return
        self._complete()
        if error is None:
            self._on_failed(ConnectionResetError(errno.ECONNRESET, "closed while connecting"))
        elif isinstance(error, OSError):
            self._on_failed(_describe_error(error))
        else:
            self._on_failed(OSError(errno.EINVAL, f"cannot connect: {error}"))

    def _complete(self) -> None:
        self._settled = True
        if self._deadline is not None:
            self._deadline.cancel()


def _bind(host: str, port: int, backlog: int) -> socket.socket:
    """Return a bound, listening socket on the first address of the host name.

    An empty host means all interfaces, with IPv6 and IPv4 in one socket if the system supports it.

    Raises:
        OSError: The address cannot be used; `filename` is the address as HOST:PORT.
    """
    try:
        return _bind_first(host, port, backlog)
    except socket.gaierror as error:
        error.filename = f"{host}:{port}"
        raise
    except OSError as error:
        number = error.errno or errno.EINVAL
        raise OSError(number, os.strerror(number), f"{host}:{port}") from error


def _bind_first(host: str, port: int, backlog: int) -> socket.socket:
    if not host:
        if socket.has_dualstack_ipv6():
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True
            )
        return socket.create_server(("", port), backlog=backlog)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    return socket.create_server((str(address[0]), port), family=family, backlog=backlog)


def _set_buffer_size(bound: socket.socket, option: int, size: int) -> None:
    """Set the size of a buffer, or a half or quarter (and so on) that the kernel accepts.

    Linux reduces a size above its maximum. macOS refuses such a size (ENOBUFS).
    """
    while size > 0:
        try:
            bound.setsockopt(socket.SOL_SOCKET, option, size)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            size //= 2
        else:
            return


def _describe_error(error: OSError) -> OSError:
    """Return the operating system's message for a failed connection.

    The messages of event loops differ from it, because they include the address.
    """
    if isinstance(error, socket.gaierror) or not error.errno:
        return error
    return OSError(error.errno, os.strerror(error.errno))
