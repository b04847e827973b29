"""The metadata quorum: describe it and change its voters (KIP-595, KIP-836, KIP-853)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import add_raft_voter
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionDataRequest,
    ReplicaState,
    TopicDataRequest,
)
from barnabas.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.protocol.schema import Message

__all__ = [
    "NO_DIRECTORY",
    "QuorumDescription",
    "QuorumReplica",
    "VoterEndpoint",
    "add_voter",
    "describe_quorum",
    "remove_voter",
]

METADATA_TOPIC = "__cluster_metadata"
# Directory id of voters in a static quorum, and of all replicas if the broker is too old.
NO_DIRECTORY = bytes(16)


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
                add_raft_voter.Listener(name=each.listener, host=each.host, port=each.port)
                for each in endpoints
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
