"""DescribeTransactions, ListTransactions and DescribeProducers: transactions for operators.

DescribeTransactions (key 65, v0) shows the state of transactional ids (KIP-664). ListTransactions
(key 66, v0-2) lists the ids of this broker; v1 adds a filter by duration (KIP-994), v2 a pattern of
ids (KIP-1152). DescribeProducers (key 61, v0) lists producers and open transactions of partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.topic_names import problem_of
from barnabas.coordinator.transaction.transaction_metadata import STATE_LABELS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    PartitionResponse,
    ProducerState,
    TopicData,
    TopicResponse,
    TransactionState,
)
from barnabas.protocol.messages.transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState as ListedTransaction,
)
from barnabas.settings.pattern import Pattern, PatternError
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.coordinator.transaction.transaction_coordinator import TransactionCoordinator
    from barnabas.coordinator.transaction.transaction_metadata import TransactionMetadata
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.runtime.clock import Clock
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.storage.producers.producer_entry import ProducerEntry


def describe_transactions(transactions: TransactionCoordinator) -> Handle:
    """Return the handler that describes transactions."""

    def handle_describe_transactions(
        context: RequestContext, request: DescribeTransactionsRequest
    ) -> DescribeTransactionsResponse | None:
        return context.in_slices(_build_response(transactions, request))

    return handle_describe_transactions


def _build_response(
    transactions: TransactionCoordinator, request: DescribeTransactionsRequest
) -> Generator[None, None, DescribeTransactionsResponse]:
    described: dict[str, TransactionState] = {}
    repetitions = Repetitions()
    states: list[TransactionState] = []
    for transactional_id in request.transactional_ids:
        known = described.get(transactional_id)
        if known is None:
            known = described[transactional_id] = _state(transactions, transactional_id)
        elif not repetitions.allow(sum(len(topic.partitions) for topic in known.topics)):
            known = _failed(transactional_id, ErrorCode.INVALID_REQUEST)
        states.append(known)
        yield
    return DescribeTransactionsResponse(transaction_states=states)


def _state(transactions: TransactionCoordinator, transactional_id: str) -> TransactionState:
    metadata = transactions.describe(transactional_id)
    if isinstance(metadata, ErrorCode):
        return _failed(transactional_id, metadata)
    topics: dict[str, list[int]] = {}
    for name, index in sorted(metadata.partitions):
        topics.setdefault(name, []).append(index)
    return TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=metadata.state.label,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[TopicData(topic=name, partitions=ids) for name, ids in topics.items()],
    )


def _failed(transactional_id: str, error: ErrorCode) -> TransactionState:
    return TransactionState(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


# Ids that are examined in one step. A match of a pattern may take milliseconds.
_AT_ONCE = 500
_MATCHED_AT_ONCE = 1


def list_transactions(transactions: TransactionCoordinator, clock: Clock) -> Handle:
    """Return the handler that lists transactions."""
    runtime = transactions.runtime

    def handle_list_transactions(
        context: RequestContext, request: ListTransactionsRequest
    ) -> ListTransactionsResponse | None:
        """List the ids that match all filters."""
        if runtime.is_loading:
            return _failed_list(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        matches: Callable[[str], bool] = _match_any
        if request.transactional_id_pattern:
            try:
                matches = Pattern(request.transactional_id_pattern).matches
            except PatternError:
                return _failed_list(ErrorCode.INVALID_REGULAR_EXPRESSION)
        return context.in_slices(build_response(request, matches))

    def build_response(
        request: ListTransactionsRequest, matches: Callable[[str], bool]
    ) -> Generator[None, None, ListTransactionsResponse]:
        states, producers = set(request.state_filters), set(request.producer_id_filters)
        unknown = [
            each for each in dict.fromkeys(request.state_filters) if each not in STATE_LABELS
        ]
        listed: list[ListedTransaction] = []
        now_ms, duration = clock.wall_ms(), request.duration_filter
        at_once = _MATCHED_AT_ONCE if request.transactional_id_pattern else _AT_ONCE

        def is_listed(metadata: TransactionMetadata) -> bool:
            return (
                (not producers or metadata.producer_id in producers)
                and (not states or metadata.state.label in states)
                and (duration < 0 or now_ms - metadata.start_ms > duration)
                and matches(metadata.transactional_id)
            )

        for shard in runtime.active_shards():
            for number, metadata in enumerate(list(shard.transactions.values()), 1):
                if is_listed(metadata):
                    listed.append(
                        ListedTransaction(
                            transactional_id=metadata.transactional_id,
                            producer_id=metadata.producer_id,
                            transaction_state=metadata.state.label,
                        )
                    )
                if number % at_once == 0:
                    yield
            yield
        return ListTransactionsResponse(
            error_code=ErrorCode.NONE, unknown_state_filters=unknown, transaction_states=listed
        )

    return handle_list_transactions


def _match_any(_transactional_id: str) -> bool:
    return True


def _failed_list(error: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        error_code=error, unknown_state_filters=[], transaction_states=[]
    )


# Producers between two points where the work may continue in another turn.
_STEP = 500


def describe_producers(cluster: ClusterView, replicas: ReplicaManager) -> Handle:
    """Return the handler that lists the producers of partitions."""

    def handle_describe_producers(
        context: RequestContext,
        request: DescribeProducersRequest,
    ) -> DescribeProducersResponse | None:
        """List the producers of each partition."""
        return context.in_slices(build_response(request))

    def build_response(
        request: DescribeProducersRequest,
    ) -> Generator[None, None, DescribeProducersResponse]:
        described: dict[TopicPartition, PartitionResponse] = {}
        repetitions = Repetitions()
        topics: list[TopicResponse] = []
        for topic in request.topics:
            partitions: list[PartitionResponse] = []
            for index in topic.partition_indexes:
                key = TopicPartition(topic.name, index)
                known = described.get(key)
                if known is None:
                    known = described[key] = yield from describe_partition(key)
                elif not repetitions.allow(len(known.active_producers)):
                    known = _failed_partition(key, ErrorCode.INVALID_REQUEST, "Repeated too often")
                partitions.append(known)
                yield
            topics.append(TopicResponse(name=topic.name, partitions=partitions))
            yield
        return DescribeProducersResponse(topics=topics)

    def describe_partition(key: TopicPartition) -> Generator[None, None, PartitionResponse]:
        if cluster.topic_id(key.topic) is None:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if problem_of(key.topic) is not None:
                unknown = ErrorCode.INVALID_TOPIC_EXCEPTION
            return _failed_partition(key, unknown, unknown.message)
        partition = replicas.partition(key)
        if isinstance(partition, ErrorCode):
            return _failed_partition(key, partition)
        if not partition.is_leader:
            return _failed_partition(key, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        producers: list[ProducerState] = []
        for number, entry in enumerate(list(partition.log.producer_state.entries.values()), 1):
            producers.append(_producer(entry))
            if number % _STEP == 0:
                yield
        return PartitionResponse(
            partition_index=key.partition, error_code=ErrorCode.NONE, active_producers=producers
        )

    return handle_describe_producers


def _failed_partition(
    key: TopicPartition, error: ErrorCode, message: str | None = None
) -> PartitionResponse:
    return PartitionResponse(
        partition_index=key.partition, error_code=error, error_message=message, active_producers=[]
    )


def _producer(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.txn_first_offset,
    )


# Maximum number of parts that all repetitions of a request may add to its response.
_PARTS_MAX = 100_000


class Repetitions:
    """The repetitions of names in one request."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        # Number of parts that repetitions may still add. Only decreases.
        self._left = _PARTS_MAX

    def allow(self, parts: int) -> bool:
        """Return whether the response may repeat a description of so many parts."""
        self._left -= parts
        return self._left >= 0
