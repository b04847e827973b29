"""What the broker's log says of a real client that wants transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException, Producer

from barnabas.testing.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

WAIT_S = 10.0


def test_the_log_names_the_software_of_a_transactional_producer(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        for _ in range(2):
            settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": "t"}
            with pytest.raises(KafkaException):
                Producer(settings).init_transactions(WAIT_S)
        (line,) = [line for line in broker.log().splitlines() if "does not have" in line]
        assert "feature=transactions software=confluent-kafka-python version=" in line
