"""Headers of every version, and whole frames."""

from __future__ import annotations

import io

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioRequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioRequestHeaderV2
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.codec import (
    decode_request_header,
    decode_response,
    encode_bytes,
    encode_request,
    encode_request_header,
    encode_response,
    peek_correlation_id,
    request_header_version,
    response_header_version,
)
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.messages.connection import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.protocol.messages.metadata import MetadataRequest


def test_header_versions_depend_on_api_and_version() -> None:
    assert request_header_version(ApiKey.PRODUCE, 8) == 1
    assert request_header_version(ApiKey.PRODUCE, 9) == 2
    assert request_header_version(ApiKey.CONTROLLED_SHUTDOWN, 0) == 0
    assert request_header_version(ApiKey.CONTROLLED_SHUTDOWN, 1) == 1
    assert request_header_version(ApiKey.SASL_HANDSHAKE, 1) == 1
    assert response_header_version(ApiKey.PRODUCE, 8) == 0
    assert response_header_version(ApiKey.PRODUCE, 9) == 1
    assert response_header_version(ApiKey.API_VERSIONS, 4) == 0


@pytest.mark.parametrize(("version", "kio"), [(8, KioRequestHeaderV1), (9, KioRequestHeaderV2)])
@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "κλειώ"])
def test_request_headers_equal_those_of_kio(version: int, kio: type, client_id: str | None) -> None:
    ours = encode_request_header(0, version, 77, client_id)
    buffer = io.BytesIO()
    header = kio(
        request_api_key=i16(0),
        request_api_version=i16(version),
        correlation_id=i32(77),
        client_id=client_id,
    )
    entity_writer(kio)(buffer, header)
    assert ours == buffer.getvalue()
    assert decode_request_header(ours) == (0, version, 77, client_id, len(ours))


def test_a_client_id_with_invalid_utf_8_is_read_with_replacements() -> None:
    header = b"\0\3\0\1\0\0\0\5" + b"\0\4" + "caf\u00e9".encode("latin-1")
    assert decode_request_header(header) == (3, 1, 5, "caf\ufffd", len(header))


def test_controlled_shutdown_v0_has_no_client_id() -> None:
    header = encode_request_header(ApiKey.CONTROLLED_SHUTDOWN, 0, 5, "unused")
    assert len(header) == 8
    assert decode_request_header(header + b"rest") == (7, 0, 5, None, 8)


def test_tagged_fields_of_a_request_header_are_skipped() -> None:
    header = encode_request_header(ApiKey.PRODUCE, 9, 5, "c")
    tagged = header[:-1] + b"\x01\x07\x02ab"
    assert decode_request_header(tagged + b"rest")[-1] == len(tagged)


def test_the_header_of_an_unknown_api_or_version_is_still_read() -> None:
    header = encode_request_header(ApiKey.API_VERSIONS, 99, 5, "c")
    assert decode_request_header(header) == (18, 99, 5, "c", len(header))
    assert decode_request_header(encode_request_header(999, 0, 5, "c"))[:4] == (999, 0, 5, "c")


@pytest.mark.parametrize("length", range(12))
def test_a_truncated_header_is_an_error(length: int) -> None:
    header = encode_request_header(ApiKey.PRODUCE, 9, 5, "client")
    with pytest.raises(ProtocolError):
        decode_request_header(header[:length])


def test_a_request_frame_has_length_header_and_message() -> None:
    request = MetadataRequest(topics=None)
    frame = b"".join(bytes(chunk) for chunk in encode_request(3, "me", request, 9))
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    key, version, correlation_id, client_id, offset = decode_request_header(frame[4:])
    assert (key, version, correlation_id, client_id) == (3, 9, 3, "me")
    assert frame[4 + offset :] == encode_bytes(request, 9)


def test_a_response_frame_includes_separate_record_chunks() -> None:
    data = PartitionData(
        partition_index=0, error_code=0, high_watermark=9, records=memoryview(bytes(5000))
    )
    topic = FetchableTopicResponse(topic_id=bytes(range(16)), partitions=[data])
    response = FetchResponse(responses=[topic])
    chunks = encode_response(8, response, 13)
    assert len(chunks) == 3
    frame = b"".join(bytes(chunk) for chunk in chunks)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    assert peek_correlation_id(frame[4:]) == 8
    assert decode_response(FetchRequest, 13, frame[4:]) == (8, response)


def test_an_api_versions_response_always_has_the_oldest_header() -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[])
    frame = b"".join(bytes(chunk) for chunk in encode_response(8, response, 3))
    assert frame[8:] == encode_bytes(response, 3)
    assert decode_response(ApiVersionsRequest, 3, frame[4:]) == (8, response)
