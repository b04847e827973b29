"""Transactions read by the source, on Barnabas and on Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame

from barnabas.client.facade import Client
from barnabas.testing.broker_process import BrokerProcess
from jvm.kafka_process import KafkaProcess
from waiting import eventually_equal

pytestmark = pytest.mark.spark

# A limit for what hangs.
TIMEOUT_S = 90


@pytest.fixture(scope="module")
def bootstrap(either_broker: BrokerProcess | KafkaProcess) -> str:
    return either_broker.bootstrap


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[Client]:
    with Client(bootstrap) as made:
        yield made


def test_aborted_transactions_are_omitted_with_read_committed(
    read: Callable[..., DataFrame], bootstrap: str, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    for kind in ("abort", "commit"):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, kind.encode(), partition=0)
        producer.flush(TIMEOUT_S)
        getattr(producer, f"{kind}_transaction")(TIMEOUT_S)
    committed = read(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    # Kafka ends a transaction after it has answered.
    eventually_equal(lambda: [row.value for row in committed.collect()], [b"commit"] * 3)
    assert read(subscribe=topic).count() == 6
