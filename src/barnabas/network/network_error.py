"""Failures of requests, and peers that do not speak Kafka's protocol.

Failures are passed as values, not raised across layers. They are exceptions only because blocking
APIs raise them. The first bytes of a peer show whether it speaks TLS, HTTP or SSH, which is the
most frequent cause of a failed first request.
"""

from __future__ import annotations

import enum
import errno
from enum import Enum

# Errors of a connection attempt that the peer's host causes. Others, for example for too many open
# files, say nothing about the peer.
_UNREACHABLE = frozenset({errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.EHOSTDOWN})


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

    def __init__(
        self, kind: NetworkErrorKind, detail: str, *, connect_errno: int | None = None
    ) -> None:
        super().__init__(f"{kind.value}: {detail}")
        self.kind = kind
        self.detail = detail
        # Error number of a failed connection attempt; None for other failures.
        self._connect_errno = connect_errno

    @property
    def is_refusal(self) -> bool:
        """Whether the peer's host refused the connection, since no process listens on the port."""
        return self._connect_errno == errno.ECONNREFUSED

    @property
    def is_unreachable(self) -> bool:
        """Whether the peer's host did not accept the connection: it refused it or did not respond.

        The kernel of a host accepts connections even for a process that is paused.
        """
        return self._connect_errno in _UNREACHABLE

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


__all__ = ["FOREIGN_PROTOCOLS", "ForeignProtocol", "foreign_client", "foreign_protocol"]

_CLIENT_WITH_TLS = (
    "the client speaks TLS to a listener without it; it probably has security.protocol=SSL"
)
_CLIENT_WITH_HTTP = "the client speaks HTTP"
_HTTP_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI")
# A TLS record of type alert (21) or handshake (22), version 3.x.
_TLS_STARTS = (b"\x15\x03", b"\x16\x03")


class ForeignProtocol(Enum):
    """A protocol other than Kafka's; the value describes the peer to the user of a client."""

    TLS = (
        "it answered with TLS: the listener requires TLS, so set security.protocol=SSL, or "
        "SASL_SSL if the listener wants a login"
    )
    HTTP = "a web server (HTTP) listens there, not a broker"
    SSH = "an SSH server listens there, not a broker"


# The descriptions of all known protocols.
FOREIGN_PROTOCOLS = frozenset(each.value for each in ForeignProtocol)
_STARTS = {b"HTTP": ForeignProtocol.HTTP, b"SSH-": ForeignProtocol.SSH}


def foreign_protocol(start: bytes) -> ForeignProtocol | None:
    """Return the protocol of a peer, or None if it is unknown.

    Args:
        start: the first four received bytes. In Kafka they are the length of a response.
    """
    if start.startswith(_TLS_STARTS):
        return ForeignProtocol.TLS
    return _STARTS.get(start)


def foreign_client(start: bytes) -> str | None:
    """Return a description of a client that does not speak Kafka's protocol, or None.

    Args:
        start: the first four bytes of a frame that was refused for its size.
    """
    if start.startswith(_TLS_STARTS):
        return _CLIENT_WITH_TLS
    return _CLIENT_WITH_HTTP if start in _HTTP_METHODS else None
