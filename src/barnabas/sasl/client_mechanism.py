"""The client's side of a SASL mechanism: messages of the server in, messages for it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


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
