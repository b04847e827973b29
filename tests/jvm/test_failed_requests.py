"""FailedProduceRequestsPerSec and FailedFetchRequestsPerSec count the same errors as in Kafka."""

from __future__ import annotations

import contextlib
import http.client
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.record.builder import BatchBuilder
from barnabas.testing.broker_process import BrokerProcess
from barnabas.testing.free_ports import free_ports
from conformance.raw_client import RawClient
from jvm.jmx import Jmx, machine_with_jmx
from jvm.kafka_process import KafkaProcess
from selection import nightly_unless
from waiting import eventually

PLAIN, SMALL, KEYED, OLD = "plain", "small", "keyed", "old"
TOPICS = {
    PLAIN: {},
    SMALL: {"max.message.bytes": "200"},
    KEYED: {"cleanup.policy": "compact"},
    OLD: {"message.timestamp.before.max.ms": "1000"},
}
METERS = (
    "TotalProduceRequests",
    "FailedProduceRequests",
    "TotalFetchRequests",
    "FailedFetchRequests",
)


class Counted(NamedTuple):
    """The counts that one request added to a topic's meters."""

    error: ErrorCode
    total: int
    failed: int


class Side(NamedTuple):
    """A broker, and a function that reads its meters of a topic."""

    bootstrap: str
    counts: Callable[[str], dict[str, int]]


@contextlib.contextmanager
def kafka_side(directory: Path) -> Iterator[Side]:
    (port,) = free_ports(1)
    kafka = KafkaProcess(directory, machine=machine_with_jmx(port))
    try:
        kafka.start()
        with Jmx(kafka, port) as jmx:

            def counts(topic: str) -> dict[str, int]:
                pattern = f"kafka.server:type=BrokerTopicMetrics,topic={topic},*"
                found = dict.fromkeys(METERS, 0)
                for (name, attribute), value in jmx.values(pattern).items():
                    meter = name.rpartition("name=")[2].partition(",")[0].removesuffix("PerSec")
                    if attribute == "Count" and meter in found:
                        found[meter] = int(value)
                return found

            yield Side(kafka.bootstrap, counts)
    finally:
        kafka.close()


@contextlib.contextmanager
def barnabas_side(_directory: Path) -> Iterator[Side]:
    with BrokerProcess(settings={"metrics.listener": "127.0.0.1:0"}) as broker:

        def counts(topic: str) -> dict[str, int]:
            connection = http.client.HTTPConnection(broker.metrics_address, timeout=60)
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
            connection.close()
            found = dict.fromkeys(METERS, 0)
            names = {
                f"kafka_server_brokertopicmetrics_{each.lower()}_total": each for each in METERS
            }
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    if sample.name in names and sample.labels.get("topic") == topic:
                        found[names[sample.name]] = int(sample.value)
            return found

        yield Side(broker.bootstrap, counts)


@pytest.fixture(scope="module", params=nightly_unless("barnabas".__eq__, ["kafka", "barnabas"]))
def side(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Side]:
    make = kafka_side if request.param == "kafka" else barnabas_side
    with make(tmp_path_factory.mktemp(request.param)) as found:
        client = RawClient(found.bootstrap)
        response = client.ask(
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name=name,
                        num_partitions=1,
                        replication_factor=1,
                        assignments=[],
                        configs=[
                            CreatableTopicConfig(name=key, value=value)
                            for key, value in configs.items()
                        ],
                    )
                    for name, configs in TOPICS.items()
                ],
                timeout_ms=30_000,
                validate_only=False,
            ),
            5,
        )
        assert [each.error_code for each in response.topics] == [0] * len(TOPICS)
        # Kafka responds before it leads the partitions.
        eventually(lambda: are_led(client))
        client.close()
        yield found


def are_led(client: RawClient) -> bool:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsTopic(name=name, partitions=[partition]) for name in TOPICS]
    response: Any = client.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 5)
    return all(each.partitions[0].error_code == 0 for each in response.topics)


def idempotent(epoch: int, sequence: int) -> bytearray:
    return batch(producer_id=7, producer_epoch=epoch, base_sequence=sequence)


def batch(timestamp: int | None = None, size: int = 3, **fields: Any) -> bytearray:
    builder = BatchBuilder(**fields)
    builder.append(int(time.time() * 1000) if timestamp is None else timestamp, None, bytes(size))
    return builder.build()


def produce(side: Side, topic: str, records: bytes, acks: int = 1) -> Counted:
    request = ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=0, records=records)]
            )
        ],
    )
    before = side.counts(topic)
    client = RawClient(side.bootstrap)
    response = client.ask(request, 9)
    client.close()
    code = response.responses[0].partition_responses[0].error_code
    after = side.counts(topic)
    return Counted(
        ErrorCode(code),
        after["TotalProduceRequests"] - before["TotalProduceRequests"],
        after["FailedProduceRequests"] - before["FailedProduceRequests"],
    )


def fetch(side: Side, topic: str, offset: int = 0, **fields: Any) -> Counted:
    partition = {"partition_max_bytes": 1 << 20, "log_start_offset": -1, **fields}
    replica_id = partition.pop("replica_id", -1)
    request = FetchRequest(
        replica_id=replica_id,
        max_wait_ms=0,
        min_bytes=0,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[FetchPartition(partition=0, fetch_offset=offset, **partition)],
            )
        ],
    )
    before = side.counts(topic)
    client = RawClient(side.bootstrap)
    response = client.ask(request, 12)
    client.close()
    code = response.responses[0].partitions[0].error_code
    after = side.counts(topic)
    return Counted(
        ErrorCode(code),
        after["TotalFetchRequests"] - before["TotalFetchRequests"],
        after["FailedFetchRequests"] - before["FailedFetchRequests"],
    )


def damaged() -> bytes:
    records = batch()
    records[-1] ^= 1
    return bytes(records)


PRODUCED = {
    "valid records": (PLAIN, batch(), ErrorCode.NONE, 1, 0),
    "an unknown topic": (
        "absent", batch(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0),
    "a wrong CRC": (PLAIN, damaged(), ErrorCode.CORRUPT_MESSAGE, 1, 0),
    "a batch that is too large": (SMALL, batch(size=500), ErrorCode.MESSAGE_TOO_LARGE, 1, 0),
    "no key on a compacted topic": (KEYED, batch(), ErrorCode.INVALID_RECORD, 1, 1),
    "a timestamp of 1970": (OLD, batch(1_000), ErrorCode.INVALID_TIMESTAMP, 1, 1),
    "a control batch": (PLAIN, batch(control=True), ErrorCode.INVALID_RECORD, 1, 1),
    "a producer's first sequence": (PLAIN, idempotent(3, 0), ErrorCode.NONE, 1, 0),
    "a sequence that is out of order": (
        PLAIN, idempotent(3, 9), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, 1),
    "an older epoch": (PLAIN, idempotent(2, 0), ErrorCode.INVALID_PRODUCER_EPOCH, 1, 1),
    "the first sequence again": (PLAIN, idempotent(3, 0), ErrorCode.NONE, 1, 0),
    "no batch": (PLAIN, b"", ErrorCode.INVALID_RECORD, 0, 0),
}  # fmt: skip


def test_refused_produce_requests_are_counted_as_in_kafka(side: Side) -> None:
    """Kafka counts unexpected errors, which include refused records and sequences."""
    found = {name: produce(side, case[0], bytes(case[1])) for name, case in PRODUCED.items()}
    assert found == {name: Counted(*case[2:]) for name, case in PRODUCED.items()}
    acks = produce(side, PLAIN, batch(), acks=5)
    assert acks == Counted(ErrorCode.INVALID_REQUIRED_ACKS, 0, 0)


FETCHED: dict[str, tuple[str, dict[str, int], ErrorCode, int, int]] = {
    "from the start": (PLAIN, {}, ErrorCode.NONE, 1, 0),
    "an unknown topic": (
        "absent", {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0),
    "an offset above the end": (PLAIN, {"offset": 999}, ErrorCode.OFFSET_OUT_OF_RANGE, 1, 0),
    "a later leader epoch": (
        PLAIN, {"current_leader_epoch": 99}, ErrorCode.UNKNOWN_LEADER_EPOCH, 1, 0),
    "a limit below zero": (
        PLAIN, {"partition_max_bytes": -3}, ErrorCode.UNKNOWN_SERVER_ERROR, 1, 1),
    "a broker without a replica": (
        PLAIN, {"replica_id": 5}, ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, 0),
}  # fmt: skip


def test_refused_fetch_requests_are_counted_as_in_kafka(side: Side) -> None:
    """Kafka counts only unexpected errors."""
    assert produce(side, PLAIN, batch()).error is ErrorCode.NONE
    found = {name: fetch(side, case[0], **case[1]) for name, case in FETCHED.items()}
    assert found == {name: Counted(*case[2:]) for name, case in FETCHED.items()}
