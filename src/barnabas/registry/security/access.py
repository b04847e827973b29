"""The rights that requests need, and the interfaces of logins and of checks."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.protocol.resources import AclOperation

if TYPE_CHECKING:
    from collections.abc import Sequence

ANONYMOUS = "User:ANONYMOUS"


class Caller(NamedTuple):
    """The client of a request."""

    # TYPE:NAME.
    principal: str
    # The address.
    host: str


class Right(Enum):
    """What a request does with a subject: the operation on the topic of the same name."""

    READ = AclOperation.DESCRIBE
    WRITE = AclOperation.WRITE
    DELETE = AclOperation.DELETE
    SHOW_CONFIG = AclOperation.DESCRIBE_CONFIGS
    CONFIGURE = AclOperation.ALTER_CONFIGS


class Login(Protocol):
    """Finds out which principal a client is."""

    async def caller(self, authorization: str | None, host: str) -> Caller:
        """Return the client of a request.

        Args:
            authorization: The header of this name; None without one.
            host: The address of the client.

        Raises:
            RegistryError: The client has not logged in, or its password is wrong.
        """
        ...


class Access(Protocol):
    """Checks the rights of principals."""

    async def check(self, caller: Caller, right: Right, subject: str | None) -> None:
        """Check a right on a subject or, with None, on the whole registry.

        Raises:
            RegistryError: The principal does not have it.
        """
        ...

    async def readable(self, caller: Caller, subjects: Sequence[str]) -> list[str]:
        """Return the subjects that a principal may read, in their order."""
        ...


class NoLogin:
    """Every client is anonymous."""

    async def caller(self, authorization: str | None, host: str) -> Caller:
        """Return an anonymous client."""
        return Caller(ANONYMOUS, host)


class OpenAccess:
    """Every client may do everything."""

    async def check(self, caller: Caller, right: Right, subject: str | None) -> None:
        """Allow everything."""

    async def readable(self, caller: Caller, subjects: Sequence[str]) -> list[str]:
        """Return all subjects."""
        return list(subjects)
