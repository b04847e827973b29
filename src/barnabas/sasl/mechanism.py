"""Both sides of a SASL mechanism: messages of the peer in, messages for the peer out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable


class SaslError(Exception):
    """The peer's message is malformed, or its credentials are not accepted.

    Args:
        reason: what failed, for the log of this side. It never contains a secret.
        shown: text for the peer. None for a generic text, which does not tell whether the user
            exists.
        is_transient: whether the same login may succeed later, because a third server did not
            respond.
    """

    def __init__(
        self, reason: str, shown: str | None = None, *, is_transient: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.shown = shown
        self.is_transient = is_transient


class Identity(msgspec.Struct, frozen=True):
    """The result of a successful authentication."""

    # Name of the user, without a principal type.
    name: str
    # Whether the client used a delegation token. Such a client may not create tokens.
    is_token: bool = False
    # End of the credential, in ms since 1970 (a token's expiry). None: it does not expire.
    expiry_ms: int | None = None


class ServerMechanism(Protocol):
    """One exchange with one client. The caller passes each message once, until `identity` is set.

    The work for one message takes less than a millisecond: it runs on the event loop.
    """

    @property
    def identity(self) -> Identity | None:
        """The authenticated user; None until the exchange has succeeded."""
        ...

    @property
    def claimed_name(self) -> str | None:
        """The user name that the client has sent, verified or not, for logs. None before that."""
        ...

    def respond(self, message: bytes) -> bytes:
        """Return the response to a message of the client.

        Raises:
            SaslError: the authentication has failed.
        """
        ...


class ClientMechanism(Protocol):
    """One exchange with one server."""

    @property
    def is_complete(self) -> bool:
        """Whether the exchange is complete, including a proof of the server if required."""
        ...

    def first(self) -> bytes:
        """Return the first message."""
        ...

    def prepare(self, message: bytes) -> Callable[[], None] | None:
        """Return slow work that the caller does before `respond`, outside of the event loop.

        None: there is none. The work changes nothing but this exchange.

        Raises:
            SaslError: the message of the server is malformed.
        """
        ...

    def respond(self, message: bytes) -> bytes | None:
        """Return the next message; None if the server's message was the last one.

        Raises:
            SaslError: the server does not know the password, or has refused the login.
        """
        ...
