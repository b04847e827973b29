"""Interface of an authorizer for request handlers. `server/security/authorizer` implements it."""

from __future__ import annotations

from typing import Protocol


class Access(Protocol):
    """The rights of the client that sent a request."""

    def allows(
        self, operation: int, resource_type: int, name: str, *, is_logged: bool = True
    ) -> bool:
        """Return whether the client may do an operation on a resource.

        Args:
            operation: an `AclOperation`.
            resource_type: an `AclResourceType`.
            name: name of the resource, which is not a pattern.
            is_logged: whether a refusal is logged. False if the client did not name the resource.
        """
        ...

    def operations(self, resource_type: int, name: str) -> int:
        """Return the bit field of the operations that the client may do on a resource (KIP-430)."""
        ...
