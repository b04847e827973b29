"""The server's side of a SASL mechanism: messages of the client in, messages for it out."""

from __future__ import annotations

from typing import Protocol

import msgspec


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
