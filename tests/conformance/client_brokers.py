"""The brokers for tests of Barnabas's client: Barnabas and Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.testing.broker_process import BrokerProcess
from jvm.kafka_process import QUICK_FENCING, KafkaProcess


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess | KafkaProcess]:
    """A started broker of each kind, which a test may kill and restart."""
    directory = tmp_path_factory.mktemp(request.param)
    kind = KafkaProcess if request.param == "kafka" else BrokerProcess
    process = kind(directory, QUICK_FENCING)
    process.start()
    try:
        yield process
    finally:
        process.kill()
