"""The rights of the client that sent a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.acl_decision import Action, canonical_address
from barnabas.protocol.resources import (
    CLUSTER_NAME,
    LISTED_OPERATIONS,
    AclOperation,
    AclResourceType,
)
from barnabas.server.security.authorizer.authorizer import NotLoadedError

if TYPE_CHECKING:
    from barnabas.metadata.image import ClusterImage
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.server.security.authorizer.audit import AuditLog
    from barnabas.server.security.authorizer.authorizer import Authorizer
    from barnabas.settings.definition import ParsedConfig

_CLUSTER = int(AclResourceType.CLUSTER)


class Rights:
    """Rights of one client, from the authorizer. Denied operations are logged."""

    __slots__ = ("_audit", "_authorizer", "_context", "_host", "_principal", "config", "image")

    def __init__(
        self,
        context: RequestContext,
        authorizer: Authorizer,
        audit: AuditLog,
        image: ClusterImage,
        config: ParsedConfig,
    ) -> None:
        self._context = context
        self._authorizer = authorizer
        self._audit = audit
        self._principal = str(context.principal)
        self._host = canonical_address(context.host)
        # The latest metadata image, for the names of topic ids.
        self.image = image
        # Configuration of this node at its start.
        self.config = config

    @property
    def version(self) -> int:
        """Version of the request."""
        return self._context.version

    @property
    def is_loaded(self) -> bool:
        """Whether the access control entries are loaded. Until then, only super users are known."""
        return self._authorizer.is_loaded

    def allows(
        self, operation: int, resource_type: int, name: str, *, is_logged: bool = True
    ) -> bool:
        """See `Access.allows`."""
        try:
            if self._authorizer.allows(self._principal, self._host, operation, resource_type, name):
                return True
        except NotLoadedError:
            pass
        if is_logged:
            self._log(operation, resource_type, name)
        return False

    def allows_on_cluster(self, operation: int, *, is_logged: bool = True) -> bool:
        """Return whether the client may do an operation on the cluster."""
        return self.allows(operation, _CLUSTER, CLUSTER_NAME, is_logged=is_logged)

    def allows_any(self, operation: int, resource_type: int) -> bool:
        """Return whether the client may do an operation on at least one resource of a type."""
        try:
            if self._authorizer.allows_any(self._principal, self._host, operation, resource_type):
                return True
        except NotLoadedError:
            pass
        self._log(operation, resource_type, "*")
        return False

    def operations(self, resource_type: int, name: str) -> int:
        """See `Access.operations`."""
        return sum(
            1 << operation
            for operation in LISTED_OPERATIONS[resource_type]
            if self.allows(operation, resource_type, name, is_logged=False)
        )

    def _log(self, operation: int, resource_type: int, name: str) -> None:
        self._audit.denied(
            Action(self._principal, self._host, operation, resource_type, name),
            AclOperation(operation).name,
            AclResourceType(resource_type).name,
            self._context.source[0],
        )
