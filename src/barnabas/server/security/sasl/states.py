"""States of the authentication of one connection (Kafka: SaslServerAuthenticator.SaslState)."""

from __future__ import annotations

import enum
from typing import Final

from barnabas.waiting.state_machine import StateMachine


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
    _S.VERSIONS_KNOWN: {
        _E.MECHANISM_CHOSEN: _S.AUTHENTICATING,
        _E.FAILURE: _S.FAILED,
    },
    _S.AUTHENTICATING: {
        _E.STEP: _S.AUTHENTICATING,
        _E.SUCCESS: _S.AUTHENTICATED,
        _E.FAILURE: _S.FAILED,
    },
    _S.AUTHENTICATED: {
        _E.BEGIN_AGAIN: _S.REAUTHENTICATING,
        _E.FAILURE: _S.FAILED,
    },
    _S.REAUTHENTICATING: {
        _E.MECHANISM_CHOSEN: _S.AUTHENTICATING,
        _E.OTHER_MECHANISM: _S.MECHANISM_CHANGED,
        _E.FAILURE: _S.FAILED,
    },
    _S.MECHANISM_CHANGED: {
        _E.FAILURE: _S.FAILED,
    },
    _S.FAILED: {},
}


def login_states() -> StateMachine[LoginState, LoginEvent]:
    """Return the state machine of a new connection."""
    return StateMachine("login", LoginState.INITIAL, LOGIN_TABLE)
