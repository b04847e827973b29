"""The positions of a consumer that reads a partition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from barnabas.client.consumer.assignment.topic_partition_state import PositionState
from barnabas.client.consumer.consumer_core import ConsumerCore
from barnabas.client.consumer.user_objects import take_user_objects
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.protocol.messages.log_offsets import (
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from barnabas.record.builder import BatchBuilder
from unit.client.scripted_cluster import TOPIC_ID, ScriptedCluster

TP = TopicPartition("t", 0)

NEW_ID = b"n" * 16


class Reading:
    """A consumer of partition 0 of "t", over a scripted cluster."""

    def __init__(self, **keys: object) -> None:
        self.cluster = ScriptedCluster(**{"auto.offset.reset": "earliest", **keys})
        stand_in: Any = self.cluster
        parts, _ = take_user_objects({})
        self.core = ConsumerCore(stand_in, stand_in, parts, lambda _call, done: done(None))
        self.core.assign([TP])

    def answer(self, kind: type, version: int, response: object) -> Any:
        """Respond to the oldest call, which must be of this kind; return its request."""
        request, reply = self.cluster.take(version)
        assert isinstance(request, kind), request
        reply(response)
        return request

    def answer_offset(self, offset: int) -> Any:
        partition = ListOffsetsPartitionResponse(
            partition_index=0, error_code=0, timestamp=-1, offset=offset, leader_epoch=4
        )
        topic = ListOffsetsTopicResponse(name="t", partitions=[partition])
        return self.answer(ListOffsetsRequest, 7, ListOffsetsResponse(topics=[topic]))

    def answer_records(self, base_offset: int, count: int, leader_epoch: int = 4) -> Any:
        builder = BatchBuilder(base_offset=base_offset, leader_epoch=leader_epoch)
        for _ in range(count):
            builder.append(0, None, b"v")
        return self.answer_fetch(records=bytes(builder.build()))

    def answer_fetch(self, code: int = 0, records: bytes = b"", preferred: int = -1) -> Any:
        topic_id = self.cluster.metadata.topic_id("t")
        return self.answer(FetchRequest, 17, fetch_response(code, records, preferred, topic_id))

    def answer_epoch(self, leader_epoch: int, end_offset: int, code: int = 0) -> Any:
        end = EpochEndOffset(
            partition=0, error_code=code, leader_epoch=leader_epoch, end_offset=end_offset
        )
        topic = OffsetForLeaderTopicResult(topic="t", partitions=[end])
        response = OffsetForLeaderEpochResponse(topics=[topic])
        return self.answer(OffsetForLeaderEpochRequest, 4, response)

    def elect(self, leader_epoch: int) -> None:
        """Change the leader epoch in the metadata."""
        topic = self.cluster.metadata.topics["t"]
        topic.partitions[0] = replace(topic.partitions[0], leader_epoch=leader_epoch)

    def create_again(self) -> None:
        """Replace the topic in the metadata by a new one with the same name."""
        metadata = self.cluster.metadata
        metadata.topics["t"] = replace(metadata.topics["t"], topic_id=NEW_ID)
        metadata.names = {NEW_ID: "t"}

    def read(self) -> list[int]:
        records = self.core.take(100)
        return [record.offset for record in records or ()]

    @property
    def state(self) -> PositionState:
        return self.core.subscription.partition(TP).state


def fetch_response(
    code: int = 0, records: bytes = b"", preferred: int = -1, topic_id: bytes = TOPIC_ID
) -> FetchResponse:
    partition = PartitionData(
        partition_index=0,
        error_code=code,
        high_watermark=100,
        log_start_offset=0,
        records=records,
        preferred_read_replica=preferred,
    )
    topic = FetchableTopicResponse(topic_id=topic_id, partitions=[partition])
    return FetchResponse(session_id=7, responses=[topic])
