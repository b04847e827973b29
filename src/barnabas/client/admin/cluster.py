"""Admin calls on the cluster: its nodes, their versions, finalized features and the metadata
quorum.

Sources: KIP-584, KIP-700, KIP-778, KIP-1073 (nodes, versions, features), KIP-631 (registrations),
KIP-595, KIP-836, KIP-853 (quorum).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.client.admin.sender import AdminCall, fixed_call, raise_error
from barnabas.client.connections.cluster import ANY_NODE, CONTROLLER
from barnabas.client.connections.connections import SOFTWARE_NAME, SOFTWARE_VERSION
from barnabas.client.connections.metadata_cache import NodeInfo
from barnabas.client.errors import BrokerError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionDataRequest,
    ReplicaState,
    TopicDataRequest,
)
from barnabas.protocol.messages.metadata import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.nodes import (
    FeatureUpdateKey,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas.protocol.messages.quorum import AddRaftVoterRequest, Listener, RemoveRaftVoterRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.admin.sender import AdminSender, Plan
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


def describe_cluster(sender: AdminSender) -> Plan[ClusterDescription]:
    """Describe the cluster: its id, its controller and its brokers."""

    def build(version: int) -> Message:
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        if version >= _FENCED_FROM:
            request.include_fenced_brokers = True
        return request

    def read(response: DescribeClusterResponse) -> ClusterDescription:
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

    return sender.send(ANY_NODE, AdminCall(ApiKey.DESCRIBE_CLUSTER, build, read))


def broker_ids(sender: AdminSender) -> Plan[list[int]]:
    """Return the ids of all brokers that are not fenced."""
    described = yield from describe_cluster(sender)
    return [broker.id for broker in described.brokers]


def require_broker(sender: AdminSender, node: int) -> Plan[None]:
    """Ensure that the cached metadata contains a broker.

    Raises:
        BrokerError: BROKER_NOT_AVAILABLE: the cluster has no broker with this id.
    """
    if node == ANY_NODE or node in sender.cluster.metadata.nodes:
        return
    known = yield from broker_ids(sender)
    if node not in known:
        brokers = ", ".join(map(str, sorted(known)))
        raise BrokerError(
            ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node}", f"the brokers are: {brokers}"
        )
    yield from sender.refresh()


def describe_versions(sender: AdminSender, node: int = ANY_NODE) -> Plan[Versions]:
    """Return the API versions and feature levels of a broker; by default of any broker."""
    yield from require_broker(sender, node)

    def build(version: int) -> Message:
        if version < 3:
            return ApiVersionsRequest()
        return ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )

    def read(response: ApiVersionsResponse) -> Versions:
        raise_error(response.error_code, "versions")
        return Versions(
            {each.api_key: (each.min_version, each.max_version) for each in response.api_keys},
            {f.name: (f.min_version, f.max_version) for f in response.supported_features},
            {f.name: f.max_version_level for f in response.finalized_features},
        )

    call = AdminCall(ApiKey.API_VERSIONS, build, read)
    return (yield from sender.send(node, call))


class UpgradeType(enum.IntEnum):
    """Allowed changes of a feature level, with Kafka's numbers."""

    UPGRADE = 1
    # Only downgrades without loss of metadata.
    SAFE_DOWNGRADE = 2
    # Also downgrades that lose metadata.
    UNSAFE_DOWNGRADE = 3


def update_features(
    sender: AdminSender,
    levels: Mapping[str, int],
    *,
    kind: UpgradeType = UpgradeType.UPGRADE,
    validate_only: bool = False,
) -> Plan[None]:
    """Set finalized feature levels; a level of 0 removes the feature (KIP-584).

    Raises:
        BrokerError: FEATURE_UPDATE_FAILED or INVALID_UPDATE_VERSION; no feature was changed.
    """

    def build(version: int) -> Message:
        request = UpdateFeaturesRequest(timeout_ms=sender.timeout_ms, feature_updates=[])
        for name, level in levels.items():
            update = FeatureUpdateKey(feature=name, max_version_level=level)
            if version >= _KIND_FROM:
                update.upgrade_type = int(kind)
            else:
                update.allow_downgrade = kind is not UpgradeType.UPGRADE
            request.feature_updates.append(update)
        request.validate_only = validate_only
        return request

    def read(response: UpdateFeaturesResponse) -> bool:
        raise_error(response.error_code, "update of features", response.error_message)
        for result in response.results:
            raise_error(result.error_code, f"feature {result.feature}", result.error_message)
        return True

    call = AdminCall(ApiKey.UPDATE_FEATURES, build, read)
    yield from sender.send(CONTROLLER, call)


def unregister_broker(sender: AdminSender, node: int) -> Plan[None]:
    """Remove a broker from the cluster metadata after it was shut down permanently."""
    request = UnregisterBrokerRequest(broker_id=node)
    yield from _change(sender, CONTROLLER, request, f"unregister broker {node}")


def unregister_controller(sender: AdminSender, node: int) -> Plan[None]:
    """Remove a controller from the cluster metadata after it was shut down permanently."""
    request = UnregisterControllerRequest(controller_id=node)
    yield from _change(sender, CONTROLLER, request, f"unregister controller {node}")


def _change(sender: AdminSender, to: int, request: Message, subject: str) -> Plan[None]:
    """Send a change whose response only has an error code and a message."""

    def read(response: Any) -> bool:
        raise_error(response.error_code, subject, response.error_message)
        return True

    yield from sender.send(to, fixed_call(request, read))


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


def describe_quorum(sender: AdminSender, *, once: bool = False) -> Plan[QuorumDescription]:
    """Describe the metadata quorum; `once` makes one attempt only."""
    partitions = [PartitionDataRequest(partition_index=0)]
    topic = TopicDataRequest(topic_name=METADATA_TOPIC, partitions=partitions)

    def read(response: DescribeQuorumResponse) -> QuorumDescription:
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

    call = fixed_call(DescribeQuorumRequest(topics=[topic]), read)
    return sender.send(ANY_NODE, call, once=once)


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
    sender: AdminSender, node: int, directory_id: bytes, endpoints: Sequence[VoterEndpoint]
) -> Plan[None]:
    """Make a controller that is an observer of the metadata log a voter of the quorum."""
    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=sender.timeout_ms,
        voter_id=node,
        voter_directory_id=directory_id,
        listeners=[
            Listener(name=each.listener, host=each.host, port=each.port) for each in endpoints
        ],
    )
    yield from _change(sender, ANY_NODE, request, f"add voter {node}")


def remove_voter(sender: AdminSender, node: int, directory_id: bytes) -> Plan[None]:
    """Remove a voter from the metadata quorum."""
    request = RemoveRaftVoterRequest(
        cluster_id=None, voter_id=node, voter_directory_id=directory_id
    )
    yield from _change(sender, ANY_NODE, request, f"remove voter {node}")
