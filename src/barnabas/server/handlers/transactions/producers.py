"""Requests of transactional producers: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn.

- InitProducerId (key 22, v0-6) assigns an id and an epoch to a producer (KIP-98). With a
  transactional id, the transaction coordinator fences the producer's predecessors. v3 lets a
  producer resume (KIP-360), v4 adds PRODUCER_FENCED and v5 TRANSACTION_ABORTABLE (KIP-890). v6 is
  for two-phase commit (KIP-939), and is served with `unstable.api.versions.enable=true` only.
- AddPartitionsToTxn (key 24, v0-5) adds partitions to transactions, or verifies them (KIP-890).
  Clients send versions up to 3, with one transaction. Brokers send later ones, with several. v2
  adds PRODUCER_FENCED, v5 TRANSACTION_ABORTABLE.
- AddOffsetsToTxn (key 25, v0-4) adds the offsets of a group to a transaction, with the same errors
  in v2 and v4.
- EndTxn (key 26, v0-5) commits or aborts a transaction. v2 and v4 add the same errors, and v5
  raises the epoch with each transaction (KIP-890).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.controller.topic_names import INTERNAL_TOPICS
from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from barnabas.coordinator.transaction.decisions import EndRequest, Initialization
from barnabas.coordinator.transaction.transaction_metadata import NO_EPOCH, NO_PRODUCER_ID, Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator

    from barnabas.coordinator.group.group_coordinator import GroupCoordinator
    from barnabas.coordinator.transaction.transaction_coordinator import TransactionCoordinator
    from barnabas.coordinator.transaction.transaction_metadata import TransactionMetadata
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.controller_access.auto_topics import AutoTopics
    from barnabas.server.controller_access.broker_requests import ProducerIds
    from barnabas.server.dispatch.request import Handle, RequestContext

    Results = dict[TopicPartition, ErrorCode]


# The first version that knows PRODUCER_FENCED.
_INIT_FENCED_SINCE = 4


class InitProducerIdHandler:
    """Assigns producer ids, with the transaction coordinator if there is a transactional id."""

    __slots__ = ("_producer_ids", "_transactions")

    def __init__(self, producer_ids: ProducerIds, transactions: TransactionCoordinator) -> None:
        self._producer_ids = producer_ids
        self._transactions = transactions

    def handle_init_producer_id(
        self, context: RequestContext, request: InitProducerIdRequest
    ) -> InitProducerIdResponse | None:
        """Assign an id. Without a transactional id, it is new and its epoch is 0."""
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
            return _failed(ErrorCode.INVALID_REQUEST)
        if request.transactional_id == "":
            return _failed(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is not None:
            self._initialize(context, request, request.transactional_id)
            return None

        def on_id(producer_id: int, error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                context.respond(_failed(error))
                return
            context.respond(
                InitProducerIdResponse(
                    error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
                )
            )

        self._producer_ids.next_id(on_id)
        return None

    def _initialize(
        self, context: RequestContext, request: InitProducerIdRequest, transactional_id: str
    ) -> None:
        def on_done(result: TransactionMetadata | ErrorCode) -> None:
            if isinstance(result, ErrorCode):
                context.respond(_failed(client_code(result, context.version, _INIT_FENCED_SINCE)))
                return
            producer = result.client_producer
            context.respond(
                InitProducerIdResponse(
                    error_code=ErrorCode.NONE,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    ongoing_txn_producer_id=result.producer_id
                    if result.is_kept
                    else NO_PRODUCER_ID,
                    ongoing_txn_producer_epoch=result.producer_epoch
                    if result.is_kept
                    else NO_EPOCH,
                )
            )

        expected = Producer(request.producer_id, request.producer_epoch)
        self._transactions.initialize(
            Initialization(
                transactional_id,
                request.transaction_timeout_ms,
                expected,
                has_two_phases=request.enable_2pc,
                keeps_prepared=request.keep_prepared_txn,
            ),
            on_done,
        )


def _failed(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH
    )


_BATCHED_SINCE = 4
# Partitions between two points where the work may continue in another turn.
_STEP = 200


class AddPartitionsToTxnHandler:
    """Passes each transaction to the coordinator, and responds when all have a result."""

    __slots__ = ("_cluster", "_transactions")

    def __init__(self, cluster: ClusterView, transactions: TransactionCoordinator) -> None:
        self._cluster = cluster
        self._transactions = transactions

    def handle_add_partitions_to_txn(
        self, context: RequestContext, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse | None:
        """Add or verify the partitions of each transaction."""
        return context.in_slices(self._steps(context, request))

    def _steps(
        self, context: RequestContext, request: AddPartitionsToTxnRequest
    ) -> Generator[None, None, AddPartitionsToTxnResponse | None]:
        version = context.version
        transactions = _transactions(request, version)
        results_by_index: dict[int, Results] = {}
        refused: set[int] = set()
        is_parked = False

        def collect(index: int, results: Results) -> None:
            results_by_index[index] = results
            if is_parked and len(results_by_index) == len(transactions):
                context.respond_in_slices(
                    _response(transactions, results_by_index, refused, version)
                )

        for index, transaction in enumerate(transactions):
            yield
            partitions, errors = yield from self._partitions(transaction, version)
            if errors:
                refused.add(index)
                collect(index, (yield from _refused(partitions, errors)))
            else:
                self._add_or_verify(transaction, partitions, version, partial(collect, index))
        if len(results_by_index) == len(transactions):
            return (yield from _response(transactions, results_by_index, refused, version))
        is_parked = True
        return None

    def _partitions(
        self, transaction: AddPartitionsToTxnTransaction, version: int
    ) -> Generator[None, None, tuple[dict[TopicPartition, None], Results]]:
        """Return the partitions without duplicates, and the errors of those that cannot be added.

        Clients must not add partitions of internal topics.
        """
        partitions: dict[TopicPartition, None] = {}
        errors: Results = {}
        for topic in transaction.topics:
            yield
            is_internal = version < _BATCHED_SINCE and topic.name in INTERNAL_TOPICS
            for number, index in enumerate(topic.partitions):
                key = TopicPartition(topic.name, index)
                partitions[key] = None
                if is_internal:
                    errors[key] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif not self._cluster.has_partition(*key):
                    errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if number % _STEP == _STEP - 1:
                    yield
        return partitions, errors

    def _add_or_verify(
        self,
        transaction: AddPartitionsToTxnTransaction,
        partitions: Collection[TopicPartition],
        version: int,
        on_done: Callable[[Results], None],
    ) -> None:
        producer = Producer(transaction.producer_id, transaction.producer_epoch)
        if transaction.verify_only:
            on_done(
                self._transactions.verify_partitions(
                    transaction.transactional_id, producer, frozenset(partitions)
                )
            )
            return
        self._transactions.add_partitions(
            transaction.transactional_id,
            producer,
            frozenset(partitions),
            2 if version >= _BATCHED_SINCE else 0,
            lambda error: on_done(dict.fromkeys(partitions, client_code(error, version))),
        )


def _transactions(
    request: AddPartitionsToTxnRequest, version: int
) -> list[AddPartitionsToTxnTransaction]:
    if version >= _BATCHED_SINCE:
        return request.transactions
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def _refused(
    partitions: Collection[TopicPartition], errors: Results
) -> Generator[None, None, Results]:
    """Return the results if a partition has an error. As in Kafka, no partition is added then."""
    results: Results = {}
    for number, key in enumerate(partitions):
        results[key] = errors.get(key, ErrorCode.OPERATION_NOT_ATTEMPTED)
        if number % _STEP == 0:
            yield
    return results


def _response(
    transactions: list[AddPartitionsToTxnTransaction],
    found: dict[int, Results],
    refused: set[int],
    version: int,
) -> Generator[None, None, AddPartitionsToTxnResponse]:
    results = []
    for index, transaction in enumerate(transactions):
        yield
        if transaction.verify_only or index in refused:
            topics = yield from _by_topic(found[index])
        else:
            topics = yield from _same_topics(transaction, found[index])
        if version < _BATCHED_SINCE:
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
        results.append(
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id, topic_results=topics
            )
        )
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _same_topics(
    transaction: AddPartitionsToTxnTransaction, results: Results
) -> Generator[None, None, list[AddPartitionsToTxnTopicResult]]:
    """Return the results with the duplicates of the request, as Kafka does."""
    topics = []
    for topic in transaction.topics:
        yield
        codes = []
        for number, index in enumerate(topic.partitions):
            error = results[TopicPartition(topic.name, index)]
            codes.append(_result(index, error))
            if number % _STEP == _STEP - 1:
                yield
        topics.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=codes))
    return topics


def _by_topic(results: Results) -> Generator[None, None, list[AddPartitionsToTxnTopicResult]]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for number, ((name, index), error) in enumerate(results.items()):
        topic = topics.get(name)
        if topic is None:
            topic = AddPartitionsToTxnTopicResult(name=name, results_by_partition=[])
            topics[name] = topic
        topic.results_by_partition.append(_result(index, error))
        if number % _STEP == 0:
            yield
    return list(topics.values())


def _result(index: int, error: ErrorCode) -> AddPartitionsToTxnPartitionResult:
    return AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)


def add_offsets_to_txn(
    transactions: TransactionCoordinator, groups: GroupCoordinator, auto_topics: AutoTopics
) -> Handle:
    """Return the handler that adds the partition with the group's offsets."""

    def handle_add_offsets_to_txn(context: RequestContext, request: AddOffsetsToTxnRequest) -> None:
        def on_done(error: ErrorCode) -> None:
            code = client_code(error, context.version)
            context.respond(AddOffsetsToTxnResponse(error_code=code))

        partition = groups.runtime.partition_for(request.group_id)
        if partition is None:
            auto_topics.create([OFFSETS_TOPIC])
            on_done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        transactions.add_partitions(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            frozenset([TopicPartition(OFFSETS_TOPIC, partition)]),
            0,
            on_done,
        )

    return handle_add_offsets_to_txn


# Clients that send this version use transactions of version 2.
_EPOCH_BUMP_SINCE = 5
_FENCED_SINCE = 2


def end_txn(transactions: TransactionCoordinator) -> Handle:
    """Return the handler that ends transactions."""

    def handle_end_txn(context: RequestContext, request: EndTxnRequest) -> None:
        version = context.version
        bumps = version >= _EPOCH_BUMP_SINCE

        def on_done(result: TransactionMetadata | ErrorCode) -> None:
            if isinstance(result, ErrorCode):
                context.respond(EndTxnResponse(error_code=client_code(result, version)))
            elif bumps:
                following = result.client_producer
                context.respond(
                    EndTxnResponse(
                        error_code=ErrorCode.NONE,
                        producer_id=following.producer_id,
                        producer_epoch=following.epoch,
                    )
                )
            else:
                context.respond(EndTxnResponse(error_code=ErrorCode.NONE))

        if not request.transactional_id:
            on_done(ErrorCode.INVALID_REQUEST)
            return
        ending = EndRequest(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            request.committed,
            2 if bumps else 0,
        )
        transactions.end(ending, on_done)

    return handle_end_txn


def client_code(error: ErrorCode, version: int, fenced_since: int = _FENCED_SINCE) -> ErrorCode:
    """Return the error for a client: old versions do not know PRODUCER_FENCED."""
    if error is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
