"""Topic configs that change or refuse produced records: time, compression, sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.record.batch import (
    ATTRIBUTES_POSITION,
    TIMESTAMP_TYPE_FLAG,
    set_crc,
)
from barnabas.record.builder import BatchBuilder
from barnabas.record.compression import CODES, NAMES
from conformance.record_requests import error_of, now_ms, produce, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conformance.raw_client import RawClient

MINUTE_MS = 60_000
NO_TIMESTAMP = -1


def batch(
    stamps: Sequence[int], size: int = 100, compression: int = 0, key: bytes | None = b"k"
) -> bytearray:
    """Return a batch with one record per timestamp."""
    builder = BatchBuilder(compression=compression)
    for index, at in enumerate(stamps):
        builder.append(at, key, bytes([65 + index]) * size)
    return bytearray(builder.build())


@pytest.mark.parametrize("compression_type", ["uncompressed", *NAMES[1:]])
def test_a_topic_stores_all_records_in_its_compression(
    raw: RawClient, make_topic: Callable[..., str], compression_type: str
) -> None:
    topic, now = make_topic(1, compression_type=compression_type), now_ms()
    stamps = [now - 5, now - 3, now - 4]
    for code in range(len(NAMES)):
        assert produce(raw, topic, batch(stamps, 200, code)).base_offset == 3 * code
    found = stored(raw, topic)
    code = CODES["none" if compression_type == "uncompressed" else compression_type]
    assert [header.compression for header, _ in found] == [code] * len(NAMES)
    assert [header.base_offset for header, _ in found] == [0, 3, 6, 9, 12]
    assert {header.max_timestamp for header, _ in found} == {now - 3}
    records = [record for _, each in found for record in each]
    assert [record.offset for record in records] == list(range(15))
    assert [record.timestamp for record in records] == stamps * 5


def test_a_topic_without_a_compression_keeps_that_of_the_producer(
    raw: RawClient, topic: str
) -> None:
    sent = [batch([now_ms()], 200, code) for code in range(len(NAMES))]
    for each in sent:
        assert error_of(raw, topic, each) == "NONE"
    assert [header.compression for header, _ in stored(raw, topic)] == list(range(len(NAMES)))


def test_compression_levels_are_applied(raw: RawClient, make_topic: Callable[..., str]) -> None:
    words = b" ".join(b"word%d" % (number * number % 977) for number in range(3000))
    sizes = {}
    for level in ("1", "9"):
        topic = make_topic(1, compression_type="gzip", compression_gzip_level=level)
        builder = BatchBuilder()
        builder.append(now_ms(), b"k", words)
        assert error_of(raw, topic, builder.build()) == "NONE"
        ((header, records),) = stored(raw, topic)
        assert records[0].value == words
        sizes[level] = header.size
    assert sizes["9"] < sizes["1"]


@pytest.mark.parametrize("compression", [0, 1, 4])
def test_the_brokers_time_replaces_the_producers(
    raw: RawClient, make_topic: Callable[..., str], compression: int
) -> None:
    topic, now = make_topic(1, message_timestamp_type="LogAppendTime"), now_ms()
    stamps = [now - 10**9, now + 10**9, 5]
    response = produce(raw, topic, batch(stamps, compression=compression))
    assert response.error_code == ErrorCode.NONE
    ((header, records),) = stored(raw, topic)
    assert abs(response.log_append_time_ms - now) < MINUTE_MS
    assert {record.timestamp for record in records} == {response.log_append_time_ms}
    assert header.timestamp_type == 1
    assert header.compression == compression


def test_log_append_time_of_a_producer_is_refused_or_corrected(
    raw: RawClient, make_topic: Callable[..., str], topic: str
) -> None:
    claim = batch([now_ms()])
    attributes = claim[ATTRIBUTES_POSITION + 1] | TIMESTAMP_TYPE_FLAG
    claim[ATTRIBUTES_POSITION + 1] = attributes
    set_crc(claim, 0, len(claim))
    other = make_topic(1, message_timestamp_type="LogAppendTime")
    assert error_of(raw, other, claim) == "INVALID_TIMESTAMP"
    assert error_of(raw, topic, claim) == "NONE"
    ((header, _),) = stored(raw, topic)
    assert header.timestamp_type == 0


@pytest.mark.parametrize("compression", [0, 1])
def test_timestamps_out_of_range_are_refused_and_named(
    raw: RawClient, make_topic: Callable[..., str], compression: int
) -> None:
    topic = make_topic(
        1, message_timestamp_before_max_ms="120000", message_timestamp_after_max_ms="120000"
    )
    now = now_ms()
    for stamps in ([now], [now - 1000, now + 1000], [NO_TIMESTAMP]):
        assert error_of(raw, topic, batch(stamps, compression=compression)) == "NONE"
    stamps = [now, now - 10 * MINUTE_MS, now + 10 * MINUTE_MS]
    response = produce(raw, topic, batch(stamps, compression=compression))
    assert response.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in response.record_errors] == [1, 2]


def test_a_time_an_hour_ahead_is_refused_by_default(raw: RawClient, topic: str) -> None:
    assert error_of(raw, topic, batch([now_ms() + 59 * MINUTE_MS])) == "NONE"
    assert error_of(raw, topic, batch([now_ms() + 61 * MINUTE_MS])) == "INVALID_TIMESTAMP"
    assert error_of(raw, topic, batch([5])) == "NONE"


def test_batch_sizes_are_limited_before_and_after_recompression(
    raw: RawClient, make_topic: Callable[..., str]
) -> None:
    now = now_ms()
    small = make_topic(1, max_message_bytes="2000")
    fitting = next(made for size in range(2000, 0, -1) if len(made := batch([now], size)) <= 2000)
    assert len(fitting) == 2000
    assert error_of(raw, small, fitting) == "NONE"
    assert error_of(raw, small, batch([now], 2001)) == "MESSAGE_TOO_LARGE"
    assert error_of(raw, small, batch([now], 10_000, compression=1)) == "NONE"
    unpacked = make_topic(1, max_message_bytes="2000", compression_type="uncompressed")
    assert error_of(raw, unpacked, batch([now], 10_000, compression=1)) == "MESSAGE_TOO_LARGE"
    packed = make_topic(1, max_message_bytes="2000", compression_type="gzip")
    assert error_of(raw, packed, batch([now], 10_000)) == "MESSAGE_TOO_LARGE"
    segments = make_topic(1, segment_bytes="1048576", max_message_bytes="5000000")
    assert error_of(raw, segments, batch([now], 1_100_000)) == "RECORD_LIST_TOO_LARGE"


@pytest.mark.parametrize("compression_type", ["producer", "gzip", "uncompressed"])
def test_a_batch_that_decompresses_to_too_much_is_refused(
    raw: RawClient, make_topic: Callable[..., str], compression_type: str
) -> None:
    settings = {"max.decompressed.message.bytes": "1000", "compression.type": compression_type}
    topic, now = make_topic(1, **settings), now_ms()
    assert error_of(raw, topic, batch([now], 2000)) == "NONE"
    for code in range(1, len(NAMES)):
        assert error_of(raw, topic, batch([now], 2000, code)) == "INVALID_RECORD"
        assert error_of(raw, topic, batch([now], 100, code)) == "NONE"
