"""IncrementalAlterConfigs (key 44, v0-1): set, delete or append values (KIP-339, KIP-412)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.server.configs.dynamic.config_admin import handle_locally, merge_results
from barnabas.server.handlers.configs.broker_limits import create_limits

if TYPE_CHECKING:
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
    ) -> IncrementalAlterConfigsResponse | None:
        """Apply the changes. The response follows when the configurations are committed."""
        outcomes = handle_locally(
            self._node_id,
            request.resources,
            validate_only=request.validate_only,
            checks=self._limits,
        )
        rest = [each for index, each in enumerate(request.resources) if index not in outcomes]

        def on_forwarded(response: IncrementalAlterConfigsResponse) -> None:
            responses = merge_results(
                AlterConfigsResourceResponse, request.resources, outcomes, response.responses
            )
            context.respond(IncrementalAlterConfigsResponse(responses=responses))

        if not rest:
            responses = merge_results(AlterConfigsResourceResponse, request.resources, outcomes, [])
            return IncrementalAlterConfigsResponse(responses=responses)
        forwarded = IncrementalAlterConfigsRequest(
            resources=rest, validate_only=request.validate_only
        )
        self._forwarding.send(forwarded, on_forwarded, client_context=context)
        return None
