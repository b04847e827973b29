"""Our consumer reads a topic that was deleted and created again from its begin."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

import barnabas
from barnabas.client.facade import Client
from barnabas.testing.broker_process import BrokerProcess
from conformance.client_brokers import broker
from jvm.kafka_process import KafkaProcess
from waiting import eventually

pytestmark = pytest.mark.conformance
__all__ = ["broker"]

Broker = BrokerProcess | KafkaProcess


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap, default_api_timeout_ms=30_000) as made:
        yield made


def write(client: Client, topic: str, *values: bytes) -> None:
    client.create_topic(topic, partitions=1, replication_factor=1)
    with client.producer() as producer:
        for value in values:
            producer.send(topic, value, partition=0)


@pytest.mark.parametrize("style", ["by hand", "classic", "consumer"])
def test_all_records_of_a_shorter_topic_are_read_and_committed(
    broker: Broker, client: Client, style: str
) -> None:
    topic = f"again-{uuid.uuid4().hex[:8]}"
    old = [b"old-%d" % n for n in range(10)]
    new = [b"new-%d" % n for n in range(5)]
    write(client, topic, *old)
    keys = {"group_id": topic, "auto_offset_reset": "earliest", "metadata_max_age_ms": 1_000}
    protocol = "consumer" if style == "consumer" else "classic"
    with barnabas.Consumer(
        bootstrap_servers=broker.bootstrap, group_protocol=protocol, **keys
    ) as consumer:
        if style == "by hand":
            consumer.assign([(topic, 0)])
        else:
            consumer.subscribe([topic])
        read: list[bytes] = []

        def has_read(count: int) -> bool:
            read.extend(record.value for record in consumer.poll(0.2))
            return len(read) >= count

        eventually(lambda: has_read(10))
        consumer.commit()
        client.delete_topics([topic])
        write(client, topic, *new)
        eventually(lambda: has_read(15))
        assert read == old + new
        consumer.commit()
        (committed,) = consumer.committed([(topic, 0)]).values()
        assert committed is not None
        assert committed.offset == len(new)


def test_a_client_that_knows_the_old_topic_reads_a_range_of_the_new_one(
    broker: Broker, client: Client
) -> None:
    topic = f"again-{uuid.uuid4().hex[:8]}"
    write(client, topic, b"old")
    with Client(broker.bootstrap) as worker:
        for value in (b"old", b"new"):
            # Deletion and creation are not applied by all parts of the broker at once.
            eventually(lambda: client.list_offsets({(topic, 0): "latest"})[topic, 0].offset == 1)
            found = list(worker.stream({(topic, 0): (0, 1)}).records())
            assert [record.value for record in found] == [value]
            if value == b"old":
                client.delete_topics([topic])
                write(client, topic, b"new")
