"""Positions: looked up, reset, and validated after a leader change (KIP-320)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.client.consumer.assignment.position_state import PositionState
from barnabas.client.consumer.consumer_core import ConsumerCore
from barnabas.client.consumer.errors import LogTruncationError, NoOffsetError
from barnabas.client.consumer.user_objects import take_user_objects
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
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


def reading_from_ten(reset: str = "earliest") -> Reading:
    """A consumer that has read the records 10 to 14 of epoch 4, and whose leader is another."""
    reading = Reading(**{"auto.offset.reset": reset})
    reading.core.positions.seek(TP, 10)
    reading.answer_records(10, 5)
    assert reading.read() == [10, 11, 12, 13, 14]
    reading.elect(5)
    reading.answer_fetch(ErrorCode.FENCED_LEADER_EPOCH)
    reading.cluster.time.advance(1_000)
    reading.cluster.time.advance(0)
    assert reading.state is PositionState.AWAIT_VALIDATION
    return reading


def test_without_a_group_the_reset_gives_the_position() -> None:
    reading = Reading()
    reading.core.round()
    assert reading.state is PositionState.AWAIT_RESET
    request = reading.answer_offset(7)
    assert request.topics[0].partitions[0].timestamp == -2
    assert reading.core.subscription.partition(TP).offset == 7
    assert reading.answer_records(7, 1).topics[0].partitions[0].fetch_offset == 7


def test_with_reset_none_every_poll_raises_until_a_seek() -> None:
    reading = Reading(**{"auto.offset.reset": "none"})
    for _ in range(2):
        with pytest.raises(NoOffsetError):
            reading.core.round()
    reading.core.positions.seek(TP, 3)
    reading.core.round()
    assert reading.state is PositionState.FETCHING


def test_a_late_response_to_a_reset_is_ignored_after_a_seek() -> None:
    reading = Reading()
    reading.core.round()
    reading.core.positions.seek(TP, 50)
    reading.answer_offset(7)
    assert reading.core.subscription.partition(TP).offset == 50


def test_reading_continues_at_a_position_that_the_new_leader_confirms() -> None:
    reading = reading_from_ten()
    request = reading.answer_epoch(4, 15)
    asked = request.topics[0].partitions[0]
    assert (asked.leader_epoch, asked.current_leader_epoch) == (4, 5)
    assert reading.state is PositionState.FETCHING
    reading.answer_records(15, 1, leader_epoch=5)
    assert reading.read() == [15]


def test_prefetched_records_are_not_returned_after_a_leader_change() -> None:
    reading = Reading()
    reading.core.positions.seek(TP, 10)
    reading.answer_records(10, 5)
    assert reading.read() == [10, 11, 12, 13, 14]
    reading.answer_records(15, 5)
    reading.elect(5)
    reading.answer_fetch(ErrorCode.FENCED_LEADER_EPOCH)
    reading.cluster.time.advance(1_000)
    reading.cluster.time.advance(0)
    assert reading.read() == []
    reading.answer_epoch(4, 15)
    assert reading.answer_records(15, 1, 5).topics[0].partitions[0].fetch_offset == 15


def test_after_a_truncation_reading_continues_at_the_divergent_offset() -> None:
    reading = reading_from_ten()
    reading.answer_epoch(4, 12)
    position = reading.core.subscription.partition(TP)
    assert (position.state, position.offset) == (PositionState.FETCHING, 12)


def test_with_reset_none_a_truncation_raises() -> None:
    reading = reading_from_ten("none")
    reading.answer_epoch(4, 12)
    with pytest.raises(LogTruncationError) as caught:
        reading.core.round()
    assert (caught.value.position, caught.value.divergent_offset) == (15, 12)


def test_validation_is_retried_after_a_retriable_error() -> None:
    reading = reading_from_ten()
    reading.answer_epoch(-1, -1, ErrorCode.UNKNOWN_LEADER_EPOCH)
    reading.cluster.time.advance(1_000)
    reading.core.round()
    reading.answer_epoch(4, 15)
    assert reading.state is PositionState.FETCHING


def test_a_committed_offset_with_an_epoch_is_validated_before_the_first_fetch() -> None:
    reading = Reading()
    reading.core.positions.seek(TP, 30, 3)
    reading.core.round()
    request = reading.answer_epoch(3, 40)
    assert request.topics[0].partitions[0].leader_epoch == 3
    assert reading.answer_records(30, 1).topics[0].partitions[0].fetch_offset == 30


def test_with_reset_none_a_log_that_ends_at_the_position_is_no_truncation() -> None:
    reading = reading_from_ten("none")
    reading.answer_epoch(4, 15)
    reading.core.round()
    assert reading.state is PositionState.FETCHING
    reading.answer_records(15, 1, leader_epoch=5)
    assert reading.read() == [15]


# Topics that are deleted and created again


def test_the_reset_strategy_applies_to_a_topic_with_another_id() -> None:
    reading = Reading()
    reading.core.positions.seek(TP, 10)
    reading.create_again()
    reading.answer_fetch(ErrorCode.UNKNOWN_TOPIC_ID)
    reading.cluster.time.advance(1_000)
    reading.cluster.time.advance(0)
    assert reading.state is PositionState.AWAIT_RESET
    reading.answer_offset(0)
    request = reading.answer_records(0, 1)
    assert request.topics[0].topic_id == NEW_ID
    assert request.topics[0].partitions[0].fetch_offset == 0


def test_a_late_fetch_response_of_a_deleted_topic_is_dropped() -> None:
    reading = Reading()
    reading.core.positions.seek(TP, 0)
    _, reply = reading.cluster.take(12)
    reading.create_again()
    reading.core.positions.seek(TP, 0)
    builder = BatchBuilder()
    builder.append(0, None, b"of the deleted topic")
    response = fetch_response(records=bytes(builder.build()))
    # A version without topic ids.
    response.responses[0].topic = "t"
    reply(response)
    assert reading.read() == []
    assert reading.answer_records(0, 1).topics[0].topic_id == NEW_ID
    assert reading.read() == [0]


def test_an_offset_of_a_deleted_topic_that_a_reset_finds_late_is_not_used() -> None:
    reading = Reading()
    reading.core.round()
    reading.create_again()
    reading.answer_offset(7)
    reading.cluster.time.advance(0)
    reading.answer_offset(2)
    assert reading.answer_records(2, 1).topics[0].topic_id == NEW_ID
    assert reading.read() == [2]


def test_the_end_of_an_epoch_of_a_deleted_topic_is_no_truncation() -> None:
    reading = reading_from_ten()
    reading.create_again()
    reading.answer_epoch(4, 12)
    reading.core.round()
    assert reading.state is PositionState.AWAIT_RESET


def test_a_position_of_a_deleted_topic_is_not_committed() -> None:
    reading = Reading(**{"group.id": "g", "enable.auto.commit": True})
    reading.core.positions.seek(TP, 10)
    assert set(reading.core.commits.consumed()) == {TP}
    metadata = reading.cluster.metadata
    known = metadata.topics.pop("t")
    metadata.errors["t"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reading.core.commits.consumed() == {}
    metadata.errors.clear()
    metadata.topics["t"] = known
    assert set(reading.core.commits.consumed()) == {TP}
    reading.create_again()
    assert reading.core.commits.consumed() == {}
