"""The blocking client against our broker and against Apache Kafka."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

import barnabas
from barnabas.client.admin.topics import NewTopic
from barnabas.client.errors import (
    AdminResultsError,
    BrokerError,
    ForkedClientError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    UnknownTopicError,
)
from barnabas.client.facade import Client
from barnabas.client.fetch.record_set import read_records
from barnabas.client.producer.producer_batch import RecordMetadata
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.testing.broker_process import BrokerProcess
from conformance.client_brokers import broker
from jvm.kafka_process import KafkaProcess
from waiting import PATIENCE_S, eventually, eventually_equal

pytestmark = pytest.mark.conformance
__all__ = ["broker"]

Broker = BrokerProcess | KafkaProcess


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with barnabas.Client(broker.bootstrap, default_api_timeout_ms=30_000) as made:
        yield made


@pytest.fixture
def topic(client: Client) -> str:
    name = f"topic-{uuid.uuid4().hex[:8]}"
    # Some tests write records with old timestamps.
    configs = {"retention.ms": "-1"}
    client.create_topic(name, partitions=2, replication_factor=1, configs=configs)
    return name


def ends(client: Client, topic: str) -> dict[TopicPartition, tuple[int, int]]:
    partitions = [TopicPartition(topic, n) for n in client.partitions_for([topic])[topic]]
    found = client.list_offsets(dict.fromkeys(partitions, "latest"))
    return {tp: (0, found[tp].offset) for tp in partitions}


def values(client: Client, topic: str) -> dict[int, list[bytes | None]]:
    found: dict[int, list[bytes | None]] = {}
    for records in client.fetch_range(ends(client, topic)):
        found.setdefault(records.partition, []).extend(r.value for r in read_records(records))
    return found


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_sent_records_are_read_back(client: Client, topic: str, compression: str) -> None:
    with client.producer(compression_type=compression) as producer:
        for number in range(500):
            producer.send(topic, b"value %d" % number, partition=0)
    assert values(client, topic) == {0: [b"value %d" % number for number in range(500)]}


def test_nulls_headers_and_timestamps_survive(client: Client, topic: str) -> None:
    headers = [("a", b"1"), ("a", None), ("", b"")]
    with client.producer() as producer:
        producer.send(topic, None, b"key", 1, headers=headers, timestamp_ms=12345)
        producer.send(topic, b"", None, 1)
    with client.stream({(topic, 1): (0, 2)}) as stream:
        first, second = stream.records()
    assert (first.key, first.value, first.timestamp) == (b"key", None, 12345)
    assert list(first.headers) == headers
    assert (second.key, second.value) == (None, b"")


def test_batches_go_to_one_partition_in_order(client: Client, topic: str) -> None:
    records = [(None, b"%d" % number, (), None) for number in range(20_000)]
    with client.producer(batch_size=10_000) as producer:
        producer.send_batch(topic, records, partition=1)
    assert values(client, topic) == {1: [record[1] for record in records]}


def test_the_same_key_goes_to_the_same_partition(client: Client, topic: str) -> None:
    with client.producer() as producer:
        producer.send(topic, b"one", b"key")
        producer.send_batch(topic, [(b"key", b"two", (), None)])
    assert list(values(client, topic).values()) == [[b"one", b"two"]]


def test_deliveries_contain_offsets(client: Client, topic: str) -> None:
    delivered: list[RecordMetadata | None] = []
    with client.producer() as producer:
        for _ in range(3):
            producer.send(
                topic, b"x", partition=0, on_delivery=lambda where, _error: delivered.append(where)
            )
    assert [where.offset for where in delivered if where is not None] == [0, 1, 2]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_setting_delivers(client: Client, topic: str, acks: str) -> None:
    with client.producer(acks=acks) as producer:
        producer.send(topic, b"x", partition=0)
        producer.flush()
        assert (producer.delivered, producer.failed) == (1, 0)


def test_a_range_begins_within_a_batch_and_ends_within_another(client: Client, topic: str) -> None:
    with client.producer() as producer:
        for chunk in range(3):
            records = [(None, b"%d" % (chunk * 10 + n), (), None) for n in range(10)]
            producer.send_batch(topic, records, partition=0)
            producer.flush()
    with client.stream({(topic, 0): (5, 22)}) as stream:
        assert [record.offset for record in stream.records()] == list(range(5, 22))
        assert stream.positions == {TopicPartition(topic, 0): 22}


def test_many_partitions_are_read_with_small_fetches_and_a_small_buffer(broker: Broker) -> None:
    name = f"many-{uuid.uuid4().hex[:8]}"
    limits = {"max_partition_fetch_bytes": 4_000, "fetch_max_bytes": 9_000, "queued_max_bytes": 1}
    with Client(broker.bootstrap, **limits) as client:
        client.create_topic(name, partitions=9, replication_factor=1)
        with client.producer(batch_size=1_000) as producer:
            for number in range(2_000):
                producer.send(name, b"%d" % number + b"x" * 100, partition=number % 9)
        found = values(client, name)
    assert sorted(found) == list(range(9))
    assert sum(map(len, found.values())) == 2_000


def test_offsets_are_found_by_time(client: Client, topic: str) -> None:
    with client.producer() as producer:
        for number in range(5):
            producer.send(topic, b"x", partition=0, timestamp_ms=1_000 + 10 * number)
    tp = (topic, 0)
    assert client.list_offsets({tp: 1_015})[tp].offset == 2
    assert client.list_offsets({tp: 9_999})[tp].offset == -1
    assert client.list_offsets({tp: "earliest"})[tp].offset == 0
    assert client.list_offsets({tp: "latest"})[tp].offset == 5


def test_an_offset_outside_of_the_log_is_named(client: Client, topic: str) -> None:
    with pytest.raises(OffsetOutOfRangeError, match="offset 77 is not in the log"):
        list(client.fetch_range({(topic, 0): (77, 99)}))


def test_committed_offsets_are_read_back(client: Client, topic: str) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    assert client.committed(group, [(topic, 0)]) == {}
    client.commit_offsets(group, {(topic, 0): 5, (topic, 1): 7})
    found = client.committed(group)
    assert {tp.partition: committed.offset for tp, committed in found.items()} == {0: 5, 1: 7}


def test_topics_are_described_altered_and_deleted(client: Client, topic: str) -> None:
    def retention() -> tuple[str | None, str]:
        configs = {entry.name: entry for entry in client.describe_topic_configs([topic])[topic]}
        return configs["retention.ms"].value, configs["retention.ms"].source

    client.alter_topic_configs(topic, {"retention.ms": "123456"})
    eventually_equal(retention, ("123456", "topic"))
    assert client.create_partitions({topic: 4}) == {topic: None}
    assert topic in client.topics("topic-.*")
    with pytest.raises(AdminResultsError, match="1 of 2 failed") as failed:
        client.delete_topics([topic, "never-was"])
    results = failed.value.results
    assert results[topic] is None
    assert failed.value.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list(failed.value.errors) == ["never-was"]


def test_an_existing_topic_is_not_created_again(client: Client, topic: str) -> None:
    with pytest.raises(AdminResultsError) as failed:
        client.create_topics([NewTopic(topic, 1, 1)])
    assert failed.value.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    (error,) = client.create_topics([NewTopic(topic, 1, 1)], raise_errors=False).values()
    assert error is not None
    assert error.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_an_unknown_topic_is_an_error_when_read(client: Client) -> None:
    with pytest.raises(UnknownTopicError, match="no such topic"):
        client.partitions_for(["never-was"])


def test_a_record_that_is_too_large_is_refused_by_client_and_broker(
    client: Client, topic: str
) -> None:
    with client.producer() as producer, pytest.raises(RecordTooLargeError):
        producer.send(topic, b"x" * 2_000_000)
    client.alter_topic_configs(topic, {"max.message.bytes": "1000"})

    def refusal() -> BrokerError | None:
        with client.producer() as producer:
            producer.send(topic, b"x" * 5_000, partition=0)
            try:
                producer.flush()
            except BrokerError as error:
                producer.send(topic, b"small", partition=0)
                producer.flush()
                assert (producer.delivered, producer.failed) == (1, 1)
                return error
        return None

    # The log applies a config a moment after the response.
    error = eventually(refusal)
    assert error is not None
    assert error.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in str(error)


def test_a_forked_child_gets_an_error_because_it_needs_its_own_client(client: Client) -> None:
    client.describe_cluster()
    child = os.fork()
    if child == 0:
        try:
            client.topics()
        except ForkedClientError:
            os._exit(7)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7


@pytest.mark.slow
def test_no_record_is_lost_or_duplicate_after_a_broker_kill(broker: Broker) -> None:
    name = f"killed-{uuid.uuid4().hex[:8]}"
    with Client(broker.bootstrap) as client:
        client.create_topic(name, partitions=1, replication_factor=1)
        producer = client.producer(batch_size=2_000)
        for number in range(6_000):
            producer.send(name, b"%06d" % number, partition=0)
            if number in (2_000, 4_000):
                producer.poll(0)
                broker.kill()
                broker.start()
        producer.flush(PATIENCE_S)
        assert producer.failed == 0
        assert values(client, name) == {0: [b"%06d" % number for number in range(6_000)]}
