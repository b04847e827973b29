"""Publishes the metrics of transactions under Kafka's names.

Kafka: TransactionStateManager, TransactionMarkerChannelManager, AddPartitionsToTxnManager, and two
gauges of ReplicaManager.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.coordinator.runtime.loader import load_time_families
from barnabas.coordinator.transaction.transaction_metadata import TransactionState
from barnabas.metrics import names
from barnabas.metrics.family import MetricFamily
from barnabas.metrics.registry import summary_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.server.handlers.dependencies import BrokerDependencies

# A transaction is late this long after transaction.max.timeout.ms, as in Kafka.
_LATE_MS = 300_000


def transaction_families(dependencies: BrokerDependencies) -> Iterator[MetricFamily]:
    """Yield the metrics of the coordinator, of markers, of verification, and of producers."""
    transactions, verification = dependencies.transactions, dependencies.verification
    yield from load_time_families(
        transactions.runtime.load_times,
        transactions.runtime.now_ms(),
        (names.TRANSACTION_LOAD_TIME_AVG, names.TRANSACTION_LOAD_TIME_MAX),
    )
    producers, late = _of_partitions(dependencies)
    sender = dependencies.marker_sender
    for name, value in (
        (names.MARKERS_WITHOUT_LEADER, sender.unknown_leaders),
        (names.MARKER_CONNECTIONS, sender.queues.connections),
        (names.MARKER_CONNECTIONS_CREATED, sender.queues.connections_created),
        (names.MARKER_REQUESTS, sender.queues.sent),
        (names.MARKER_RESPONSES, sender.queues.responses),
        (names.MARKER_LOG_APPEND_RETRIES, transactions.append_retries),
        (names.VERIFICATION_FAILURES, verification.failures),
        (names.PRODUCER_IDS, producers),
        (names.LATE_TRANSACTIONS, late),
    ):
        yield MetricFamily(name, [((), value)])
    yield MetricFamily(names.VERIFICATION_TIME, [((), summary_of(verification.times))])
    states: Counter[TransactionState] = Counter()
    for shard in transactions.runtime.active_shards():
        states.update(shard.state_counts)
    yield MetricFamily(
        names.TRANSACTIONS, [((("state", each.label),), states[each]) for each in TransactionState]
    )


def _of_partitions(dependencies: BrokerDependencies) -> tuple[int, int]:
    """Return the number of remembered producers, and of led partitions with a late transaction."""
    limit_ms = dependencies.config.integer("transaction.max.timeout.ms") + _LATE_MS
    oldest_ms = dependencies.clock.wall_ms() - limit_ms
    producers = late = 0
    for partition in dependencies.replicas.partitions():
        state = partition.log.producer_state
        producers += len(state.entries)
        late += partition.is_leader and state.has_transaction_before(oldest_ms)
    return producers, late
