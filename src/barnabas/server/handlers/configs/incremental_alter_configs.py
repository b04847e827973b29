"""IncrementalAlterConfigs (key 44, v0-1): set, delete or append values (KIP-339, KIP-412)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.protocol.messages.configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.server.configs.dynamic.config_admin import handle_locally
from barnabas.server.handlers.configs.broker_limits import create_limits
from barnabas.server.handlers.configs.forwarded_changes import forward_changes

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from barnabas.server.configs.dynamic.config_admin import Outcomes
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeDependencies


def handler(dependencies: NodeDependencies) -> Handle:
    """Return the handler that changes single configuration values."""
    return IncrementalAlterConfigsHandler(dependencies).handle_incremental_alter_configs


class IncrementalAlterConfigsHandler:
    """Changes logger levels on this broker, and forwards other changes to the active controller."""

    __slots__ = ("_forwarding", "_limits", "_node_id")

    def __init__(self, dependencies: NodeDependencies) -> None:
        self._forwarding = dependencies.forwarding
        self._node_id = dependencies.node_id
        self._limits = create_limits(dependencies)

    def handle_incremental_alter_configs(
        self, context: RequestContext, request: IncrementalAlterConfigsRequest
    ) -> Message | None:
        """Apply the changes. The response follows when the configurations are committed."""
        own_changes = handle_locally(
            self._node_id,
            request.resources,
            validate_only=request.validate_only,
            checks=self._limits,
        )
        return context.after(own_changes, partial(self._forward, context, request))

    def _forward(
        self, context: RequestContext, request: IncrementalAlterConfigsRequest, outcomes: Outcomes
    ) -> None:
        forward_changes(
            context,
            request,
            IncrementalAlterConfigsResponse,
            AlterConfigsResourceResponse,
            self._forwarding,
            outcomes,
        )
