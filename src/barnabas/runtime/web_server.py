"""An HTTP server for ASGI applications (uvicorn), with limits that uvicorn lacks.

uvicorn waits without a limit for the rest of a request, and for a client that does not read its
response. It refuses all further requests while it has its maximum of connections. So here both have
a time limit. When there are too many connections, one without a complete request, or whose client
does not read, is closed: the oldest of the address that has the most.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from barnabas.runtime.loop import on_signal

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

_END_S = 2
# Connections at once, of a page that people open.
CONNECTIONS_MAX = 128


class ConnectionLimits(NamedTuple):
    """Limits of the connections of a server."""

    # Connections at once. Above it, uvicorn responds with 503.
    connections: int = CONNECTIONS_MAX
    # How long a connection stays open without a request (s).
    idle_s: int = 5


def server_config(
    application: Any,
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
    limits: ConnectionLimits | None = None,
) -> uvicorn.Config:
    """Return the configuration of a server.

    Args:
        application: The ASGI application.
        host: The address to listen on.
        port: The port; 0 for any free one.
        tls: The certificate of the server; None for plain HTTP.
        limits: The limits of connections; None for those of a page that people open.
    """
    limits = limits or ConnectionLimits()
    return uvicorn.Config(
        application,
        host=host.strip("[]"),
        port=port,
        http=LimitedConnection,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=limits.idle_s,
        timeout_graceful_shutdown=_END_S,
        ssl_context_factory=None if tls is None else lambda _config, _default: tls,
    )


class AnnouncingServer(uvicorn.Server):
    """A server that tells its address, and for which a signal is a normal end.

    Args:
        config: The configuration of the server.
        on_ready: Called with the address (a URL).
        on_end: Called at a signal, before the server waits for its connections to end.
    """

    def __init__(
        self, config: uvicorn.Config, on_ready: Callable[[str], None], on_end: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._on_end = on_end
        self.was_ready = False

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End at SIGINT and SIGTERM; uvicorn itself would raise them again after the end."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            on_signal(loop, number, self.end)
        yield

    def end(self) -> None:
        """Stop the server; a second call does not wait for connections."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self._on_end()

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override] # sockets are never given
        """Listen, then announce the address."""
        await super().startup()
        if self.started and not self.should_exit:
            self.was_ready = True
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            scheme = "https" if self.config.is_ssl else "http"
            shown = f"[{host}]" if ":" in host else host
            self._on_ready(f"{scheme}://{shown}:{port}/")

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        """End; requests that are not complete are not waited for."""
        for each in list(self.server_state.connections):
            if isinstance(each, LimitedConnection) and each.is_incomplete:
                each.abort()
        await super().shutdown(sockets)


class LimitedConnection(H11Protocol):
    """A connection whose requests have to arrive, and whose responses have to be read, in time."""

    # Time in seconds from the start of the connection, or from the first byte of a later request.
    request_s: ClassVar[float] = 20.0
    # In this time (s), the client has to read so many of the bytes that wait for it.
    reading_s: ClassVar[float] = 30.0
    reading_bytes: ClassVar[int] = 16 * 1024
    # Closes the connection; None while no bytes wait for the client.
    _reading_deadline: asyncio.TimerHandle | None = None
    # Closes the connection; None while there is no incomplete request.
    _deadline: asyncio.TimerHandle | None = None
    # When the connection was made, by the clock of the loop.
    _began_s = 0.0

    @property
    def is_incomplete(self) -> bool:
        """Whether the client has not sent a complete request, or its next one."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    @property
    def is_waited_for(self) -> bool:
        """Whether the client has to send the rest of a request, or to read a response."""
        return self.is_incomplete or self._reading_deadline is not None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        """Start the time limit of the first request, and make room for the connection."""
        super().connection_made(transport)
        self._began_s = self.loop.time()
        self._follow()
        if len(self.connections) >= (self.limit_concurrency or CONNECTIONS_MAX):
            self._close_another()

    def data_received(self, data: bytes) -> None:
        """Serve the request if it is complete."""
        super().data_received(data)
        self._follow()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the time limits."""
        super().connection_lost(exc)
        self._end_deadline()
        self._end_reading_deadline()

    def pause_writing(self) -> None:
        """Start the time limit of a client that does not read its response."""
        super().pause_writing()
        if self._reading_deadline is None:
            self._await_reader()

    def _await_reader(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        self._reading_deadline = self.loop.call_later(self.reading_s, self._check_reader, waiting)

    def _check_reader(self, waiting: int) -> None:
        if waiting - self.transport.get_write_buffer_size() < self.reading_bytes:
            self.abort()
        else:
            self._await_reader()

    def resume_writing(self) -> None:
        """End the time limit of a client that reads again."""
        super().resume_writing()
        self._end_reading_deadline()

    def _end_reading_deadline(self) -> None:
        if self._reading_deadline is not None:
            self._reading_deadline.cancel()
            self._reading_deadline = None

    def _follow(self) -> None:
        """Start the time limit of an incomplete request, or end that of a complete one."""
        if not self.is_incomplete:
            self._end_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.request_s, self.abort)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def abort(self) -> None:
        """Close the connection without a response."""
        self.transport.abort()

    def _close_another(self) -> None:
        others = [
            each
            for each in self.connections
            if isinstance(each, LimitedConnection) and each is not self and each.is_waited_for
        ]
        if not others:
            return
        ((host, _),) = Counter(each.host for each in others).most_common(1)
        oldest = min((each for each in others if each.host == host), key=lambda each: each._began_s)
        self.connections.discard(oldest)
        oldest.abort()

    @property
    def host(self) -> str:
        """The address of the client."""
        return "" if self.client is None else self.client[0]
