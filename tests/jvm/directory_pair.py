"""Kafka and Barnabas on one directory, for tests in which each continues after the other one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.protocol.api_table import ApiKey
from barnabas.testing.broker_process import BrokerProcess
from differential.scene import exchange
from differential.side import Side
from jvm.kafka_process import KafkaProcess
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

Broker = BrokerProcess | KafkaProcess


@contextmanager
def directory_pair(
    directory: Path, settings: Mapping[str, str]
) -> Iterator[tuple[KafkaProcess, BrokerProcess]]:
    """Yield both brokers, which share the directory `data`. Neither runs yet."""
    data = directory / "data"
    kafka = KafkaProcess(directory / "kafka", {**settings, "log.dirs": str(data)})
    kafka.data_directory = data
    ours = BrokerProcess(directory / "ours", settings, ["--data-dir", str(data)])
    try:
        yield kafka, ours
    finally:
        kafka.close()
        ours.close()


def start_with_coordinator(broker: Broker, group: str) -> Side:
    """Start a broker, and wait until it has a coordinator for the group."""
    broker.start()
    side = Side("first", broker.bootstrap)
    values = {"key_type": 0, "coordinator_keys": [group]}
    find = ApiKey.FIND_COORDINATOR
    eventually(lambda: not exchange(side, find, 4, values).coordinators[0].error_code)
    return side
