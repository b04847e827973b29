"""An accumulator of records with a clock that the test sets."""

from __future__ import annotations

from barnabas.client.config import ClientConfig
from barnabas.client.producer.accumulator import Accumulator
from barnabas.client.topic_partition import TopicPartition
from unit.client.scripted_cluster import HandTime

TP = TopicPartition("t", 0)


def accumulator(time: HandTime, **keys: object) -> Accumulator:
    config = ClientConfig.parse({"bootstrap.servers": "a:1", **keys})
    return Accumulator(config, time, time, lambda: None)  # type: ignore[arg-type]


def add(to: Accumulator, value: bytes, count: int = 1) -> None:
    for _ in range(count):
        assert to.append(TP, (None, value, (), None), 1000, None)
