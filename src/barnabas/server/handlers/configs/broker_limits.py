"""Checks of changes to this broker's own configuration, for the handlers of such changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.configs.dynamic_config import GRADUAL, GradualKeys
from barnabas.server.listeners.tls_changes import TlsChanges

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.server.handlers.dependencies import NodeDependencies


class BrokerLimits:
    """The limits of gradual keys, and the checks of new key stores."""

    __slots__ = ("_gradual", "_tls")

    def __init__(self, dependencies: NodeDependencies) -> None:
        self._gradual = GradualKeys(dependencies.dynamic_config, dependencies.cluster)
        self._tls = TlsChanges(
            dependencies.dynamic_config, dependencies.cluster, dependencies.sockets
        )

    def check(self, resource: str, changes: Mapping[str, str | None]) -> None:
        """Raise Refusal for changes that this broker rejects."""
        self._gradual.check(resource, changes)
        self._tls.check(resource, changes)

    def removable(self, resource: str) -> list[str]:
        """Return the checked keys that a request removes if it replaces all keys."""
        return [*GRADUAL, *self._tls.current_keys(resource)]


def create_limits(dependencies: NodeDependencies) -> BrokerLimits | None:
    """Return the limits of this broker, or None on a controller, which accepts all changes."""
    if dependencies.alters_any_broker:
        return None
    return BrokerLimits(dependencies)
