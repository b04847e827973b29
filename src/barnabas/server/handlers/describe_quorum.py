"""DescribeQuorum: key 55, v0-2. The metadata quorum's leader, voters and observers (KIP-836)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import describe_quorum as messages
from barnabas.storage.log_loading import CLUSTER_METADATA

if TYPE_CHECKING:
    from barnabas.raft.quorum_status import QuorumStatus, ReplicaStatus
    from barnabas.server.parts import NodeParts
    from barnabas.server.request import Handle, RequestContext

_UNKNOWN = -1


def handler(parts: NodeParts) -> Handle:
    """The handler of this API."""
    return DescribeQuorumHandler(parts).handle_describe_quorum


class DescribeQuorumHandler:
    """Answers from the quorum's driver."""

    __slots__ = ("_clock", "_quorum")

    def __init__(self, parts: NodeParts) -> None:
        self._clock = parts.clock
        self._quorum = parts.quorum

    def handle_describe_quorum(
        self,
        context: RequestContext,  # noqa: ARG002
        request: messages.DescribeQuorumRequest,
    ) -> messages.DescribeQuorumResponse:
        """The one partition of the metadata log; any other is unknown."""
        status = self._quorum.status()
        topics = []
        # As Kafka: the metadata partition is described when it alone is asked for, and once.
        asked_for = [
            (topic.topic_name, each.partition_index)
            for topic in request.topics
            for each in topic.partitions
        ]
        alone = asked_for == [tuple(CLUSTER_METADATA)]
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                index = asked.partition_index
                if not alone:
                    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    partitions.append(_failed(index, unknown))
                elif not self._quorum.is_leader:
                    partitions.append(_failed(index, ErrorCode.NOT_LEADER_OR_FOLLOWER))
                else:
                    partitions.append(self._partition(index, status))
            topics.append(
                messages.TopicDataResponse(topic_name=topic.topic_name, partitions=partitions)
            )
        return messages.DescribeQuorumResponse(
            error_code=ErrorCode.NONE, error_message="", topics=topics, nodes=[]
        )

    def _partition(self, index: int, status: QuorumStatus) -> messages.PartitionDataResponse:
        return messages.PartitionDataResponse(
            partition_index=index,
            error_code=ErrorCode.NONE,
            error_message="",
            leader_id=status.leader_id,
            leader_epoch=status.epoch,
            high_watermark=status.high_watermark,
            current_voters=[self._replica(each, status) for each in status.voters],
            observers=[self._replica(each, status) for each in status.observers],
        )

    def _replica(self, replica: ReplicaStatus, status: QuorumStatus) -> messages.ReplicaState:
        now_ms = self._clock.wall_ms()
        fetched_at = _UNKNOWN
        if replica.id == status.leader_id:
            fetched_at = now_ms
        elif replica.last_fetch_ms is not None:
            fetched_at = now_ms - int(self._clock.monotonic_ms() - replica.last_fetch_ms)
        return messages.ReplicaState(
            replica_id=replica.id,
            log_end_offset=replica.log_end_offset,
            last_fetch_timestamp=fetched_at,
            last_caught_up_timestamp=fetched_at,
        )


def _failed(index: int, error: ErrorCode) -> messages.PartitionDataResponse:
    return messages.PartitionDataResponse(
        partition_index=index,
        error_code=error,
        error_message=error.message,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )
