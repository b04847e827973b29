"""Mirrors of topics of Apache Kafka 4.4: the same bytes, offsets of groups, and a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.testing.broker_process import BROKER_SETTINGS, BrokerProcess
from conformance.linked_clusters import LINK, SECONDS, Linked, batch_bytes, commit_offset, read_all
from jvm.kafka_process import KafkaProcess
from waiting import eventually_equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = {**BROKER_SETTINGS, "offsets.topic.num.partitions": "2"}
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def source(tmp_path: Path, kafka_jars: None) -> Iterator[KafkaProcess]:
    process = KafkaProcess(tmp_path / "source", SETTINGS)
    process.start()
    yield process
    process.close()


@pytest.fixture
def target(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "target", SETTINGS) as process:
        yield process


def test_a_mirror_of_apache_kafka_has_its_bytes_and_group_offsets(
    source: KafkaProcess, target: BrokerProcess, tmp_path: Path
) -> None:
    linked = Linked(source.bootstrap, target.bootstrap, tmp_path)
    linked.create_topic("orders", 2, {"retention.ms": "123456789"})
    linked.create_link("orders", "readers")
    for compression in COMPRESSIONS:
        values = [f"{compression}-{number}" for number in range(50)]
        linked.produce("orders", values, **{"compression.type": compression})
    linked.produce_in_transaction("orders", ["committed"] * 5, commit=True)
    linked.produce_in_transaction("orders", ["aborted"] * 5, commit=False)
    commit_offset(source.bootstrap, "readers", "orders", 20)
    linked.await_mirrored("orders", 2)
    source.stop()
    source.start()
    linked.produce("orders", ["after"] * 20)
    linked.await_mirrored("orders", 2)

    for partition in (0, 1):
        theirs = batch_bytes(source.data_directory, "orders", partition)
        assert theirs
        assert batch_bytes(target.data_directory, "orders", partition) == theirs
    assert read_all(target.bootstrap, "orders") == read_all(source.bootstrap, "orders")
    mirror = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "readers"})
    eventually_equal(lambda: mirror.committed([TopicPartition("orders", 0)], SECONDS)[0].offset, 20)
    mirror.close()
    linked.shell.ok("links", "promote", LINK)
    producer = Producer({"bootstrap.servers": target.bootstrap, "enable.idempotence": True})
    producer.produce("orders", b"own")
    assert producer.flush(SECONDS) == 0
    properties = tmp_path / "here.properties"
    properties.write_text(f"bootstrap.servers={target.bootstrap}\n")
    refused = linked.shell.run("links", "reverse", LINK, "--config", str(properties))
    assert refused.returncode == 1
    assert "its brokers are not Barnabas" in refused.stderr
