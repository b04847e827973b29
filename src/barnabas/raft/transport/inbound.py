"""Conversion of incoming quorum requests to core requests, and of core responses to messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    add_raft_voter as add_messages,
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
from barnabas.raft.voter_set import Voter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.protocol.schema import Message
    from barnabas.raft.core.messages import Reply, Request, Response

    T = TypeVar("T")

# From these versions on, the responses include the leader's endpoint.
_FETCH_ENDPOINTS = 16
_OTHER_ENDPOINTS = 1


def cluster_id_of(message: Message) -> str | None:
    """Return the cluster id that a request names; None if it names none."""
    return getattr(message, "cluster_id", None)


def core_request(message: Message, listener_name: str, reply_to: Reply) -> Request | None:
    """Return the core request; None if the message is not about the metadata partition."""
    match message:
        case vote_messages.VoteRequest():
            return _vote(message, reply_to)
        case begin_messages.BeginQuorumEpochRequest():
            return _begin_quorum_epoch(message, listener_name, reply_to)
        case end_messages.EndQuorumEpochRequest():
            return _end_quorum_epoch(message, listener_name, reply_to)
        case fetch_messages.FetchRequest():
            return _fetch(message, reply_to)
        case snapshot_messages.FetchSnapshotRequest():
            return _fetch_snapshot(message, reply_to)
        case add_messages.AddRaftVoterRequest():
            return core.AddVoterRequest(
                Voter(
                    ReplicaKey(message.voter_id, message.voter_directory_id),
                    _listeners(message.listeners),
                ),
                message.timeout_ms,
                message.ack_when_committed,
                reply_to=reply_to,
            )
        case remove_messages.RemoveRaftVoterRequest():
            key = ReplicaKey(message.voter_id, message.voter_directory_id)
            return core.RemoveVoterRequest(key, reply_to=reply_to)
        case update_messages.UpdateRaftVoterRequest():
            feature = message.kraft_version_feature
            voter = Voter(
                ReplicaKey(message.voter_id, message.voter_directory_id),
                _listeners(message.listeners),
                feature.min_supported_version,
                feature.max_supported_version,
            )
            return core.UpdateVoterRequest(voter, message.current_leader_epoch, reply_to=reply_to)
        case _:
            raise AssertionError(f"{type(message).__name__} is not a quorum request")


def _vote(message: vote_messages.VoteRequest, reply_to: Reply) -> Request | None:
    data = _only(message.topics)
    if data is None:
        return None
    assert isinstance(data, vote_messages.PartitionDataRequest)
    return core.VoteRequest(
        ReplicaKey(data.replica_id, data.replica_directory_id),
        data.replica_epoch,
        data.last_offset_epoch,
        data.last_offset,
        data.pre_vote,
        _voter(message.voter_id, data.voter_directory_id),
        reply_to=reply_to,
    )


def _begin_quorum_epoch(
    message: begin_messages.BeginQuorumEpochRequest, listener_name: str, reply_to: Reply
) -> Request | None:
    data = _only(message.topics)
    if data is None:
        return None
    assert isinstance(data, begin_messages.PartitionDataRequest)
    return core.BeginQuorumEpochRequest(
        data.leader_id,
        data.leader_epoch,
        _own_address(message.leader_endpoints, listener_name),
        _voter(message.voter_id, data.voter_directory_id),
        reply_to=reply_to,
    )


def _end_quorum_epoch(
    message: end_messages.EndQuorumEpochRequest, listener_name: str, reply_to: Reply
) -> Request | None:
    data = _only(message.topics)
    if data is None:
        return None
    assert isinstance(data, end_messages.PartitionDataRequest)
    candidates = [
        ReplicaKey(each.candidate_id, each.candidate_directory_id)
        for each in data.preferred_candidates
    ] or [ReplicaKey(each) for each in data.preferred_successors]
    return core.EndQuorumEpochRequest(
        data.leader_id,
        data.leader_epoch,
        tuple(candidates),
        _own_address(message.leader_endpoints, listener_name),
        reply_to=reply_to,
    )


def _fetch(message: fetch_messages.FetchRequest, reply_to: Reply) -> Request | None:
    topics = message.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    if topics[0].topic != METADATA_TOPIC and topics[0].topic_id != METADATA_TOPIC_ID:
        return None
    data = topics[0].partitions[0]
    if data.partition != 0:
        return None
    named = message.replica_state.replica_id
    replica_id = message.replica_id if named < 0 else named
    return core.FetchRequest(
        ReplicaKey(replica_id, data.replica_directory_id),
        data.current_leader_epoch,
        data.fetch_offset,
        data.last_fetched_epoch,
        data.high_watermark,
        message.max_wait_ms,
        message.max_bytes,
        reply_to=reply_to,
    )


def _fetch_snapshot(
    message: snapshot_messages.FetchSnapshotRequest, reply_to: Reply
) -> Request | None:
    topics = message.topics
    if len(topics) != 1 or topics[0].name != METADATA_TOPIC or len(topics[0].partitions) != 1:
        return None
    data = topics[0].partitions[0]
    if data.partition != 0:
        return None
    return core.FetchSnapshotRequest(
        ReplicaKey(message.replica_id, data.replica_directory_id),
        data.current_leader_epoch,
        SnapshotId(data.snapshot_id.end_offset, data.snapshot_id.epoch),
        data.position,
        message.max_bytes,
        reply_to=reply_to,
    )


def _only(topics: Iterable[object]) -> object | None:
    """Return the metadata partition if it is the only requested partition; otherwise None."""
    found = [
        (getattr(topic, "topic_name", ""), each)
        for topic in topics
        for each in getattr(topic, "partitions", ())
    ]
    if len(found) != 1 or found[0][0] != METADATA_TOPIC:
        return None
    partition = found[0][1]
    return partition if partition.partition_index == 0 else None


def _voter(node_id: int, directory_id: bytes) -> ReplicaKey | None:
    return None if node_id < 0 else ReplicaKey(node_id, directory_id)


def _listeners(listeners: Iterable[object]) -> tuple[tuple[str, Address], ...]:
    return tuple(
        (getattr(each, "name", ""), Address(getattr(each, "host", ""), getattr(each, "port", 0)))
        for each in listeners
    )


def _own_address(endpoints: Iterable[object], listener_name: str) -> Address | None:
    return dict(_listeners(endpoints)).get(listener_name)


def response_message(request: Request, response: Response, version: int) -> Message:
    """Return the response message in the version of the request."""
    match response:
        case core.VoteResponse():
            return vote_messages.VoteResponse(
                error_code=ErrorCode.NONE,
                topics=[
                    vote_messages.TopicDataResponse(
                        topic_name=METADATA_TOPIC,
                        partitions=[
                            vote_messages.PartitionDataResponse(
                                partition_index=0,
                                error_code=response.error,
                                leader_id=response.leader_id,
                                leader_epoch=response.epoch,
                                vote_granted=response.granted,
                            )
                        ],
                    )
                ],
                node_endpoints=_leader(
                    vote_messages.NodeEndpoint, response, version >= _OTHER_ENDPOINTS
                ),
            )
        case core.QuorumEpochResponse():
            messages, made = _EPOCH_MESSAGES[type(request)]
            return _epoch_response(messages, made, response, version)
        case core.FetchResponse():
            return _fetch_response(response, version)
        case core.FetchSnapshotResponse():
            return _fetch_snapshot_response(response, version)
        case core.VoterChangeResponse():
            return _voter_change_response(request, response)
        case _:
            raise AssertionError(f"{response} is not a response")


def _epoch_response(
    messages: Any, made: Callable[..., Message], response: Response, version: int
) -> Message:
    """Return the response to BeginQuorumEpoch or EndQuorumEpoch, which have the same fields.

    Args:
        messages: the module of the API's message classes.
        made: the API's response class.
        response: the core response.
        version: the version of the request.
    """
    partition = messages.PartitionDataResponse(
        partition_index=0,
        error_code=response.error,
        leader_id=response.leader_id,
        leader_epoch=response.epoch,
    )
    return made(
        error_code=ErrorCode.NONE,
        topics=[messages.TopicDataResponse(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=_leader(messages.NodeEndpoint, response, version >= _OTHER_ENDPOINTS),
    )


_EPOCH_MESSAGES: dict[type, tuple[Any, Callable[..., Message]]] = {
    core.BeginQuorumEpochRequest: (begin_messages, begin_messages.BeginQuorumEpochResponse),
    core.EndQuorumEpochRequest: (end_messages, end_messages.EndQuorumEpochResponse),
}


def _fetch_response(response: core.FetchResponse, version: int) -> fetch_messages.FetchResponse:
    data = fetch_messages.PartitionData(
        partition_index=0,
        error_code=response.error,
        high_watermark=response.high_watermark,
        log_start_offset=response.log_start_offset,
        current_leader=fetch_messages.LeaderIdAndEpoch(
            leader_id=response.leader_id, leader_epoch=response.epoch
        ),
        records=response.records if response.records is not None else b"",  # type: ignore[arg-type]  # a file range too
    )
    if response.diverging is not None:
        data.diverging_epoch = fetch_messages.EpochEndOffset(
            epoch=response.diverging.epoch, end_offset=response.diverging.end_offset
        )
    if response.snapshot_id is not None:
        data.snapshot_id = fetch_messages.SnapshotId(
            end_offset=response.snapshot_id.end_offset, epoch=response.snapshot_id.epoch
        )
    return fetch_messages.FetchResponse(
        responses=[
            fetch_messages.FetchableTopicResponse(
                topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[data]
            )
        ],
        node_endpoints=_leader(fetch_messages.NodeEndpoint, response, version >= _FETCH_ENDPOINTS),
    )


def _fetch_snapshot_response(
    response: core.FetchSnapshotResponse, version: int
) -> snapshot_messages.FetchSnapshotResponse:
    assert isinstance(response.content, bytes | bytearray | memoryview)
    return snapshot_messages.FetchSnapshotResponse(
        error_code=ErrorCode.NONE,
        topics=[
            snapshot_messages.TopicSnapshotResponse(
                name=METADATA_TOPIC,
                partitions=[
                    snapshot_messages.PartitionSnapshotResponse(
                        index=0,
                        error_code=response.error,
                        snapshot_id=snapshot_messages.SnapshotIdResponse(
                            end_offset=response.snapshot_id.end_offset,
                            epoch=response.snapshot_id.epoch,
                        ),
                        current_leader=snapshot_messages.LeaderIdAndEpoch(
                            leader_id=response.leader_id, leader_epoch=response.epoch
                        ),
                        size=response.size,
                        position=response.position,
                        unaligned_records=response.content,
                    )
                ],
            )
        ],
        node_endpoints=_leader(
            snapshot_messages.NodeEndpoint, response, version >= _OTHER_ENDPOINTS
        ),
    )


def _voter_change_response(request: Request, response: core.VoterChangeResponse) -> Message:
    error_message = response.message or (response.error.message if response.error else None)
    if isinstance(request, core.AddVoterRequest):
        return add_messages.AddRaftVoterResponse(
            error_code=response.error, error_message=error_message
        )
    if isinstance(request, core.RemoveVoterRequest):
        return remove_messages.RemoveRaftVoterResponse(
            error_code=response.error, error_message=error_message
        )
    leader = update_messages.CurrentLeader(
        leader_id=response.leader_id, leader_epoch=response.epoch, host="", port=0
    )
    if response.leader_address is not None:
        leader.host, leader.port = response.leader_address
    return update_messages.UpdateRaftVoterResponse(error_code=response.error, current_leader=leader)


def _leader(made: Callable[..., T], response: Response, has_room: bool) -> list[T]:
    """Return the leader's endpoint in the API's own class.

    The list is empty if the endpoint is unknown or the version has no field for it.
    """
    at = response.leader_address
    if not has_room or response.leader_id == NO_LEADER or at is None:
        return []
    return [made(node_id=response.leader_id, host=at.host, port=at.port)]


def refusal(
    message: Message, error: ErrorCode, leader: update_messages.CurrentLeader | None = None
) -> Message:
    """Return an error response to a request that is refused without being handled."""
    error_message = error.message
    match message:
        case vote_messages.VoteRequest():
            return vote_messages.VoteResponse(error_code=error, topics=[])
        case begin_messages.BeginQuorumEpochRequest():
            return begin_messages.BeginQuorumEpochResponse(error_code=error, topics=[])
        case end_messages.EndQuorumEpochRequest():
            return end_messages.EndQuorumEpochResponse(error_code=error, topics=[])
        case fetch_messages.FetchRequest():
            return fetch_messages.FetchResponse(error_code=error, responses=[])
        case snapshot_messages.FetchSnapshotRequest():
            return snapshot_messages.FetchSnapshotResponse(error_code=error, topics=[])
        case add_messages.AddRaftVoterRequest():
            return add_messages.AddRaftVoterResponse(error_code=error, error_message=error_message)
        case remove_messages.RemoveRaftVoterRequest():
            return remove_messages.RemoveRaftVoterResponse(
                error_code=error, error_message=error_message
            )
        case update_messages.UpdateRaftVoterRequest():
            response = update_messages.UpdateRaftVoterResponse(error_code=error)
            if leader is not None:
                response.current_leader = leader
            return response
        case _:
            raise AssertionError(f"{type(message).__name__} is not a quorum request")
