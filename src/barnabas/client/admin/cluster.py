"""Admin calls on the cluster: its nodes, their versions, finalized features and the metadata
quorum.

Sources: KIP-584, KIP-700, KIP-778, KIP-1073 (nodes, versions, features), KIP-631 (registrations),
KIP-595, KIP-836, KIP-853 (quorum).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.client.connections.connections import SOFTWARE_NAME, SOFTWARE_VERSION
from barnabas.client.connections.metadata_cache import NodeInfo
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.connection import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionDataRequest,
    ReplicaState,
    TopicDataRequest,
)
from barnabas.protocol.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas.protocol.messages.nodes import (
    FeatureUpdateKey,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UnregisterControllerRequest,
    UnregisterControllerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas.protocol.messages.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.protocol.schema import Message

__all__ = [
    "NO_DIRECTORY",
    "ClusterDescription",
    "QuorumDescription",
    "QuorumReplica",
    "UpgradeType",
    "Versions",
    "VoterEndpoint",
]

# From this version on, the response contains fenced brokers (KIP-1073).
_FENCED_FROM = 2
_KIND_FROM = 1
METADATA_TOPIC = "__cluster_metadata"
# Directory id of voters in a static quorum, and of all replicas if the broker is too old.
NO_DIRECTORY = bytes(16)


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


class UpgradeType(enum.IntEnum):
    """Allowed changes of a feature level, with Kafka's numbers."""

    UPGRADE = 1
    # Only downgrades without loss of metadata.
    SAFE_DOWNGRADE = 2
    # Also downgrades that lose metadata.
    UNSAFE_DOWNGRADE = 3


def update_features(
    levels: Mapping[str, int], kind: UpgradeType, timeout_ms: int, *, validate_only: bool
) -> AdminCall[bool]:
    """Set these levels, either all or none; a level of 0 removes the feature."""

    def build(version: int) -> Message:
        request = UpdateFeaturesRequest(timeout_ms=timeout_ms, feature_updates=[])
        for name, level in levels.items():
            update = FeatureUpdateKey(feature=name, max_version_level=level)
            if version >= _KIND_FROM:
                update.upgrade_type = int(kind)
            else:
                update.allow_downgrade = kind is not UpgradeType.UPGRADE
            request.feature_updates.append(update)
        request.validate_only = validate_only
        return request

    def read(response: Message) -> bool:
        assert isinstance(response, UpdateFeaturesResponse)
        raise_error(response.error_code, "update of features", response.error_message)
        for result in response.results:
            raise_error(result.error_code, f"feature {result.feature}", result.error_message)
        return True

    return AdminCall(ApiKey.UPDATE_FEATURES, build, read)


def unregister_broker(node: int) -> AdminCall[bool]:
    """Unregister a broker that was shut down permanently."""

    def build(_version: int) -> Message:
        return UnregisterBrokerRequest(broker_id=node)

    def read(response: Message) -> bool:
        assert isinstance(response, UnregisterBrokerResponse)
        raise_error(response.error_code, f"unregister broker {node}", response.error_message)
        return True

    return AdminCall(ApiKey.UNREGISTER_BROKER, build, read)


def unregister_controller(node: int) -> AdminCall[bool]:
    """Unregister a controller that was shut down permanently."""

    def build(_version: int) -> Message:
        return UnregisterControllerRequest(controller_id=node)

    def read(response: Message) -> bool:
        assert isinstance(response, UnregisterControllerResponse)
        raise_error(response.error_code, f"unregister controller {node}", response.error_message)
        return True

    return AdminCall(ApiKey.UNREGISTER_CONTROLLER, build, read)


class VoterEndpoint(NamedTuple):
    """Address at which a voter listens for other controllers."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A voter or observer of the metadata log; times in ms since 1970, -1 if unknown."""

    node_id: int
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int
    directory_id: bytes = NO_DIRECTORY


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The metadata quorum as its leader describes it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    # Endpoints of the voters by node id; empty if the broker does not send them.
    endpoints: Mapping[int, tuple[VoterEndpoint, ...]] = field(default_factory=dict)


def describe_quorum() -> AdminCall[QuorumDescription]:
    """Describe leader, voters and observers of the metadata log."""

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
            {
                node.node_id: tuple(
                    VoterEndpoint(each.name, each.host, each.port) for each in node.listeners
                )
                for node in response.nodes
            },
        )

    return AdminCall(ApiKey.DESCRIBE_QUORUM, build, read)


def _replicas(states: Iterable[ReplicaState]) -> tuple[QuorumReplica, ...]:
    return tuple(
        QuorumReplica(
            state.replica_id,
            state.log_end_offset,
            state.last_fetch_timestamp,
            state.last_caught_up_timestamp,
            state.replica_directory_id,
        )
        for state in states
    )


def add_voter(
    node_id: int, directory_id: bytes, endpoints: Sequence[VoterEndpoint], timeout_ms: int
) -> AdminCall[bool]:
    """Make an observer with the controller role a voter; DUPLICATE_VOTER if it is a voter."""

    def build(_version: int) -> Message:
        return AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=timeout_ms,
            voter_id=node_id,
            voter_directory_id=directory_id,
            listeners=[
                Listener(name=each.listener, host=each.host, port=each.port) for each in endpoints
            ],
        )

    def read(response: Message) -> bool:
        assert isinstance(response, AddRaftVoterResponse)
        raise_error(response.error_code, f"add voter {node_id}", response.error_message)
        return True

    return AdminCall(ApiKey.ADD_RAFT_VOTER, build, read)


def remove_voter(node_id: int, directory_id: bytes) -> AdminCall[bool]:
    """Remove a voter from the quorum."""

    def build(_version: int) -> Message:
        return RemoveRaftVoterRequest(
            cluster_id=None, voter_id=node_id, voter_directory_id=directory_id
        )

    def read(response: Message) -> bool:
        assert isinstance(response, RemoveRaftVoterResponse)
        raise_error(response.error_code, f"remove voter {node_id}", response.error_message)
        return True

    return AdminCall(ApiKey.REMOVE_RAFT_VOTER, build, read)
