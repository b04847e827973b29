"""Encoding and decoding in steps: the same bytes and messages, one step per item."""

from __future__ import annotations

import pytest

from barnabas.protocol.codec import (
    decode,
    decode_in_steps,
    encode_bytes,
    encode_in_steps,
    encode_response,
    encode_response_in_steps,
)
from barnabas.protocol.decoding import ITEMS_MAX, TAGS_MAX
from barnabas.protocol.errors import ErrorCode, ProtocolError, error_counter, step_error_counter
from barnabas.protocol.messages.groups import DescribeGroupsRequest
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.primitives import unsigned_varint
from steps import counted, finish
from unit.protocol.protocol_values import messages


def test_coding_in_steps_equals_coding_at_once_for_all_messages() -> None:
    for message_class, version, message in messages(seed=3, count=1):
        data = encode_bytes(message, version)
        in_steps = finish(encode_in_steps(bytearray(), message, version))
        joined = b"".join(
            chunk if isinstance(chunk, bytes | bytearray | memoryview) else chunk.read()
            for chunk in in_steps
        )
        assert joined == data
        read = finish(decode_in_steps(message_class, version, memoryview(data)))
        assert read == decode(message_class, version, data)


def _request(count: int) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=f"topic-{number}") for number in range(count)],
        allow_auto_topic_creation=False,
    )


def _response(count: int) -> ListOffsetsResponse:
    partitions = [
        ListOffsetsPartitionResponse(partition_index=number, error_code=ErrorCode.NONE)
        for number in range(count)
    ]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=partitions)])


def test_each_array_item_is_one_step() -> None:
    data = memoryview(encode_bytes(_request(1000), 9))
    request, steps = counted(decode_in_steps(MetadataRequest, 9, data))
    assert len(request.topics or ()) == 1000
    assert 1000 <= steps <= 1010
    chunks, steps = counted(encode_response_in_steps(7, _response(1000), 6))
    assert b"".join(map(bytes, chunks)) == b"".join(
        map(bytes, encode_response(7, _response(1000), 6))
    )
    assert 1000 <= steps <= 1010


def test_errors_are_counted_in_steps() -> None:
    response = _response(100)
    response.topics[0].partitions[3].error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    at_once = [0] * (max(ErrorCode) + 2)
    in_steps = list(at_once)
    error_counter(ListOffsetsResponse)(response, at_once)
    _, steps = counted(step_error_counter(ListOffsetsResponse)(response, in_steps))
    assert in_steps == at_once
    assert steps >= 100


def test_more_items_than_the_memory_limit_are_refused() -> None:
    frame = bytearray(unsigned_varint(ITEMS_MAX + 2)) + b"\x02g" * (ITEMS_MAX + 1) + b"\x00\x00"
    with pytest.raises(ProtocolError, match="send several"):
        finish(decode_in_steps(DescribeGroupsRequest, 5, memoryview(frame)))


def test_truncated_messages_are_rejected_in_steps_too() -> None:
    data = encode_bytes(_request(100), 9)
    for end in (0, 1, 10, len(data) - 1):
        with pytest.raises(ProtocolError):
            finish(decode_in_steps(MetadataRequest, 9, memoryview(data[:end])))


def test_a_struct_has_a_limit_of_tagged_fields() -> None:
    count = TAGS_MAX + 1
    tags = unsigned_varint(count) + b"".join(
        unsigned_varint(1000 + tag) + b"\x00" for tag in range(count)
    )
    data = encode_bytes(_request(1), 9)[:-1] + tags
    with pytest.raises(ProtocolError, match="tagged fields"):
        decode(MetadataRequest, 9, data)
