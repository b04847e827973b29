"""Large requests and floods against a real broker do not block its event loop."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.broker_process import BrokerProcess
from fuzz.large_requests import blocking, large_requests

# Time limit of the test.
_SECONDS = 120


@pytest.mark.conformance
@pytest.mark.slow
def test_no_large_request_blocks_the_event_loop() -> None:
    settings = {"metrics.listener": "127.0.0.1:0", "offsets.topic.num.partitions": "1"}
    with BrokerProcess(settings=settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(_SECONDS)
        held = blocking(broker, large_requests())
        assert held == [], broker.log()
        assert "Traceback" not in broker.log()
