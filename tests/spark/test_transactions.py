"""Transactions as the source sees them; collected when KAFKA_BOOTSTRAP names a Kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark


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
