"""The rights that requests need, and the interface of their checks."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Right(Enum):
    """What a request does with a subject, or with the whole registry."""

    READ = auto()
    WRITE = auto()
    DELETE = auto()
    SHOW_CONFIG = auto()
    CONFIGURE = auto()


class Access(Protocol):
    """Checks the rights of principals."""

    async def check(self, principal: str, right: Right, subject: str | None) -> None:
        """Check a right on a subject or, with None, on the registry.

        Raises:
            RegistryError: The principal does not have it.
        """
        ...

    async def readable(self, principal: str, subjects: Sequence[str]) -> list[str]:
        """Return the subjects that a principal may read, in their order."""
        ...


class OpenAccess:
    """Every client may do everything."""

    async def check(self, principal: str, right: Right, subject: str | None) -> None:
        """Allow everything."""

    async def readable(self, principal: str, subjects: Sequence[str]) -> list[str]:
        """Return all subjects."""
        return list(subjects)
