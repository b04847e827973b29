"""Publishes the counters, sizes and waits of the remote tier (KIP-405, KIP-963).

Metrics whose names begin with `barnabas_remote` are ours: they name the causes of waits and
failures, for `barnabas why` and for alerts.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import msgspec

from barnabas.metrics import names
from barnabas.metrics.registry import MetricFamily, summary_of
from barnabas.replication.remote.copy_causes import PAUSES
from barnabas.server.remote.metadata_topic import PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.metrics.registry import Summary, Tags
    from barnabas.replication.remote.remote_log_manager import RemoteLogManager
    from barnabas.replication.remote.remote_metrics import RemoteMetrics
    from barnabas.replication.remote.remote_quota import RemoteQuota
    from barnabas.replication.remote.remote_tier import RemoteReads
    from barnabas.runtime.worker_pool import WorkerPool
    from barnabas.server.remote.metadata_topic import RemoteMetadataTopic
    from barnabas.storage.topic_partition import TopicPartition

    Samples = list[tuple[Tags, float | Summary]]

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


_MS_PER_S = 1000.0
# Partitions with samples of their own in each metric about waits and unreadable segments.
_PARTITIONS_MAX = 100


class RemoteSources(msgspec.Struct, frozen=True):
    """What the metrics of the remote tier are read from."""

    metrics: RemoteMetrics
    # Threads that copy, and threads that read.
    copying: WorkerPool
    reading: WorkerPool
    copy_quota: RemoteQuota
    fetch_quota: RemoteQuota
    manager: RemoteLogManager
    reads: RemoteReads
    metadata: RemoteMetadataTopic


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
    expired: Samples = [(_tags(key), count) for key, count in metrics.list_offsets_expires.items()]
    total = sum(metrics.list_offsets_expires.values())
    yield MetricFamily(names.DELAYED_REMOTE_LIST_OFFSETS_EXPIRES, [((), total), *expired])
    yield from _copies(sources, now_ms)
    yield from _reads(sources)
    yield from _metadata(sources)


def _copies(sources: RemoteSources, now_ms: float) -> Iterator[MetricFamily]:
    """Yield what delays copies, and what fails."""
    manager, slots = sources.manager, sources.manager.slots
    failures: Samples = []
    for call, counts in (
        ("write", manager.health.failures),
        ("read", sources.metrics.failed_reads),
    ):
        failures += [
            ((("call", call), ("kind", kind.value)), count) for kind, count in counts.items()
        ]
    yield MetricFamily(names.REMOTE_STORE_FAILURES, failures)
    yield _single(names.REMOTE_COPIES_RUNNING, slots.running)
    yield _single(names.REMOTE_COPIES_WAITING, slots.waiting)
    pause = slots.pause
    yield MetricFamily(
        names.REMOTE_COPIES_PAUSED,
        [((("cause", each.value),), int(each is pause)) for each in PAUSES],
    )
    oldest = heapq.nsmallest(
        _PARTITIONS_MAX, manager.waiting_segments(), key=lambda each: each.since_ms
    )
    yield MetricFamily(
        names.REMOTE_WAITING_SECONDS,
        [
            (
                (*_tags(each.partition), ("cause", each.cause.value)),
                (now_ms - each.since_ms) / _MS_PER_S,
            )
            for each in oldest
        ],
    )
    yield MetricFamily(
        names.REMOTE_WAITING_OFFSET, [(_tags(each.partition), each.base_offset) for each in oldest]
    )


def _reads(sources: RemoteSources) -> Iterator[MetricFamily]:
    """Yield the memory of reads, and the segments that cannot be read."""
    reads = sources.reads
    yield _single(names.REMOTE_LOADS_WAITING, reads.waiting_loads)
    yield _single(names.REMOTE_CACHE_BYTES, reads.cache_bytes)
    yield _single(names.REMOTE_CACHE_LIMIT, reads.limits.read_cache_bytes_max)
    # First and last offset by tags.
    unreadable: dict[Tags, tuple[int, int]] = {}
    for each in reads.unreadable:
        tags = (*_tags(each.partition), ("kind", each.kind.value))
        first, last = unreadable.get(tags, (each.start_offset, each.end_offset))
        if tags in unreadable or len(unreadable) < _PARTITIONS_MAX:
            unreadable[tags] = min(first, each.start_offset), max(last, each.end_offset)
    for index, name in enumerate((names.REMOTE_UNREADABLE_FIRST, names.REMOTE_UNREADABLE_LAST)):
        yield MetricFamily(name, [(tags, span[index]) for tags, span in unreadable.items()])


def _metadata(sources: RemoteSources) -> Iterator[MetricFamily]:
    """Yield the state of the metadata topic."""
    metadata = sources.metadata
    yield MetricFamily(
        names.REMOTE_METADATA_PROBLEM,
        [((("problem", each),), int(each == metadata.problem_kind)) for each in PROBLEMS],
    )
    yield _single(names.REMOTE_METADATA_UNREADY, sources.manager.unready_count())
    yield _single(names.REMOTE_METADATA_SKIPPED, metadata.skipped)
    yield _single(names.REMOTE_METADATA_DROPPED, metadata.dropped)


def _tags(partition: TopicPartition) -> Tags:
    return (("topic", partition.topic), ("partition", str(partition.partition)))


def _counts(metrics: RemoteMetrics) -> Iterator[MetricFamily]:
    total = metrics.all_topics()
    for name, attribute in _COUNTS.items():
        samples: Samples = [((), getattr(total, attribute))]
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
        samples: Samples = [((), sum(by_topic.values()))]
        samples += [((("topic", topic),), value) for topic, value in by_topic.items()]
        yield MetricFamily(name, samples)
    for name, attribute in _OF_PARTITIONS.items():
        yield MetricFamily(
            name,
            [(_tags(key), getattr(sizes, attribute)) for key, sizes in metrics.partitions.items()],
        )


def _quota(quota: RemoteQuota, rate: str, average: str, largest: str) -> Iterator[MetricFamily]:
    times = quota.throttle_times()
    yield _single(rate, quota.byte_rate())
    yield _single(average, times.average)
    yield _single(largest, times.largest)


def _single(name: str, value: float | Summary) -> MetricFamily:
    return MetricFamily(name, [((), value)])
