"""AlterConfigs (key 33, v0-2): replace all configuration values of resources (KIP-133)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from barnabas.server.configs.config_admin import handle_legacy_locally
from barnabas.server.handlers.configs.broker_limits import create_limits
from barnabas.server.handlers.configs.forwarded_changes import forward_changes

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from barnabas.server.configs.config_admin import Outcomes
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeDependencies


def handler(dependencies: NodeDependencies) -> Handle:
    """Return the handler that replaces configurations."""
    return AlterConfigsHandler(dependencies).handle_alter_configs


class AlterConfigsHandler:
    """Rejects resources of other brokers, and forwards the rest to the active controller."""

    __slots__ = ("_forwarding", "_limits", "_node_id")

    def __init__(self, dependencies: NodeDependencies) -> None:
        self._forwarding = dependencies.forwarding
        self._node_id = dependencies.node_id
        self._limits = create_limits(dependencies)

    def handle_alter_configs(
        self, context: RequestContext, request: AlterConfigsRequest
    ) -> Message | None:
        """Forward the request. The response follows when the configurations are committed."""
        return context.after(
            handle_legacy_locally(self._node_id, request.resources, self._limits),
            partial(self._forward, context, request),
        )

    def _forward(
        self, context: RequestContext, request: AlterConfigsRequest, outcomes: Outcomes
    ) -> None:
        forward_changes(
            context,
            request,
            AlterConfigsResponse,
            AlterConfigsResourceResponse,
            self._forwarding,
            outcomes,
        )
