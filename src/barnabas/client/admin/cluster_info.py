"""The cluster, its metadata quorum, and what its brokers speak (KIP-700, KIP-595, KIP-584)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.client.connections import SOFTWARE_NAME, SOFTWARE_VERSION
from barnabas.client.metadata_cache import NodeInfo
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionDataRequest,
    ReplicaState,
    TopicDataRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.protocol.schema import Message

__all__ = [
    "ClusterDescription",
    "QuorumDescription",
    "QuorumReplica",
    "Versions",
    "describe_cluster",
    "describe_quorum",
    "describe_versions",
]

METADATA_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id, its controller as clients are told, and its brokers."""

    cluster_id: str
    controller_id: int
    brokers: tuple[NodeInfo, ...]


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A voter or observer of the metadata log; times are ms, -1 if not known."""

    node_id: int
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The metadata quorum as its leader sees it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


@dataclass(frozen=True, slots=True)
class Versions:
    """What one broker speaks."""

    # First and last version by API number.
    apis: dict[int, tuple[int, int]]
    # First and last level by feature.
    supported_features: dict[str, tuple[int, int]]
    # Level by feature.
    finalized_features: dict[str, int]


def describe_cluster() -> AdminCall[ClusterDescription]:
    """The cluster's id, controller and brokers."""

    def build(_version: int) -> Message:
        return DescribeClusterRequest(include_cluster_authorized_operations=False)

    def read(response: Message) -> ClusterDescription:
        assert isinstance(response, DescribeClusterResponse)
        raise_error(response.error_code, "describe cluster", response.error_message)
        brokers = tuple(NodeInfo(b.broker_id, b.host, b.port, b.rack) for b in response.brokers)
        return ClusterDescription(response.cluster_id, response.controller_id, brokers)

    return AdminCall(ApiKey.DESCRIBE_CLUSTER, build, read)


def describe_quorum() -> AdminCall[QuorumDescription]:
    """Leader, voters and observers of the metadata log."""

    def build(_version: int) -> Message:
        partitions = [PartitionDataRequest(partition_index=0)]
        topic = TopicDataRequest(topic_name=METADATA_TOPIC, partitions=partitions)
        return DescribeQuorumRequest(topics=[topic])

    def read(response: Message) -> QuorumDescription:
        assert isinstance(response, DescribeQuorumResponse)
        raise_error(response.error_code, "metadata quorum", response.error_message)
        partition = response.topics[0].partitions[0]
        raise_error(partition.error_code, "metadata quorum", partition.error_message)
        return QuorumDescription(
            partition.leader_id,
            partition.leader_epoch,
            partition.high_watermark,
            _replicas(partition.current_voters),
            _replicas(partition.observers),
        )

    return AdminCall(ApiKey.DESCRIBE_QUORUM, build, read)


def _replicas(states: Iterable[ReplicaState]) -> tuple[QuorumReplica, ...]:
    return tuple(
        QuorumReplica(
            state.replica_id,
            state.log_end_offset,
            state.last_fetch_timestamp,
            state.last_caught_up_timestamp,
        )
        for state in states
    )


def describe_versions() -> AdminCall[Versions]:
    """APIs and features of the broker that is asked."""

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
