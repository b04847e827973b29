"""One data directory, Apache Kafka 4.4 and Barnabas in turn: each serves what the other left."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from barnabas.testing.broker_process import BrokerProcess
from jvm.kafka_process import KafkaProcess

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.conformance

Broker = BrokerProcess | KafkaProcess
WAIT_S = 30.0
TOPIC, GROUP, PARTITIONS = "shared", "readers", 3
OFFSETS = {0: 7, 1: 0, 2: 31}
# What a single node of ours does not have; a cluster that has it finalised is not for it.
FEATURES = {"transaction.version": 0, "group.version": 0, "share.version": 0, "streams.version": 0}
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    # A killed broker's successor need not wait long for its lease to run out.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}


def make_topic(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"retention.ms": "-1", "segment.bytes": "1048576"}
    new = NewTopic(TOPIC, PARTITIONS, 1, config=config)
    admin.create_topics([new])[TOPIC].result(WAIT_S)


def write(broker: Broker, start: int, count: int) -> None:
    """Numbered records, in all compressions and by idempotent producers."""
    for place, compression in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "compression.type": compression,
                "enable.idempotence": place % 2 == 0,
            }
        )
        for number in range(start + place, start + count, 5):
            key = b"%d" % number
            producer.produce(TOPIC, key * 20, key, number % PARTITIONS, headers={"n": key})
        assert producer.flush(WAIT_S) == 0


def read(broker: Broker, count: int) -> dict[int, list[tuple[int, bytes, bytes]]]:
    """Offset, key and value of all records, by partition."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reading"})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    found: dict[int, list[tuple[int, bytes, bytes]]] = {index: [] for index in range(PARTITIONS)}
    deadline = time.monotonic() + WAIT_S
    while sum(map(len, found.values())) < count and time.monotonic() < deadline:
        for message in consumer.consume(count, 0.5):
            assert message.error() is None, message.error()
            record = (message.offset(), message.key(), message.value())
            found[message.partition()].append(record)
    consumer.close()
    return found


def commit(broker: Broker, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP})
    wanted = [TopicPartition(TOPIC, index, offset) for index, offset in offsets.items()]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


def committed(broker: Broker) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP})
    asked = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    found = {each.partition: each.offset for each in consumer.committed(asked, WAIT_S)}
    consumer.close()
    return found


def retention(broker: Broker) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    found = admin.describe_configs([resource])[resource].result(WAIT_S)
    value: str = found["retention.ms"].value
    return value


def hand_over(first: Broker, second: Broker, end: str) -> None:
    """Each of the two goes on where the other ended, and the first goes on behind the second."""
    first.start()
    make_topic(first)
    write(first, 0, 300)
    commit(first, OFFSETS)
    left = read(first, 300)
    assert sum(map(len, left.values())) == 300
    getattr(first, end)()
    second.start()
    assert read(second, 300) == left
    assert committed(second) == OFFSETS
    assert retention(second) == "-1"
    write(second, 300, 100)
    commit(second, {0: 40})
    left = read(second, 400)
    assert sum(map(len, left.values())) == 400
    getattr(second, end)()
    first.start()
    assert read(first, 400) == left
    assert committed(first) == {**OFFSETS, 0: 40}
    first.stop()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_kafka_opens_our_directory_and_we_open_it_again(tmp_path: Path, end: str) -> None:
    ours = BrokerProcess(tmp_path, SETTINGS)
    kafka = KafkaProcess(tmp_path, SETTINGS)
    try:
        hand_over(ours, kafka, end)
    finally:
        ours.close()
        kafka.close()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_we_open_kafka_s_directory_and_kafka_opens_it_again(tmp_path: Path, end: str) -> None:
    ours = BrokerProcess(tmp_path, SETTINGS)
    kafka = KafkaProcess(tmp_path, SETTINGS, features=FEATURES)
    try:
        hand_over(kafka, ours, end)
    finally:
        ours.close()
        kafka.close()


def test_kafka_s_dump_tool_reads_all_that_we_write(
    tmp_path: Path, kafka_tools: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    settings = {**SETTINGS, "metadata.log.max.record.bytes.between.snapshots": "500"}
    with BrokerProcess(tmp_path, settings) as ours:
        make_topic(ours)
        write(ours, 0, 300)
        commit(ours, OFFSETS)
        ours.stop()

    def dump(*paths: Path, words: tuple[str, ...] = ()) -> str:
        assert paths
        done = kafka_tools("DumpLogSegments", "--files", ",".join(map(str, paths)), *words)
        assert done.returncode == 0, done.stderr
        for complaint in ("Found timestamp mismatch", "Found out of order", "is invalid"):
            assert complaint not in done.stdout
        assert "Mismatches in" not in done.stdout, done.stdout
        return done.stdout

    data = tmp_path / "data"
    partition = data / f"{TOPIC}-0"
    text = dump(*partition.glob("*.log"), words=("--deep-iteration", "--print-data-log"))
    assert text.count("| offset:") == 100
    assert "isvalid: true" in text
    assert "isvalid: false" not in text
    assert {f"compresscodec: {name}" in text for name in ("none", "gzip", "zstd")} == {True}
    for kind in ("index", "timeindex"):
        dump(*partition.glob(f"*.{kind}"), words=("--index-sanity-check",))
    text = dump(*partition.glob("*.snapshot"))
    assert "producerId" in text
    logs = [path for path in data.glob("__consumer_offsets-*/*.log") if path.stat().st_size]
    text = dump(*logs, words=("--offsets-decoder",))
    for index, offset in OFFSETS.items():
        assert f'"topic":"{TOPIC}","partition":{index}' in text
        assert f'"offset":{offset}' in text
    metadata = data / "__cluster_metadata-0"
    text = dump(*metadata.glob("*.log"), words=("--cluster-metadata-decoder",))
    assert f'"name":"{TOPIC}"' in text
    snapshots = sorted(metadata.glob("*.checkpoint"))
    text = dump(*snapshots, words=("--cluster-metadata-decoder",))
    assert "SnapshotHeader" in text
    assert "metadata.version" in text
