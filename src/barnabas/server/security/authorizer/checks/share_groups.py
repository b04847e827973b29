"""Checks of requests for share groups and their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.requests.share_offset_requests import (
    failed_alteration,
    failed_deletion,
    failed_offsets,
)
from barnabas.coordinator.group.requests.share_requests import failed_share_group
from barnabas.coordinator.group.share.share_membership import failed_share_heartbeat
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
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    Partial,
    divide,
    refuse_topics,
)
from barnabas.server.security.authorizer.checks.group_checks import (
    check_described_groups,
    check_topics,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.messages.share_consumers import ShareGroupHeartbeatRequest
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
        ShareGroupDescribeRequest,
    )
    from barnabas.server.security.authorizer.checks.check import Verdict
    from barnabas.server.security.authorizer.rights import Rights

_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def check_share_group_heartbeat(
    rights: Rights, request: ShareGroupHeartbeatRequest
) -> Verdict | Generator[None, None, Verdict]:
    """Refuse a group that the client may not read, and topics that it may not describe."""
    if not rights.allows(READ, GROUP, request.group_id):
        return failed_share_heartbeat(_REFUSED, None)
    if not request.subscribed_topic_names:
        return None
    return check_topics(rights, request.subscribed_topic_names, failed_share_heartbeat)


def check_share_group_describe(
    rights: Rights, request: ShareGroupDescribeRequest
) -> Generator[None, None, Verdict]:
    """Refuse the groups that the client may not describe."""
    return check_described_groups(rights, request, failed_share_group)


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
        answers = []
        for group, refused in zip(groups, outcomes, strict=True):
            if refused is None:
                answers.append(failed_offsets(group.group_id, _REFUSED, None))
                continue
            answer = next(described)
            if group.topics is None:
                answer.topics = [
                    topic
                    for topic in answer.topics
                    if rights.allows(DESCRIBE, TOPIC, topic.topic_name, is_logged=False)
                ]
            elif answer.error_code == ErrorCode.NONE:
                answer.topics += [_undescribed(topic) for topic in refused]
            answers.append(answer)
        response.groups = answers
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
    return refuse_topics(
        request, lambda topic: rights.allows(READ, TOPIC, topic.topic_name), _add_unaltered
    )


def _add_unaltered(
    response: AlterShareGroupOffsetsResponse, refused: list[AlterShareGroupOffsetsRequestTopic]
) -> None:
    if response.error_code == ErrorCode.NONE:
        errors: dict[str, AlterShareGroupOffsetsResponseTopic] = {}
        for topic in refused:
            made = AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name, topic_id=ZERO_UUID, partitions=[]
            )
            errors.setdefault(topic.topic_name, made).partitions += _unaltered(topic)
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
    return refuse_topics(
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
