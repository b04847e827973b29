"""The records of a partition, one by one, from batches that are decoded slice by slice."""

from __future__ import annotations

import pytest

from barnabas.client.consumer.partition_records import PartitionRecords
from barnabas.client.errors import CorruptRecordsError
from barnabas.client.fetch.fetch_buffer import FetchedSet
from barnabas.client.fetch.record_set import (
    ConsumerRecord,
    RecordSet,
    decode_record_set,
    scan_records,
)
from barnabas.client.topic_partition import TopicPartition
from barnabas.record.builder import BatchBuilder
from barnabas.record.columns import RECORDS_PER_SLICE
from barnabas.record.compression import ZSTD
from barnabas.record.record import Record

# More than two slices.
MANY = 2 * RECORDS_PER_SLICE + 7


def batch(step: int = 1, last_header: str = "name", **options: int) -> bytes:
    """Make a batch of MANY records; the offsets have gaps unless `step` is 1."""
    builder = BatchBuilder(base_offset=100, **options)  # type: ignore[arg-type]
    for number in range(MANY):
        headers = [(last_header, b"x")] if number == MANY - 1 else []
        key = b"k%d" % number
        builder.append_at(Record(100 + number * step, 1000 + number, 0, key, b"v", headers))
    return bytes(builder.build())


def record_set(data: bytes) -> RecordSet:
    scan = scan_records(data, check_crcs=False)
    return RecordSet("t", 3, 100, scan.next_offset, data, 99, 0, (), scan.batches)


def taken(
    records: RecordSet, limit: int, reported: list[CorruptRecordsError] | None = None
) -> PartitionRecords:
    fetched = FetchedSet(records)
    fetched.begin([].append if reported is None else reported.append)
    return PartitionRecords(TopicPartition("t", 3), fetched.take(limit))


@pytest.mark.parametrize(
    "data",
    [
        batch(),
        batch(compression=ZSTD),
        batch(step=3),
        batch(timestamp_type=1, log_append_time_ms=77),
        batch().replace(b"name", b"na\xffe"),
    ],
    ids=["dense", "zstd", "gaps", "log append time", "header name is not UTF-8"],
)
def test_records_are_the_same_one_by_one_and_decoded_at_once(data: bytes) -> None:
    records = record_set(data)
    wanted = decode_record_set(records)
    assert len(wanted) == MANY
    for limit in (MANY, MANY - 1):
        part = taken(records, limit)
        assert list(part) == wanted[:limit]
        assert part[limit - 1] == wanted[limit - 1]


def test_deserialized_keys_and_values_stay_with_their_records() -> None:
    whole = taken(record_set(batch()), MANY)
    keys = [f"key {number}" for number in range(MANY)]
    values = list(range(MANY))
    part = PartitionRecords(whole.topic_partition, whole.pieces, keys, values)
    assert [(record.offset - 100, record.key, record.value) for record in part] == [
        (number, keys[number], number) for number in range(MANY)
    ]


def test_a_batch_with_a_malformed_record_is_reported_after_the_records_before_it() -> None:
    data = bytearray(batch())
    # The size of the last record's value becomes larger than the rest of the batch.
    assert data[-10:-8] == b"\x02v"
    data[-10] = 0x7E
    reported: list[CorruptRecordsError] = []
    seen: list[ConsumerRecord] = []
    with pytest.raises(CorruptRecordsError):
        seen.extend(taken(record_set(bytes(data)), MANY, reported))
    assert [record.offset for record in seen] == list(range(100, 100 + len(seen)))
    assert len(seen) < MANY
    assert [error.offset for error in reported] == [100]
