"""Conversion of core requests to messages, and of response messages to core responses.

Values of a response are taken without checks. A response that lacks the requested partition is
rejected with UnusableResponseError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    add_raft_voter as add_messages,
    api_versions as versions_messages,
    begin_quorum_epoch as begin_messages,
    end_quorum_epoch as end_messages,
    fetch as fetch_messages,
    fetch_snapshot as snapshot_messages,
    remove_raft_voter as remove_messages,
    update_raft_voter as update_messages,
    vote as vote_messages,
)
from barnabas.raft.core import messages as core
from barnabas.raft.listener import NO_LEADER, SnapshotId
from barnabas.raft.log.metadata_log import METADATA_TOPIC, METADATA_TOPIC_ID
from barnabas.raft.replica_key import Address, ReplicaKey
from barnabas.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.protocol.schema import Message
    from barnabas.raft.config import RaftConfig

    T = TypeVar("T")

_FETCH_REPLICA_STATE = 15
_KRAFT_VERSION = "kraft.version"
# A request that names this key is meant for any voter that receives it.
_NO_VOTER = ReplicaKey(-1)


class UnusableResponseError(ValueError):
    """A response that does not match its request, or that has only an error."""

    def __init__(self, text: str, error: ErrorCode = ErrorCode.NONE) -> None:
        super().__init__(text)
        self.error = error


def request_message(request: core.Request, version: int, config: RaftConfig) -> Message:
    """Return the request message in the version that both sides support."""
    match request:
        case core.VoteRequest():
            return _vote(request, config)
        case core.BeginQuorumEpochRequest():
            return _begin_quorum_epoch(request, config)
        case core.EndQuorumEpochRequest():
            return _end_quorum_epoch(request, version, config)
        case core.FetchRequest():
            return _fetch(request, version, config)
        case core.FetchSnapshotRequest():
            return _fetch_snapshot(request, config)
        case core.AddVoterRequest():
            return _add_voter(request, config)
        case core.RemoveVoterRequest():
            return remove_messages.RemoveRaftVoterRequest(
                cluster_id=config.cluster_id,
                voter_id=request.voter.id,
                voter_directory_id=request.voter.directory_id,
            )
        case core.UpdateVoterRequest():
            return _update_voter(request, config)
        case core.SupportedVersionsRequest():
            return api_versions_request()
        case _:
            raise AssertionError(f"{request} cannot be sent")


def api_versions_request() -> versions_messages.ApiVersionsRequest:
    """Return an ApiVersions request; Kafka refuses one without a client software name."""
    return versions_messages.ApiVersionsRequest(
        client_software_name="barnabas", client_software_version=__version__
    )


def _vote(request: core.VoteRequest, config: RaftConfig) -> vote_messages.VoteRequest:
    voter = request.voter or _NO_VOTER
    return vote_messages.VoteRequest(
        cluster_id=config.cluster_id,
        voter_id=voter.id,
        topics=[
            vote_messages.TopicDataRequest(
                topic_name=METADATA_TOPIC,
                partitions=[
                    vote_messages.PartitionDataRequest(
                        partition_index=0,
                        replica_epoch=request.epoch,
                        replica_id=request.source.id,
                        replica_directory_id=request.source.directory_id,
                        voter_directory_id=voter.directory_id,
                        last_offset_epoch=request.last_epoch,
                        last_offset=request.end_offset,
                        pre_vote=request.pre_vote,
                    )
                ],
            )
        ],
    )


def _begin_quorum_epoch(
    request: core.BeginQuorumEpochRequest, config: RaftConfig
) -> begin_messages.BeginQuorumEpochRequest:
    voter = request.voter or _NO_VOTER
    return begin_messages.BeginQuorumEpochRequest(
        cluster_id=config.cluster_id,
        voter_id=voter.id,
        topics=[
            begin_messages.TopicDataRequest(
                topic_name=METADATA_TOPIC,
                partitions=[
                    begin_messages.PartitionDataRequest(
                        partition_index=0,
                        voter_directory_id=voter.directory_id,
                        leader_id=request.leader_id,
                        leader_epoch=request.epoch,
                    )
                ],
            )
        ],
        leader_endpoints=_listeners(begin_messages.LeaderEndpoint, config.advertised.items()),
    )


def _end_quorum_epoch(
    request: core.EndQuorumEpochRequest, version: int, config: RaftConfig
) -> end_messages.EndQuorumEpochRequest:
    partition = end_messages.PartitionDataRequest(
        partition_index=0, leader_id=request.leader_id, leader_epoch=request.epoch
    )
    if version == 0:
        partition.preferred_successors = [each.id for each in request.preferred_candidates]
    else:
        partition.preferred_candidates = [
            end_messages.ReplicaInfo(candidate_id=each.id, candidate_directory_id=each.directory_id)
            for each in request.preferred_candidates
        ]
    return end_messages.EndQuorumEpochRequest(
        cluster_id=config.cluster_id,
        topics=[end_messages.TopicDataRequest(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=_listeners(end_messages.LeaderEndpoint, config.advertised.items()),
    )


def _fetch(
    request: core.FetchRequest, version: int, config: RaftConfig
) -> fetch_messages.FetchRequest:
    message = fetch_messages.FetchRequest(
        cluster_id=config.cluster_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=0,
        max_bytes=request.max_bytes,
        topics=[
            fetch_messages.FetchTopic(
                topic=METADATA_TOPIC,
                topic_id=METADATA_TOPIC_ID,
                partitions=[
                    fetch_messages.FetchPartition(
                        partition=0,
                        current_leader_epoch=request.epoch,
                        fetch_offset=request.fetch_offset,
                        last_fetched_epoch=request.last_fetched_epoch,
                        partition_max_bytes=request.max_bytes,
                        replica_directory_id=request.source.directory_id,
                        high_watermark=request.high_watermark,
                    )
                ],
            )
        ],
    )
    if version >= _FETCH_REPLICA_STATE:
        message.replica_state = fetch_messages.ReplicaState(replica_id=request.source.id)
    else:
        message.replica_id = request.source.id
    return message


def _fetch_snapshot(
    request: core.FetchSnapshotRequest, config: RaftConfig
) -> snapshot_messages.FetchSnapshotRequest:
    return snapshot_messages.FetchSnapshotRequest(
        cluster_id=config.cluster_id,
        replica_id=request.source.id,
        max_bytes=request.max_bytes,
        topics=[
            snapshot_messages.TopicSnapshotRequest(
                name=METADATA_TOPIC,
                partitions=[
                    snapshot_messages.PartitionSnapshotRequest(
                        partition=0,
                        current_leader_epoch=request.epoch,
                        snapshot_id=snapshot_messages.SnapshotIdRequest(
                            end_offset=request.snapshot_id.end_offset,
                            epoch=request.snapshot_id.epoch,
                        ),
                        position=request.position,
                        replica_directory_id=request.source.directory_id,
                    )
                ],
            )
        ],
    )


def _add_voter(
    request: core.AddVoterRequest, config: RaftConfig
) -> add_messages.AddRaftVoterRequest:
    voter = request.voter
    return add_messages.AddRaftVoterRequest(
        cluster_id=config.cluster_id,
        timeout_ms=request.timeout_ms,
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory_id,
        listeners=_listeners(add_messages.Listener, voter.endpoints),
        ack_when_committed=request.ack_when_committed,
    )


def _update_voter(
    request: core.UpdateVoterRequest, config: RaftConfig
) -> update_messages.UpdateRaftVoterRequest:
    voter = request.voter
    return update_messages.UpdateRaftVoterRequest(
        cluster_id=config.cluster_id,
        current_leader_epoch=request.epoch,
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory_id,
        listeners=_listeners(update_messages.Listener, voter.endpoints),
        kraft_version_feature=update_messages.KRaftVersionFeature(
            min_supported_version=voter.min_version, max_supported_version=voter.max_version
        ),
    )


def _listeners(made: Callable[..., T], listeners: Iterable[tuple[str, tuple[str, int]]]) -> list[T]:
    """Return the listeners of this node, or of a voter, in the API's own class."""
    return [made(name=name, host=host, port=port) for name, (host, port) in listeners]


def core_response(message: Message, token: int, listener_name: str) -> core.Response:
    """Convert a response message to a core response.

    Raises:
        UnusableResponseError: the message does not match the request.
    """
    match message:
        case vote_messages.VoteResponse():
            vote = _only(message, message.topics)
            assert isinstance(vote, vote_messages.PartitionDataResponse)
            return core.VoteResponse(
                granted=vote.vote_granted,
                token=token,
                error=ErrorCode.of(vote.error_code),
                epoch=vote.leader_epoch,
                leader_id=vote.leader_id,
                leader_address=_address(vote.leader_id, message.node_endpoints),
            )
        case begin_messages.BeginQuorumEpochResponse() | end_messages.EndQuorumEpochResponse():
            partition = _only(message, message.topics)
            assert isinstance(
                partition, begin_messages.PartitionDataResponse | end_messages.PartitionDataResponse
            )
            return core.QuorumEpochResponse(
                token=token,
                error=ErrorCode.of(partition.error_code),
                epoch=partition.leader_epoch,
                leader_id=partition.leader_id,
                leader_address=_address(partition.leader_id, message.node_endpoints),
            )
        case fetch_messages.FetchResponse():
            return _fetch_response(message, token)
        case snapshot_messages.FetchSnapshotResponse():
            return _fetch_snapshot_response(message, token)
        case add_messages.AddRaftVoterResponse() | remove_messages.RemoveRaftVoterResponse():
            return core.VoterChangeResponse(
                message=message.error_message, token=token, error=ErrorCode.of(message.error_code)
            )
        case update_messages.UpdateRaftVoterResponse():
            return _update_voter_response(message, token)
        case versions_messages.ApiVersionsResponse():
            return _supported_versions(message, token)
        case _:
            raise UnusableResponseError(f"{listener_name}: {type(message).__name__}")


def _only(message: object, topics: Iterable[object]) -> object:
    """Return the metadata partition of a response."""
    error_code = getattr(message, "error_code", 0)
    if error_code:
        error = ErrorCode.of(error_code)
        raise UnusableResponseError(f"{type(message).__name__}: {error.name}", error)
    partitions = [each for topic in topics for each in getattr(topic, "partitions", ())]
    if len(partitions) != 1:
        raise UnusableResponseError(f"{type(message).__name__} has {len(partitions)} partitions")
    return partitions[0]


def _fetch_response(message: fetch_messages.FetchResponse, token: int) -> core.FetchResponse:
    data = _only(message, message.responses)
    assert isinstance(data, fetch_messages.PartitionData)
    leader, diverging, snapshot = data.current_leader, data.diverging_epoch, data.snapshot_id
    return core.FetchResponse(
        high_watermark=data.high_watermark,
        diverging=(
            core.DivergingEpoch(diverging.epoch, diverging.end_offset)
            if diverging.epoch >= 0
            else None
        ),
        snapshot_id=(
            SnapshotId(snapshot.end_offset, snapshot.epoch) if snapshot.end_offset >= 0 else None
        ),
        log_start_offset=data.log_start_offset,
        records=data.records,
        token=token,
        error=ErrorCode.of(data.error_code),
        epoch=leader.leader_epoch,
        leader_id=leader.leader_id,
        leader_address=_address(leader.leader_id, message.node_endpoints),
    )


def _fetch_snapshot_response(
    message: snapshot_messages.FetchSnapshotResponse, token: int
) -> core.FetchSnapshotResponse:
    data = _only(message, message.topics)
    assert isinstance(data, snapshot_messages.PartitionSnapshotResponse)
    leader = data.current_leader
    return core.FetchSnapshotResponse(
        snapshot_id=SnapshotId(data.snapshot_id.end_offset, data.snapshot_id.epoch),
        size=data.size,
        position=data.position,
        content=data.unaligned_records,
        token=token,
        error=ErrorCode.of(data.error_code),
        epoch=leader.leader_epoch,
        leader_id=leader.leader_id,
        leader_address=_address(leader.leader_id, message.node_endpoints),
    )


def _update_voter_response(
    message: update_messages.UpdateRaftVoterResponse, token: int
) -> core.VoterChangeResponse:
    leader = message.current_leader
    is_known = leader.leader_id != NO_LEADER and leader.port > 0
    return core.VoterChangeResponse(
        token=token,
        error=ErrorCode.of(message.error_code),
        epoch=leader.leader_epoch,
        leader_id=leader.leader_id,
        leader_address=Address(leader.host, leader.port) if is_known else None,
    )


def _supported_versions(
    message: versions_messages.ApiVersionsResponse, token: int
) -> core.SupportedVersionsResponse:
    for feature in message.supported_features:
        if feature.name == _KRAFT_VERSION:
            return core.SupportedVersionsResponse(
                min_version=feature.min_version,
                max_version=feature.max_version,
                token=token,
                error=ErrorCode.of(message.error_code),
            )
    return core.SupportedVersionsResponse(token=token, error=ErrorCode.of(message.error_code))


def _address(node_id: int, endpoints: Iterable[object]) -> Address | None:
    for each in endpoints:
        if getattr(each, "node_id", NO_LEADER) == node_id:
            return Address(getattr(each, "host", ""), getattr(each, "port", 0))
    return None
