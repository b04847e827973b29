"""Starts Apache Kafka and Barnabas, both empty, with the same settings."""

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

# Settings of both brokers. All other settings have Kafka's defaults, which Barnabas shares.
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
    # Few updates per snapshot, so that a test reaches a snapshot.
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
    # Replaced records are not deleted, because tests read the topic from its start.
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
    # Brokers never remove empty groups during a run, because their checks happen at different
    # times.
    "offsets.retention.check.interval.ms": "86400000",
    # A broker that gets no processor time for long is not fenced, and so keeps its partitions.
    "broker.session.timeout.ms": "300000",
}


@contextlib.contextmanager
def started_pair(directory: Path) -> Iterator[Pair]:
    """Run both brokers, and stop them at the end.

    Args:
        directory: contains the directories of both brokers.
    """
    kafka = KafkaProcess(directory / "kafka", SETTINGS)
    barnabas = BrokerProcess(directory / "barnabas", SETTINGS)
    try:
        kafka.launch()
        barnabas.start()
        kafka.await_ready()
        with warmed_up_pair(kafka.bootstrap, barnabas.bootstrap) as made:
            yield made
    finally:
        kafka.close()
        barnabas.close()


@contextlib.contextmanager
def warmed_up_pair(kafka: str, barnabas: str) -> Iterator[Pair]:
    """Connect to two running brokers, which serve all requests when this returns.

    Args:
        kafka: HOST:PORT of Apache Kafka.
        barnabas: HOST:PORT of Barnabas.
    """
    made = Pair(Side("kafka", kafka), Side("barnabas", barnabas))
    warm_up(made)
    describe_first_share_offsets(made)
    yield made
    made.close()
