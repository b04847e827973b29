"""PLAIN (RFC 4616): user and password in one message. Kafka adds rules for its three parts."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final

from barnabas.sasl.mechanism import Identity, SaslError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PLAIN: Final = "PLAIN"
_PARTS = 3
# Limit of the counted parts, since the client chooses the message.
_PARTS_MAX = 4


class PlainServer:
    """Checks one message: authorization id, user and password, separated by a zero character."""

    __slots__ = ("_users", "claimed_name", "identity")

    def __init__(self, users: Mapping[str, str]) -> None:
        """Begin an exchange.

        Args:
            users: password of each user.
        """
        self._users = users
        self.identity: Identity | None = None
        self.claimed_name: str | None = None

    def respond(self, message: bytes) -> bytes:
        """Check the client's only message. The response is empty.

        Raises:
            SaslError: the message is malformed, or user and password do not match.
        """
        parts = message.decode("utf-8", "replace").split("\0", _PARTS_MAX)[:_PARTS_MAX]
        if len(parts) != _PARTS:
            text = f"Invalid SASL/PLAIN response: expected {_PARTS} tokens, got {len(parts)}"
            raise SaslError(text, text)
        authorization_id, name, password = parts
        self.claimed_name = name
        if not name:
            raise _failed("username not specified")
        if not password:
            raise _failed("password not specified")
        known = self._users.get(name)
        # Both are hashed, and compared for unknown users too. So the response time reveals neither
        # whether the user exists nor the length of the password.
        is_right = hmac.compare_digest(_digest(password), _digest(known or ""))
        if not is_right or known is None:
            raise _failed("Invalid username or password")
        if authorization_id not in ("", name):
            raise _failed("Client requested an authorization id that is different from username")
        self.identity = Identity(name)
        return b""


class PlainClient:
    """Sends one message. The response of the server is empty."""

    __slots__ = ("_message", "is_complete")

    def __init__(self, name: str, password: str) -> None:
        self._message = f"\0{name}\0{password}".encode()
        self.is_complete = False

    def first(self) -> bytes:
        """Return the only message."""
        return self._message

    def prepare(self, message: bytes) -> Callable[[], None] | None:
        """Return None: there is no slow work."""
        return None

    def respond(self, message: bytes) -> None:
        """Accept the response.

        Raises:
            SaslError: the response is not empty.
        """
        if message:
            raise SaslError("the response of the server to PLAIN is not empty")
        self.is_complete = True


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode("utf-8", "replace")).digest()


def _failed(detail: str) -> SaslError:
    # Kafka's texts, which are the same for an unknown user and for a wrong password.
    return SaslError(detail, f"Authentication failed: {detail}")
