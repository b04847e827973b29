"""Publishes the counters and sizes of the remote tier as Kafka's metrics (KIP-405, KIP-963)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.metrics import names
from barnabas.metrics.registry import MetricFamily, summary_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.metrics.registry import Summary, Tags
    from barnabas.replication.remote.remote_metrics import RemoteMetrics
    from barnabas.replication.remote.remote_quota import RemoteQuota
    from barnabas.runtime.worker_pool import WorkerPool

# Attributes of RemoteCounts by Kafka's name. Published as a total and per topic.
_COUNTS = {
    names.REMOTE_COPY_BYTES: "copy_bytes",
    names.REMOTE_COPY_REQUESTS: "copy_requests",
    names.REMOTE_COPY_ERRORS: "copy_errors",
    names.REMOTE_FETCH_BYTES: "fetch_bytes",
    names.REMOTE_FETCH_REQUESTS: "fetch_requests",
    names.REMOTE_FETCH_ERRORS: "fetch_errors",
    names.REMOTE_DELETE_REQUESTS: "delete_requests",
    names.REMOTE_DELETE_ERRORS: "delete_errors",
    names.BUILD_REMOTE_STATE_REQUESTS: "build_aux_requests",
    names.BUILD_REMOTE_STATE_ERRORS: "build_aux_errors",
}
# Attributes of PartitionSizes by Kafka's name. Published as sums: of all partitions, and per topic.
_SIZES = {
    names.REMOTE_COPY_LAG_BYTES: "copy_lag_bytes",
    names.REMOTE_COPY_LAG_SEGMENTS: "copy_lag_segments",
    names.REMOTE_DELETE_LAG_BYTES: "delete_lag_bytes",
    names.REMOTE_DELETE_LAG_SEGMENTS: "delete_lag_segments",
    names.REMOTE_LOG_METADATA_COUNT: "metadata_count",
    names.REMOTE_LOG_SIZE_BYTES: "size_bytes",
    names.REMOTE_LOG_SIZE_TIME: "size_computation_ms",
}
# The same for values of each partition.
_OF_PARTITIONS = {
    names.REMOTE_RETENTION_PERCENT: "retention_percent",
    names.REMOTE_LOCAL_RETENTION_PERCENT: "local_retention_percent",
}


class RemoteSources(msgspec.Struct, frozen=True):
    """What the metrics of the remote tier are read from."""

    metrics: RemoteMetrics
    # Threads that copy, and threads that read.
    copying: WorkerPool
    reading: WorkerPool
    copy_quota: RemoteQuota
    fetch_quota: RemoteQuota


def remote_families(sources: RemoteSources, now_ms: float) -> Iterator[MetricFamily]:
    """Yield the metrics of the remote tier.

    Args:
        sources: the counters, threads and quotas of the tier.
        now_ms: the monotonic time.
    """
    metrics = sources.metrics
    yield from _counts(metrics)
    yield from _sizes(metrics)
    yield _single(names.REMOTE_TASKS_IDLE, sources.copying.idle_ratio)
    yield _single(names.REMOTE_READER_IDLE, sources.reading.idle_ratio)
    yield _single(names.REMOTE_READER_QUEUE, sources.reading.queued)
    yield _single(names.REMOTE_READER_TIME, summary_of(metrics.reader_times, now_ms))
    yield from _quota(
        sources.copy_quota,
        names.REMOTE_COPY_RATE,
        names.REMOTE_COPY_THROTTLE_AVG,
        names.REMOTE_COPY_THROTTLE_MAX,
    )
    yield from _quota(
        sources.fetch_quota,
        names.REMOTE_FETCH_RATE,
        names.REMOTE_FETCH_THROTTLE_AVG,
        names.REMOTE_FETCH_THROTTLE_MAX,
    )
    yield _single(names.DELAYED_REMOTE_FETCH_EXPIRES, metrics.remote_fetch_expires)
    expired: list[tuple[Tags, float | Summary]] = [
        ((("topic", key.topic), ("partition", str(key.partition))), count)
        for key, count in metrics.list_offsets_expires.items()
    ]
    total = sum(metrics.list_offsets_expires.values())
    yield MetricFamily(names.DELAYED_REMOTE_LIST_OFFSETS_EXPIRES, [((), total), *expired])


def _counts(metrics: RemoteMetrics) -> Iterator[MetricFamily]:
    total = metrics.all_topics()
    for name, attribute in _COUNTS.items():
        samples: list[tuple[Tags, float | Summary]] = [((), getattr(total, attribute))]
        samples += [
            ((("topic", topic),), getattr(counts, attribute))
            for topic, counts in metrics.topics.items()
        ]
        yield MetricFamily(name, samples)


def _sizes(metrics: RemoteMetrics) -> Iterator[MetricFamily]:
    for name, attribute in _SIZES.items():
        by_topic: dict[str, float] = {}
        for key, sizes in metrics.partitions.items():
            by_topic[key.topic] = by_topic.get(key.topic, 0) + getattr(sizes, attribute)
        samples: list[tuple[Tags, float | Summary]] = [((), sum(by_topic.values()))]
        samples += [((("topic", topic),), value) for topic, value in by_topic.items()]
        yield MetricFamily(name, samples)
    for name, attribute in _OF_PARTITIONS.items():
        yield MetricFamily(
            name,
            [
                (
                    (("topic", key.topic), ("partition", str(key.partition))),
                    getattr(sizes, attribute),
                )
                for key, sizes in metrics.partitions.items()
            ],
        )


def _quota(quota: RemoteQuota, rate: str, average: str, largest: str) -> Iterator[MetricFamily]:
    times = quota.throttle_times()
    yield _single(rate, quota.byte_rate())
    yield _single(average, times.average)
    yield _single(largest, times.largest)


def _single(name: str, value: float | Summary) -> MetricFamily:
    return MetricFamily(name, [((), value)])
