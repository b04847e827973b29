"""DescribeCluster (key 60, v0-2): describe the cluster id and brokers (KIP-700, 919, 1073)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas.server.handlers.authorized_operations import cluster_operations
from barnabas.server.listeners.endpoint_type import BROKERS, refuse_endpoint_type

if TYPE_CHECKING:
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that describes the cluster and its brokers."""
    return DescribeClusterHandler(dependencies).handle_describe_cluster


class DescribeClusterHandler:
    """Builds responses from the metadata image."""

    __slots__ = ("_cluster", "_cluster_id", "_node_id")

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._cluster = dependencies.cluster
        self._cluster_id = dependencies.cluster_id
        self._node_id = dependencies.node_id

    def handle_describe_cluster(
        self, context: RequestContext, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        """Describe the brokers that have a listener with the name of the request's listener."""
        if request.endpoint_type != BROKERS:
            return refuse_endpoint_type(request.endpoint_type, BROKERS)
        brokers = [
            DescribeClusterBroker(
                broker_id=broker.id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
            for broker in self._cluster.image.brokers.values()
            if (endpoint := broker.listeners.get(context.listener_name)) is not None
            and (request.include_fenced_brokers or not broker.fenced)
        ]
        response = DescribeClusterResponse(
            error_code=ErrorCode.NONE,
            cluster_id=self._cluster_id,
            controller_id=self._cluster.controller_for_clients(self._node_id),
            brokers=brokers,
        )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = cluster_operations(context.access)
        return response
