"""Transactions as the source sees them, on Apache Kafka: Barnabas does not serve them yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame

from barnabas.client.facade import Client
from jvm.kafka_process import KafkaProcess

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def bootstrap(reference_broker: KafkaProcess) -> str:
    return reference_broker.bootstrap


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[Client]:
    with Client(bootstrap) as made:
        yield made


def test_aborted_transactions_are_left_out_with_read_committed(
    read: Callable[..., DataFrame], bootstrap: str, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(20)
    for kind in ("abort", "commit"):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, kind.encode(), partition=0)
        producer.flush(20)
        getattr(producer, f"{kind}_transaction")(20)
    committed = read(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    assert [row.value for row in committed.collect()] == [b"commit"] * 3
    assert read(subscribe=topic).count() == 6
