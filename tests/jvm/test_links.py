"""Mirrors of topics of Apache Kafka 4.4 and 3.9: equal bytes, offsets of groups, restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer

from barnabas.testing.broker_process import BROKER_SETTINGS, BrokerProcess
from conformance.linked_clusters import LINK, SECONDS, Linked, batch_bytes, commit_offset, read_all
from group_offsets import committed_offsets
from jvm.kafka_process import KafkaProcess
from waiting import eventually, eventually_equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = {**BROKER_SETTINGS, "offsets.topic.num.partitions": "2"}
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def jars() -> str:
    """The folder of tests/jvm with the version of the source."""
    return "kafka"


@pytest.fixture
def source(tmp_path: Path, jars: str, kafka_jars: None) -> Iterator[KafkaProcess]:
    process = KafkaProcess(tmp_path / "source", SETTINGS, jars)
    process.start()
    yield process
    process.close()


@pytest.fixture
def target(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "target", SETTINGS) as process:
        yield process


@pytest.fixture
def linked(source: KafkaProcess, target: BrokerProcess, tmp_path: Path) -> Linked:
    return Linked(source.bootstrap, target.bootstrap, tmp_path)


def assert_same_bytes(source: KafkaProcess, target: BrokerProcess, topic: str, count: int) -> None:
    for partition in range(count):
        theirs = batch_bytes(source.data_directory, topic, partition)
        assert theirs
        assert batch_bytes(target.data_directory, topic, partition) == theirs


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """Return the committed offset of partition 0, if the group has one."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    return committed_offsets(consumer, topic, [0])


def produce_kinds(linked: Linked, topic: str) -> None:
    """Produce batches of all compressions, a committed and an aborted transaction."""
    for compression in COMPRESSIONS:
        values = [f"{compression}-{number}" for number in range(50)]
        linked.produce(topic, values, **{"compression.type": compression})
    linked.produce_in_transaction(topic, ["committed"] * 5, commit=True)
    linked.produce_in_transaction(topic, ["aborted"] * 5, commit=False)


def test_a_mirror_of_apache_kafka_has_its_bytes_and_group_offsets(
    linked: Linked, source: KafkaProcess, target: BrokerProcess, tmp_path: Path
) -> None:
    linked.create_topic("orders", 2, {"retention.ms": "123456789"})
    linked.create_link("orders", "readers")
    produce_kinds(linked, "orders")
    commit_offset(source.bootstrap, "readers", "orders", 20)
    linked.await_mirrored("orders", 2)
    source.stop()
    source.start()
    linked.produce("orders", ["after"] * 20)
    linked.await_mirrored("orders", 2)

    assert_same_bytes(source, target, "orders", 2)
    assert read_all(target.bootstrap, "orders") == read_all(source.bootstrap, "orders")
    eventually_equal(lambda: committed(target.bootstrap, "readers", "orders"), {0: 20})
    linked.shell.ok("links", "promote", LINK)
    producer = Producer({"bootstrap.servers": target.bootstrap, "enable.idempotence": True})
    producer.produce("orders", b"own")
    assert producer.flush(SECONDS) == 0
    properties = tmp_path / "here.properties"
    properties.write_text(f"bootstrap.servers={target.bootstrap}\n")
    refused = linked.shell.run("links", "reverse", LINK, "--config", str(properties))
    assert refused.returncode == 1
    assert "its brokers are not Barnabas" in refused.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("jars", ["kafka-3.9"])
def test_topics_of_apache_kafka_3_9_move_to_their_mirrors_without_a_lag(
    linked: Linked, source: KafkaProcess, target: BrokerProcess
) -> None:
    counts = {"orders": 2, "payments": 1}
    offsets = {("readers", "orders"): 7, ("auditors", "orders"): 3, ("readers", "payments"): 11}
    for topic, partitions in counts.items():
        linked.create_topic(topic, partitions)
    linked.create_link("orders|payments", "readers|auditors")
    produce_kinds(linked, "payments")
    # All records are in partition 0 of one topic, and in both of the other.
    for partition in range(counts["orders"]):
        produce_to(source.bootstrap, "orders", partition, 30)
    for (group, topic), offset in offsets.items():
        commit_offset(source.bootstrap, group, topic, offset)
    for topic, partitions in counts.items():
        linked.await_mirrored(topic, partitions)
    eventually(lambda: lags(linked) == [0, 0, 0], linked.described)
    linked.shell.ok("links", "promote", LINK)

    for topic, partitions in counts.items():
        assert linked.state(topic)["state"] == "promoted"
        assert_same_bytes(source, target, topic, partitions)
        assert read_all(target.bootstrap, topic) == read_all(source.bootstrap, topic)
    for (group, topic), offset in offsets.items():
        assert committed(target.bootstrap, group, topic) == {0: offset}
    produce_to(target.bootstrap, "orders", 0, 5)
    assert linked.end(target.bootstrap, "orders") == linked.end(source.bootstrap, "orders") + 5


def produce_to(bootstrap: str, topic: str, partition: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, f"record-{number}".encode(), partition=partition)
    assert producer.flush(SECONDS) == 0


def lags(linked: Linked) -> list[int | None]:
    """Return the lag of all partitions of the link."""
    mirrors = linked.described()["topics"]
    return [each["lag"] for mirror in mirrors for each in mirror["partitions"]]
