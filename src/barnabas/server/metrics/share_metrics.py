"""Metrics of share sessions and share partitions (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metrics import names
from barnabas.metrics.family import MetricFamily
from barnabas.metrics.registry import summary_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.metrics.family import Tags
    from barnabas.server.share.share_meters import ShareMeters
    from barnabas.server.share.share_partition import SharePartition
    from barnabas.server.share.share_partitions import SharePartitions

# Attributes of DeadLetterCounts by Kafka's name.
_DEAD_LETTERS = {
    names.DEAD_LETTER_RECORDS: "records",
    names.DEAD_LETTER_PRODUCES: "produces",
    names.FAILED_DEAD_LETTER_PRODUCES: "failed_produces",
}
# Attributes of PartitionMeters and GroupMeters by Kafka's name.
_OF_PARTITIONS = {
    names.SHARE_BATCH_MESSAGES: "batch_records",
    names.SHARE_FETCH_LOCK_TIME: "lock_ms",
    names.SHARE_FETCH_LOCK_RATIO: "lock_percent",
}
_OF_GROUPS = {
    names.SHARE_ACQUIRE_TIME: "acquire_ms",
    names.SHARE_FETCH_RATIO: "fetch_percent",
}


def share_partition_families(shares: SharePartitions) -> Iterator[MetricFamily]:
    """Yield the numbers of share sessions, share partitions and their records in flight."""
    sessions = shares.sessions
    yield MetricFamily(names.SHARE_SESSIONS, [((), len(sessions))])
    yield MetricFamily(names.SHARE_SESSION_PARTITIONS, [((), sessions.partition_count)])
    yield MetricFamily(names.SHARE_SESSION_EVICTIONS, [((), sessions.evictions)])
    yield MetricFamily(names.DELAYED_SHARE_FETCH_EXPIRES, [((), shares.counts.expired_fetches)])
    yield MetricFamily(
        names.SHARE_ACKNOWLEDGEMENTS,
        [
            ((("result", result),), count)
            for result, count in shares.counts.acknowledgements.items()
        ],
    )
    yield MetricFamily(
        names.RECORD_ACKNOWLEDGEMENTS,
        [((("ackType", name),), count) for name, count in shares.counts.records.items()],
    )
    yield from _dead_letter_families(shares)
    yield from _group_families(shares.meters)
    yield from _partition_families(shares)
    yield MetricFamily(names.SHARE_LEADERS, [((), len(shares))])
    yield MetricFamily(names.SHARE_RECORDS_IN_FLIGHT, [((), shares.in_flight_count)])


def _dead_letter_families(shares: SharePartitions) -> Iterator[MetricFamily]:
    """Yield the counters of groups that have dead-letter records (KIP-1191)."""
    counts = shares.dead_letters.counts
    for name, field in _DEAD_LETTERS.items():
        values = [((("group", group),), getattr(each, field)) for group, each in counts.items()]
        yield MetricFamily(name, values)


def _partition_families(shares: SharePartitions) -> Iterator[MetricFamily]:
    """Yield the values of each share partition that is loaded."""
    loaded = [(each, each.records.in_flight) for each in list(shares) if each.records is not None]
    yield MetricFamily(
        names.SHARE_LOCK_TIMEOUTS, ((_tags(each), each.timed_out_count) for each, _ in loaded)
    )
    yield MetricFamily(
        names.SHARE_IN_FLIGHT_MESSAGES,
        ((_tags(each), in_flight.in_flight_count) for each, in_flight in loaded),
    )
    yield MetricFamily(
        names.SHARE_IN_FLIGHT_BATCHES,
        ((_tags(each), len(in_flight.batches)) for each, in_flight in loaded),
    )
    for name, field in _OF_PARTITIONS.items():
        yield MetricFamily(
            name,
            ((_tags(each), summary_of(getattr(each.meters, field))) for each, _ in loaded),
        )


def _group_families(meters: ShareMeters) -> Iterator[MetricFamily]:
    """Yield the distributions of the fetches of each group, and of loading."""
    yield MetricFamily(names.SHARE_PARTITION_LOAD_TIME, [((), summary_of(meters.load_ms))])
    groups = list(meters.groups.items())
    for name, field in _OF_GROUPS.items():
        yield MetricFamily(
            name,
            (((("group", group),), summary_of(getattr(each, field))) for group, each in groups),
        )


def _tags(partition: SharePartition) -> Tags:
    where = partition.key.where
    return (
        ("group", partition.key.group_id),
        ("topic", where.topic),
        ("partition", str(where.partition)),
    )
