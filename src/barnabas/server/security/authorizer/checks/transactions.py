"""Checks of requests for transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.topic_names import INTERNAL_TOPICS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_transactions import TransactionState
from barnabas.protocol.messages.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnResponse,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from barnabas.server.security.authorizer.checks.check import (
    ALTER,
    CLUSTER_ACTION,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Partial,
    divide,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.messages.describe_transactions import (
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
    )
    from barnabas.protocol.messages.transactions import (
        AddOffsetsToTxnRequest,
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
        EndTxnRequest,
        ListTransactionsRequest,
        ListTransactionsResponse,
        WritableTxnMarker,
        WriteTxnMarkersRequest,
    )
    from barnabas.server.security.authorizer.checks.check import Verdict
    from barnabas.server.security.authorizer.rights import Rights

_ID_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_CLUSTER_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
# From this version on, brokers send batches of transactions.
_BATCHED_SINCE = 4


def check_add_partitions_to_txn(
    rights: Rights, request: AddPartitionsToTxnRequest
) -> Verdict | Generator[None, None, Verdict]:
    """Refuse a transaction or topics that the client may not write; brokers may add everything."""
    if rights.version >= _BATCHED_SINCE:
        if rights.allows_on_cluster(CLUSTER_ACTION):
            return None
        return AddPartitionsToTxnResponse(error_code=_CLUSTER_REFUSED)
    return _check_topics(rights, request)


def _check_topics(
    rights: Rights, request: AddPartitionsToTxnRequest
) -> Generator[None, None, Verdict]:
    topics = request.v3_and_below_topics
    if not rights.allows(WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                _topic_result(topic, dict.fromkeys(topic.partitions, _ID_REFUSED))
                for topic in topics
            ]
        )
    # No client may write to internal topics. The handler rejects them too.
    internal = INTERNAL_TOPICS & {topic.name for topic in topics}
    refused = set(internal)
    for topic in topics:
        if topic.name not in refused and not rights.allows(WRITE, TOPIC, topic.name):
            refused.add(topic.name)
        yield
    if not refused:
        return None
    # As in Kafka, no partition is added if one of them is refused.
    known = rights.image.topics
    by_name: dict[str, dict[int, ErrorCode]] = {}
    for topic in topics:
        errors = by_name.setdefault(topic.name, {})
        for index in topic.partitions:
            errors[index] = ErrorCode.OPERATION_NOT_ATTEMPTED
            if topic.name in refused:
                errors[index] = _TOPIC_REFUSED
            elif known.partition(topic.name, index) is None:
                errors[index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        yield
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=error
                    )
                    for index, error in errors.items()
                ],
            )
            for name, errors in by_name.items()
            if errors
        ]
    )


def _topic_result(
    topic: AddPartitionsToTxnTopic, errors: dict[int, ErrorCode]
) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(
                partition_index=index, partition_error_code=errors[index]
            )
            for index in topic.partitions
        ],
    )


def check_add_offsets_to_txn(rights: Rights, request: AddOffsetsToTxnRequest) -> Verdict:
    """Refuse a transaction that the client may not write, and a group that it may not read."""
    if not rights.allows(WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=_ID_REFUSED)
    if not rights.allows(READ, GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return None


def check_end_txn(rights: Rights, request: EndTxnRequest) -> Verdict:
    """Refuse a transaction that the client may not write."""
    if rights.allows(WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return None
    return EndTxnResponse(error_code=_ID_REFUSED)


def check_write_txn_markers(rights: Rights, request: WriteTxnMarkersRequest) -> Verdict:
    """Refuse clients other than brokers and administrators."""
    if rights.allows_on_cluster(ALTER, is_logged=False) or rights.allows_on_cluster(CLUSTER_ACTION):
        return None
    # As in Kafka, the results of a producer's markers are those of its last marker.
    last = {marker.producer_id: marker for marker in request.markers}
    return WriteTxnMarkersResponse(markers=[_marker_result(each) for each in last.values()])


def _marker_result(marker: WritableTxnMarker) -> WritableTxnMarkerResult:
    by_name: dict[str, dict[int, None]] = {}
    for topic in marker.topics:
        if topic.partition_indexes:
            by_name.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=index, error_code=_CLUSTER_REFUSED
                    )
                    for index in indexes
                ],
            )
            for name, indexes in by_name.items()
        ],
    )


def check_describe_transactions(
    rights: Rights, request: DescribeTransactionsRequest
) -> Generator[None, None, Verdict]:
    """Refuse ids that the client may not describe, and omit such topics from the response."""
    requested = request.transactional_ids
    allowed, refused = yield from divide(
        requested, lambda each: rights.allows(DESCRIBE, TRANSACTIONAL_ID, each)
    )
    hidden = set(refused)
    request.transactional_ids = allowed

    def amend(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        found = iter(response.transaction_states)
        response.transaction_states = [
            _refused_state(each) if each in hidden else _visible_state(rights, next(found))
            for each in requested
        ]
        return response

    return Partial(request, amend)


def _refused_state(transactional_id: str) -> TransactionState:
    return TransactionState(
        error_code=_ID_REFUSED,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


def _visible_state(rights: Rights, state: TransactionState) -> TransactionState:
    state.topics = [each for each in state.topics if rights.allows(DESCRIBE, TOPIC, each.topic)]
    return state


def check_list_transactions(rights: Rights, request: ListTransactionsRequest) -> Verdict:
    """Omit the ids that the client may not describe."""

    def amend(response: ListTransactionsResponse) -> ListTransactionsResponse:
        response.transaction_states = [
            each
            for each in response.transaction_states
            if rights.allows(DESCRIBE, TRANSACTIONAL_ID, each.transactional_id, is_logged=False)
        ]
        return response

    return Partial(request, amend)
