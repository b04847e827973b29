"""Records of internal topics say what they do, and are JSON with Kafka's names."""

from __future__ import annotations

import json

import pytest

from barnabas.client.fetch.record_set import ConsumerRecord
from barnabas.console.messages.formats import Decoders, Formats
from barnabas.console.messages.masking import NO_MASKS, MaskRule, Masks
from barnabas.console.messages.record_view import DecodedRecord, RecordView
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.protocol.record_frame import encode_metadata_record
from barnabas.protocol.records.classic_groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from barnabas.protocol.records.consumer_groups import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from barnabas.protocol.records.coordinator_logs import (
    PartitionsSchema,
    ShareSnapshotKey,
    ShareSnapshotValue,
    TransactionLogKey,
    TransactionLogValue,
)
from barnabas.protocol.records.streams_groups import StreamsGroupTopologyKey
from barnabas.protocol.records.topics import TopicRecord

OFFSETS, TRANSACTIONS, SHARES = "__consumer_offsets", "__transaction_state", "__share_group_state"
PLACE = f"topic id {'A' * 22}, partition 1"
COMMIT_KEY = OffsetCommitKey(group="g", topic="t", partition=3)
COMMIT = OffsetCommitValue(offset=42, metadata="", commit_timestamp=1)
GROUP = GroupMetadataValue(
    protocol_type="consumer", generation=7, protocol="range", leader=None, members=[]
)
TRANSACTION = TransactionLogValue(
    producer_id=5,
    producer_epoch=2,
    transaction_timeout_ms=1,
    transaction_status=1,
    transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0, 1])],
    transaction_last_update_timestamp_ms=1,
    transaction_start_timestamp_ms=1,
)
SNAPSHOT = ShareSnapshotValue(
    snapshot_epoch=0,
    state_epoch=0,
    leader_epoch=0,
    start_offset=9,
    create_timestamp=0,
    write_timestamp=0,
    state_batches=[],
)


def decoded(
    topic: str, key: bytes | None, value: bytes | None, masks: Masks = NO_MASKS
) -> DecodedRecord:
    return RecordView(Decoders(), masks).decode(ConsumerRecord(topic, 0, 0, 0, 0, key, value, ()))


@pytest.mark.parametrize(
    ("topic", "record", "words"),
    [
        (
            OFFSETS,
            CoordinatorRecord.of(COMMIT_KEY, COMMIT, 3),
            "The group g commits offset 42 of t, partition 3.",
        ),
        (
            OFFSETS,
            CoordinatorRecord.of(COMMIT_KEY, None),
            "The group g has no offset any more for t, partition 3.",
        ),
        (
            OFFSETS,
            CoordinatorRecord.of(GroupMetadataKey(group="g"), GROUP, 3),
            "The classic group g has generation 7 with 0 members, protocol range.",
        ),
        (
            OFFSETS,
            CoordinatorRecord.of(
                ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=1)
            ),
            "Consumer group metadata: group id g.",
        ),
        (
            OFFSETS,
            CoordinatorRecord.of(StreamsGroupTopologyKey(group_id="g"), None),
            "Streams group topology deleted: group id g.",
        ),
        (
            TRANSACTIONS,
            CoordinatorRecord.of(TransactionLogKey(transactional_id="x"), TRANSACTION, 1),
            "The transaction of x is ongoing: producer 5, epoch 2, 2 partitions.",
        ),
        (
            TRANSACTIONS,
            CoordinatorRecord.of(TransactionLogKey(transactional_id="x"), None),
            "The transactional id x is forgotten.",
        ),
        (
            SHARES,
            CoordinatorRecord.of(
                ShareSnapshotKey(group_id="s", topic_id=bytes(16), partition=1), SNAPSHOT
            ),
            f"The share group s starts at offset 9 of {PLACE}; 0 batches have a state.",
        ),
    ],
)
def test_records_of_coordinators_have_words(
    topic: str, record: CoordinatorRecord, words: str
) -> None:
    found = decoded(topic, record.key, record.value)
    assert found.words == words
    assert found.key.kind == "json"
    assert found.value.kind == ("null" if record.value is None else "json")
    assert found.key.raw == record.key


def test_names_are_those_of_the_schemas() -> None:
    record = CoordinatorRecord.of(COMMIT_KEY, COMMIT, 3)
    found = decoded(OFFSETS, record.key, record.value)
    assert found.key.content == {"group": "g", "topic": "t", "partition": 3}
    assert found.value.content["offset"] == 42
    assert (found.key.note, found.value.note) == ("OffsetCommit", "version 3")


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\1\0", b"\x7f\xffx", b"plain"])
def test_other_records_of_internal_topics_are_shown_as_bytes(key: bytes | None) -> None:
    for topic in (OFFSETS, TRANSACTIONS, SHARES):
        found = decoded(topic, key, b"\0\1x")
        assert found.words == ""
        assert found.value.kind == "bytes"


def test_metadata_records_have_their_name() -> None:
    value = encode_metadata_record(TopicRecord(name="t", topic_id=bytes(16)), 0)
    found = decoded("__cluster_metadata", None, value)
    assert found.words == "Topic record."
    assert found.value.content["name"] == "t"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ({"keytype": "SCHEMA", "subject": "s", "version": 2}, {"id": 7}, "has the id 7."),
        ({"keytype": "SCHEMA", "subject": "s", "version": 2}, {"deleted": True}, "is deleted."),
        ({"keytype": "SCHEMA", "subject": "s", "version": 2}, None, "is removed."),
        ({"keytype": "CONFIG"}, {"compatibilityLevel": "FULL"}, "of all subjects is FULL."),
        ({"keytype": "NOOP"}, None, "Noop."),
        ([1], None, ""),
    ],
)
def test_records_of_registries_have_words(key: object, value: object, words: str) -> None:
    data = None if value is None else json.dumps(value).encode()
    found = decoded("_schemas", json.dumps(key).encode(), data)
    assert found.words.endswith(words)
    assert bool(found.words) == bool(words)


def test_a_mask_hides_the_words_too() -> None:
    record = CoordinatorRecord.of(COMMIT_KEY, COMMIT, 3)
    masks = Masks([MaskRule("__*", "key", ("group",))], b"")
    found = decoded(OFFSETS, record.key, record.value, masks)
    assert found.words == ""
    assert found.key.content["group"] != "g"


def test_a_choice_of_format_shows_the_bytes() -> None:
    record = CoordinatorRecord.of(COMMIT_KEY, COMMIT, 3)
    view = RecordView(Decoders(), NO_MASKS, Formats("hex", "hex"))
    found = view.decode(ConsumerRecord(OFFSETS, 0, 0, 0, 0, record.key, record.value, ()))
    assert (found.key.kind, found.value.kind) == ("bytes", "bytes")
