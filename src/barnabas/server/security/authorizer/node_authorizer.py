"""All components of a node's authorizer. Imported only if an authorizer is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.security.authorizer.audit import AuditLog
from barnabas.server.security.authorizer.authorizer import Authorizer
from barnabas.server.security.authorizer.checks.table import (
    BROKER_CHECKS,
    CONTROLLER_CHECKS,
    CONTROLLER_LISTENER_CHECKS,
)
from barnabas.server.security.authorizer.guard import Guard
from barnabas.server.security.authorizer.rights import Rights

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.metadata.acls import AclsImage
    from barnabas.metadata.image import ClusterImage
    from barnabas.runtime.clock import Clock
    from barnabas.server.configs.authorizer_config import AuthorizerConfig
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.settings.definition import ParsedConfig


class NodeAuthorizer:
    """Creates the rights of each request's client, and the checks of each kind of listener."""

    def __init__(
        self,
        authorizer_config: AuthorizerConfig,
        config: ParsedConfig,
        clock: Clock,
        find_image: Callable[[], ClusterImage],
        is_loaded: Callable[[], bool],
    ) -> None:
        """Args:
        authorizer_config: super users and default.
        config: configuration of the node at its start.
        clock: limits the rate of log lines.
        find_image: returns the latest metadata.
        is_loaded: returns whether the metadata has been up to date once.
        """
        self._config = config
        self._find_image = find_image
        self._is_loaded = is_loaded
        self._authorizer = Authorizer(authorizer_config, self._loaded_acls)
        self._audit = AuditLog(clock)

    def of(self, context: RequestContext) -> Rights:
        """Return the rights of the client that sent a request."""
        return Rights(context, self._authorizer, self._audit, self._find_image(), self._config)

    def find_acls(self) -> AclsImage:
        """Return the current access control entries."""
        return self._find_image().acls

    def broker_guard(self) -> Guard:
        """Return the checks of requests on a broker's listeners."""
        return Guard(self, BROKER_CHECKS, CONTROLLER_CHECKS)

    def controller_guard(self) -> Guard:
        """Return the checks of requests to the controller of this process."""
        return Guard(self, CONTROLLER_CHECKS)

    def listener_guard(self) -> Guard:
        """Return the checks of requests on a controller's listeners."""
        return Guard(self, CONTROLLER_LISTENER_CHECKS, CONTROLLER_CHECKS)

    def _loaded_acls(self) -> AclsImage | None:
        return self._find_image().acls if self._is_loaded() else None
