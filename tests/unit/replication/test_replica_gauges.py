"""Kafka's metrics of a broker's replicas."""

from __future__ import annotations

from barnabas.metrics import names
from barnabas.metrics.registry import MetricsRegistry
from barnabas.replication.replica_gauges import publish_replica_metrics
from barnabas.replication.replica_metrics import ReplicaMetrics
from unit.replication.replica_set import TOPIC, ReplicaSet


def test_gauges_follow_the_state_of_replicas() -> None:
    replicas = ReplicaSet((1, 2), min_insync_replicas=2)
    registry = MetricsRegistry(replicas.runtime.clock)
    publish_replica_metrics(replicas.manager, registry)
    replicas.produce(b"a", b"b")
    replicas.produce(b"c", acks=-1)
    replicas.change(isr=[1])
    seen = {
        (family.name, *tags): value
        for family in registry.families()
        for tags, value in family.samples
    }
    for labels in ((), (("topic", TOPIC),)):
        assert seen[(names.MESSAGES_IN, *labels)] == 3
        assert seen[(names.BYTES_IN, *labels)] == replicas.log.size
        assert seen[(names.TOTAL_PRODUCE_REQUESTS, *labels)] == 2
    assert seen[names.PARTITION_COUNT,] == 1
    assert seen[names.LEADER_COUNT,] == 1
    assert seen[names.UNDER_REPLICATED_PARTITIONS,] == 1
    assert seen[names.UNDER_MIN_ISR_PARTITION_COUNT,] == 1
    assert seen[names.AT_MIN_ISR_PARTITION_COUNT,] == 0
    assert seen[names.DELAYED_OPERATIONS, ("delayedOperation", "Produce")] == 1
    assert seen[names.PURGATORY_SIZE, ("delayedOperation", "Produce")] == 1
    where = (("topic", TOPIC), ("partition", "0"))
    assert seen[(names.PARTITION_UNDER_REPLICATED, *where)] == 1
    assert seen[(names.LOG_END_OFFSET, *where)] == 3
    assert seen[(names.LOG_SIZE, *where)] == replicas.log.size


def test_totals_keep_the_counts_of_a_deleted_topic() -> None:
    metrics = ReplicaMetrics()
    metrics.topics["gone"].messages_in += 3
    metrics.topics["here"].messages_in += 4
    metrics.forget_topic("gone")
    assert list(metrics.topics) == ["here"]
    assert metrics.all_topics().messages_in == 7
