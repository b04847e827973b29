"""HTTP listener of a process for a few callers, such as Prometheus and probes.

A response is sent in pieces, one in a turn of the loop, and only while the client takes them. A
large response or a slow client therefore neither delays the loop nor fills the memory. The
connection reads nothing while it waits for a response and sends it, so pipelined requests wait in
the kernel. The h11 library reads requests.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, TypeAlias

import h11
import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.runtime.clock import Cancellable, Timer
    from barnabas.runtime.sockets import Listening, Sockets, Stream


_log = logging.getLogger(__name__)

# Maximum size of the request line and headers. A larger request is rejected.
HEAD_BYTES_MAX = 16 * 1024
# Time limit for a request and its response, which starts again after each response.
DEADLINE_MS = 60_000.0
RECEIVE_BYTES = 16 * 1024
# Maximum number of connections, enough for all scrapers. A new connection replaces an idle one.
CONNECTIONS_MAX = 16

_TEXT = "text/plain; charset=utf-8"


class HttpResponse(msgspec.Struct, frozen=True):
    """An HTTP response. The pieces of its body are created one at a time."""

    status: int
    body: Iterator[bytes]
    content_type: str = _TEXT


# Gets a method, a target, and a function that takes the response, now or later.
Respond: TypeAlias = "Callable[[str, str, Callable[[HttpResponse], None]], None]"


class ConnectionListener(Protocol):
    """Methods of the listener that its connections call."""

    def on_progress(self, connection: HttpConnection) -> None:
        """Handle the arrival of a request, or of a part of the response at the client."""
        ...

    def on_ended(self, connection: HttpConnection) -> None:
        """Handle the end of the connection."""
        ...


class HttpConnection:
    """A stream handler that serves the requests of one HTTP connection in order."""

    def __init__(
        self,
        timer: Timer,
        buffer: bytearray,
        respond: Respond,
        listener: ConnectionListener,
    ) -> None:
        """Begin to serve requests of one connection.

        Args:
            timer: runs the time limit and the turns.
            buffer: receive buffer, shared by all connections of the loop.
            respond: finds the response to a request.
            listener: the listener of this connection.
        """
        self._timer = timer
        self._buffer = buffer
        self._respond = respond
        self._listener = listener
        # The stream. None before the connection is open, and after it is closed.
        self._stream: Stream | None = None
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        # Remaining pieces of the current response. None before there is a response.
        self._body: Iterator[bytes] | None = None
        # Whether a request waits for its response, or the response is being sent.
        self._has_request = False
        # Whether the stream takes more output.
        self._writable = True
        # Whether the turn of the next piece is scheduled.
        self._pumping = False
        # Whether the stream is being read. False while a response is sent.
        self._reading = True
        # Timer of the time limit. None before the connection is open.
        self._deadline: Cancellable | None = None

    @property
    def is_responding(self) -> bool:
        """Whether the response to a request has not been sent completely."""
        return self._has_request

    def abort(self) -> None:
        """Close the connection immediately."""
        if self._stream is not None:
            self._stream.abort()

    def on_connected(self, stream: Stream) -> None:
        """Store the stream and start the time limit."""
        self._stream = stream
        self._deadline = self._timer.call_later(DEADLINE_MS, self.abort)

    def get_buffer(self, size_hint: int) -> bytearray:
        """Return the shared receive buffer."""
        return self._buffer

    def on_received(self, count: int) -> None:
        """Parse the received bytes and serve complete requests."""
        try:
            self._http.receive_data(bytes(self._buffer[:count]))
            self._handle_events()
        except h11.RemoteProtocolError as error:
            self._refuse(error)

    def on_writable_changed(self, writable: bool) -> None:
        """Send more of the response when the stream becomes writable."""
        self._writable = writable
        if writable:
            self._listener.on_progress(self)
            self._pump()

    def on_closed(self, error: Exception | None) -> None:
        """Cancel the time limit and inform the listener."""
        self._body = None
        self._stream = None
        if self._deadline is not None:
            self._deadline.cancel()
        self._listener.on_ended(self)

    def _handle_events(self) -> None:
        while self._stream is not None:
            event = self._http.next_event()
            if event in (h11.NEED_DATA, h11.PAUSED):
                return
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.ConnectionClosed):
                self._stream.close()
                return

    def _begin(self, request: h11.Request) -> None:
        self._has_request = True
        self._pause_reading()
        self._respond(request.method.decode(), request.target.decode("latin-1"), self._answer)

    def _answer(self, response: HttpResponse) -> None:
        if self._stream is None or not self._has_request:
            # The client has gone, or the rest of its request was invalid.
            return
        self._send(
            h11.Response(
                status_code=response.status, headers=[("Content-Type", response.content_type)]
            )
        )
        self._body = response.body
        self._listener.on_progress(self)
        self._later()

    def _pump(self) -> None:
        """Send the next piece of the response if the stream is writable."""
        self._pumping = False
        if self._body is None or not self._writable or self._stream is None:
            return
        try:
            piece = next(self._body, None)
        except Exception:  # noqa: BLE001 - only this request fails
            # Without the final chunk the client sees that the response is incomplete.
            _log.exception("HTTP response failed: client=%s", self._stream.peer)
            self._stream.abort()
            return
        if piece is None:
            self._end()
        else:
            self._send(h11.Data(data=piece))
            self._later()

    def _later(self) -> None:
        if not self._pumping:
            self._pumping = True
            self._timer.call_soon(self._pump)

    def _end(self) -> None:
        self._body = None
        self._has_request = False
        self._send(h11.EndOfMessage())
        if self._stream is None:
            return
        if self._http.our_state is h11.MUST_CLOSE or self._http.their_state is h11.MUST_CLOSE:
            self._stream.close()
            return
        if self._http.their_state is not h11.DONE:
            # The request has a body that was not received completely. Do not wait for the rest.
            self._stream.close()
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._timer.call_later(DEADLINE_MS, self.abort)
        self._http.start_next_cycle()
        self._handle_events()
        self._maybe_resume_reading()

    def _pause_reading(self) -> None:
        if self._reading and self._stream is not None:
            self._reading = False
            self._stream.pause_reading()

    def _maybe_resume_reading(self) -> None:
        if not self._reading and not self._has_request and self._stream is not None:
            self._reading = True
            self._stream.resume_reading()

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        """Respond to invalid HTTP with an error, unless a response has begun, and close."""
        if self._stream is None:
            return
        if self._http.our_state is h11.IDLE or self._http.our_state is h11.SEND_RESPONSE:
            self._send(
                h11.Response(
                    status_code=error.error_status_hint,
                    headers=[("Content-Type", _TEXT), ("Connection", "close")],
                )
            )
            self._send(h11.Data(data=b"this is no HTTP request that is served here\n"))
            self._send(h11.EndOfMessage())
        self._body = None
        self._has_request = False
        self._stream.close()

    def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data and self._stream is not None:
            self._stream.write([data])


class HttpListener:
    """Binds an address and serves HTTP connections on it."""

    def __init__(self, timer: Timer, respond: Respond) -> None:
        """Create the listener.

        Args:
            timer: runs timeouts and turns of the connections.
            respond: finds the response to a request.
        """
        self._timer = timer
        self._respond = respond
        self._buffer = bytearray(RECEIVE_BYTES)
        # The bound socket. None before `bind` and after `close`.
        self._listening: Listening | None = None
        # Open connections. The first has made no progress for the longest time.
        self._connections: dict[HttpConnection, None] = {}

    def bind(self, sockets: Sockets, host: str, port: int) -> str:
        """Listen, and return HOST:PORT with the real port.

        Raises:
            OSError: the address cannot be bound.
        """
        self._listening = sockets.listen(host, port, self._accept)
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{self._listening.port}"

    def close(self) -> None:
        """Stop listening and close all connections."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        for connection in list(self._connections):
            connection.abort()

    def _accept(self) -> HttpConnection:
        if len(self._connections) >= CONNECTIONS_MAX:
            self._close_least_active()
        connection = HttpConnection(self._timer, self._buffer, self._respond, self)
        self._connections[connection] = None
        return connection

    def on_progress(self, connection: HttpConnection) -> None:
        """Move a connection that has made progress to the end of the order."""
        if connection in self._connections:
            del self._connections[connection]
            self._connections[connection] = None

    def on_ended(self, connection: HttpConnection) -> None:
        """Remove a connection that has closed."""
        self._connections.pop(connection, None)

    def _close_least_active(self) -> None:
        """Close the least active connection, so that idle connections cannot block a scraper."""
        connections = list(self._connections)
        idle = next((each for each in connections if not each.is_responding), connections[0])
        del self._connections[idle]
        idle.abort()


def text_response(status: int, text: str) -> HttpResponse:
    """Return a response with a line of text."""
    return HttpResponse(status, iter([text.encode("utf-8", "replace") + b"\n"]))
