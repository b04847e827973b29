"""Metrics of share groups (KIP-932) and of transactions on a broker.

Metrics of transactions are those of Kafka's TransactionStateManager,
TransactionMarkerChannelManager, AddPartitionsToTxnManager, and two gauges of ReplicaManager.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.coordinator.runtime.loader import load_time_families
from barnabas.coordinator.transaction.transaction_metadata import TransactionState
from barnabas.metrics import names
from barnabas.metrics.registry import MetricFamily, summary_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.coordinator.transaction.transaction_coordinator import TransactionCoordinator
    from barnabas.metrics.registry import Tags
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.server.peers.markers import NetworkMarkerSender
    from barnabas.server.peers.transaction_verification import TransactionVerification
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
_OF_GROUPS = {names.SHARE_ACQUIRE_TIME: "acquire_ms", names.SHARE_FETCH_RATIO: "fetch_percent"}


def share_partition_families(shares: SharePartitions, now_ms: float) -> Iterator[MetricFamily]:
    """Yield the numbers of share sessions, share partitions and their records in flight.

    Args:
        shares: the share partitions of the broker.
        now_ms: the monotonic time, which limits quantiles to recent values.
    """
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
    yield from _group_families(shares.meters, now_ms)
    yield from _partition_families(shares, now_ms)
    yield MetricFamily(names.SHARE_LEADERS, [((), len(shares))])
    yield MetricFamily(names.SHARE_RECORDS_IN_FLIGHT, [((), shares.in_flight_count)])


def _dead_letter_families(shares: SharePartitions) -> Iterator[MetricFamily]:
    """Yield the counters of groups that have dead-letter records (KIP-1191)."""
    counts = shares.dead_letters.counts
    for name, field in _DEAD_LETTERS.items():
        values = [((("group", group),), getattr(each, field)) for group, each in counts.items()]
        yield MetricFamily(name, values)


def _partition_families(shares: SharePartitions, now_ms: float) -> Iterator[MetricFamily]:
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
            ((_tags(each), summary_of(getattr(each.meters, field), now_ms)) for each, _ in loaded),
        )


def _group_families(meters: ShareMeters, now_ms: float) -> Iterator[MetricFamily]:
    """Yield the distributions of the fetches of each group, and of loading."""
    yield MetricFamily(names.SHARE_PARTITION_LOAD_TIME, [((), summary_of(meters.load_ms, now_ms))])
    groups = list(meters.groups.items())
    for name, field in _OF_GROUPS.items():
        yield MetricFamily(
            name,
            (
                ((("group", group),), summary_of(getattr(each, field), now_ms))
                for group, each in groups
            ),
        )


def _tags(partition: SharePartition) -> Tags:
    where = partition.key.where
    return (
        ("group", partition.key.group_id),
        ("topic", where.topic),
        ("partition", str(where.partition)),
    )


# A transaction is late this long after transaction.max.timeout.ms, as in Kafka.
_LATE_MS = 300_000


def transaction_families(
    transactions: TransactionCoordinator,
    sender: NetworkMarkerSender,
    verification: TransactionVerification,
) -> Iterator[MetricFamily]:
    """Yield the metrics of the coordinator, of markers, and of verification."""
    now_ms = transactions.runtime.now_ms()
    yield from load_time_families(
        transactions.runtime.load_times,
        now_ms,
        (names.TRANSACTION_LOAD_TIME_AVG, names.TRANSACTION_LOAD_TIME_MAX),
    )
    for name, value in (
        (names.MARKERS_WITHOUT_LEADER, sender.unknown_leaders),
        (names.MARKER_CONNECTIONS, sender.queues.connections),
        (names.MARKER_CONNECTIONS_CREATED, sender.queues.connections_created),
        (names.MARKER_REQUESTS, sender.queues.sent),
        (names.MARKER_RESPONSES, sender.queues.responses),
        (names.MARKER_LOG_APPEND_RETRIES, transactions.append_retries),
        (names.VERIFICATION_FAILURES, verification.failures),
    ):
        yield MetricFamily(name, [((), value)])
    yield MetricFamily(names.VERIFICATION_TIME, [((), summary_of(verification.times, now_ms))])
    states: Counter[TransactionState] = Counter()
    for shard in transactions.runtime.active_shards():
        states.update(shard.state_counts)
    yield MetricFamily(
        names.TRANSACTIONS, [((("state", each.label),), states[each]) for each in TransactionState]
    )


def producer_families(
    replicas: ReplicaManager, timeout_ms: int, now_ms: int
) -> Iterator[MetricFamily]:
    """Yield the numbers of remembered producers, and of led partitions with a late transaction.

    Args:
        replicas: the replicas of the broker.
        timeout_ms: `transaction.max.timeout.ms`.
        now_ms: the wall-clock time.
    """
    oldest_ms = now_ms - timeout_ms - _LATE_MS
    producers = late = 0
    for partition in replicas.partitions():
        state = partition.log.producer_state
        producers += len(state.entries)
        late += partition.is_leader and state.has_transaction_before(oldest_ms)
    yield MetricFamily(names.PRODUCER_IDS, [((), producers)])
    yield MetricFamily(names.LATE_TRANSACTIONS, [((), late)])
