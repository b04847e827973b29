"""Responses and stored records for batches with a valid checksum and hostile content."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.record.batch import (
    ATTRIBUTES_POSITION,
    MAX_TIMESTAMP_POSITION,
    TIMESTAMP_TYPE_FLAG,
    set_crc,
)
from barnabas.record.builder import BatchBuilder
from barnabas.record.compression import ZSTD
from conformance.record_requests import error_of, now_ms, produce, stored
from producer_batches import ACCEPTED, GARBAGE, NULL_FOR_JAVA, Payload, packed, record

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.raw_client import RawClient

TIMESTAMP_MAX = 2**63 - 1
# Configs of topics.
SETTINGS = [
    pytest.param({}, id="default"),
    pytest.param({"message_timestamp_type": "LogAppendTime"}, id="log-append-time"),
    pytest.param({"cleanup_policy": "compact"}, id="compacted"),
    pytest.param({"compression_type": "gzip"}, id="recompressed"),
    pytest.param({"message_timestamp_before_max_ms": "3600000"}, id="limited-times"),
]


def valid_batch(count: int = 3, compression: int = 0, key: bytes | None = b"k") -> bytearray:
    builder, at = BatchBuilder(compression=compression), now_ms()
    for _ in range(count):
        builder.append(at, key, b"v")
    return bytearray(builder.build())


def with_header(
    batch: bytearray, count: int | None = None, largest: int | None = None
) -> bytearray:
    """Set the record count or the largest timestamp in the header, and correct the CRC."""
    if count is not None:
        batch[23:27] = (count - 1).to_bytes(4, "big")
        batch[57:61] = count.to_bytes(4, "big")
    if largest is not None:
        start = MAX_TIMESTAMP_POSITION
        batch[start : start + 8] = largest.to_bytes(8, "big", signed=True)
    set_crc(batch, 0, len(batch))
    return batch


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("flag", [0, TIMESTAMP_TYPE_FLAG])
def test_more_records_than_bytes_are_refused(
    raw: RawClient, make_topic: Callable[..., str], settings: dict[str, str], flag: int
) -> None:
    topic = make_topic(1, **settings)
    batch = valid_batch()
    batch[ATTRIBUTES_POSITION + 1] = flag
    assert error_of(raw, topic, with_header(batch, 20_000_000)) == "INVALID_RECORD"


@pytest.mark.parametrize("compression", range(5))
def test_the_header_gets_the_largest_timestamp_of_the_records(
    raw: RawClient, topic: str, compression: int
) -> None:
    payload = Payload(record(0) + record(1, time_delta=7) + record(2, time_delta=3), 3)
    first = now_ms()
    for claim in (-1, 0, first - 1, first, first + 5000, TIMESTAMP_MAX):
        batch = packed(payload, compression, claim, first)
        assert error_of(raw, topic, batch) == "NONE", claim
    assert {header.max_timestamp for header, _ in stored(raw, topic)} == {first + 7}


def test_records_are_found_by_their_times_whatever_their_headers_claim(
    raw: RawClient, topic: str
) -> None:
    """Old versions of a client in Go leave the largest timestamp at -1."""
    first = now_ms()
    payload = Payload(record(0) + record(1, time_delta=7), 2)
    for number, claim in enumerate((-1, 0, first)):
        at = first + 100 * number
        assert error_of(raw, topic, packed(payload, 0, claim, at)) == "NONE"
    found = [offset_at(raw, topic, first + each) for each in (0, 1, 100, 107, 207)]
    assert found == [0, 1, 2, 3, 5]


def offset_at(raw: RawClient, topic: str, timestamp: int) -> int:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    topics = [ListOffsetsTopic(name=topic, partitions=partitions)]
    response: Any = raw.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 5)
    return response.topics[0].partitions[0].offset


def test_an_invalid_timestamp_of_a_record_is_refused_and_named(raw: RawClient, topic: str) -> None:
    builder = BatchBuilder()
    for at in (now_ms(), TIMESTAMP_MAX):
        builder.append(at, None, b"v")
    response = produce(raw, topic, builder.build())
    assert response.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in response.record_errors] == [1]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("compression", [0, ZSTD])
def test_malformed_records_are_refused(
    raw: RawClient, make_topic: Callable[..., str], settings: dict[str, str], compression: int
) -> None:
    topic = make_topic(1, **settings)
    for kind, payload in GARBAGE.items():
        assert error_of(raw, topic, packed(payload, compression)) == "INVALID_RECORD", kind
    if compression:
        bomb = packed(Payload(bytes(16 << 20), 3), compression)
        assert error_of(raw, topic, bomb) == "INVALID_RECORD"


@pytest.mark.parametrize("compression", range(5))
def test_unusual_records_are_stored(raw: RawClient, topic: str, compression: int) -> None:
    unusual = [*ACCEPTED.values(), NULL_FOR_JAVA]
    for payload in unusual:
        assert error_of(raw, topic, packed(payload, compression)) == "NONE", payload
    counts = [len(records) for _, records in stored(raw, topic)]
    assert counts == [payload.count for payload in unusual]


@pytest.mark.parametrize("settings", SETTINGS)
def test_many_small_records_in_a_few_kilobytes_are_accepted(
    raw: RawClient, make_topic: Callable[..., str], settings: dict[str, str]
) -> None:
    topic, count = make_topic(1, **settings), 100_000
    batch = valid_batch(count, ZSTD)
    assert len(batch) < 200_000
    responses = [produce(raw, topic, bytes(batch)) for _ in range(2)]
    assert [each.error_code for each in responses] == [0, 0]
    assert [each.base_offset for each in responses] == [0, count]


def test_batches_of_one_connection_stay_in_their_order(
    raw: RawClient, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(1, cleanup_policy="compact")
    large, small = valid_batch(50_000, ZSTD), valid_batch(1)
    sizes = (50_000, 1, 50_000, 1)
    offsets = [
        produce(raw, topic, bytes(large if size > 1 else small)).base_offset for size in sizes
    ]
    assert offsets == [0, *itertools.accumulate(sizes[:-1])]


def test_records_without_keys_are_named(raw: RawClient, make_topic: Callable[..., str]) -> None:
    topic = make_topic(1, cleanup_policy="compact")
    response = produce(raw, topic, valid_batch(700, ZSTD, None))
    assert response.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in response.record_errors] == list(range(700))


def test_an_impossible_producer_epoch_is_refused(raw: RawClient, topic: str) -> None:
    builder = BatchBuilder(producer_id=5, producer_epoch=-32768, base_sequence=0)
    builder.append(now_ms(), None, b"v")
    assert error_of(raw, topic, builder.build()) == "INVALID_PRODUCER_EPOCH"
