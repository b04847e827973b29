"""The client's side of one connection: requests out, responses matched by correlation id.

A request that gets no answer in time costs the connection, as in Kafka's clients: what comes later
on it could not be trusted to be timely, and the broker answers in order anyway. Every request ends
in exactly one call of its `on_response`, with a response or with a `NetworkError`.
"""

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.network.foreign_protocol import foreign_protocol
from barnabas.network.framed_protocol import FramedHandler
from barnabas.network.network_error import NetworkError, NetworkErrorKind
from barnabas.protocol.frame_buffers import FrameBuffers
from barnabas.protocol.headers import decode_response, encode_request, peek_correlation_id
from barnabas.protocol.protocol_error import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.schema import Message
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.sockets import Sockets
    from barnabas.runtime.timer import Cancellable, Timer
    from barnabas.waiting.timing_wheel import TimingWheel, WheelEntry

# Responses are bounded by what the client asked for, not by this.
FRAME_BYTES_MAX = 0x7FFFFFFF
_CORRELATION_ID_MASK = 0x7FFFFFFF


class ChannelDoors(msgspec.Struct, frozen=True):
    """What all channels of a client share."""

    clock: Clock
    timer: Timer
    sockets: Sockets
    wheel: TimingWheel
    receive_buffer: bytearray
    large_buffers: FrameBuffers = msgspec.field(default_factory=FrameBuffers)


class _Pending:
    """A request that waits for its response."""

    __slots__ = ("deadline", "on_response", "request_cls", "version")

    def __init__(
        self,
        request_cls: type[Message],
        version: int,
        on_response: Callable[[Any, NetworkError | None], None],
    ) -> None:
        self.request_cls = request_cls
        self.version = version
        self.on_response = on_response
        self.deadline: WheelEntry | None = None


class Channel(FramedHandler):
    """One connection to a broker."""

    __slots__ = (
        "_clock",
        "_connecting",
        "_correlation_id",
        "_has_answered",
        "_last_activity_ms",
        "_on_closed",
        "_on_connected",
        "_pending",
        "_sockets",
        "_wheel",
        "_why",
        "address",
        "client_id",
        "versions",
    )

    def __init__(
        self,
        doors: ChannelDoors,
        client_id: str | None,
        on_closed: Callable[[Channel, NetworkError], None],
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        """`on_closed` is called once if the connection stood, after all pending have failed."""
        super().__init__(doors.timer, doors.receive_buffer, frame_bytes_max, doors.large_buffers)
        self.client_id = client_id
        self._clock = doors.clock
        self._sockets = doors.sockets
        self._wheel = doors.wheel
        self._on_closed = on_closed
        self._on_connected: Callable[[NetworkError | None], None] | None = None
        self._connecting: Cancellable | None = None
        # Requests by correlation id, oldest first.
        self._pending: dict[int, _Pending] = {}
        self._correlation_id = 0
        self._last_activity_ms = doors.clock.monotonic_ms()
        # Whether a whole frame has come: the peer then speaks in frames.
        self._has_answered = False
        # Why this side cut the connection, if it did.
        self._why: NetworkError | None = None
        # "host:port" as asked for.
        self.address = ""
        # API key to (lowest, highest) version of the broker; the owner negotiates and fills it.
        self.versions: dict[int, tuple[int, int]] = {}

    @property
    def in_flight(self) -> int:
        """Requests that wait for their response."""
        return len(self._pending)

    def connect(
        self,
        host: str,
        port: int,
        timeout_ms: float,
        on_connected: Callable[[NetworkError | None], None],
    ) -> None:
        """Connect once; `on_connected(None)` or `on_connected(error)` comes later."""
        assert self._on_connected is None, "a channel connects once"
        self._on_connected = on_connected
        self.address = f"{host}:{port}"
        self._connecting = self._sockets.connect(host, port, self, self._on_failed, timeout_ms)

    def send(
        self,
        request: Message,
        version: int,
        on_response: Callable[[Any, NetworkError | None], None] | None,
        timeout_ms: float,
    ) -> None:
        """Send a request.

        Args:
            request: the message.
            version: one that both sides have.
            on_response: called with (response, None) or (None, error), never before this returns.
                Views in the response die when it returns. None: no response comes (acks=0).
            timeout_ms: after this the request and the connection fail.

        Raises:
            ProtocolError: the message does not fit the version.
        """
        self._correlation_id = correlation_id = (self._correlation_id + 1) & _CORRELATION_ID_MASK
        chunks = encode_request(correlation_id, self.client_id, request, version)
        if not self.is_open:
            if on_response is not None:
                gone = NetworkError(NetworkErrorKind.DISCONNECTED, f"{self.address} is not open")
                self._timer.call_soon(partial(on_response, None, gone))
            return
        if on_response is not None:
            pending = _Pending(type(request), version, on_response)
            self._pending[correlation_id] = pending
            pending.deadline = self._wheel.add(
                timeout_ms, partial(self._on_timed_out, correlation_id, timeout_ms)
            )
        self._last_activity_ms = self._clock.monotonic_ms()
        self.send_chunks(chunks)

    def close(self) -> None:
        """Cut the connection, or the attempt at one; what is pending fails as CLOSED.

        A connection that did not stand yet is given up without a call.
        """
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._why is None:
            self._why = NetworkError(NetworkErrorKind.CLOSED, self.address)
        self.flush()
        if self._stream is not None:
            self._stream.close()

    def idle_ms(self) -> float:
        """How long nothing was sent or received; 0 while a response is due."""
        if self._pending:
            return 0.0
        return self._clock.monotonic_ms() - self._last_activity_ms

    def on_opened(self) -> None:
        """The connection stands."""
        self._connecting = None
        assert self._on_connected is not None
        self._on_connected(None)

    def on_frame(self, frame: memoryview) -> None:
        """A response."""
        self._has_answered = True
        self._last_activity_ms = self._clock.monotonic_ms()
        pending = self._pending.pop(peek_correlation_id(frame), None)
        if pending is None:
            raise ProtocolError("a response to no request")
        if pending.deadline is not None:
            pending.deadline.cancel()
        try:
            _, response = decode_response(pending.request_cls, pending.version, frame)
        except ProtocolError as error:
            malformed = NetworkError(NetworkErrorKind.MALFORMED, f"{self.address}: {error}")
            pending.on_response(None, malformed)
            raise
        pending.on_response(response, None)

    def on_malformed(self, error: ProtocolError) -> None:
        """What else is pending fails when the connection has closed."""
        if self._why is None:
            self._why = NetworkError(NetworkErrorKind.MALFORMED, f"{self.address}: {error}")

    def on_writable_changed(self, writable: bool) -> None:
        """The owner bounds what is in flight; nothing to do."""

    def on_lost(self, error: Exception | None) -> None:
        """Fail what is pending, oldest first, then tell the owner."""
        reason = self._why
        foreign = foreign_protocol(self._splitter.unfinished_start())
        if foreign is not None and not self._has_answered:
            reason = NetworkError(NetworkErrorKind.MALFORMED, f"{self.address}: {foreign}")
        elif reason is None:
            detail = f"{self.address}: {error or 'closed by the broker'}"
            reason = NetworkError(NetworkErrorKind.DISCONNECTED, detail)
        failed = list(self._pending.values())
        self._pending.clear()
        for pending in failed:
            if pending.deadline is not None:
                pending.deadline.cancel()
        for pending in failed:
            pending.on_response(None, reason)
        self._on_closed(self, reason)

    def _on_failed(self, error: OSError) -> None:
        self._connecting = None
        assert self._on_connected is not None
        reason = error.strerror or str(error)
        if error.errno is not None and error.errno < 0:
            # Numbers of getaddrinfo are negative, those of the system are not.
            reason = f"the host name has no address ({reason})"
        detail = f"{self.address}: {reason}"
        is_refusal = error.errno == errno.ECONNREFUSED
        failed = NetworkError(NetworkErrorKind.CONNECT_FAILED, detail, is_refusal=is_refusal)
        self._on_connected(failed)

    def _on_timed_out(self, correlation_id: int, timeout_ms: float) -> None:
        pending = self._pending.pop(correlation_id, None)
        if pending is None:
            return
        name = pending.request_cls.__name__
        detail = f"{self.address}: no response to {name} within {timeout_ms:.0f} ms"
        timed_out = NetworkError(NetworkErrorKind.TIMED_OUT, detail)
        if self._why is None:
            self._why = NetworkError(NetworkErrorKind.DISCONNECTED, detail)
        self.abort()
        pending.on_response(None, timed_out)
