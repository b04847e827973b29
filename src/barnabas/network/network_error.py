"""Failures of requests: the result that a caller gets instead of a response.

Failures are passed as values, not raised across layers. They are exceptions only because blocking
APIs raise them.
"""

from __future__ import annotations

import enum


class NetworkErrorKind(enum.Enum):
    """The kind of failure."""

    CONNECT_FAILED = "connect failed"
    DISCONNECTED = "disconnected"
    TIMED_OUT = "timed out"
    MALFORMED = "malformed response"
    TLS_FAILED = "TLS failed"
    CLOSED = "closed by this side"
    # The request could not be encoded, or writing it raised an error.
    NOT_SENT = "not sent"
    # The peer has refused the login, or is not the one that it should be.
    NOT_AUTHENTICATED = "authentication failed"


class NetworkError(Exception):
    """A failed request: the kind of failure and a readable description."""

    def __init__(self, kind: NetworkErrorKind, detail: str, *, is_refusal: bool = False) -> None:
        super().__init__(f"{kind.value}: {detail}")
        self.kind = kind
        self.detail = detail
        # Whether the peer's host refused the connection, since no process listens on the port.
        self.is_refusal = is_refusal

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed on another connection."""
        return self.kind in _RETRIABLE


_RETRIABLE = frozenset(
    {
        NetworkErrorKind.CONNECT_FAILED,
        NetworkErrorKind.DISCONNECTED,
        NetworkErrorKind.TIMED_OUT,
    }
)
