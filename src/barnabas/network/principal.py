"""Authenticated identity of a client (Kafka: KafkaPrincipal)."""

from __future__ import annotations

from typing import Final

import msgspec

USER: Final = "User"


class Principal(msgspec.Struct, frozen=True):
    """Type and name, written as `User:billing`."""

    name: str
    type: str = USER
    # Whether the client has authenticated with a delegation token.
    is_token: bool = False

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


# Principal of unauthenticated connections.
ANONYMOUS: Final = Principal("ANONYMOUS")


class UnknownPrincipalError(ValueError):
    """The client is authenticated, but its principal cannot be determined."""
