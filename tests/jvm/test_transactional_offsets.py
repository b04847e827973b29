"""Barnabas serves offsets that Apache Kafka has committed in transactions, from its directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.broker_process import BrokerProcess
from jvm.directory_settings import SETTINGS, Broker
from jvm.kafka_process import KafkaProcess
from waiting import eventually_equal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.conformance

TIMEOUT_S = 30
TRANSACTIONS = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def commit_in_transaction(bootstrap: str, group: str, offset: int) -> Producer:
    """Send an offset of the group within a transaction, and leave the transaction open."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"id-{group}"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    producer.send_offsets_to_transaction(
        [TopicPartition("t", 0, offset)], consumer.consumer_group_metadata(), TIMEOUT_S
    )
    consumer.close()
    return producer


def committed(bootstrap: str, group: str) -> int:
    """Return the group's offset for read_uncommitted; -1001 (librdkafka's value) without one."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_uncommitted"}
    )
    (found,) = consumer.committed([TopicPartition("t", 0)], TIMEOUT_S)
    consumer.close()
    return found.offset


def test_offsets_of_aborted_and_open_transactions_are_not_committed(
    tmp_path: Path, kafka_jars: Callable[[str], str]
) -> None:
    kafka = KafkaProcess(
        tmp_path,
        {**SETTINGS, **TRANSACTIONS, "log.dirs": str(tmp_path / "data")},
    )
    ours = BrokerProcess(tmp_path, SETTINGS, ["--data-dir", str(tmp_path / "data")])
    try:
        kafka.start()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(TIMEOUT_S)
        commit_in_transaction(kafka.bootstrap, "committed", 3).commit_transaction(TIMEOUT_S)
        commit_in_transaction(kafka.bootstrap, "aborted", 4).abort_transaction(TIMEOUT_S)
        still_open = commit_in_transaction(kafka.bootstrap, "open", 5)
        seen = {"committed": 3, "aborted": -1001, "open": -1001}

        def found(broker: Broker) -> dict[str, int]:
            return {group: committed(broker.bootstrap, group) for group in seen}

        # The coordinator responds before the marker is in the partition of the group.
        eventually_equal(lambda: found(kafka), seen)
        kafka.stop()
        ours.start()
        assert found(ours) == seen
        del still_open
    finally:
        kafka.close()
        ours.close()
