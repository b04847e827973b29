"""Description of the metadata quorum for DescribeQuorum: leader, voters, observers (KIP-836, 853).

Only the quorum leader knows the progress of the other replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import describe_quorum as messages
from barnabas.storage.topic_partition import CLUSTER_METADATA

if TYPE_CHECKING:
    from barnabas.raft.driver.quorum_status import QuorumStatus, ReplicaStatus
    from barnabas.raft.driver.raft_driver import RaftDriver
    from barnabas.runtime.clock import Clock

_UNKNOWN = -1
# First version with directory ids of replicas and addresses of nodes (KIP-853).
_DIRECTORIES_SINCE = 2


class QuorumDescription:
    """Builds DescribeQuorum responses from the status of the raft driver."""

    def __init__(self, quorum: RaftDriver, clock: Clock) -> None:
        self._quorum = quorum
        self._clock = clock

    def describe(
        self, request: messages.DescribeQuorumRequest, version: int
    ) -> messages.DescribeQuorumResponse:
        """Describe the partition of the metadata log. Any other partition is unknown."""
        status = self._quorum.status()
        topics = []
        # Like Kafka, describe the metadata partition only if it is the only requested partition.
        requested_indexes = [
            (topic.topic_name, [each.partition_index for each in topic.partitions])
            for topic in request.topics
        ]
        alone = requested_indexes == [(CLUSTER_METADATA.topic, [CLUSTER_METADATA.partition])]
        described = False
        for topic in request.topics:
            partitions = []
            for requested in topic.partitions:
                index = requested.partition_index
                if not alone:
                    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    partitions.append(_failed(index, unknown))
                elif not self._quorum.core.is_leader:
                    partitions.append(_failed(index, ErrorCode.NOT_LEADER_OR_FOLLOWER))
                else:
                    partitions.append(self._partition(index, status, version))
                    described = True
            topics.append(
                messages.TopicDataResponse(topic_name=topic.topic_name, partitions=partitions)
            )
        nodes = _nodes(status) if described and version >= _DIRECTORIES_SINCE else []
        return messages.DescribeQuorumResponse(
            error_code=ErrorCode.NONE, error_message="", topics=topics, nodes=nodes
        )

    def _partition(
        self, index: int, status: QuorumStatus, version: int
    ) -> messages.PartitionDataResponse:
        return messages.PartitionDataResponse(
            partition_index=index,
            error_code=ErrorCode.NONE,
            error_message="",
            leader_id=status.leader_id,
            leader_epoch=status.epoch,
            high_watermark=status.high_watermark,
            current_voters=[self._replica(each, status, version) for each in status.voters],
            observers=[self._replica(each, status, version) for each in status.observers],
        )

    def _replica(
        self, replica: ReplicaStatus, status: QuorumStatus, version: int
    ) -> messages.ReplicaState:
        leads = replica.id == status.leader_id
        described = messages.ReplicaState(
            replica_id=replica.id,
            log_end_offset=replica.log_end_offset,
            last_fetch_timestamp=self._wall_ms(replica.last_fetch_ms, leads=leads),
            last_caught_up_timestamp=self._wall_ms(replica.last_caught_up_ms, leads=leads),
        )
        if version >= _DIRECTORIES_SINCE:
            described.replica_directory_id = replica.key.directory_id
        return described

    def _wall_ms(self, monotonic_ms: float | None, *, leads: bool) -> int:
        now_ms = self._clock.wall_ms()
        if leads:
            return now_ms
        if monotonic_ms is None:
            return _UNKNOWN
        return now_ms - int(self._clock.monotonic_ms() - monotonic_ms)


def _nodes(status: QuorumStatus) -> list[messages.Node]:
    return [
        messages.Node(
            node_id=voter.id,
            listeners=[
                messages.Listener(name=name, host=address.host, port=address.port)
                for name, address in voter.endpoints
            ],
        )
        for voter in status.voters
    ]


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
