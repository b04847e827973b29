"""DescribeCluster (key 60, v0-2): describe the cluster id and its nodes (KIP-700).

A broker's listener describes brokers, a controller's listener controllers. v1 adds the type of node
that the client asks for (KIP-919), v2 fenced brokers (KIP-1073).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas.server.handlers.authorized_operations import cluster_operations
from barnabas.server.listeners.endpoint_type import BROKERS, CONTROLLERS, refuse_endpoint_type

if TYPE_CHECKING:
    from barnabas.raft.driver.raft_driver import RaftDriver
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.dispatch.request import Handle, RequestContext


def describe_cluster(cluster: ClusterView, cluster_id: str, node_id: int) -> Handle:
    """Return the handler that describes the cluster and its brokers."""

    def handle_describe_cluster(
        context: RequestContext, request: DescribeClusterRequest
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
            for broker in cluster.image.brokers.values()
            if (endpoint := broker.listeners.get(context.listener_name)) is not None
            and (request.include_fenced_brokers or not broker.fenced)
        ]
        response = DescribeClusterResponse(
            error_code=ErrorCode.NONE,
            cluster_id=cluster_id,
            controller_id=cluster.controller_for_clients(node_id),
            brokers=brokers,
        )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = cluster_operations(context.access)
        return response

    return handle_describe_cluster


def describe_controllers(cluster: ClusterView, cluster_id: str, quorum: RaftDriver) -> Handle:
    """Return the handler that describes the controllers."""

    def handle_describe_controllers(
        context: RequestContext, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        """Describe the controllers that have a listener with the name of the request's listener."""
        if request.endpoint_type != CONTROLLERS:
            return refuse_endpoint_type(request.endpoint_type, CONTROLLERS)
        controllers = [
            DescribeClusterBroker(
                broker_id=controller.id, host=endpoint.host, port=endpoint.port, rack=None
            )
            for controller in cluster.image.controllers.values()
            if (endpoint := controller.listeners.get(context.listener_name)) is not None
        ]
        response = DescribeClusterResponse(
            error_code=ErrorCode.NONE,
            endpoint_type=CONTROLLERS,
            cluster_id=cluster_id,
            controller_id=quorum.core.leader_and_epoch.leader_id,
            brokers=controllers,
        )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = cluster_operations(context.access)
        return response

    return handle_describe_controllers
