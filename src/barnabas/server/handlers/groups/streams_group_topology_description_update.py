"""StreamsGroupTopologyDescriptionUpdate (key 93, v0): descriptions of topologies (KIP-1331).

Kafka passes descriptions to a plugin. Without a plugin, which is the default, it refuses them. A
client sends a description only if a heartbeat has asked for it, which needs a plugin as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.streams_groups import (
    StreamsGroupTopologyDescriptionUpdateResponse,
)

if TYPE_CHECKING:
    from barnabas.protocol.messages.streams_groups import (
        StreamsGroupTopologyDescriptionUpdateRequest,
    )
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

_NO_PLUGIN = "The broker has no streams group topology description plugin configured."


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that refuses descriptions."""
    cluster = dependencies.cluster

    def handle_topology_description_update(
        _context: RequestContext, _request: StreamsGroupTopologyDescriptionUpdateRequest
    ) -> StreamsGroupTopologyDescriptionUpdateResponse:
        error = ErrorCode.UNSUPPORTED_VERSION
        is_enabled = cluster.image.features.has_streams_groups
        return failed_description_update(error, _NO_PLUGIN if is_enabled else error.message)

    return handle_topology_description_update


def failed_description_update(
    error: ErrorCode, message: str
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """Return the response with an error."""
    return StreamsGroupTopologyDescriptionUpdateResponse(error_code=error, error_message=message)
