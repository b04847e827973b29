"""Checks of requests for records and offsets of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.topic_names import problem_of
from barnabas.coordinator.transaction.producer import NO_EPOCH, NO_PRODUCER_ID
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_transactions import PartitionResponse, TopicResponse
from barnabas.protocol.messages.log_offsets import (
    DeleteRecordsPartitionResult,
    DeleteRecordsTopicResult,
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderTopicResult,
)
from barnabas.protocol.messages.transactions import InitProducerIdResponse
from barnabas.server.security.authorizer.checks.check import (
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    IDEMPOTENT_WRITE,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    TWO_PHASE_COMMIT,
    WRITE,
    Partial,
    divide,
    refuse_topics,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.messages.describe_transactions import (
        DescribeProducersRequest,
        DescribeProducersResponse,
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
    from barnabas.protocol.messages.transactions import InitProducerIdRequest
    from barnabas.server.security.authorizer.checks.check import Verdict
    from barnabas.server.security.authorizer.rights import Rights

_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def check_list_offsets(
    rights: Rights, request: ListOffsetsRequest
) -> Generator[None, None, Verdict]:
    """Refuse the topics that the client may not describe."""
    return refuse_topics(
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
    return refuse_topics(
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
    return refuse_topics(
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
        found = iter(response.topics)
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
            else next(found)
            for topic in requested
        ]
        return response

    return Partial(request, amend)
