"""Describes the cluster and the versions of its brokers (KIP-700, KIP-1073, KIP-584)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.client.connections.connections import SOFTWARE_NAME, SOFTWARE_VERSION
from barnabas.client.connections.metadata_cache import NodeInfo
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message

__all__ = [
    "ClusterDescription",
    "Versions",
    "describe_cluster",
    "describe_versions",
]

# From this version on, the response contains fenced brokers (KIP-1073).
_FENCED_FROM = 2


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id, its controller as reported to clients, and its brokers."""

    cluster_id: str
    controller_id: int
    # The brokers that serve clients.
    brokers: tuple[NodeInfo, ...]
    # Registered brokers that are fenced: stopped, failed or starting. Empty if the responding
    # broker is too old.
    fenced: tuple[NodeInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class Versions:
    """API versions and feature levels of one broker."""

    # (first, last) version by API key.
    apis: dict[int, tuple[int, int]]
    # (first, last) level by feature.
    supported_features: dict[str, tuple[int, int]]
    # Finalized level by feature.
    finalized_features: dict[str, int]


def describe_cluster() -> AdminCall[ClusterDescription]:
    """Describe the cluster's id, controller and brokers."""

    def build(version: int) -> Message:
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        if version >= _FENCED_FROM:
            request.include_fenced_brokers = True
        return request

    def read(response: Message) -> ClusterDescription:
        assert isinstance(response, DescribeClusterResponse)
        raise_error(response.error_code, "describe cluster", response.error_message)
        brokers, fenced = (
            tuple(
                NodeInfo(b.broker_id, b.host, b.port, b.rack)
                for b in response.brokers
                if b.is_fenced is is_fenced
            )
            for is_fenced in (False, True)
        )
        return ClusterDescription(response.cluster_id, response.controller_id, brokers, fenced)

    return AdminCall(ApiKey.DESCRIBE_CLUSTER, build, read)


def describe_versions() -> AdminCall[Versions]:
    """Return the API versions and features of the receiving broker."""

    def build(version: int) -> Message:
        if version < 3:
            return ApiVersionsRequest()
        return ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )

    def read(response: Message) -> Versions:
        assert isinstance(response, ApiVersionsResponse)
        raise_error(response.error_code, "versions")
        return Versions(
            {each.api_key: (each.min_version, each.max_version) for each in response.api_keys},
            {f.name: (f.min_version, f.max_version) for f in response.supported_features},
            {f.name: f.max_version_level for f in response.finalized_features},
        )

    return AdminCall(ApiKey.API_VERSIONS, build, read)
