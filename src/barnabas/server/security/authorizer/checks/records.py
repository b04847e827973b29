"""Checks of requests for records, offsets and producers of partitions, and for transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.topic_names import INTERNAL_TOPICS, problem_of
from barnabas.coordinator.transaction.transaction_metadata import NO_EPOCH, NO_PRODUCER_ID
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_transactions import (
    PartitionResponse,
    TopicResponse,
    TransactionState,
)
from barnabas.protocol.messages.log_offsets import (
    DeleteRecordsPartitionResult,
    DeleteRecordsTopicResult,
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderTopicResult,
)
from barnabas.protocol.messages.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnResponse,
    InitProducerIdResponse,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from barnabas.server.security.authorizer.checks.check import (
    ALTER,
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    GROUP,
    IDEMPOTENT_WRITE,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    TWO_PHASE_COMMIT,
    WRITE,
    Partial,
    divide,
    refuse_items,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.messages.describe_transactions import (
        DescribeProducersRequest,
        DescribeProducersResponse,
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
    )
    from barnabas.protocol.messages.log_offsets import (
        DeleteRecordsRequest,
        DeleteRecordsResponse,
        DeleteRecordsTopic,
        ListOffsetsRequest,
        ListOffsetsResponse,
        ListOffsetsTopic,
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
        OffsetForLeaderTopic,
    )
    from barnabas.protocol.messages.transactions import (
        AddOffsetsToTxnRequest,
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
        EndTxnRequest,
        InitProducerIdRequest,
        ListTransactionsRequest,
        ListTransactionsResponse,
        WritableTxnMarker,
        WriteTxnMarkersRequest,
    )
    from barnabas.server.security.authorizer.authorizer import Rights
    from barnabas.server.security.authorizer.checks.check import Verdict


_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def check_list_offsets(
    rights: Rights, request: ListOffsetsRequest
) -> Generator[None, None, Verdict]:
    """Refuse the topics that the client may not describe."""
    return refuse_items(
        request, lambda topic: rights.allows(DESCRIBE, TOPIC, topic.name), _add_offset_errors
    )


def _add_offset_errors(response: ListOffsetsResponse, refused: list[ListOffsetsTopic]) -> None:
    response.topics += [
        ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                ListOffsetsPartitionResponse(
                    partition_index=each.partition_index, error_code=_REFUSED
                )
                for each in topic.partitions
            ],
        )
        for topic in refused
    ]


def check_delete_records(
    rights: Rights, request: DeleteRecordsRequest
) -> Generator[None, None, Verdict]:
    """Refuse the topics whose records the client may not delete."""
    return refuse_items(
        request, lambda topic: rights.allows(DELETE, TOPIC, topic.name), _add_deletion_errors
    )


def _add_deletion_errors(
    response: DeleteRecordsResponse, refused: list[DeleteRecordsTopic]
) -> None:
    by_topic: dict[str, dict[int, None]] = {}
    for topic in refused:
        if topic.partitions:
            indexes = by_topic.setdefault(topic.name, {})
            indexes.update(dict.fromkeys(each.partition_index for each in topic.partitions))
    response.topics += [
        DeleteRecordsTopicResult(
            name=name,
            partitions=[
                DeleteRecordsPartitionResult(
                    partition_index=index, low_watermark=-1, error_code=_REFUSED
                )
                for index in indexes
            ],
        )
        for name, indexes in by_topic.items()
    ]


def check_offset_for_leader_epoch(
    rights: Rights, request: OffsetForLeaderEpochRequest
) -> Verdict | Generator[None, None, Verdict]:
    """Refuse the topics that the client may not describe. Followers may request all topics."""
    if rights.allows_on_cluster(CLUSTER_ACTION, is_logged=False):
        return None
    return refuse_items(
        request, lambda topic: rights.allows(DESCRIBE, TOPIC, topic.topic), _add_epoch_errors
    )


def _add_epoch_errors(
    response: OffsetForLeaderEpochResponse, refused: list[OffsetForLeaderTopic]
) -> None:
    response.topics += [
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[
                EpochEndOffset(partition=each.partition, error_code=_REFUSED)
                for each in topic.partitions
            ],
        )
        for topic in refused
    ]


def check_init_producer_id(rights: Rights, request: InitProducerIdRequest) -> Verdict:
    """Refuse ids of transactions that the client may not write, or all ids if it may not write."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        is_allowed = rights.allows(WRITE, TRANSACTIONAL_ID, transactional_id) and (
            not request.enable_2pc
            or rights.allows(TWO_PHASE_COMMIT, TRANSACTIONAL_ID, transactional_id)
        )
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    else:
        is_allowed = rights.allows_on_cluster(
            IDEMPOTENT_WRITE, is_logged=False
        ) or rights.allows_any(WRITE, TOPIC)
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if is_allowed:
        return None
    return InitProducerIdResponse(
        error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH
    )


def check_describe_producers(
    rights: Rights, request: DescribeProducersRequest
) -> Generator[None, None, Verdict]:
    """Refuse the topics that the client may not read. The handler rejects invalid names."""
    requested = request.topics
    allowed, refused = yield from divide(
        requested,
        lambda topic: problem_of(topic.name) is not None or rights.allows(READ, TOPIC, topic.name),
    )
    if not refused:
        return None
    request.topics = allowed
    hidden = {topic.name for topic in refused}

    def amend(response: DescribeProducersResponse) -> DescribeProducersResponse:
        topics = iter(response.topics)
        response.topics = [
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(
                        partition_index=index,
                        error_code=_REFUSED,
                        error_message=_REFUSED.message,
                        active_producers=[],
                    )
                    for index in topic.partition_indexes
                ],
            )
            if topic.name in hidden
            else next(topics)
            for topic in requested
        ]
        return response

    return Partial(request, amend)


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
        states = iter(response.transaction_states)
        response.transaction_states = [
            _refused_state(each) if each in hidden else _visible_state(rights, next(states))
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
