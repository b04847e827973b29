"""One HTTP GET to another process of the same machine, on the loop and without threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import h11
import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.clock import Cancellable, Timer
    from barnabas.runtime.sockets import Sockets, Stream

_RECEIVE_BYTES = 64 * 1024
_OK = 200


class FetchResult(msgspec.Struct, frozen=True):
    """The end of a fetch."""

    # Status of the response; 0 if there was no complete response.
    status: int = 0
    # Why there was no complete response; empty if there was one.
    problem: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether the complete response has the status 200."""
        return self.status == _OK and not self.problem


class HttpFetch:
    """A stream handler that sends a GET request and passes on the body of the response.

    Args:
        timer: runs the time limit.
        path: path of the request.
        timeout_ms: time limit.
        bytes_max: maximum size of the body.
        on_data: called with each piece of the body.
        on_done: called once at the end.
    """

    def __init__(
        self,
        timer: Timer,
        path: str,
        timeout_ms: float,
        bytes_max: int,
        on_data: Callable[[bytes], None],
        on_done: Callable[[FetchResult], None],
    ) -> None:
        self._path = path
        self._timeout_ms, self._bytes_max = timeout_ms, bytes_max
        # None after the end. The connection may keep this object longer, but then not their data.
        self._on_data: Callable[[bytes], None] | None = on_data
        self._on_done: Callable[[FetchResult], None] | None = on_done
        self._timer = timer
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._http = h11.Connection(h11.CLIENT)
        self._stream: Stream | None = None
        self._attempt: Cancellable | None = None
        self._deadline: Cancellable | None = None
        self._status = 0
        self._received = 0

    def start(self, sockets: Sockets, host: str, port: int) -> None:
        """Connect and send the request. The callbacks follow in later turns."""
        self._deadline = self._timer.call_later(
            self._timeout_ms, lambda: self._finish("no answer in time")
        )
        self._attempt = sockets.connect(
            host, port, self, lambda error: self._finish(str(error)), self._timeout_ms
        )

    def on_connected(self, stream: Stream) -> None:
        """Send the request."""
        self._stream = stream
        if self._on_done is None:
            stream.abort()
            return
        headers = [("Host", "localhost"), ("Connection", "close")]
        request = h11.Request(method="GET", target=self._path, headers=headers)
        data = self._http.send(request) or b""
        stream.write([data + (self._http.send(h11.EndOfMessage()) or b"")])

    def get_buffer(self, size_hint: int) -> bytearray:
        """Return the buffer of this fetch."""
        return self._buffer

    def on_received(self, count: int) -> None:
        """Parse the received bytes."""
        if self._on_done is None:
            return
        try:
            self._http.receive_data(bytes(self._buffer[:count]))
            self._handle_events()
        except h11.RemoteProtocolError as error:
            self._finish(f"invalid response: {error}")

    def on_writable_changed(self, writable: bool) -> None:
        """Do nothing: a request is small."""

    def on_closed(self, error: Exception | None) -> None:
        """Fail if the response is incomplete."""
        self._stream = None
        self._finish("the connection was closed")

    def _handle_events(self) -> None:
        while self._on_data is not None:
            event = self._http.next_event()
            if event in (h11.NEED_DATA, h11.PAUSED):
                return
            if isinstance(event, h11.Response):
                self._status = event.status_code
            elif isinstance(event, h11.Data):
                self._received += len(event.data)
                if self._received > self._bytes_max:
                    self._finish(f"a response of more than {self._bytes_max} bytes")
                    return
                self._on_data(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                self._finish("")
            elif isinstance(event, h11.ConnectionClosed):
                self._finish("the connection was closed")

    def _finish(self, problem: str) -> None:
        on_done = self._on_done
        if on_done is None:
            return
        self._on_data = self._on_done = None
        for pending in (self._deadline, self._attempt):
            if pending is not None:
                pending.cancel()
        if self._stream is not None:
            self._stream.abort()
        on_done(FetchResult(0 if problem else self._status, problem))
