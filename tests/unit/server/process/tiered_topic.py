"""A whole broker in virtual time, with a tiered topic and a directory as its store."""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode
from barnabas.storage.topic_partition import TopicPartition
from unit.server.simulated_broker import SimulatedBroker

TIER = {
    "remote_log_storage_system_enable": "true",
    "barnabas_remote_storage": "file:///tier",
    "remote_log_manager_task_interval_ms": "500",
    "rlmm_config_remote_log_metadata_topic_num_partitions": "2",
    "log_initial_task_delay_ms": "100",
    "log_retention_check_interval_ms": "300",
}
TOPIC = "flights"
LOG = TopicPartition(TOPIC, 0)


def tiered_broker(**settings: str) -> SimulatedBroker:
    """Return a broker with a tiered topic, in which each batch gets a segment of its own."""
    broker = SimulatedBroker(**(TIER | settings))
    broker.make_topic(
        TOPIC,
        remote_storage_enable="true",
        internal_segment_bytes="100",
        local_retention_bytes="1",
    )
    return broker


def fill(broker: SimulatedBroker, batches: int) -> None:
    for number in range(batches):
        response = broker.produce(TOPIC, b"%d" % number)
        assert response.error_code == ErrorCode.NONE


def log_of(broker: SimulatedBroker):
    return broker.node.broker.logs.logs[LOG]
