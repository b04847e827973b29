"""Kafka's metrics of a broker's replicas."""

from __future__ import annotations

from barnabas.metrics import names
from barnabas.metrics.registry import MetricsRegistry
from barnabas.replication.replica_gauges import publish_replica_metrics
from unit.replication.replica_set import ReplicaSet


def test_gauges_follow_what_happens() -> None:
    replicas = ReplicaSet((1, 2), min_insync_replicas=2)
    registry = MetricsRegistry(replicas.runtime.clock)
    publish_replica_metrics(replicas.manager, registry)
    replicas.produce(b"a", b"b")
    replicas.produce(b"c", acks=-1)
    replicas.change(isr=[1])
    seen = registry.snapshot()
    assert seen[names.MESSAGES_IN] == 3
    assert seen[names.BYTES_IN] == replicas.log.size
    assert seen[names.PARTITION_COUNT] == 1
    assert seen[names.LEADER_COUNT] == 1
    assert seen[names.UNDER_REPLICATED_PARTITIONS] == 1
    assert seen[names.UNDER_MIN_ISR_PARTITION_COUNT] == 1
    assert seen[names.AT_MIN_ISR_PARTITION_COUNT] == 0
    assert seen[names.DELAYED_OPERATIONS + "{delayedOperation=Produce}"] == 1
