"""Frames that no real client sends: responses, and closed connections."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.api_keys import request_class
from barnabas.protocol.api_table import APIS_WITHOUT_TABLES
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import ApiVersionsRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.transactions import InitProducerIdRequest
from barnabas.record.builder import BatchBuilder

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from conformance.raw_client import RawClient

API_VERSIONS = 18


def batch(*values: bytes, **options: int) -> bytearray:
    builder = BatchBuilder(**options)
    for value in values:
        builder.append(int(time.time() * 1000), None, value)
    return builder.build()


def produce_request(
    topic: str, records: bytes, acks: int = 1, partition: int = 0
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=50_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def produce_error(raw: RawClient, request: ProduceRequest, version: int = 9) -> ErrorCode:
    response = raw.ask(request, version)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def fetch_request(topic: str, offset: int = 0, **options: int) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    values = {"max_wait_ms": 100, "min_bytes": 1, **options}
    return FetchRequest(topics=[FetchTopic(topic=topic, partitions=[partition])], **values)


def test_all_versions_of_api_versions_get_a_response(raw: RawClient) -> None:
    for version in range(5):
        request = ApiVersionsRequest()
        if version >= 3:
            request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
        response = raw.ask(request, version)
        assert response.error_code == ErrorCode.NONE
        assert API_VERSIONS in {api.api_key for api in response.api_keys}


def test_an_api_versions_request_of_a_future_version_gets_version_0(raw: RawClient) -> None:
    header = struct.pack(">hhih", API_VERSIONS, 99, 7, 3) + b"raw\x00"
    raw.send_frame(header + b"\x00")
    frame = raw.receive_frame()
    assert frame is not None
    correlation_id, error = struct.unpack_from(">ih", frame)
    assert (correlation_id, error) == (7, ErrorCode.UNSUPPORTED_VERSION)
    count, api_key, first, last = struct.unpack_from(">ihhh", frame, 6)
    assert (count, api_key, first) == (1, API_VERSIONS, 0)
    assert last >= 4


def test_an_invalid_software_name_is_refused(raw: RawClient) -> None:
    request = ApiVersionsRequest(client_software_name="-bad-", client_software_version="1")
    assert raw.ask(request, 3).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("api_key", "version"), [(999, 0), (3, 99), (1, 99), (4, 0)])
def test_an_unknown_api_or_version_closes_the_connection(
    raw: RawClient, api_key: int, version: int
) -> None:
    raw.send_frame(struct.pack(">hhih", api_key, version, 1, -1) + b"\x00" * 20)
    assert raw.is_closed_by_broker()


@pytest.mark.parametrize("length", [-1, 0x7FFFFFFF, 200 << 20])
def test_an_invalid_length_closes_the_connection(raw: RawClient, length: int) -> None:
    raw.send_bytes(struct.pack(">i", length) + b"x" * 100)
    assert raw.is_closed_by_broker()


def test_a_truncated_request_closes_the_connection(raw: RawClient, topic: str) -> None:
    raw.send_frame(struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 5) + b"\x00\x10abc")
    assert raw.is_closed_by_broker()


def test_half_a_frame_does_not_delay_other_clients(raw: RawClient, bootstrap: str) -> None:
    from conformance.raw_client import RawClient

    raw.send_bytes(struct.pack(">i", 1000) + b"\x00\x12")
    other = RawClient(bootstrap)
    assert other.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
    other.close()


def test_requests_sent_together_get_responses_in_order(raw: RawClient, topic: str) -> None:
    # The fetch waits for data. The response of the second request must not overtake its response.
    raw.send(fetch_request(topic, max_wait_ms=300), 11)
    raw.send(ApiVersionsRequest(), 0)
    assert raw.receive(FetchRequest, 11).error_code == ErrorCode.NONE
    assert raw.receive(ApiVersionsRequest, 0).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(3, 13))
def test_every_produce_version_appends(raw: RawClient, topic: str, version: int) -> None:
    response = raw.ask(produce_request(topic, batch(b"a", b"b")), version)
    partition = response.responses[0].partition_responses[0]
    assert (partition.error_code, partition.base_offset) == (ErrorCode.NONE, 0)


def test_produce_accepts_topic_ids(raw: RawClient, topic: str) -> None:
    metadata = raw.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
    topic_id = metadata.topics[0].topic_id
    request = produce_request("", batch(b"a"))
    request.topic_data[0].topic_id = topic_id
    assert produce_error(raw, request, 13) is ErrorCode.NONE
    request.topic_data[0].topic_id = b"\x01" * 16
    assert produce_error(raw, request, 13) is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_wrong_checksum_is_refused(raw: RawClient, topic: str) -> None:
    damaged = batch(b"a" * 100)
    damaged[-1] ^= 0xFF
    assert produce_error(raw, produce_request(topic, damaged)) is ErrorCode.CORRUPT_MESSAGE


def test_two_batches_in_one_partition_are_refused(raw: RawClient, topic: str) -> None:
    request = produce_request(topic, batch(b"a") + batch(b"b"))
    assert produce_error(raw, request) is ErrorCode.INVALID_RECORD


def test_a_produce_without_records_is_refused(raw: RawClient, topic: str) -> None:
    assert produce_error(raw, produce_request(topic, b"")) is ErrorCode.INVALID_RECORD


def test_zstd_is_refused_before_version_7(raw: RawClient, topic: str) -> None:
    request = produce_request(topic, batch(b"a" * 100, compression=4))
    assert produce_error(raw, request, 6) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce_error(raw, request, 7) is ErrorCode.NONE


def test_acks_other_than_minus_1_0_and_1_are_refused(raw: RawClient, topic: str) -> None:
    request = produce_request(topic, batch(b"a"), acks=2)
    assert produce_error(raw, request) is ErrorCode.INVALID_REQUIRED_ACKS


def test_an_unknown_topic_is_refused(raw: RawClient) -> None:
    request = produce_request("no-such-topic", batch(b"a"))
    assert produce_error(raw, request) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_one_bad_partition_does_not_affect_another(raw: RawClient, topic: str) -> None:
    request = produce_request(topic, batch(b"a"))
    request.topic_data[0].partition_data.append(PartitionProduceData(index=7, records=batch(b"b")))
    partitions = raw.ask(request, 9).responses[0].partition_responses
    assert {each.index: each.error_code for each in partitions} == {
        0: ErrorCode.NONE,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_failed_produce_with_acks_0_closes_the_connection(raw: RawClient) -> None:
    raw.send(produce_request("no-such-topic", batch(b"a"), acks=0), 9)
    assert raw.is_closed_by_broker()


def test_a_produce_with_acks_0_has_no_response(raw: RawClient, topic: str) -> None:
    raw.send(produce_request(topic, batch(b"a"), acks=0), 9)
    assert raw.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE


def test_a_sequence_is_appended_once_and_a_gap_is_refused(raw: RawClient, topic: str) -> None:
    producer = raw.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4)
    assert (producer.error_code, producer.producer_epoch) == (ErrorCode.NONE, 0)

    def send(sequence: int, epoch: int = 0) -> tuple[ErrorCode, int]:
        records = batch(
            b"a",
            b"b",
            producer_id=producer.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        response = raw.ask(produce_request(topic, records, acks=-1), 9)
        partition = response.responses[0].partition_responses[0]
        return ErrorCode(partition.error_code), partition.base_offset

    assert send(0) == (ErrorCode.NONE, 0)
    assert send(2) == (ErrorCode.NONE, 2)
    assert send(2) == (ErrorCode.NONE, 2)
    assert send(8)[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(4) == (ErrorCode.NONE, 4)
    assert send(0, epoch=1) == (ErrorCode.NONE, 6)
    assert send(6, epoch=0)[0] is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", range(4, 13))
def test_every_fetch_version_reads(raw: RawClient, topic: str, version: int) -> None:
    raw.ask(produce_request(topic, batch(b"a", b"b")), 9)
    response = raw.ask(fetch_request(topic), version)
    partition = response.responses[0].partitions[0]
    assert (partition.error_code, partition.high_watermark) == (ErrorCode.NONE, 2)
    assert len(partition.records) > 61


def test_fetch_beyond_the_end_is_out_of_range(raw: RawClient, topic: str) -> None:
    partition = raw.ask(fetch_request(topic, offset=5), 11).responses[0].partitions[0]
    assert partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_fetch_of_an_unknown_topic_returns_an_error(raw: RawClient) -> None:
    partition = raw.ask(fetch_request("no-such-topic"), 11).responses[0].partitions[0]
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_fetch_sessions_return_only_changed_partitions(raw: RawClient, topic: str) -> None:
    raw.ask(produce_request(topic, batch(b"a")), 9)
    first = raw.ask(fetch_request(topic, session_id=0, session_epoch=0), 11)
    assert first.session_id > 0
    assert len(first.responses) == 1

    def fetch(epoch: int, **values: object) -> Message:
        options = {"max_wait_ms": 0, "min_bytes": 1, "topics": [], **values}
        return raw.ask(
            FetchRequest(session_id=first.session_id, session_epoch=epoch, **options), 11
        )

    moved = fetch_request(topic, offset=1).topics
    assert fetch(1, topics=moved).responses == []
    raw.ask(produce_request(topic, batch(b"b")), 9)
    changed = fetch(2)
    assert changed.responses[0].partitions[0].high_watermark == 2
    assert fetch(9).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_an_unknown_fetch_session_is_refused(raw: RawClient) -> None:
    request = FetchRequest(session_id=123, session_epoch=5, max_wait_ms=0, min_bytes=1, topics=[])
    assert raw.ask(request, 11).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("version", range(1, 12))
def test_every_list_offsets_version_finds_both_ends(
    raw: RawClient, topic: str, version: int
) -> None:
    raw.ask(produce_request(topic, batch(b"a", b"b", b"c")), 9)
    for timestamp, offset in ((-2, 0), (-1, 3)):
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)],
                )
            ],
        )
        partition = raw.ask(request, version).topics[0].partitions[0]
        assert (partition.error_code, partition.offset) == (ErrorCode.NONE, offset)


def test_topic_metadata_is_returned_in_every_version(raw: RawClient, topic: str) -> None:
    for version in range(14):
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        response = raw.ask(request, version)
        assert len(response.brokers) == 1
        (found,) = response.topics
        assert (found.name, found.error_code) == (topic, ErrorCode.NONE)
        assert found.partitions[0].leader_id == response.brokers[0].node_id


def test_metadata_without_auto_creation_creates_no_topic(raw: RawClient) -> None:
    topics = [MetadataRequestTopic(name="absent"), MetadataRequestTopic(name="bad/name")]
    for _ in range(2):
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        found = raw.ask(request, 12).topics
        assert {topic.name: topic.error_code for topic in found} == {
            "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "bad/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }


def test_metadata_by_topic_id_returns_only_these_topics(raw: RawClient, topic: str) -> None:
    topics = [
        MetadataRequestTopic(name=topic),
        MetadataRequestTopic(topic_id=b"\x01" * 16, name=None),
    ]
    (found,) = raw.ask(MetadataRequest(topics=topics), 12).topics
    assert (found.name, found.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


def test_every_advertised_version_can_be_decoded(raw: RawClient) -> None:
    response = raw.ask(ApiVersionsRequest(), 0)
    for api in response.api_keys:
        if api.api_key not in APIS_WITHOUT_TABLES:
            request_class(api.api_key)
        assert api.min_version <= api.max_version
