"""Publishes the share coordinator's metrics under Kafka's names (ShareCoordinatorMetrics)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from barnabas.coordinator.runtime.loading.load_times import load_time_families
from barnabas.metrics import names
from barnabas.metrics.registry import MetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.coordinator.share.share_coordinator import ShareCoordinator


def share_families(coordinator: ShareCoordinator) -> Iterator[MetricFamily]:
    """Yield the measurements of writes, and the current numbers of the state partitions."""
    metrics, runtime = coordinator.metrics, coordinator.runtime
    now_ms = runtime.now_ms()
    average, maximum = metrics.write_times.average(now_ms), metrics.write_times.maximum(now_ms)
    share_partitions = sum(len(shard.partitions) for shard in runtime.active_shards())
    for name, value in (
        (names.SHARE_WRITES, metrics.writes),
        (names.SHARE_WRITE_RATE, metrics.written.rate(now_ms)),
        (names.SHARE_WRITE_TIME_AVG, math.nan if average is None else average),
        (names.SHARE_WRITE_TIME_MAX, math.nan if maximum is None else maximum),
        (names.SHARE_PARTITIONS, share_partitions),
    ):
        yield MetricFamily(name, [((), value)])
    yield from load_time_families(
        runtime.load_times, now_ms, (names.SHARE_LOAD_TIME_AVG, names.SHARE_LOAD_TIME_MAX)
    )
    yield MetricFamily(
        names.SHARE_STATE_PARTITIONS,
        [((("state", each.value),), count) for each, count in runtime.state_counts().items()],
    )
    yield MetricFamily(
        names.SHARE_PRUNED_OFFSET,
        [
            ((("topic", runtime.topic), ("partition", str(partition))), tasks.pruned_offset)
            for partition, tasks in coordinator.tasks.items()
            if tasks.pruned_offset >= 0 and runtime.state(partition) is not None
        ],
    )
