"""Conversions that need more than the memory for conversions, several at once, all end."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.broker_process import BrokerProcess
from fuzz.conversions import CONVERTED, PARTITIONS, TOPIC_CONFIG, conversion_requests
from fuzz.large_requests import blocking

# Time limit of the test.
_SECONDS = 120


@pytest.mark.conformance
def test_conversions_at_once_all_end() -> None:
    with BrokerProcess(settings={"metrics.listener": "127.0.0.1:0"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topic = NewTopic(CONVERTED, PARTITIONS, 1, config=TOPIC_CONFIG)
        admin.create_topics([topic])[CONVERTED].result(_SECONDS)
        assert blocking(broker, conversion_requests()) == [], broker.log()
        assert "Traceback" not in broker.log()
