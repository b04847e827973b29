"""Both brokers, empty, started side by side."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from barnabas.testing.broker_process import BrokerProcess
from differential.scene import Pair
from differential.side import Side
from differential.warm_up import describe_first_share_offsets, warm_up
from jvm.kafka_process import KafkaProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Both get these; the rest are Kafka's defaults, which are ours.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Few enough updates that a test reaches a snapshot.
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
    # Records that newer ones replace are not deleted: tests read the topic from its start.
    "share.coordinator.state.topic.prune.interval.ms": "86400000",
    # Each heartbeat of a share group may assign partitions.
    "group.share.assignment.interval.ms": "0",
    # Each heartbeat of a streams group may assign tasks.
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    # InitProducerId 6 (KIP-939).
    "unstable.api.versions.enable": "true",
    # Periodic work of a broker, with intervals short enough for a test. Kafka looks for expired
    # producers in each of thousands of partitions.
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "producer.id.expiration.check.interval.ms": "2000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    # Each broker drops empty groups at its own times: never between two answers of a comparison.
    "offsets.retention.check.interval.ms": "86400000",
    # A broker that waits long for processor time is not fenced: it would lose its partitions.
    "broker.session.timeout.ms": "300000",
}


@contextlib.contextmanager
def started_pair(directory: Path) -> Iterator[Pair]:
    """Run them in two directories below that one; both are gone afterwards."""
    kafka = KafkaProcess(directory / "kafka", SETTINGS)
    barnabas = BrokerProcess(directory / "barnabas", SETTINGS)
    try:
        kafka.launch()
        barnabas.start()
        kafka.await_ready()
        made = Pair(Side("kafka", kafka.bootstrap), Side("barnabas", barnabas.bootstrap))
        warm_up(made)
        describe_first_share_offsets(made)
        yield made
        made.close()
    finally:
        kafka.close()
        barnabas.close()
