"""Authentication of one connection, without I/O (Kafka: SaslServerAuthenticator).

The caller passes handshakes and messages of the mechanism. It sends the responses, and closes the
connection when the state is FAILED. A table lists the states and their events.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.sasl.mechanism import SaslError
from barnabas.waiting.state_machine import StateMachine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.runtime.clock import Clock
    from barnabas.sasl.mechanism import Identity, ServerMechanism


class LoginState(enum.Enum):
    """State of the authentication, named by the frames that the connection waits for."""

    # A handshake or ApiVersions.
    INITIAL = "waiting for a handshake"
    # A handshake. The response to ApiVersions was sent.
    VERSIONS_KNOWN = "waiting for a handshake after ApiVersions"
    # Messages of the chosen mechanism.
    AUTHENTICATING = "authenticating"
    # Requests.
    AUTHENTICATED = "authenticated"
    # The handshake of a later authentication, which is being served (KIP-368).
    REAUTHENTICATING = "re-authenticating"
    # Any frame. It ends the connection, because the handshake named another mechanism than before.
    MECHANISM_CHANGED = "re-authenticating with another mechanism"
    # Nothing. The connection closes.
    FAILED = "failed"


class LoginEvent(enum.Enum):
    """Event that changes the state."""

    VERSIONS_SENT = "ApiVersions was answered without an error"
    MECHANISM_CHOSEN = "a handshake named an enabled mechanism"
    OTHER_MECHANISM = "a later handshake named another mechanism"
    STEP = "a message was answered, and another one must follow"
    SUCCESS = "the last message was accepted"
    BEGIN_AGAIN = "a handshake arrived on an authenticated connection"
    FAILURE = "a frame was rejected, or the session is over"


_S, _E = LoginState, LoginEvent

LOGIN_TABLE: Final = {
    _S.INITIAL: {
        _E.VERSIONS_SENT: _S.VERSIONS_KNOWN,
        _E.MECHANISM_CHOSEN: _S.AUTHENTICATING,
        _E.FAILURE: _S.FAILED,
    },
    _S.VERSIONS_KNOWN: {_E.MECHANISM_CHOSEN: _S.AUTHENTICATING, _E.FAILURE: _S.FAILED},
    _S.AUTHENTICATING: {
        _E.STEP: _S.AUTHENTICATING,
        _E.SUCCESS: _S.AUTHENTICATED,
        _E.FAILURE: _S.FAILED,
    },
    _S.AUTHENTICATED: {_E.BEGIN_AGAIN: _S.REAUTHENTICATING, _E.FAILURE: _S.FAILED},
    _S.REAUTHENTICATING: {
        _E.MECHANISM_CHOSEN: _S.AUTHENTICATING,
        _E.OTHER_MECHANISM: _S.MECHANISM_CHANGED,
        _E.FAILURE: _S.FAILED,
    },
    _S.MECHANISM_CHANGED: {_E.FAILURE: _S.FAILED},
    _S.FAILED: {},
}


def login_states() -> StateMachine[LoginState, LoginEvent]:
    """Return the state machine of a new connection."""
    return StateMachine("login", LoginState.INITIAL, LOGIN_TABLE)


# Minimum time between two re-authentications of a connection, as in Kafka.
_BEGIN_AGAIN_MS = 1_000.0


class OfferedMechanism(msgspec.Struct, frozen=True):
    """One enabled mechanism of a listener."""

    # Creates the server's side of one exchange.
    begin: Callable[[], ServerMechanism]
    # `connections.max.reauth.ms`. 0: clients need not authenticate again.
    session_ms_max: int = 0


class LoginReply(msgspec.Struct, frozen=True):
    """Response to a message of the client."""

    message: bytes = b""
    error: ErrorCode = ErrorCode.NONE
    # Text for the client. Empty without an error, as in Kafka.
    error_message: str = ""
    # Time (ms) until the client has to authenticate again. 0 if it does not have to.
    session_ms: int = 0


class Login:
    """State of the authentication, the chosen mechanism, and the user."""

    __slots__ = (
        "_begun_again_ms",
        "_clock",
        "_exchange",
        "_mechanisms",
        "_states",
        "failure",
        "has_raw_frames",
        "identity",
        "mechanism",
        "session_end_ms",
    )

    def __init__(self, mechanisms: Mapping[str, OfferedMechanism], clock: Clock) -> None:
        """Begin the authentication of a connection.

        Args:
            mechanisms: the enabled mechanisms of the listener, by name.
            clock: the clock of session ends.
        """
        self._mechanisms = mechanisms
        self._clock = clock
        self._states = login_states()
        # The current exchange; None before a handshake and after the exchange.
        self._exchange: ServerMechanism | None = None
        # Name of the chosen mechanism. Set by the first accepted handshake, never changed.
        self.mechanism: str | None = None
        # Whether messages arrive as bare frames, because the handshake had version 0.
        self.has_raw_frames = False
        # The user. None until the first authentication has succeeded, then never changed.
        self.identity: Identity | None = None
        # When the session ends, on the monotonic clock. None: it does not end.
        self.session_end_ms: float | None = None
        # Time (ms, monotonic) at which the last re-authentication began.
        self._begun_again_ms: float | None = None
        # Reason of the failure, for the log. None if the authentication has not failed.
        self.failure: str | None = None

    @property
    def state(self) -> LoginState:
        """The current state."""
        return self._states.state

    @property
    def is_again(self) -> bool:
        """Whether the client was authenticated before."""
        return self.identity is not None

    @property
    def claimed_name(self) -> str | None:
        """The user name that the client has sent in the current exchange, for logs."""
        return None if self._exchange is None else self._exchange.claimed_name

    @property
    def offered(self) -> list[str]:
        """Names of the enabled mechanisms."""
        return list(self._mechanisms)

    @property
    def is_session_over(self) -> bool:
        """Whether the client had to authenticate again before this time."""
        end_ms = self.session_end_ms
        return end_ms is not None and self._clock.monotonic_ms() > end_ms

    def note_versions_sent(self) -> None:
        """Record that the response to ApiVersions was sent."""
        self._states.on(LoginEvent.VERSIONS_SENT)

    def maybe_begin_again(self) -> bool:
        """Return whether a handshake begins a re-authentication of this connection.

        The session must have a time limit, and the last attempt must be at least a second old.
        """
        now_ms, last_ms = self._clock.monotonic_ms(), self._begun_again_ms
        if self.session_end_ms is None:
            return False
        if last_ms is not None and now_ms - last_ms < _BEGIN_AGAIN_MS:
            return False
        self._begun_again_ms = now_ms
        self._states.on(LoginEvent.BEGIN_AGAIN)
        return True

    def on_handshake(self, name: str, version: int) -> ErrorCode:
        """Choose the mechanism. Return the error code for the client."""
        offered = self._mechanisms.get(name)
        if offered is None:
            self.fail(f"the mechanism {name[:40]!r} is not enabled")
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        # After a handshake of version 1, a client sends all later messages in requests.
        self.has_raw_frames = version == 0 and (self.mechanism is None or self.has_raw_frames)
        if self.is_again and name != self.mechanism:
            # The handshake succeeds, and the next frame fails, as in Kafka.
            self._states.on(LoginEvent.OTHER_MECHANISM)
            return ErrorCode.NONE
        self.mechanism = name
        self._exchange = offered.begin()
        self._states.on(LoginEvent.MECHANISM_CHOSEN)
        return ErrorCode.NONE

    def on_message(self, message: bytes) -> LoginReply:
        """Pass a message to the mechanism, and return the reply for the client."""
        exchange = self._exchange
        assert exchange is not None, f"a message in state {self.state.name}"
        try:
            response = exchange.respond(message)
            identity = exchange.identity
            if identity is not None:
                self._check_unchanged(identity)
        except SaslError as error:
            return self._reject(error)
        if identity is None:
            self._states.on(LoginEvent.STEP)
            return LoginReply(response)
        self._states.on(LoginEvent.SUCCESS)
        self.identity = identity
        self._exchange = None
        return LoginReply(response, session_ms=self._begin_session(identity))

    def fail(self, reason: str) -> None:
        """End the authentication, or the session."""
        self.failure = reason
        self._states.on(LoginEvent.FAILURE)

    def _reject(self, error: SaslError) -> LoginReply:
        during = "re-authentication" if self.is_again else "authentication"
        shown = error.shown
        if shown is None:
            # Use the same text for a wrong password and for an unknown user.
            shown = (
                f"Authentication failed during {during} due to invalid credentials with SASL "
                f"mechanism {self.mechanism}"
            )
        self.fail(error.reason)
        return LoginReply(error=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=shown)

    def _check_unchanged(self, identity: Identity) -> None:
        before = self.identity
        if before is None or (before.name, before.is_token) == (identity.name, identity.is_token):
            return
        text = (
            f"Cannot change principals during re-authentication from User.{before.name}: "
            f"User.{identity.name}"
        )
        raise SaslError(text, text)

    def _begin_session(self, identity: Identity) -> int:
        """Set the end of the session, and return its length in ms."""
        assert self.mechanism is not None
        limits: list[int] = []
        longest_ms = self._mechanisms[self.mechanism].session_ms_max
        if longest_ms > 0:
            limits.append(longest_ms)
        if identity.expiry_ms is not None:
            limits.append(max(0, identity.expiry_ms - self._clock.wall_ms()))
        if not limits:
            self.session_end_ms = None
            return 0
        length_ms = min(limits)
        self.session_end_ms = self._clock.monotonic_ms() + length_ms
        return length_ms
