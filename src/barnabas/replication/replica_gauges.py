"""Publishes the counters of replication and of fetchers as Kafka's metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metrics import names
from barnabas.metrics.registry import MetricFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.metrics.registry import MetricsRegistry, Tags
    from barnabas.replication.fetcher.fetcher_manager import FetcherManager
    from barnabas.replication.partition.leader_role import LeaderRole
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.replica_manager import ReplicaManager

    # Returns the address of a broker's inter-broker listener, or None if unknown.
    AddressOf = Callable[[int], tuple[str, int] | None]

_OF_ALL: Tags = (("clientId", "Replica"),)
_NAMES = (
    names.MAX_LAG,
    names.MIN_FETCH_RATE,
    names.FAILED_PARTITIONS,
    names.DEAD_FETCHERS,
)


def unknown_address(_broker_id: int) -> None:
    """Return None: the address function for brokers without metadata."""


def fetcher_families(
    fetchers: FetcherManager | None, address_of: AddressOf = unknown_address
) -> Iterator[MetricFamily]:
    """Yield the metrics of all fetchers, then of each fetcher and its partitions.

    Args:
        fetchers: None if this broker has no fetchers.
        address_of: returns the address of a leader.
    """
    values: tuple[float, ...] = (0, 0.0, 0, 0)
    if fetchers is not None:
        values = (
            fetchers.max_lag,
            fetchers.min_fetch_rate,
            len(fetchers.failed),
            fetchers.dead_count,
        )
    for name, value in zip(_NAMES, values, strict=True):
        yield MetricFamily(name, [(_OF_ALL, value)])
    requests: list[tuple[Tags, float]] = []
    received: list[tuple[Tags, float]] = []
    lags: list[tuple[Tags, float]] = []
    for key, fetcher in () if fetchers is None else fetchers.fetchers():
        host, port = address_of(key.leader_id) or ("", -1)
        tags: Tags = (
            ("clientId", fetcher.name),
            ("brokerHost", host),
            ("brokerPort", str(port)),
        )
        requests.append((tags, fetcher.requests))
        received.append((tags, fetcher.bytes_fetched))
        for followed, lag in fetcher.lags():
            where = (("topic", followed.topic), ("partition", str(followed.partition)))
            lags.append(((("clientId", fetcher.name), *where), lag))
    yield MetricFamily(names.FETCHER_REQUESTS, requests)
    yield MetricFamily(names.FETCHER_BYTES, received)
    yield MetricFamily(names.CONSUMER_LAG, lags)


# Attributes of TopicCounts by Kafka's name. Published as a total and per topic.
_TOPIC_COUNTS = {
    names.MESSAGES_IN: "messages_in",
    names.BYTES_IN: "bytes_in",
    names.BYTES_OUT: "bytes_out",
    names.BYTES_REJECTED: "bytes_rejected",
    names.TOTAL_PRODUCE_REQUESTS: "produce_requests",
    names.TOTAL_FETCH_REQUESTS: "fetch_requests",
    names.FAILED_PRODUCE_REQUESTS: "failed_produce_requests",
    names.FAILED_FETCH_REQUESTS: "failed_fetch_requests",
    names.SHARE_FETCH_REQUESTS: "share_fetch_requests",
    names.FAILED_SHARE_FETCH_REQUESTS: "failed_share_fetch_requests",
    names.SHARE_ACKNOWLEDGE_REQUESTS: "share_acknowledge_requests",
    names.FAILED_SHARE_ACKNOWLEDGE_REQUESTS: "failed_share_acknowledge_requests",
    names.PRODUCE_CONVERSIONS: "produce_conversions",
    names.FETCH_CONVERSIONS: "fetch_conversions",
}
# Attributes of ReplicaMetrics by Kafka's name.
_COUNTS = {
    names.REPLICATION_BYTES_OUT: "replication_bytes_out",
    names.REPLICATION_BYTES_IN: "replication_bytes_in",
    names.REASSIGNMENT_BYTES_OUT: "reassignment_bytes_out",
    names.REASSIGNMENT_BYTES_IN: "reassignment_bytes_in",
    names.ISR_EXPANDS: "isr_expands",
    names.ISR_SHRINKS: "isr_shrinks",
    names.FAILED_ISR_UPDATES: "failed_isr_updates",
    names.DELAYED_PRODUCE_EXPIRES: "delayed_produce_expires",
}
# Conditions of led partitions: name of their count, name of the gauge, and the test.
_CONDITIONS: tuple[tuple[str, str, Callable[[LeaderRole], bool]], ...] = (
    (
        names.UNDER_REPLICATED_PARTITIONS,
        names.PARTITION_UNDER_REPLICATED,
        lambda each: each.is_under_replicated,
    ),
    (
        names.UNDER_MIN_ISR_PARTITION_COUNT,
        names.PARTITION_UNDER_MIN_ISR,
        lambda each: each.is_under_min_isr,
    ),
    (
        names.AT_MIN_ISR_PARTITION_COUNT,
        names.PARTITION_AT_MIN_ISR,
        lambda each: each.is_at_min_isr,
    ),
)
_VALUES: tuple[tuple[str, Callable[[Partition], float]], ...] = (
    (names.PARTITION_IN_SYNC_REPLICAS, lambda each: len(each.isr)),
    (names.PARTITION_REPLICAS, lambda each: len(each.replicas)),
    (
        names.PARTITION_LAST_STABLE_OFFSET_LAG,
        lambda each: each.log.high_watermark - each.log.last_stable_offset,
    ),
    (names.LOG_SIZE, lambda each: each.log.size),
    (names.LOG_START_OFFSET, lambda each: each.log.log_start_offset),
    (names.LOG_END_OFFSET, lambda each: each.log.log_end_offset),
    (names.LOG_SEGMENTS, lambda each: len(each.log.segments)),
)


def publish_replica_metrics(
    manager: ReplicaManager, registry: MetricsRegistry, address_of: AddressOf = unknown_address
) -> None:
    """Register the metrics. They are read from the manager when they are scraped.

    Args:
        manager: the replica manager.
        registry: the registry to publish to.
        address_of: returns the address of a leader.
    """
    registry.add_source(lambda: _families(manager, address_of))


def _families(manager: ReplicaManager, address_of: AddressOf) -> Iterator[MetricFamily]:
    metrics = manager.metrics
    total = metrics.all_topics()
    for name, attribute in _TOPIC_COUNTS.items():
        samples: list[tuple[Tags, float]] = [((), getattr(total, attribute))]
        samples += [
            ((("topic", topic),), getattr(counts, attribute))
            for topic, counts in metrics.topics.items()
        ]
        yield MetricFamily(name, samples)
    for name, attribute in _COUNTS.items():
        yield _single(name, getattr(metrics, attribute))
    expires = {
        "consumer": metrics.delayed_fetch_consumer_expires,
        "follower": metrics.delayed_fetch_follower_expires,
    }
    yield MetricFamily(
        names.DELAYED_FETCH_EXPIRES,
        [((("fetcherType", kind),), count) for kind, count in expires.items()],
    )
    for name, by_purgatory in (
        (names.DELAYED_OPERATIONS, manager.waiting()),
        (names.PURGATORY_SIZE, manager.watched()),
    ):
        yield MetricFamily(
            name, [((("delayedOperation", each),), n) for each, n in by_purgatory.items()]
        )
    yield _single(names.OFFLINE_REPLICA_COUNT, len(manager.offline_partitions))
    yield _single(names.LEADER_REPLICATION_RATE, manager.throttles.leader.byte_rate())
    yield _single(names.FOLLOWER_REPLICATION_RATE, manager.throttles.follower.byte_rate())
    yield _single(names.MOVES_RATE, manager.throttles.moves.byte_rate())
    yield from fetcher_families(manager.followed.fetchers, address_of)
    yield from _of_partitions(list(manager.partitions()))


def _of_partitions(partitions: list[Partition]) -> Iterator[MetricFamily]:
    yield _single(names.PARTITION_COUNT, len(partitions))
    yield _single(names.LEADER_COUNT, sum(each.is_leader for each in partitions))
    yield _single(
        names.REASSIGNING_PARTITIONS,
        sum(each.is_leader and each.is_reassigning for each in partitions),
    )
    led = [(_tags(each), each.leader) for each in partitions if each.leader is not None]
    for count_name, name, holds in _CONDITIONS:
        found = [(tags, holds(leader)) for tags, leader in led]
        yield _single(count_name, sum(held for _, held in found))
        yield MetricFamily(name, [(tags, float(held)) for tags, held in found])
    for name, read in _VALUES:
        yield MetricFamily(name, ((_tags(each), read(each)) for each in partitions))


def _single(name: str, value: float) -> MetricFamily:
    return MetricFamily(name, [((), value)])


def _tags(partition: Partition) -> Tags:
    key = partition.topic_partition
    return (("topic", key.topic), ("partition", str(key.partition)))
