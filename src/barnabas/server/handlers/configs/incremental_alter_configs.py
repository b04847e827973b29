"""IncrementalAlterConfigs (key 44, v0-1): set, delete or append values (KIP-339, KIP-412)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.server.configs.config_admin import handle_locally, merge_results
from barnabas.server.handlers.configs.own_limits import own_limits

if TYPE_CHECKING:
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeDependencies


def handler(dependencies: NodeDependencies) -> Handle:
    """Return the handler that changes single configuration values."""
    return IncrementalAlterConfigsHandler(dependencies).handle_incremental_alter_configs


class IncrementalAlterConfigsHandler:
    """Changes logger levels on this broker, and forwards other changes to the active controller."""

    __slots__ = ("_forwarding", "_node_id", "_own")

    def __init__(self, dependencies: NodeDependencies) -> None:
        self._forwarding = dependencies.forwarding
        self._node_id = dependencies.node_id
        self._own = own_limits(dependencies)

    def handle_incremental_alter_configs(
        self, context: RequestContext, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse | None:
        """Apply the changes. The response follows when the configurations are committed."""
        outcomes = handle_locally(
            self._node_id,
            request.resources,
            validate_only=request.validate_only,
            own=self._own,
        )
        rest = [each for place, each in enumerate(request.resources) if place not in outcomes]

        def on_rest(response: IncrementalAlterConfigsResponse) -> None:
            answers = merge_results(
                AlterConfigsResourceResponse, request.resources, outcomes, response.responses
            )
            context.respond(IncrementalAlterConfigsResponse(responses=answers))

        if not rest:
            answers = merge_results(AlterConfigsResourceResponse, request.resources, outcomes, [])
            return IncrementalAlterConfigsResponse(responses=answers)
        forwarded = IncrementalAlterConfigsRequest(
            resources=rest, validate_only=request.validate_only
        )
        self._forwarding.send(forwarded, on_rest, client_context=context)
        return None
