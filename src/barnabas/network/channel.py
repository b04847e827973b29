"""The client's side of one connection: sends requests, matches responses by correlation id.

A request timeout closes the connection, as in Kafka's clients: the broker responds in order, so all
later responses would be late too. For every request, `on_response` is called exactly once, with a
response or a `NetworkError`.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.network.frame_buffers import FrameBuffers
from barnabas.network.framed_protocol import FramedHandler
from barnabas.network.network_error import NetworkError, NetworkErrorKind, foreign_protocol
from barnabas.protocol.codec import decode_response, encode_request, peek_correlation_id
from barnabas.protocol.errors import ProtocolError
from barnabas.runtime.tls.tls_error import TlsError
from barnabas.waiting.timing_wheel import Timeouts

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.sasl_session import SaslSession
    from barnabas.protocol.schema import Message
    from barnabas.runtime.clock import Cancellable, Clock, Timer
    from barnabas.runtime.sockets import Chunk, Sockets
    from barnabas.sasl.client_login import ClientLogin
    from barnabas.waiting.timing_wheel import TimingWheel


# No limit: the client's requests limit the size of the responses.
FRAME_BYTES_MAX = 0x7FFFFFFF
_CORRELATION_ID_MASK = 0x7FFFFFFF


class ChannelDependencies(msgspec.Struct, frozen=True):
    """The resources that all channels of a client share."""

    clock: Clock
    timer: Timer
    sockets: Sockets
    wheel: TimingWheel
    receive_buffer: bytearray | memoryview
    large_buffers: FrameBuffers = msgspec.field(default_factory=FrameBuffers)
    # Credentials with which each connection logs in before its first request; None: no login.
    login: ClientLogin | None = None


class _Pending:
    """A request that waits for its response."""

    __slots__ = ("correlation_id", "delay_ms", "expire", "on_response", "request_cls", "version")

    def __init__(
        self,
        correlation_id: int,
        request_cls: type[Message],
        version: int,
        on_response: Callable[[Any, NetworkError | None], None],
        delay_ms: float,
        on_expired: Callable[[_Pending], None],
    ) -> None:
        self.correlation_id = correlation_id
        self.request_cls = request_cls
        self.version = version
        self.on_response = on_response
        # After this time the request and the connection fail.
        self.delay_ms = delay_ms
        self.expire = partial(on_expired, self)


class Channel(FramedHandler):
    """One connection to a broker."""

    __slots__ = (
        "_clock",
        "_connect_timeout_ms",
        "_connecting",
        "_correlation_id",
        "_has_response",
        "_is_logged_in",
        "_last_activity_ms",
        "_login",
        "_on_closed",
        "_on_connected",
        "_pending",
        "_session",
        "_sockets",
        "_timeouts",
        "_waiting",
        "_why",
        "address",
        "client_id",
        "versions",
    )

    def __init__(
        self,
        dependencies: ChannelDependencies,
        client_id: str | None,
        on_closed: Callable[[Channel, NetworkError], None],
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        """Create an unconnected channel.

        Args:
            dependencies: resources that all channels of the client share.
            client_id: the client id in request headers.
            on_closed: called once when an established connection ends, after all pending requests
                have failed.
            frame_bytes_max: limit on the size of a response.
        """
        super().__init__(
            dependencies.timer,
            dependencies.receive_buffer,
            frame_bytes_max,
            dependencies.large_buffers,
        )
        self.client_id = client_id
        self._clock = dependencies.clock
        self._sockets = dependencies.sockets
        self._on_closed = on_closed
        self._on_connected: Callable[[NetworkError | None], None] | None = None
        self._connect_timeout_ms = 0.0
        self._login = dependencies.login
        # The logins of this connection; None without credentials, and before the connection.
        self._session: SaslSession | None = None
        # Whether the first login has succeeded, or there is none.
        self._is_logged_in = self._login is None
        # Encoded requests that wait for the end of a later login; None while there is none.
        self._waiting: list[list[Chunk]] | None = None
        self._connecting: Cancellable | None = None
        # Pending requests by correlation id, oldest first.
        self._pending: dict[int, _Pending] = {}
        self._correlation_id = 0
        self._timeouts = Timeouts(dependencies.wheel)
        self._last_activity_ms = dependencies.clock.monotonic_ms()
        # Whether a complete frame has arrived: the peer then speaks Kafka's protocol.
        self._has_response = False
        # The reason why this side closed the connection, or None.
        self._why: NetworkError | None = None
        # "host:port" as passed to `connect`.
        self.address = ""
        # API key to (lowest, highest) version of the broker. The owner negotiates and sets it.
        self.versions: dict[int, tuple[int, int]] = {}

    @property
    def in_flight(self) -> int:
        """Number of requests that wait for their response."""
        return len(self._pending)

    def connect(
        self,
        host: str,
        port: int,
        timeout_ms: float,
        on_connected: Callable[[NetworkError | None], None],
    ) -> None:
        """Connect. `on_connected` is called later, with None or an error. Call this only once."""
        assert self._on_connected is None, "a channel connects once"
        self._on_connected = on_connected
        self._connect_timeout_ms = timeout_ms
        self.address = f"{host}:{port}"
        self._connecting = self._sockets.connect(host, port, self, self._on_failed, timeout_ms)

    def send(
        self,
        request: Message,
        version: int,
        on_response: Callable[[Any, NetworkError | None], None] | None,
        timeout_ms: float,
        *,
        is_login: bool = False,
    ) -> None:
        """Send a request.

        Args:
            request: the message.
            version: a version that both sides support.
            on_response: called with (response, None) or (None, error), never before `send` returns.
                Views in the response are invalid after the callback returns. None: no response is
                expected (acks=0).
            timeout_ms: after this time the request and the connection fail.
            is_login: whether the request belongs to a login, so that it does not wait for its end.

        Raises:
            ProtocolError: the message cannot be encoded in this version.
        """
        self._correlation_id = correlation_id = (self._correlation_id + 1) & _CORRELATION_ID_MASK
        chunks = encode_request(correlation_id, self.client_id, request, version)
        if not self.is_open:
            if on_response is not None:
                gone = NetworkError(NetworkErrorKind.DISCONNECTED, f"{self.address} is not open")
                self._timer.call_soon(partial(on_response, None, gone))
            return
        self._last_activity_ms = self._clock.monotonic_ms()
        if on_response is not None:
            pending = _Pending(
                correlation_id, type(request), version, on_response, timeout_ms, self._on_timed_out
            )
            self._pending[correlation_id] = pending
            self._timeouts.add(pending)
        if self._session is not None and not is_login and self._hold(self._session, chunks):
            return
        self.send_chunks(chunks)

    def close(self) -> None:
        """Close the connection, or cancel the connection attempt. Pending requests fail as CLOSED.

        A canceled attempt calls neither `on_connected` nor `on_closed`.
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
        """Return the time since the last send or receive, in ms. 0 while a request is pending."""
        if self._pending:
            return 0.0
        return self._clock.monotonic_ms() - self._last_activity_ms

    def on_opened(self) -> None:
        """Log in if there are credentials, and report the established connection to the owner."""
        self._connecting = None
        assert self._on_connected is not None
        if self._login is None:
            self._on_connected(None)
            return
        # Imported only for clients with credentials.
        from barnabas.network.sasl_session import SaslSession

        self._session = SaslSession(self, self._login, self._clock, self._connect_timeout_ms)
        self._session.authenticate(self._on_login)

    def _on_login(self, error: NetworkError | None) -> None:
        """Report the result of the first login to the owner."""
        assert self._on_connected is not None
        if error is None:
            self._is_logged_in = True
        elif self._why is not None and self._why.kind is NetworkErrorKind.CLOSED:
            # The owner has canceled the attempt.
            return
        else:
            self.close()
        self._on_connected(error)

    def _hold(self, session: SaslSession, chunks: list[Chunk]) -> bool:
        """Return whether a request has to wait for a later login. Begin this login if it is due."""
        if self._waiting is not None:
            self._waiting.append(chunks)
        elif self._is_logged_in and self._clock.monotonic_ms() >= session.due_ms:
            self._waiting = [chunks]
            session.authenticate(self._on_login_again)
        else:
            return False
        return True

    def _on_login_again(self, error: NetworkError | None) -> None:
        """Send the waiting requests after a later login, or close the connection."""
        waiting, self._waiting = self._waiting, None
        if error is None:
            for chunks in waiting or ():
                self.send_chunks(chunks)
        else:
            if self._why is None:
                self._why = error
            self.abort()

    def on_frame(self, frame: memoryview) -> None:
        """Deliver a response to its request."""
        self._has_response = True
        self._last_activity_ms = self._clock.monotonic_ms()
        pending = self._pending.pop(peek_correlation_id(frame), None)
        if pending is None:
            raise ProtocolError("a response without a request")
        self._timeouts.remove(pending)
        try:
            _, response = decode_response(pending.request_cls, pending.version, frame)
        except ProtocolError as error:
            malformed = NetworkError(NetworkErrorKind.MALFORMED, f"{self.address}: {error}")
            pending.on_response(None, malformed)
            raise
        pending.on_response(response, None)

    def on_malformed(self, error: ProtocolError) -> None:
        """Remember the reason. The pending requests fail when the connection has closed."""
        if self._why is None:
            self._why = NetworkError(NetworkErrorKind.MALFORMED, f"{self.address}: {error}")

    def on_writable_changed(self, writable: bool) -> None:
        """Do nothing: the owner limits the number of requests in flight."""

    def on_lost(self, error: Exception | None) -> None:
        """Fail the pending requests, oldest first, then notify the owner."""
        reason = self._why
        foreign = foreign_protocol(self._splitter.unfinished_start())
        if foreign is not None and not self._has_response:
            reason = NetworkError(NetworkErrorKind.MALFORMED, f"{self.address}: {foreign.value}")
        elif reason is None and isinstance(error, TlsError) and error.is_permanent:
            reason = NetworkError(NetworkErrorKind.TLS_FAILED, f"{self.address}: {error}")
        elif reason is None:
            detail = f"{self.address}: {error or 'closed by the broker'}"
            reason = NetworkError(NetworkErrorKind.DISCONNECTED, detail)
        calls = deque(partial(each.on_response, None, reason) for each in self._pending.values())
        if self._is_logged_in:
            calls.append(partial(self._on_closed, self, reason))
        self._pending.clear()
        self._timeouts.close()
        call_each(self._timer, calls)

    def _on_failed(self, error: OSError) -> None:
        self._connecting = None
        assert self._on_connected is not None
        reason = error.strerror or str(error)
        if error.errno is not None and error.errno < 0:
            # Error numbers of getaddrinfo are negative; those of the operating system are positive.
            reason = f"the host name has no address ({reason})"
        detail = f"{self.address}: {reason}"
        kind = NetworkErrorKind.CONNECT_FAILED
        if isinstance(error, TlsError):
            if error.is_permanent:
                kind = NetworkErrorKind.TLS_FAILED
            elif error.is_disconnect:
                # As without TLS, where the first request fails.
                kind = NetworkErrorKind.DISCONNECTED
        self._on_connected(NetworkError(kind, detail, connect_errno=error.errno))

    def _on_timed_out(self, pending: _Pending) -> None:
        del self._pending[pending.correlation_id]
        name = pending.request_cls.__name__
        detail = f"{self.address}: no response to {name} within {pending.delay_ms:.0f} ms"
        timed_out = NetworkError(NetworkErrorKind.TIMED_OUT, detail)
        if self._why is None:
            self._why = NetworkError(NetworkErrorKind.DISCONNECTED, detail)
        self.abort()
        pending.on_response(None, timed_out)


def call_each(timer: Timer, calls: deque[partial[None]]) -> None:
    """Call functions in order. If one raises, the rest follows in the next turn of the loop."""
    try:
        while calls:
            calls.popleft()()
    finally:
        if calls:
            timer.call_soon(partial(call_each, timer, calls))
