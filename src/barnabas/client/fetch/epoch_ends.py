"""Request the end offsets of leader epochs, with which a consumer validates positions (KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.connections.connections import Call
from barnabas.client.connections.metadata_cache import NO_LEADER
from barnabas.client.errors import ClientError, UnsupportedVersionError, broker_error
from barnabas.client.topic_partition import TopicPartition, by_topic
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.client.connections.cluster import Cluster
    from barnabas.protocol.schema import Message

__all__ = ["EpochEnd", "request_epoch_ends"]


class EpochEnd(NamedTuple):
    """The response for one partition; both fields are -1 if the leader has no epoch that old."""

    leader_epoch: int
    end_offset: int


def request_epoch_ends(
    cluster: Cluster,
    epochs: Mapping[TopicPartition, int],
    on_end: Callable[[TopicPartition, EpochEnd | ClientError | None], None],
) -> None:
    """Request the end offsets of these epochs from the leaders, once.

    Args:
        cluster: The cluster. Partitions without a known leader get a retriable error.
        epochs: For each partition the leader epoch of the last record read.
        on_end: Called once for each partition, with the result or an error. None means that
            validation is not possible: the leader does not support the request (before Apache Kafka
            2.3), or the response does not contain the partition.
    """
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for tp, epoch in epochs.items():
        leader = cluster.metadata.leader(tp)
        if leader == NO_LEADER:
            on_end(tp, broker_error(ErrorCode.LEADER_NOT_AVAILABLE, f"end of an epoch of {tp}"))
        else:
            by_leader.setdefault(leader, {})[tp] = epoch
    for leader, requested in by_leader.items():
        _send(cluster, leader, requested, on_end)


def _send(
    cluster: Cluster,
    leader: int,
    requested: dict[TopicPartition, int],
    on_end: Callable[[TopicPartition, EpochEnd | ClientError | None], None],
) -> None:
    def build(_version: int) -> Message:
        return _build_request(cluster, requested)

    def on_done(response: Message | None, error: ClientError | None) -> None:
        if response is None:
            assert error is not None
            too_old = isinstance(error, UnsupportedVersionError)
            for tp in requested:
                on_end(tp, None if too_old else error)
            return
        assert isinstance(response, OffsetForLeaderEpochResponse)
        unanswered = dict(requested)
        for topic in response.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.topic, partition.partition)
                if unanswered.pop(tp, None) is None:
                    continue
                if partition.error_code:
                    on_end(tp, broker_error(partition.error_code, f"end of an epoch of {tp}"))
                else:
                    on_end(tp, EpochEnd(partition.leader_epoch, partition.end_offset))
        for tp in unanswered:
            on_end(tp, None)

    cluster.call(leader, Call(ApiKey.OFFSET_FOR_LEADER_EPOCH, build, on_done))


def _build_request(
    cluster: Cluster, requested: dict[TopicPartition, int]
) -> OffsetForLeaderEpochRequest:
    def entry(tp: TopicPartition, epoch: int) -> OffsetForLeaderPartition:
        info = cluster.metadata.partition(tp)
        return OffsetForLeaderPartition(
            partition=tp.partition,
            current_leader_epoch=-1 if info is None else info.leader_epoch,
            leader_epoch=epoch,
        )

    topics = by_topic((tp, entry(tp, epoch)) for tp, epoch in requested.items())
    return OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[OffsetForLeaderTopic(topic=name, partitions=p) for name, p in topics.items()],
    )
