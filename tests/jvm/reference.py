"""Starts the broker for tests of Java applications: Barnabas, or Apache Kafka on request."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from barnabas.testing.broker_process import BrokerProcess
from jvm.kafka_process import KafkaProcess


@contextmanager
def broker_under_test(
    directory: Path, settings: Mapping[str, str]
) -> Iterator[BrokerProcess | KafkaProcess]:
    """Run Barnabas, or Apache Kafka with BARNABAS_CONFORMANCE_BOOTSTRAP=kafka.

    A test that fails on Apache Kafka is wrong.
    """
    is_kafka = os.environ.get("BARNABAS_CONFORMANCE_BOOTSTRAP") == "kafka"
    process = (KafkaProcess if is_kafka else BrokerProcess)(directory, settings)
    try:
        process.start()
        yield process
    finally:
        process.close()
