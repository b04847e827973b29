"""DescribeCluster on a controller listener (key 60, v0-2): describe the controllers (KIP-919)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas.server.handlers.authorized_operations import cluster_operations
from barnabas.server.listeners.endpoint_type import CONTROLLERS, refuse_endpoint_type

if TYPE_CHECKING:
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeDependencies


def handler(dependencies: NodeDependencies) -> Handle:
    """Return the handler that describes the controllers."""
    return DescribeControllersHandler(dependencies).handle_describe_controllers


class DescribeControllersHandler:
    """Builds responses from the metadata image and the quorum."""

    __slots__ = ("_cluster", "_cluster_id", "_quorum")

    def __init__(self, dependencies: NodeDependencies) -> None:
        self._cluster = dependencies.cluster
        self._cluster_id = dependencies.cluster_id
        self._quorum = dependencies.quorum

    def handle_describe_controllers(
        self, context: RequestContext, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        """Describe the controllers that have a listener with the name of the request's listener."""
        if request.endpoint_type != CONTROLLERS:
            return refuse_endpoint_type(request.endpoint_type, CONTROLLERS)
        controllers = [
            DescribeClusterBroker(
                broker_id=controller.id, host=endpoint.host, port=endpoint.port, rack=None
            )
            for controller in self._cluster.image.controllers.values()
            if (endpoint := controller.listeners.get(context.listener_name)) is not None
        ]
        response = DescribeClusterResponse(
            error_code=ErrorCode.NONE,
            endpoint_type=CONTROLLERS,
            cluster_id=self._cluster_id,
            controller_id=self._quorum.core.leader_and_epoch.leader_id,
            brokers=controllers,
        )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = cluster_operations(context.access)
        return response
