"""One HTTP/1.1 connection of the metrics listener, by the h11 library.

Answers are made piece by piece, a piece a turn, and only while the peer takes them: neither a large
answer nor a slow reader holds up the loop or fills the memory. Nothing is read while an answer is
being sent, so that requests which a peer sends ahead wait in the peer's own socket.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import h11
import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.runtime.sockets import Stream
    from barnabas.runtime.timer import Cancellable, Timer

_log = logging.getLogger(__name__)

# Of a request's head; a longer one is refused.
HEAD_BYTES_MAX = 16 * 1024
# For a request to come and be answered, and for the next one to follow.
DEADLINE_MS = 60_000.0
RECEIVE_BYTES = 16 * 1024

_TEXT = "text/plain; charset=utf-8"


class HttpAnswer(msgspec.Struct, frozen=True):
    """What to answer; the pieces of the body are asked for one at a time."""

    status: int
    body: Iterator[bytes]
    content_type: str = _TEXT


class ConnectionOwner(Protocol):
    """The listener, as far as its connections know it."""

    def on_progress(self, connection: HttpConnection) -> None:
        """A request has come, or the peer has taken a part of its answer."""
        ...

    def on_ended(self, connection: HttpConnection) -> None:
        """The connection is closed."""
        ...


class HttpConnection:
    """A stream handler that serves requests one after another."""

    def __init__(
        self,
        timer: Timer,
        buffer: bytearray,
        answer: Callable[[str, str], HttpAnswer],
        owner: ConnectionOwner,
    ) -> None:
        """`answer` gets method and target; `buffer` is shared with others of the loop."""
        self._timer = timer
        self._buffer = buffer
        self._answer = answer
        self._owner = owner
        self._stream: Stream | None = None
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        # What is being answered, and what is left of it.
        self._body: Iterator[bytes] | None = None
        self._writable = True
        self._pumping = False
        # Whether the stream is read from; not while an answer is being sent.
        self._reading = True
        self._deadline: Cancellable | None = None

    @property
    def is_answering(self) -> bool:
        """Whether a request has come whose answer has not been sent in full."""
        return self._body is not None

    def abort(self) -> None:
        """Cut it."""
        if self._stream is not None:
            self._stream.abort()

    def on_connected(self, stream: Stream) -> None:
        """From the stream."""
        self._stream = stream
        self._deadline = self._timer.call_later(DEADLINE_MS, self.abort)

    def get_buffer(self, size_hint: int) -> bytearray:  # noqa: ARG002
        """From the stream."""
        return self._buffer

    def on_received(self, count: int) -> None:
        """From the stream."""
        try:
            self._http.receive_data(bytes(self._buffer[:count]))
            self._take_events()
        except h11.RemoteProtocolError as error:
            self._refuse(error)

    def on_writable_changed(self, writable: bool) -> None:
        """From the stream."""
        self._writable = writable
        if writable:
            self._owner.on_progress(self)
            self._pump()

    def on_closed(self, error: Exception | None) -> None:  # noqa: ARG002
        """From the stream."""
        self._body = None
        self._stream = None
        if self._deadline is not None:
            self._deadline.cancel()
        self._owner.on_ended(self)

    def _take_events(self) -> None:
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
        answer = self._answer(request.method.decode(), request.target.decode("latin-1"))
        self._send(
            h11.Response(status_code=answer.status, headers=[("Content-Type", answer.content_type)])
        )
        self._body = answer.body
        self._owner.on_progress(self)
        self._pause_reading()
        self._later()

    def _pump(self) -> None:
        """The next piece, if the peer takes it and there is one."""
        self._pumping = False
        if self._body is None or not self._writable or self._stream is None:
            return
        try:
            piece = next(self._body, None)
        except Exception:  # noqa: BLE001
            # The end that is missing tells the peer that this is not all.
            _log.exception("An answer to %s cannot be made", self._stream.peer)
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
        self._send(h11.EndOfMessage())
        if self._stream is None:
            return
        if self._http.our_state is h11.MUST_CLOSE or self._http.their_state is h11.MUST_CLOSE:
            self._stream.close()
            return
        if self._http.their_state is not h11.DONE:
            # The rest of a request that has a body is not waited for.
            self._stream.close()
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._timer.call_later(DEADLINE_MS, self.abort)
        self._http.start_next_cycle()
        self._take_events()
        self._maybe_resume_reading()

    def _pause_reading(self) -> None:
        if self._reading and self._stream is not None:
            self._reading = False
            self._stream.pause_reading()

    def _maybe_resume_reading(self) -> None:
        if not self._reading and self._body is None and self._stream is not None:
            self._reading = True
            self._stream.resume_reading()

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        """What came is not HTTP: say so if nothing was said yet, and close."""
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
        self._stream.close()

    def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data and self._stream is not None:
            self._stream.write([data])
