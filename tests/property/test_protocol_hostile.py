"""Decoding any bytes ends quickly with a message or a `ProtocolError`, with bounded memory."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest
from hypothesis import given, settings, strategies as st

from barnabas.protocol.codec import (
    decode,
    decode_from,
    decode_request_header,
    decode_response_header,
    encode_bytes,
)
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.primitives import read_varint, unsigned_varint
from barnabas.protocol.record_frame import decode_metadata_record
from unit.protocol.protocol_values import message_classes, messages, versions_of

CLASSES = message_classes()


def test_every_truncation_is_an_error() -> None:
    rng = random.Random(1)
    for cls, version, message in messages(seed=11, count=1):
        written = encode_bytes(message, version)
        for length in {0, 1, len(written) - 1, *(rng.randrange(len(written) + 1) for _ in "abc")}:
            if 0 <= length < len(written):
                with pytest.raises(ProtocolError):
                    decode(cls, version, written[:length])


def test_damaged_bytes_decode_or_are_an_error() -> None:
    rng = random.Random(2)
    for cls, version, message in messages(seed=12, count=1):
        written = bytearray(encode_bytes(message, version))
        for _ in range(4):
            for _ in range(rng.randint(1, 3)):
                if written:
                    written[rng.randrange(len(written))] = rng.choice([0, 127, 128, 255])
            try:
                _, stop = decode_from(cls, version, written)
            except ProtocolError:
                continue
            assert stop <= len(written)


@settings(max_examples=300)
@given(st.integers(0, 10**6), st.binary(max_size=200))
def test_random_bytes_decode_or_are_an_error(choice: int, data: bytes) -> None:
    cls = CLASSES[choice % len(CLASSES)]
    versions = versions_of(cls)
    try:
        _, stop = decode_from(cls, versions[choice % len(versions)], data)
    except ProtocolError:
        return
    assert stop <= len(data)


@settings(max_examples=200)
@given(st.binary(max_size=60))
def test_random_headers_and_records_decode_or_are_an_error(data: bytes) -> None:
    for read in (
        lambda: decode_request_header(data),
        lambda: decode_response_header(1, 12, data),
        lambda: decode_metadata_record(data),
        lambda: read_varint(data, 0),
    ):
        try:
            read()
        except ProtocolError:
            continue


@pytest.mark.parametrize(
    ("version", "count"),
    [(1, struct.pack(">i", 0x7FFFFFFF)), (9, unsigned_varint(0xFFFFFFFF))],
)
def test_a_forged_array_count_allocates_nothing(version: int, count: bytes) -> None:
    decode(MetadataRequest, version, encode_bytes(MetadataRequest(topics=[]), version))
    data = count + bytes(1000)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decode(MetadataRequest, version, data)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_forged_count_of_numbers_allocates_nothing() -> None:
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    written = bytearray(encode_bytes(request, 7))
    written[-4:] = struct.pack(">i", 1) + struct.pack(">h", 0) + struct.pack(">i", 0x7FFFFFF0)
    with pytest.raises(ProtocolError, match="the count or length is"):
        decode(FetchRequest, 7, written)


@pytest.mark.parametrize("length", [-2, -(2**31), 0x7FFFFFFF])
def test_a_forged_records_length_is_an_error(length: int) -> None:
    request = ProduceRequest(acks=1, timeout_ms=0, topic_data=[])
    start = encode_bytes(request, 3)[:-4]
    partition = struct.pack(">ihsiii", 1, 1, b"t", 1, 0, length)
    if length < 0:
        # Any negative length is null, as in Kafka.
        read = decode(ProduceRequest, 3, start + partition)
        assert read.topic_data[0].partition_data[0].records is None
    else:
        with pytest.raises(ProtocolError):
            decode(ProduceRequest, 3, start + partition)


def test_bad_utf_8_is_an_error() -> None:
    data = struct.pack(">i", 1) + struct.pack(">h", 2) + b"\xff\xfe"
    with pytest.raises(ProtocolError):
        decode(MetadataRequest, 1, data)


def test_an_overlong_string_is_an_error() -> None:
    data = b"\x02" + unsigned_varint(40_001) + b"x" * 40_000 + b"\x00\x00\x00\x00\x00"
    with pytest.raises(ProtocolError, match="40000"):
        decode(MetadataRequest, 9, data)


def test_an_overlong_varint_is_an_error() -> None:
    for data in (b"\x80" * 5 + b"\x01", b"\xff\xff\xff\xff\x1f", b"\xff" * 200):
        with pytest.raises(ProtocolError):
            decode(MetadataRequest, 9, data)


def test_a_duplicate_tag_is_an_error() -> None:
    plain = encode_bytes(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 12)
    cluster_id = b"\x00\x02\x02x"
    once = plain[:-1] + b"\x01" + cluster_id
    assert decode(FetchRequest, 12, once).cluster_id == "x"
    with pytest.raises(ProtocolError, match="twice"):
        decode(FetchRequest, 12, plain[:-1] + b"\x02" + cluster_id * 2)
    unknown = b"\x63\x01a"
    with pytest.raises(ProtocolError, match="twice"):
        decode(FetchRequest, 12, plain[:-1] + b"\x02" + unknown * 2)


def test_a_tagged_field_that_does_not_fill_its_size_is_an_error() -> None:
    plain = encode_bytes(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 12)
    with pytest.raises(ProtocolError):
        decode(FetchRequest, 12, plain[:-1] + b"\x01" + b"\x00\x03" + b"\x02x" + b"y")


def test_memory_is_proportional_to_the_bytes() -> None:
    # The costliest thing that a byte can buy: topics whose name takes one byte.
    count = 100_000
    data = unsigned_varint(count + 1) + b"\x01\x00" * count + b"\x00\x00\x00\x00"
    tracemalloc.start()
    try:
        assert len(decode(MetadataRequest, 9, data).topics or ()) == count
        assert tracemalloc.get_traced_memory()[1] < 100 * len(data)
    finally:
        tracemalloc.stop()
