"""The broker that a test of Java applications starts: Barnabas, or Apache Kafka on request."""

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
    """A running broker; with BARNABAS_CONFORMANCE_BOOTSTRAP=kafka it is Apache Kafka.

    Tests that a real Kafka fails expect something wrong, as those of tests/conformance.
    """
    is_kafka = os.environ.get("BARNABAS_CONFORMANCE_BOOTSTRAP") == "kafka"
    process = (KafkaProcess if is_kafka else BrokerProcess)(directory, settings)
    try:
        process.start()
        yield process
    finally:
        process.close()
