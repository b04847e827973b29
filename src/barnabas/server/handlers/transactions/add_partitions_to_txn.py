"""AddPartitionsToTxn (key 24, v0-5): add partitions to transactions, or verify them (KIP-890).

Clients send versions up to 3, with one transaction. Brokers send later ones, with several.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.controller.topic_names import INTERNAL_TOPICS
from barnabas.coordinator.transaction.producer import Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from barnabas.server.handlers.transactions.end_txn import client_code
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator

    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

    Results = dict[TopicPartition, ErrorCode]

_BATCHED_SINCE = 4
# Partitions between two points where the work may continue in another turn.
_STEP = 200


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that adds and verifies partitions."""
    return AddPartitionsToTxnHandler(dependencies).handle_add_partitions_to_txn


class AddPartitionsToTxnHandler:
    """Passes each transaction to the coordinator, and responds when all have a result."""

    __slots__ = ("_cluster", "_transactions")

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._cluster = dependencies.cluster
        self._transactions = dependencies.transactions

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
        found: dict[int, Results] = {}
        refused: set[int] = set()
        is_parked = False

        def collect(index: int, results: Results) -> None:
            found[index] = results
            if is_parked and len(found) == len(transactions):
                context.respond_in_slices(_response(transactions, found, refused, version))

        for index, transaction in enumerate(transactions):
            yield
            partitions, errors = yield from self._partitions(transaction, version)
            if errors:
                refused.add(index)
                collect(index, (yield from _refused(partitions, errors)))
            else:
                self._add_or_verify(transaction, partitions, version, partial(collect, index))
        if len(found) == len(transactions):
            return (yield from _response(transactions, found, refused, version))
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
