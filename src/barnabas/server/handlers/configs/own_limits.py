"""Limits of gradual keys for the handlers that change configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.configs.gradual_keys import GradualKeys

if TYPE_CHECKING:
    from barnabas.server.handlers.dependencies import NodeDependencies


def own_limits(dependencies: NodeDependencies) -> GradualKeys | None:
    """Return the limits for this broker, or None on controllers, which accept any broker's keys."""
    if dependencies.alters_any_broker:
        return None
    return GradualKeys(dependencies.dynamic_config, dependencies.cluster)
