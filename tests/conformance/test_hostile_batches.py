"""Responses and stored records for batches with a valid checksum and hostile content."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.record.batch import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    MAX_TIMESTAMP_POSITION,
    TIMESTAMP_TYPE_FLAG,
    set_crc,
)
from barnabas.record.builder import BatchBuilder
from barnabas.record.compression import ZSTD, compress
from conformance.test_record_configs import error_of, now_ms, produce, stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.raw_client import RawClient

TIMESTAMP_MAX = 2**63 - 1
# Configs of topics for which both brokers read the records.
READ = [
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


def with_payload(payload: bytes, count: int, compression: int = 0) -> bytearray:
    """Return a batch with these bytes as records."""
    batch = valid_batch(1)[:HEADER_SIZE] + compress(compression, payload)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[ATTRIBUTES_POSITION + 1] = compression
    return with_header(batch, count)


@pytest.mark.parametrize(
    "settings",
    [pytest.param({}, id="default"), *READ,
     pytest.param({"message_timestamp_type": "LogAppendTime"}, id="log-append-time")],
)  # fmt: skip
@pytest.mark.parametrize("flag", [0, TIMESTAMP_TYPE_FLAG])
def test_more_records_than_bytes_are_refused(
    raw: RawClient, make_topic: Callable[..., str], settings: dict[str, str], flag: int
) -> None:
    topic = make_topic(1, **settings)
    batch = valid_batch()
    batch[ATTRIBUTES_POSITION + 1] = flag
    assert error_of(raw, topic, with_header(batch, 20_000_000)) == "INVALID_RECORD"


@pytest.mark.parametrize("compression", range(5))
def test_a_largest_timestamp_that_no_record_has_is_corrected(
    raw: RawClient, topic: str, compression: int
) -> None:
    batch = valid_batch(compression=compression)
    assert error_of(raw, topic, with_header(batch, largest=TIMESTAMP_MAX)) == "NONE"
    ((header, records),) = stored(raw, topic)
    assert header.max_timestamp == records[0].timestamp


def test_an_invalid_timestamp_of_a_record_is_refused_and_named(raw: RawClient, topic: str) -> None:
    builder = BatchBuilder()
    for at in (now_ms(), TIMESTAMP_MAX):
        builder.append(at, None, b"v")
    response = produce(raw, topic, builder.build())
    assert response.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in response.record_errors] == [1]


@pytest.mark.parametrize("settings", READ)
@pytest.mark.parametrize("compression", [0, ZSTD])
def test_malformed_records_are_refused_if_records_are_read(
    raw: RawClient, make_topic: Callable[..., str], settings: dict[str, str], compression: int
) -> None:
    topic = make_topic(1, **settings)
    sound = bytes(valid_batch()[HEADER_SIZE:])
    for payload, count in (
        (bytes(range(200)), 3),
        (bytes(300), 3),
        (sound, 2),
        (sound, 4),
        (sound, 20_000_000),
        (sound + b"more", 3),
        (bytes(16 << 20) if compression else b"", 3),
    ):
        batch = with_payload(payload, count, compression)
        assert error_of(raw, topic, batch) == "INVALID_RECORD", (payload[:9], count)


@pytest.mark.parametrize("settings", READ)
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
