"""The client's side of SASL on one connection (KIP-12, KIP-152, KIP-368).

A new connection asks for ApiVersions, sends a handshake with the name of the mechanism, and then
the messages of the mechanism. A broker may limit the session. The next request after most of that
time has passed begins another login on the same connection; requests wait until it has ended.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.network.network_error import NetworkError, NetworkErrorKind
from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from barnabas.sasl.mechanism import SaslError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.schema import Message
    from barnabas.runtime.clock import Clock
    from barnabas.sasl.client_login import ClientLogin
    from barnabas.sasl.mechanism import ClientMechanism

    OnDone = Callable[[NetworkError | None], None]

# All brokers know version 0 of ApiVersions, and brokers since 1.0 know version 1 of the handshake.
_API_VERSIONS_VERSION = 0
_HANDSHAKE_VERSION = 1
_AUTHENTICATE_VERSION_MAX = 2
# The share of a session after which the client authenticates again. The server may measure a
# little less than this side.
_SESSION_SHARE = 0.85
# Delay after the broker has refused another login as too early.
_TOO_EARLY_MS = 100.0


class SaslTransport(Protocol):
    """The channel of a session."""

    address: str

    def send(
        self,
        request: Message,
        version: int,
        on_response: Callable[[Any, NetworkError | None], None] | None,
        timeout_ms: float,
        *,
        is_login: bool,
    ) -> None:
        """Send a request. With `is_login` it does not wait for the end of the login."""
        ...


class SaslSession:
    """Logs in, and remembers when to log in again."""

    __slots__ = (
        "_channel",
        "_clock",
        "_exchange",
        "_login",
        "_on_done",
        "_timeout_ms",
        "_version",
        "due_ms",
    )

    def __init__(
        self, channel: SaslTransport, login: ClientLogin, clock: Clock, timeout_ms: float
    ) -> None:
        """Create the session of a connection without a login.

        Args:
            channel: an open connection.
            login: the credentials.
            clock: the clock of session ends.
            timeout_ms: limit of each response.
        """
        self._channel = channel
        self._login = login
        self._clock = clock
        self._timeout_ms = timeout_ms
        # Version of SaslAuthenticate; None before the versions of the broker are known.
        self._version: int | None = None
        # The current exchange; None before and after it.
        self._exchange: ClientMechanism | None = None
        # Called with the result of the current login; None between logins.
        self._on_done: OnDone | None = None
        # When the client has to log in again, on the monotonic clock. Infinity: never.
        self.due_ms = inf

    def authenticate(self, on_done: OnDone) -> None:
        """Log in. `on_done` is called once, with None or an error."""
        assert self._on_done is None, "one login at a time"
        self._on_done = on_done
        if self._version is None:
            self._send(ApiVersionsRequest(), _API_VERSIONS_VERSION, self._on_versions)
        else:
            self._send_handshake()

    def _send(self, request: Message, version: int, on_response: Callable[[Any], None]) -> None:
        def received(response: Any, error: NetworkError | None) -> None:
            if error is None:
                on_response(response)
            else:
                self._finish(error)

        self._channel.send(request, version, received, self._timeout_ms, is_login=True)

    def _on_versions(self, response: Any) -> None:
        known = {each.api_key: each.max_version for each in response.api_keys}
        highest = known.get(ApiKey.SASL_AUTHENTICATE)
        if highest is None or ApiKey.SASL_HANDSHAKE not in known:
            self._fail("the broker does not know SASL: set security.protocol=PLAINTEXT")
            return
        self._version = min(highest, _AUTHENTICATE_VERSION_MAX)
        self._send_handshake()

    def _send_handshake(self) -> None:
        request = SaslHandshakeRequest(mechanism=self._login.mechanism)
        self._send(request, _HANDSHAKE_VERSION, self._on_handshake)

    def _on_handshake(self, response: Any) -> None:
        mechanism = self._login.mechanism
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(response.mechanisms)
            self._fail(
                f"sasl.mechanism={mechanism} is not enabled on the broker, which offers: {offered}"
            )
        elif response.error_code == ErrorCode.ILLEGAL_SASL_STATE and self.due_ms < inf:
            # Brokers accept another login once in a second. The session goes on until then.
            self.due_ms = self._clock.monotonic_ms() + _TOO_EARLY_MS
            self._finish(None)
        elif response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            self._fail(
                "the listener does not ask for SASL: set security.protocol=PLAINTEXT, or use "
                "another port"
            )
        elif response.error_code:
            self._fail(f"the broker has refused the handshake: {_name(response.error_code)}")
        else:
            self._login.begin(self._on_begun)

    def _on_begun(self, exchange: ClientMechanism | None, error: SaslError | None) -> None:
        if exchange is None:
            assert error is not None
            self._fail(error.reason, is_transient=error.is_transient)
            return
        self._exchange = exchange
        self._send_message(exchange.first())

    def _send_message(self, message: bytes) -> None:
        assert self._version is not None
        request = SaslAuthenticateRequest(auth_bytes=message)
        self._send(request, self._version, self._on_message_response)

    def _on_message_response(self, response: Any) -> None:
        if response.error_code:
            detail = response.error_message or _name(response.error_code)
            self._fail(
                f"the broker has refused {self._login.subject} with "
                f"sasl.mechanism={self._login.mechanism}: {detail}"
            )
            return
        exchange, message = self._exchange, bytes(response.auth_bytes)
        assert exchange is not None
        try:
            work = exchange.prepare(message)
        except SaslError as error:
            self._fail(error.reason)
            return
        lifetime_ms = response.session_lifetime_ms
        if work is None:
            self._respond(exchange, message, lifetime_ms)
            return

        def worked(_: None, error: BaseException | None) -> None:
            if error is not None:
                self._fail(f"the login has failed: {error}")
            elif self._exchange is exchange:
                self._respond(exchange, message, lifetime_ms)

        self._login.executor.submit(work, worked)

    def _respond(self, exchange: ClientMechanism, message: bytes, lifetime_ms: int) -> None:
        try:
            reply = exchange.respond(message)
        except SaslError as error:
            self._fail(error.reason)
            return
        if reply is not None:
            self._send_message(reply)
            return
        self.due_ms = inf
        if lifetime_ms > 0:
            self.due_ms = self._clock.monotonic_ms() + lifetime_ms * _SESSION_SHARE
        self._finish(None)

    def _fail(self, reason: str, *, is_transient: bool = False) -> None:
        detail = f"{self._channel.address}: {reason}"
        self._login.note_failure(detail)
        kind = NetworkErrorKind.NOT_AUTHENTICATED
        if is_transient:
            # The caller may try again.
            kind = NetworkErrorKind.DISCONNECTED
        self._finish(NetworkError(kind, detail))

    def _finish(self, error: NetworkError | None) -> None:
        """Report the result, unless the login has ended already."""
        self._exchange = None
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done(error)


def _name(code: int) -> str:
    return ErrorCode.of(code).name
