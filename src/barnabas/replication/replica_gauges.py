"""Publishes what replication counts under Kafka's metric names (kafka.server, ReplicaManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metrics import names

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.metrics.registry import MetricsRegistry
    from barnabas.replication.partition import Partition
    from barnabas.replication.replica_manager import ReplicaManager

# Counters of ReplicaMetrics by Kafka's name.
_COUNTS = {
    names.MESSAGES_IN: "messages_in",
    names.BYTES_IN: "bytes_in",
    names.TOTAL_PRODUCE_REQUESTS: "total_produce_requests",
    names.TOTAL_FETCH_REQUESTS: "total_fetch_requests",
    names.FAILED_PRODUCE_REQUESTS: "failed_produce_requests",
    names.FAILED_FETCH_REQUESTS: "failed_fetch_requests",
    names.ISR_EXPANDS: "isr_expands",
    names.ISR_SHRINKS: "isr_shrinks",
    names.FAILED_ISR_UPDATES: "failed_isr_updates",
}


def publish_replica_metrics(manager: ReplicaManager, registry: MetricsRegistry) -> None:
    """Register gauges that look at the manager when somebody looks at them."""
    for name, attribute in _COUNTS.items():
        registry.gauge(name, None, _reader(manager, attribute))

    def counted(holds: Callable[[Partition], bool]) -> Callable[[], float]:
        return lambda: sum(map(holds, manager.partitions()))

    registry.gauge(names.PARTITION_COUNT, None, counted(lambda _: True))
    registry.gauge(names.LEADER_COUNT, None, counted(lambda each: each.is_leader))
    registry.gauge(
        names.UNDER_REPLICATED_PARTITIONS, None, counted(lambda each: each.is_under_replicated)
    )
    registry.gauge(
        names.UNDER_MIN_ISR_PARTITION_COUNT,
        None,
        counted(lambda each: each.is_leader and each.is_under_min_isr),
    )
    registry.gauge(names.AT_MIN_ISR_PARTITION_COUNT, None, counted(lambda each: each.is_at_min_isr))
    registry.gauge(names.OFFLINE_REPLICA_COUNT, None, lambda: len(manager.offline_partitions))
    for purgatory in manager.waiting():
        registry.gauge(
            names.DELAYED_OPERATIONS, {"delayedOperation": purgatory}, _waiting(manager, purgatory)
        )


def _reader(manager: ReplicaManager, attribute: str) -> Callable[[], float]:
    def read() -> float:
        count: int = getattr(manager.metrics, attribute)
        return count

    return read


def _waiting(manager: ReplicaManager, purgatory: str) -> Callable[[], float]:
    return lambda: manager.waiting()[purgatory]
