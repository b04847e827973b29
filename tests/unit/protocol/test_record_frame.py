"""The prefix of metadata records, and of keys and values of coordinator records."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.record_frame import (
    decode_coordinator_key,
    decode_coordinator_value,
    decode_metadata_record,
    encode_coordinator_key,
    encode_coordinator_value,
    encode_metadata_record,
    group_record_classes,
    metadata_record_class,
    read_prefix,
    share_record_classes,
    transaction_record_classes,
)
from barnabas.protocol.records.classic_groups import OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.records.topics import TopicRecord


def test_a_metadata_record_equals_that_of_kafka() -> None:
    topic_id = bytes(7) + b"\x01" + bytes(7) + b"\x02"
    written = encode_metadata_record(TopicRecord(name="foo", topic_id=topic_id), 0)
    assert written.hex() == "01020004666f6f0000000000000001000000000000000200"
    assert decode_metadata_record(written) == (TopicRecord(name="foo", topic_id=topic_id), 0)


@pytest.mark.parametrize(
    "data", [b"", b"\x00\x02\x00", b"\x02\x02\x00", b"\x01\x7f\x00", b"\x01\x02\x09"]
)
def test_an_unknown_metadata_record_is_an_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_metadata_record(data)


def test_bytes_after_a_metadata_record_are_an_error() -> None:
    written = encode_metadata_record(TopicRecord(name="foo", topic_id=bytes(16)), 0)
    with pytest.raises(ProtocolError, match="1 bytes too many"):
        decode_metadata_record(written + b"x")


def test_offset_commits_are_prefixed_by_type_and_version() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9)
    written_key, written_value = encode_coordinator_key(key), encode_coordinator_value(value, 3)
    assert written_key.hex() == "00010001670001740000" + "0003"
    assert (read_prefix(written_key), read_prefix(written_value)) == (1, 3)
    assert group_record_classes(1) == (OffsetCommitKey, OffsetCommitValue)
    assert decode_coordinator_key(OffsetCommitKey, written_key) == key
    assert decode_coordinator_value(OffsetCommitValue, written_value) == value


def test_an_unknown_record_type_has_no_class() -> None:
    assert metadata_record_class(999) is None
    assert group_record_classes(999) is None
    assert transaction_record_classes(999) is None
    assert share_record_classes(999) is None


def test_every_kind_of_log_finds_its_classes() -> None:
    assert metadata_record_class(2) is TopicRecord
    transaction, share = transaction_record_classes(0), share_record_classes(0)
    assert transaction is not None
    assert share is not None
    assert [each.__name__ for each in (*transaction, *share)] == [
        "TransactionLogKey",
        "TransactionLogValue",
        "ShareSnapshotKey",
        "ShareSnapshotValue",
    ]
