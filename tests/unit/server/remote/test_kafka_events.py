"""Records and partitions of Apache Kafka 4.4's metadata topic.

`kafka_metadata_records.json` has what a broker of Kafka wrote. The records and partitions in this
file were made by the classes RemoteLogMetadataSerde and RemoteLogMetadataTopicPartitioner.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from barnabas.protocol.record_frame import decode_remote_log_record, encode_metadata_record
from barnabas.protocol.records.remote_log import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
)
from barnabas.server.remote.metadata_events import partition_of_event
from barnabas.server.remote.metadata_topic import metadata_partition
from barnabas.storage.remote.remote_storage import SegmentState
from barnabas.storage.remote.segment_states import RemoteLog, started_record, update_record
from barnabas.storage.topic_partition import TopicIdPartition

WRITTEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "storage/remote/kafka_metadata_records.json").read_text()
)
WHERE = TopicIdPartition(bytes.fromhex("00112233445566778899aabbccddeeff"), "orders", 3)
# Partition 3 of orders, and the id of the segment.
_ID = "076f726465727300112233445566778899aabbccddeeff00000003000123456789abcdef7edcba987654321000"
STARTED = {
    "without transactions": f"010000{_ID}"
    "000000000000006400000000000000c7000000020000018bcfe5687b0000018bcfe56cd203000000"
    "000000000000000064000000000500000000000000960000100000000001000101",
    "with transactions": f"010000{_ID}"
    "000000000000006400000000000000c7000000020000018bcfe5687b0000018bcfe56cd203000000"
    "000000000000000064000000000500000000000000960000100000000000",
    "with custom metadata": f"010000{_ID}"
    "0000000000000000000000000000000000000000ffffffffffffffff000000000000000002000000"
    "0000000000000000000000000000040102030001000101",
}
UPDATES = {
    SegmentState.COPY_SEGMENT_FINISHED: "010100" + _ID + "000000020000018bcfe57129040908070100",
    SegmentState.DELETE_SEGMENT_STARTED: "010100" + _ID + "000000020000018bcfe57129000200",
    SegmentState.DELETE_SEGMENT_FINISHED: "010100" + _ID + "000000020000018bcfe57129000300",
}
DELETED_PARTITION = (
    "010200076f726465727300112233445566778899aabbccddeeff0000000300000000020000018bcfe575800000"
)
# Number of metadata partitions, topic id, partition, metadata partition.
PARTITIONS = [
    (50, "ba419d350dfe8af7aee7bbe10c45c028", 970, 49),
    (50, "f12bbb4b46ee9d83b52c856caa616abe", 93, 21),
    (50, "e74367bd738597dc5e688e9961b35c88", 476, 22),
    (50, "b0bfbe2076b20011c3185753c86c400f", 209, 47),
    (3, "6bc4cd5d021617a9a203c138c1f467db", 983, 2),
    (3, "a18ba62f50b95daa11fbfb1c9255b577", 522, 1),
    (3, "5efaa97c4a6c5f10df2f3ddb2760b3c7", 31, 0),
    (3, "406f233c9dc02e0c624b81c65fd603dd", 679, 2),
    (7, "483e25a367ac6cf9f7adc5f3fc3cf928", 269, 5),
    (7, "e6089f53580c9795bac7bc0f0399299d", 780, 2),
    (7, "cf418f8d045f313a8580a6904d975739", 894, 4),
    (7, "8f52be81955dbe2e6cad28a5b030e4fe", 323, 2),
]


def test_events_of_a_broker_are_read_and_written_alike() -> None:
    logs: dict[TopicIdPartition, RemoteLog] = {}
    states: set[SegmentState] = set()
    for index, _, text in WRITTEN["records"]:
        value = bytes.fromhex(text)
        event = decode_remote_log_record(value)
        assert encode_metadata_record(event, 0) == value
        assert isinstance(
            event, RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord
        )
        entry = event.remote_log_segment_id.topic_id_partition
        where = TopicIdPartition(entry.id, entry.name, entry.partition)
        assert WRITTEN["topic_ids"][where.topic] == where.topic_id.hex()
        assert partition_of_event(value) == (where.topic_id, where.partition)
        assert metadata_partition(where, WRITTEN["metadata_partitions"]) == index
        applied = logs.setdefault(where, RemoteLog(where)).apply(event)
        assert applied.was_allowed
        assert applied.segment is not None
        made = (
            started_record(applied.segment)
            if isinstance(event, RemoteLogSegmentMetadataRecord)
            else update_record(applied.segment)
        )
        assert encode_metadata_record(made, 0) == value
        states.add(applied.segment.state)
    assert len(logs) > len(WRITTEN["topic_ids"])
    assert states == set(SegmentState)


def started(case: str) -> RemoteLogSegmentMetadataRecord:
    record = decode_remote_log_record(bytes.fromhex(STARTED[case]))
    assert isinstance(record, RemoteLogSegmentMetadataRecord)
    return record


@pytest.mark.parametrize("case", STARTED)
def test_first_events_of_segments(case: str) -> None:
    record = started(case)
    assert encode_metadata_record(record, 0).hex() == STARTED[case]
    segment = RemoteLog(WHERE).apply(record).segment
    assert segment is not None
    assert segment.has_transactions == (case == "with transactions")
    assert segment.custom == (b"\1\2\3" if case == "with custom metadata" else None)
    if segment.custom is None:
        assert segment.leader_epochs == ((0, 100), (5, 150))
        assert (segment.start_offset, segment.end_offset, segment.size) == (100, 199, 1 << 20)
        assert (segment.max_timestamp, segment.event_ms) == (1_700_000_000_123, 1_700_000_001_234)
    assert encode_metadata_record(started_record(segment), 0).hex() == STARTED[case]


def test_later_events_of_a_segment() -> None:
    log = RemoteLog(WHERE)
    log.apply(started("without transactions"))
    for state, text in UPDATES.items():
        record = decode_remote_log_record(bytes.fromhex(text))
        assert isinstance(record, RemoteLogSegmentMetadataUpdateRecord)
        assert encode_metadata_record(record, 0).hex() == text
        segment = log.apply(record).segment
        assert segment is not None
        assert (segment.state, segment.broker_id) == (state, 2)
        assert segment.custom == b"\x09\x08\x07"
    assert log.count == 0


def test_the_deletion_of_a_partition() -> None:
    value = bytes.fromhex(DELETED_PARTITION)
    record = decode_remote_log_record(value)
    assert isinstance(record, RemotePartitionDeleteMetadataRecord)
    assert record.topic_id_partition.id == WHERE.topic_id
    assert encode_metadata_record(record, 0) == value
    assert partition_of_event(value) is None


@pytest.mark.parametrize(("count", "topic_id", "partition", "expected"), PARTITIONS)
def test_the_metadata_partition(count: int, topic_id: str, partition: int, expected: int) -> None:
    where = TopicIdPartition(bytes.fromhex(topic_id), "any", partition)
    assert metadata_partition(where, count) == expected
