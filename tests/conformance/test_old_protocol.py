"""Versions that Kafka 4.0 removed, in raw requests to Barnabas and Apache Kafka 3.9.2."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from barnabas.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from barnabas.protocol.messages.log_offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.messages.metadata import FindCoordinatorRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from barnabas.record.builder import build_batch
from barnabas.record.compression import compress
from barnabas.record.legacy import entries, read_records, write_message, write_message_set
from barnabas.record.record import Record
from conformance.old_requests import batch, fetch, list_offsets, produce, produce_request, rows
from conformance.raw_client import RawClient
from jvm.kafka_process import KafkaProcess
from waiting import eventually

MakeTopic = Callable[..., str]
NOW = int(time.time() * 1000)
MAGIC = {0: 0, 1: 0, 2: 1, 3: 1}


@pytest.fixture(scope="module", params=["barnabas", "kafka-3.9"])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """HOST:PORT of each kind of broker."""
    if request.param == "barnabas":
        yield request.getfixturevalue("broker").bootstrap
        return
    process = KafkaProcess(tmp_path_factory.mktemp(request.param), jars=request.param)
    try:
        yield process.start().bootstrap
    finally:
        process.close()


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def read(raw: RawClient, topic: str, offset: int, version: int) -> list[Record]:
    response = fetch(raw, topic, offset, version)
    assert response.error_code == 0
    records = bytes(response.records)
    if version in MAGIC:
        assert {magic for _, _, magic in entries(records)} <= {MAGIC[version]}
    return list(read_records(records))


@pytest.mark.parametrize("compression", [0, 1, 2, 3])
@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 0), (2, 1)])
def test_an_old_set_is_read_back_in_every_format(
    raw: RawClient, topic: str, version: int, magic: int, compression: int
) -> None:
    sent = rows(3, NOW)
    response = produce(raw, topic, write_message_set(magic, sent, compression), version)
    assert (response.error_code, response.base_offset) == (0, 0)
    assert produce(raw, topic, write_message_set(magic, sent), version, -1).base_offset == 3
    for fetch_version in range(5):
        found = read(raw, topic, 0, fetch_version)
        assert [(r.offset, r.key, r.value) for r in found[:3]] == [
            (r.offset, r.key, r.value) for r in sent
        ]
        times = [r.timestamp for r in sent] if magic and fetch_version > 1 else [-1] * 3
        assert [r.timestamp for r in found[:3]] == times


@pytest.mark.parametrize("compression", [0, 1, 2, 3])
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_new_batches_are_converted_for_old_consumers(
    raw: RawClient, topic: str, version: int, compression: int
) -> None:
    for _ in range(2):
        assert produce(raw, topic, batch(4, NOW, compression, headers=True), 3).error_code == 0
    found = read(raw, topic, 0, version)
    assert [(r.offset, r.key, r.value, tuple(r.headers)) for r in found[:4]] == [
        (i, b"k%d" % i, b"v", ()) for i in range(4)
    ]
    # Uncompressed records before the offset are left out; a compressed batch is complete.
    assert read(raw, topic, 6, version)[0].offset == (4 if compression else 6)


@pytest.mark.parametrize("compression", [0, 3])
def test_large_sets_of_pipelined_requests_keep_their_order(
    raw: RawClient, topic: str, compression: int
) -> None:
    large = write_message_set(1, rows(4000, NOW), compression)
    for records in (large, SET, large):
        raw.send(produce_request(topic, records), 2)
    responses = [raw.receive(ProduceRequest, 2).responses[0] for _ in range(3)]
    assert [each.partition_responses[0].base_offset for each in responses] == [0, 4000, 4003]
    for version in (0, 3):
        found = [record.offset for record in read(raw, topic, 0, version)]
        assert found == list(range(len(found)))
        assert len(found) >= 4000


@pytest.mark.parametrize("first", [0, 100])
def test_inner_offsets_of_a_wrapper_may_start_anywhere(
    raw: RawClient, topic: str, first: int
) -> None:
    sent = rows(3, NOW)
    inner = b"".join(write_message(1, first + r.offset, r) for r in sent)
    wrapper = Record(first + 2, NOW, 0, None, bytes(compress(1, inner)))
    assert produce(raw, topic, write_message(1, first + 2, wrapper, 1), 2).base_offset == 0
    assert [r.offset for r in read(raw, topic, 0, 2)] == [0, 1, 2]


def test_log_append_time_applies_to_all_messages_of_a_set(
    raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    for compression in (0, 1):
        sent = write_message_set(1, rows(3, 1000), compression)
        assert produce(raw, topic, sent, 2).log_append_time_ms > NOW - 60_000
    found = read(raw, topic, 0, 2)[:3]
    assert {r.timestamp_type for r in found} == {1}
    assert min(r.timestamp for r in found) > NOW - 60_000


def test_the_topic_compression_applies_to_old_producers(
    raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(compression_type="gzip")
    produce(raw, topic, write_message_set(1, rows(3, NOW)), 2)
    assert len(list(entries(bytes(fetch(raw, topic, 0, 2).records)))) == 1


def one_message(**options: object) -> bytes:
    return write_message(1, 0, Record(0, NOW, 0, None, **options), 1)  # type: ignore[arg-type]


def damaged(records: bytes) -> bytes:
    return records[:-1] + bytes([records[-1] ^ 1])


SET = write_message_set(1, rows(3, NOW))
GZIP = write_message_set(1, rows(3, NOW), 1)
OLDER = write_message_set(0, rows(3, NOW))


@pytest.mark.parametrize(
    ("records", "error"),
    [
        pytest.param(GZIP + GZIP, ErrorCode.INVALID_RECORD, id="two compressed messages"),
        pytest.param(SET + GZIP, ErrorCode.INVALID_RECORD, id="plain and compressed"),
        pytest.param(OLDER + SET, ErrorCode.INVALID_RECORD, id="magic 0 and 1"),
        pytest.param(SET + batch(1, NOW), ErrorCode.INVALID_RECORD, id="magic 1 and 2"),
        pytest.param(batch(1, NOW) + SET, ErrorCode.INVALID_RECORD, id="magic 2 and 1"),
        pytest.param(batch(1, NOW) * 2, ErrorCode.INVALID_RECORD, id="two batches"),
        pytest.param(
            one_message(value=bytes(compress(1, GZIP))), ErrorCode.INVALID_RECORD, id="nested"
        ),
        pytest.param(
            one_message(value=bytes(compress(1, OLDER))), ErrorCode.INVALID_RECORD, id="other magic"
        ),
        pytest.param(one_message(value=None), ErrorCode.INVALID_RECORD, id="null wrapper"),
        pytest.param(
            one_message(value=bytes(compress(1, b""))), ErrorCode.INVALID_RECORD, id="empty wrapper"
        ),
        pytest.param(damaged(SET), ErrorCode.CORRUPT_MESSAGE, id="checksum"),
        pytest.param(
            one_message(value=bytes(compress(1, damaged(SET)))),
            ErrorCode.CORRUPT_MESSAGE,
            id="inner checksum",
        ),
        pytest.param(
            batch(1, NOW, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            id="transactional",
        ),
    ],
)
def test_a_malformed_message_set_is_refused(
    raw: RawClient, topic: str, records: bytes, error: ErrorCode
) -> None:
    response = produce(raw, topic, records, 2)
    assert (response.error_code, response.base_offset) == (error, -1)
    assert produce(raw, topic, SET, 2).base_offset == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_complete_messages_of_a_truncated_set_are_appended(
    raw: RawClient, topic: str, version: int
) -> None:
    for nothing in (b"", OLDER[:20]):
        response = produce(raw, topic, nothing, version)
        assert (response.error_code, response.base_offset) == (0, -1)
    assert produce(raw, topic, OLDER[:-3], version).base_offset == 0
    assert produce(raw, topic, OLDER, version).base_offset == 2


def test_topic_limits_apply_to_old_producers(raw: RawClient, make_topic: MakeTopic) -> None:
    small = make_topic(max_message_bytes="200")
    one, three = rows(1, NOW, value=b"x" * 300), rows(3, NOW, value=b"x" * 90)
    too_large = ErrorCode.MESSAGE_TOO_LARGE
    assert produce(raw, small, write_message_set(1, one), 2).error_code == too_large
    assert produce(raw, small, write_message_set(1, three), 2).error_code == too_large
    assert produce(raw, small, write_message_set(1, three, 1), 2).error_code == 0
    assert produce(raw, "no-such-topic", SET, 0).error_code == 3
    assert produce(raw, small, SET, 2, acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_old_consumers_cannot_read_zstd_batches(raw: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    produce(raw, topic, batch(2, NOW), 3)
    produce(raw, topic, batch(2, NOW, 4), 7)
    for version in range(4):
        assert [r.offset for r in read(raw, topic, 0, version)] == [0, 1]
        failed = fetch(raw, topic, 2, version)
        assert failed.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert [r.offset for r in read(raw, topic, 2, 4)] == [2, 3]
    configured = make_topic(compression_type="zstd")
    produce(raw, configured, batch(2, NOW), 3)
    for version in (0, 3, 4, 9):
        failed = fetch(raw, configured, 0, version)
        assert failed.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert len(read(raw, configured, 0, 10)) == 2


def test_down_conversion_can_be_disabled(raw: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic(message_downconversion_enable="false")
    produce(raw, topic, batch(2, NOW), 3)
    for version in range(4):
        response = fetch(raw, topic, 0, version)
        assert (response.error_code, response.high_watermark) == (ErrorCode.UNSUPPORTED_VERSION, -1)
        assert not response.records
    assert len(read(raw, topic, 0, 4)) == 2


def test_the_byte_limit_is_hard_below_v3(raw: RawClient, topic: str) -> None:
    produce(raw, topic, batch(10, NOW), 3)
    for version in (0, 1, 2):
        response = fetch(raw, topic, 0, version, max_bytes=50)
        assert (response.error_code, response.high_watermark, len(response.records)) == (0, 10, 0)
    assert len(list(read_records(bytes(fetch(raw, topic, 0, 3, max_bytes=50).records)))) == 10
    assert fetch(raw, topic, 11, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_list_offsets_v0_returns_the_starts_of_segments(
    raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(segment_bytes=str(1 << 20))
    assert list_offsets(raw, topic, -1, 5).old_style_offsets == [0]
    for _ in range(3):
        produce(raw, topic, batch_of(b"x" * 700_000), 3)
    assert list_offsets(raw, topic, -1, 10).old_style_offsets == [3, 2, 1, 0]
    assert list_offsets(raw, topic, -1, 2).old_style_offsets == [3, 2]
    assert list_offsets(raw, topic, -1, 0).old_style_offsets == []
    assert list_offsets(raw, topic, -2, 10).old_style_offsets == [0]
    assert list_offsets(raw, topic, NOW - 10**7, 10).old_style_offsets == []
    assert list_offsets(raw, topic, NOW + 10**7, 10).old_style_offsets == [3, 2, 1, 0]
    assert list_offsets(raw, topic, -3).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert list_offsets(raw, topic, -1, -1).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert list_offsets(raw, topic, -1, partition=7).error_code == 3


def batch_of(value: bytes) -> bytes:
    return bytes(build_batch([Record(0, NOW, 0, None, value)]))


def test_topics_are_created_and_deleted_by_the_first_versions(raw: RawClient) -> None:
    names = [f"old-{version}-{time.time_ns()}" for version in (0, 1)]
    for version, name in enumerate(names):
        topic = CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=50_000)
        assert [raw.ask(request, version).topics[0].error_code for _ in range(2)] == [0, 36]
    request = DeleteTopicsRequest(topic_names=[*names, "no-such-topic"], timeout_ms=50_000)
    errors = {each.name: each.error_code for each in raw.ask(request, 0).responses}
    assert errors == {names[0]: 0, names[1]: 0, "no-such-topic": 3}


def test_leader_epoch_ends_are_returned_in_the_first_versions(raw: RawClient, topic: str) -> None:
    produce(raw, topic, batch(4, NOW), 3)
    for version in (0, 1):
        partitions = [OffsetForLeaderPartition(partition=i, leader_epoch=0) for i in (0, 9)]
        request = OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic=topic, partitions=partitions)]
        )
        found = raw.ask(request, version).topics[0].partitions
        assert [(each.error_code, each.end_offset) for each in found] == [(0, 4), (3, -1)]
        assert found[0].leader_epoch == (0 if version else -1)


def test_describe_configs_v0_returns_names_and_values(
    raw: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(retention_ms="1234")
    resource = DescribeConfigsResource(
        resource_type=2,
        resource_name=topic,
        configuration_keys=["retention.ms", "message.downconversion.enable"],
    )
    (result,) = raw.ask(DescribeConfigsRequest(resources=[resource]), 0).results
    values = {each.name: each.value for each in result.configs}
    assert values == {"retention.ms": "1234", "message.downconversion.enable": "true"}
    assert not any(each.read_only or each.is_sensitive for each in result.configs)


def commit(raw: RawClient, version: int, topic: str, offset: int, **options: object) -> int:
    partition = OffsetCommitRequestPartition(
        partition_index=0,
        committed_offset=offset,
        committed_metadata="m",
        commit_timestamp=options.pop("commit_timestamp", -1),  # type: ignore[arg-type]
    )
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    request = OffsetCommitRequest(group_id=f"group-of-{topic}", topics=topics, **options)
    return raw.ask(request, version).topics[0].partitions[0].error_code


def committed(raw: RawClient, version: int, topic: str) -> tuple[int, int]:
    topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    request = OffsetFetchRequest(group_id=f"group-of-{topic}", topics=topics)
    (found,) = raw.ask(request, version).topics[0].partitions
    return found.error_code, found.committed_offset


def test_offsets_of_a_group_are_committed_by_v1_and_not_in_zookeeper(
    raw: RawClient, topic: str
) -> None:
    request = FindCoordinatorRequest(key=f"group-of-{topic}")
    eventually(lambda: not raw.ask(request, 0).error_code)
    unsupported = ErrorCode.UNSUPPORTED_VERSION
    # The coordinator loads its log before it responds.
    errors: list[int] = []
    eventually(lambda: errors.append(commit(raw, 1, topic, 6)) or errors[-1] not in (14, 16))
    assert errors[-1] == 0
    assert committed(raw, 1, topic) == (0, 6)
    assert commit(raw, 1, topic, 7, commit_timestamp=NOW) == 0
    assert (commit(raw, 0, topic, 8), committed(raw, 0, topic)) == (unsupported, (unsupported, -1))
    assert committed(raw, 1, topic) == (0, 7)
    assert commit(raw, 0, "no-such-topic", 1) == 3
    assert commit(raw, 1, "no-such-topic", 1) == 3
    error = commit(raw, 1, topic, 1, generation_id_or_member_epoch=3, member_id="x")
    assert error == ErrorCode.UNKNOWN_MEMBER_ID


def test_describe_log_dirs_v0_returns_sizes(raw: RawClient, topic: str) -> None:
    produce(raw, topic, batch(4, NOW), 3)
    topics = [DescribableLogDirTopic(topic=topic, partitions=[0])]
    (directory,) = raw.ask(DescribeLogDirsRequest(topics=topics), 0).results
    ((partition,),) = [each.partitions for each in directory.topics]
    assert (directory.error_code, partition.partition_index) == (0, 0)
    assert (partition.offset_lag, partition.is_future_key) == (0, False)
    assert partition.partition_size > 61
