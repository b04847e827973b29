"""librdkafka pushes its metrics to a broker that accepts them (KIP-714)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from conformance.raw_client import RawClient
from conformance.sasl_brokers import SaslBarnabas
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

CLIENT_METRICS, SET = 16, 0


def subscribe(bootstrap: str) -> None:
    """Subscribe to all metrics of every librdkafka client, with a short interval."""
    configs = {
        "metrics": "*",
        "interval.ms": "100",
        "match": "client_software_name=confluent-kafka-python.*|librdkafka.*",
    }
    resource = AlterConfigsResource(
        resource_type=CLIENT_METRICS,
        resource_name="all",
        configs=[
            AlterableConfig(name=key, config_operation=SET, value=value)
            for key, value in configs.items()
        ],
    )
    raw = RawClient(bootstrap)
    response: Any = raw.ask(
        IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1
    )
    raw.close()
    assert response.responses[0].error_code == 0


def pushes(log: Path) -> list[dict[str, Any]]:
    """Return the broker's log of pushes, to the end of its last line."""
    marker = "barnabas.client_metrics: "
    return [
        json.loads(line.partition(marker)[2])
        for line in log.read_text().splitlines(keepends=True)
        if marker in line and line.endswith("\n")
    ]


def test_metrics_of_librdkafka_are_written_to_the_log(tmp_path: Path) -> None:
    with SaslBarnabas(tmp_path, {"barnabas.client.telemetry": "log"}) as broker:
        subscribe(broker.bootstrap)
        producer = Producer(
            {
                "bootstrap.servers": broker.sasl_bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": "alice-secret",
                "client.id": "telemetry-test",
                "enable.metrics.push": True,
            }
        )

        def push_of_a_producer() -> dict[str, Any] | None:
            producer.produce("t", b"value")
            producer.poll(0.1)
            for push in pushes(broker.log_file):
                names = [metric["name"] for metric in push["metrics"]]
                if any(name.startswith("org.apache.kafka.producer.") for name in names):
                    return push
            return None

        push = eventually(push_of_a_producer, broker.log_file.read_text)
        producer.flush(5)
        assert push is not None
        assert push["client_id"] == "telemetry-test"
        assert push["principal"] == "User:alice"
