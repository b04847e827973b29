"""Values that encoding rejects, drops or passes through."""

from __future__ import annotations

import pytest

from barnabas.protocol.codec import decode, decode_from, encode, encode_bytes
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.protocol.messages.metadata import (
    CursorResponse,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.quorum import VoteRequest
from barnabas.protocol.records.consumer_groups import (
    ConsumerGroupMemberMetadataValue,
)


class FileLike:
    """A slice of a file: has a length, and can be read."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __len__(self) -> int:
        return len(self.content)

    def read(self) -> bytes:
        return self.content


def produce(records: object, name: str = "t") -> ProduceRequest:
    data = PartitionProduceData(index=0, records=records)  # type: ignore[arg-type]
    topic = TopicProduceData(name=name, partition_data=[data])
    return ProduceRequest(acks=1, timeout_ms=5, topic_data=[topic])


def fetch_response(records: object) -> FetchResponse:
    data = PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=0,
        records=records,  # type: ignore[arg-type]
    )
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])


def test_decoded_records_are_a_view_into_the_frame() -> None:
    frame = bytearray(encode_bytes(produce(b"abc"), 9))
    records = decode(ProduceRequest, 9, memoryview(frame)).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    frame[frame.index(b"abc")] = ord("x")
    assert bytes(records) == b"xbc"


def test_large_records_are_passed_through_as_a_chunk() -> None:
    records = memoryview(bytes(1024))
    assert any(chunk is records for chunk in encode(fetch_response(records), 11))


def test_small_records_are_copied_into_one_chunk() -> None:
    assert len(encode(fetch_response(bytes(1023)), 11)) == 1


@pytest.mark.parametrize("size", [0, 10, 5000])
def test_a_slice_of_a_file_is_never_read_by_encoding(size: int) -> None:
    records = FileLike(bytes(size))
    chunks = encode(fetch_response(records), 12)
    assert any(chunk is records for chunk in chunks)
    written = encode_bytes(fetch_response(records), 12)
    assert written == encode_bytes(fetch_response(bytes(size)), 12)
    assert sum(map(len, chunks)) == len(written)


def test_a_value_that_the_version_cannot_carry_is_an_error() -> None:
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    assert encode_bytes(request, 4)
    with pytest.raises(ProtocolError, match="allow_auto_topic_creation"):
        encode(request, 3)


def test_an_ignorable_value_that_the_version_cannot_carry_is_dropped() -> None:
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[], session_id=77)
    assert decode(FetchRequest, 6, encode_bytes(request, 6)).session_id == 0


def test_a_null_that_the_version_does_not_allow_is_an_error() -> None:
    assert encode_bytes(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    with pytest.raises(ProtocolError):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(ProtocolError, match=r"MetadataRequest\.topics"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")


def test_an_unknown_version_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="0-18"):
        encode(FetchRequest(max_wait_ms=1, min_bytes=1, topics=[]), 19)
    with pytest.raises(ProtocolError, match="0-18"):
        decode(FetchRequest, -1, b"")


def test_a_number_out_of_range_is_an_error() -> None:
    with pytest.raises(ProtocolError):
        encode(ProduceRequest(acks=1 << 15, timeout_ms=0, topic_data=[]), 9)


def test_a_string_too_long_for_the_protocol_is_an_error() -> None:
    for version in (8, 9):
        with pytest.raises(ProtocolError):
            encode(produce(b"", name="x" * 32768), version)


def test_a_uuid_of_another_length_is_an_error() -> None:
    topic = TopicProduceData(topic_id=b"short", partition_data=[])
    with pytest.raises(ProtocolError, match="16 bytes"):
        encode(ProduceRequest(acks=1, timeout_ms=0, topic_data=[topic]), 13)


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = encode_bytes(VoteRequest(cluster_id=None, topics=[]), 2)
    tagged = plain[:-1] + b"\x02" + b"\x55\x03abc" + b"\xff\x01\x00"
    assert decode_from(VoteRequest, 2, tagged) == (decode(VoteRequest, 2, plain), len(tagged))


def test_a_nullable_struct_is_marked_by_one_byte() -> None:
    absent = DescribeTopicPartitionsResponse(topics=[])
    assert encode_bytes(absent, 0).endswith(b"\xff\x00")
    cursor = CursorResponse(topic_name="t", partition_index=3)
    present = DescribeTopicPartitionsResponse(topics=[], next_cursor=cursor)
    written = encode_bytes(present, 0)
    assert written.endswith(b"\x01\x02t\x00\x00\x00\x03\x00\x00")
    assert decode(DescribeTopicPartitionsResponse, 0, written).next_cursor == cursor


def test_a_null_struct_in_a_tagged_field_is_a_zero() -> None:
    value = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="h",
        subscribed_topic_names=[],
        subscribed_topic_regex=None,
        rebalance_timeout_ms=1,
        server_assignor=None,
        classic_member_metadata=None,
    )
    written = encode_bytes(value, 0)
    assert written.endswith(b"\x01\x00\x01\x00")
    assert decode(ConsumerGroupMemberMetadataValue, 0, written).classic_member_metadata is None
