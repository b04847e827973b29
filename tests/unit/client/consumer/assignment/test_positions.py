"""Positions: looked up, reset, and validated after a leader change (KIP-320)."""

from __future__ import annotations

import pytest

from barnabas.client.consumer.assignment.topic_partition_state import PositionState
from barnabas.client.consumer.errors import LogTruncationError, NoOffsetError
from barnabas.protocol.errors import ErrorCode
from barnabas.record.builder import BatchBuilder
from unit.client.consumer.assignment.reading import NEW_ID, TP, Reading, fetch_response


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
