"""Check of OffsetFetch requests: groups and topics that the client may describe.

Up to version 7, a request has one group. Later versions have the groups of a list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.server.security.authorizer.checks.check import (
    DESCRIBE,
    GROUP,
    TOPIC,
    Partial,
    divide,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.messages.committed_offsets import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopic,
        OffsetFetchRequestTopics,
    )
    from barnabas.server.security.authorizer.checks.check import Verdict
    from barnabas.server.security.authorizer.rights import Rights

_GROUP_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_GROUP_ERROR_SINCE = 2
_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10


def check_offset_fetch(
    rights: Rights, request: OffsetFetchRequest
) -> Generator[None, None, Verdict]:
    """Refuse groups and topics that the client may not describe."""
    if rights.version >= _GROUPS_SINCE:
        return _check_groups(rights, request)
    return _check_group(rights, request)


# -- one group ---------------------------------------------------------------------------------


def _check_group(rights: Rights, request: OffsetFetchRequest) -> Generator[None, None, Verdict]:
    topics = request.topics
    if not rights.allows(DESCRIBE, GROUP, request.group_id):
        if rights.version >= _GROUP_ERROR_SINCE:
            return OffsetFetchResponse(error_code=_GROUP_REFUSED)
        return OffsetFetchResponse(topics=[_error(topic, _GROUP_REFUSED) for topic in topics or ()])
    if topics is None:
        return Partial(request, lambda response: _without_hidden(rights, response))
    allowed, refused = yield from divide(
        topics, lambda topic: rights.allows(DESCRIBE, TOPIC, topic.name)
    )
    if not refused:
        return None
    request.topics = allowed

    def amend(response: OffsetFetchResponse) -> OffsetFetchResponse:
        if response.error_code == ErrorCode.NONE:
            response.topics += [_error(topic, _TOPIC_REFUSED) for topic in refused]
        return response

    return Partial(request, amend)


def _without_hidden(rights: Rights, response: OffsetFetchResponse) -> OffsetFetchResponse:
    response.topics = [
        topic for topic in response.topics if rights.allows(DESCRIBE, TOPIC, topic.name)
    ]
    return response


def _error(topic: OffsetFetchRequestTopic, error: ErrorCode) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=index, committed_offset=-1, metadata="", error_code=error
            )
            for index in topic.partition_indexes
        ],
    )


# -- groups ------------------------------------------------------------------------------------


def _check_groups(rights: Rights, request: OffsetFetchRequest) -> Generator[None, None, Verdict]:
    requested = request.groups
    kept: list[OffsetFetchRequestGroup] = []
    # Refused topics of the kept groups; None for a group whose topics are all requested.
    refused: list[list[OffsetFetchRequestTopics] | None] = []
    is_kept: list[bool] = []
    for group in requested:
        yield
        is_allowed = rights.allows(DESCRIBE, GROUP, group.group_id)
        is_kept.append(is_allowed)
        if not is_allowed:
            continue
        kept.append(group)
        if group.topics is None:
            refused.append(None)
            continue
        group.topics, others = yield from divide(
            group.topics, lambda topic: _may_describe(rights, topic)
        )
        refused.append(others)
    if all(is_kept) and not any(each is None or each for each in refused):
        return None
    request.groups = kept

    def amend(response: OffsetFetchResponse) -> OffsetFetchResponse:
        results = iter(zip(response.groups, refused, strict=True))
        response.groups = [
            _amended(rights, *next(results)) if allowed else _group_error(group)
            for group, allowed in zip(requested, is_kept, strict=True)
        ]
        return response

    return Partial(request, amend)


def _may_describe(rights: Rights, topic: Any) -> bool:
    """Return whether the client may describe a topic. Unknown ids are not refused."""
    name = topic.name
    if rights.version >= _TOPIC_IDS_SINCE:
        found = rights.image.topics.by_id(topic.topic_id)
        if found is None:
            return True
        name = found.name
    return rights.allows(DESCRIBE, TOPIC, name)


def _amended(
    rights: Rights,
    response: OffsetFetchResponseGroup,
    refused: list[OffsetFetchRequestTopics] | None,
) -> OffsetFetchResponseGroup:
    if response.error_code != ErrorCode.NONE:
        return response
    if refused is None:
        response.topics = [topic for topic in response.topics if _may_describe(rights, topic)]
    else:
        response.topics += [
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=-1,
                        metadata="",
                        error_code=_TOPIC_REFUSED,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in refused
        ]
    return response


def _group_error(group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=_GROUP_REFUSED)
