"""Checks of requests for offsets of share groups, and of requests to the share coordinator."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.coordinator.group.requests.share_offset_requests import (
    failed_alteration,
    failed_deletion,
    failed_offsets,
)
from barnabas.coordinator.share import state_api
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_groups import (
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from barnabas.protocol.schema import ZERO_UUID
from barnabas.server.security.authorizer.checks.check import (
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    Partial,
    divide,
    refuse_items,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.messages.share_groups import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsRequestTopic,
        AlterShareGroupOffsetsResponse,
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsRequestTopic,
        DeleteShareGroupOffsetsResponse,
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestTopic,
        DescribeShareGroupOffsetsResponse,
    )
    from barnabas.server.security.authorizer.authorizer import Rights
    from barnabas.server.security.authorizer.checks.check import Verdict


_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def check_describe_share_group_offsets(
    rights: Rights, request: DescribeShareGroupOffsetsRequest
) -> Generator[None, None, Verdict]:
    """Refuse the groups and topics that the client may not describe."""
    # For each group of the request: None if it is refused, else its refused topics.
    outcomes: list[list[DescribeShareGroupOffsetsRequestTopic] | None] = []
    groups = request.groups
    for group in groups:
        if not rights.allows(DESCRIBE, GROUP, group.group_id):
            outcomes.append(None)
        elif group.topics is None:
            outcomes.append([])
        else:
            group.topics, refused = yield from divide(
                group.topics, lambda topic: rights.allows(DESCRIBE, TOPIC, topic.topic_name)
            )
            outcomes.append(refused)
        yield
    request.groups = [
        group for group, outcome in zip(groups, outcomes, strict=True) if outcome is not None
    ]

    def amend(response: DescribeShareGroupOffsetsResponse) -> DescribeShareGroupOffsetsResponse:
        described = iter(response.groups)
        results = []
        for group, refused in zip(groups, outcomes, strict=True):
            if refused is None:
                results.append(failed_offsets(group.group_id, _REFUSED, None))
                continue
            result = next(described)
            if group.topics is None:
                result.topics = [
                    topic
                    for topic in result.topics
                    if rights.allows(DESCRIBE, TOPIC, topic.topic_name, is_logged=False)
                ]
            elif result.error_code == ErrorCode.NONE:
                result.topics += [_undescribed(topic) for topic in refused]
            results.append(result)
        response.groups = results
        return response

    return Partial(request, amend)


def _undescribed(
    topic: DescribeShareGroupOffsetsRequestTopic,
) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=ZERO_UUID,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=each,
                start_offset=-1,
                leader_epoch=0,
                error_code=_TOPIC_REFUSED,
                error_message=_TOPIC_REFUSED.message,
            )
            for each in topic.partitions
        ],
    )


def check_alter_share_group_offsets(
    rights: Rights, request: AlterShareGroupOffsetsRequest
) -> Verdict | Generator[None, None, Verdict]:
    """Refuse a group that the client may not read, and topics that it may not read."""
    if not rights.allows(READ, GROUP, request.group_id):
        return failed_alteration(_REFUSED)
    return refuse_items(
        request, lambda topic: rights.allows(READ, TOPIC, topic.topic_name), _add_unaltered
    )


def _add_unaltered(
    response: AlterShareGroupOffsetsResponse, refused: list[AlterShareGroupOffsetsRequestTopic]
) -> None:
    if response.error_code == ErrorCode.NONE:
        errors: dict[str, AlterShareGroupOffsetsResponseTopic] = {}
        for topic in refused:
            failed = AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name, topic_id=ZERO_UUID, partitions=[]
            )
            errors.setdefault(topic.topic_name, failed).partitions += _unaltered(topic)
        response.responses = [*errors.values(), *response.responses]


def _unaltered(
    topic: AlterShareGroupOffsetsRequestTopic,
) -> list[AlterShareGroupOffsetsResponsePartition]:
    return [
        AlterShareGroupOffsetsResponsePartition(
            partition_index=each.partition_index,
            error_code=_TOPIC_REFUSED,
            error_message=_TOPIC_REFUSED.message,
        )
        for each in topic.partitions
    ]


def check_delete_share_group_offsets(
    rights: Rights, request: DeleteShareGroupOffsetsRequest
) -> Verdict | Generator[None, None, Verdict]:
    """Refuse a group that the client may not delete, and topics that it may not read."""
    if not rights.allows(DELETE, GROUP, request.group_id):
        return failed_deletion(_REFUSED)
    return refuse_items(
        request, lambda topic: rights.allows(READ, TOPIC, topic.topic_name), _add_undeleted
    )


def _add_undeleted(
    response: DeleteShareGroupOffsetsResponse, refused: list[DeleteShareGroupOffsetsRequestTopic]
) -> None:
    if response.error_code == ErrorCode.NONE:
        errors = [
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=ZERO_UUID,
                error_code=_TOPIC_REFUSED,
                error_message=_TOPIC_REFUSED.message,
            )
            for topic in refused
        ]
        response.responses = [*errors, *response.responses]


_CLUSTER_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _check_state(
    api: state_api.StateApi, rights: Rights, request: Any
) -> Verdict | Generator[None, None, Verdict]:
    """Refuse all partitions, unless the client is a broker."""
    if rights.allows_on_cluster(CLUSTER_ACTION):
        return None
    return _refuse_state(api, request)


def _refuse_state(api: state_api.StateApi, request: Any) -> Generator[None, None, Verdict]:
    topics: list[tuple[bytes, list[Any]]] = []
    for topic in request.topics:
        results: list[Any] = []
        topics.append((topic.topic_id, results))
        yield
        for each in topic.partitions:
            results.append(api.refuse(each.partition, _CLUSTER_REFUSED))
            yield
    return api.make_response(topics)


check_initialize_share_group_state = partial(_check_state, state_api.INITIALIZE)
check_read_share_group_state = partial(_check_state, state_api.READ)
check_write_share_group_state = partial(_check_state, state_api.WRITE)
check_delete_share_group_state = partial(_check_state, state_api.DELETE)
check_read_share_group_state_summary = partial(_check_state, state_api.READ_SUMMARY)
