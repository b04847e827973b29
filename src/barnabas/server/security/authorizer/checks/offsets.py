"""Checks of requests for committed offsets.

A request has the topics that the client may use, and its response the errors of the others. Up to
version 7, an OffsetFetch has one group. Later versions have the groups of a list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.messages.transactions import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.server.security.authorizer.checks.check import (
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Partial,
    divide,
    refuse_items,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.protocol.messages.committed_offsets import (
        OffsetCommitRequest,
        OffsetCommitRequestTopic,
        OffsetDeleteRequest,
        OffsetDeleteRequestTopic,
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopic,
        OffsetFetchRequestTopics,
    )
    from barnabas.protocol.messages.transactions import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestTopic,
    )
    from barnabas.protocol.schema import Message
    from barnabas.server.security.authorizer.authorizer import Rights
    from barnabas.server.security.authorizer.checks.check import Verdict

    T = TypeVar("T", bound=Any)
    R = TypeVar("R", bound=Any)


_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
# The first versions with topic ids.
_COMMIT_IDS_SINCE, _TXN_IDS_SINCE = 10, 6


def check_offset_commit(
    rights: Rights, request: OffsetCommitRequest
) -> Generator[None, None, Verdict]:
    """Refuse a group and topics that the client may not read."""
    if not rights.allows(READ, GROUP, request.group_id):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return OffsetCommitResponse(topics=[_commit_error(each, error) for each in request.topics])
    order = _TopicOrder(rights, uses_ids=rights.version >= _COMMIT_IDS_SINCE)
    return (yield from _check_commit(request, order, _commit_error, OffsetCommitResponse))


def check_txn_offset_commit(
    rights: Rights, request: TxnOffsetCommitRequest
) -> Generator[None, None, Verdict]:
    """Refuse a transaction that the client may not write, a group and topics it may not read."""
    error = ErrorCode.NONE
    if not rights.allows(WRITE, TRANSACTIONAL_ID, request.transactional_id):
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not rights.allows(READ, GROUP, request.group_id):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if error is not ErrorCode.NONE:
        return TxnOffsetCommitResponse(topics=[_txn_error(each, error) for each in request.topics])
    order = _TopicOrder(rights, uses_ids=rights.version >= _TXN_IDS_SINCE)
    return (yield from _check_commit(request, order, _txn_error, TxnOffsetCommitResponse))


def _check_commit(
    request: Any,
    order: _TopicOrder,
    error_of: Callable[[Any, ErrorCode], Any],
    response_class: Callable[..., Message],
) -> Generator[None, None, Verdict]:
    """Refuse the topics that the client may not read."""
    allowed, refused = yield from order.divide(request.topics)
    if not refused:
        return None

    def amend(response: Any) -> Message:
        errors = [error_of(topic, _REFUSED) for topic in refused]
        response.topics = order.joined(errors, response.topics)
        amended: Message = response
        return amended

    if not allowed:
        # As in Kafka, the group is not looked up.
        return amend(response_class(topics=[]))
    request.topics = allowed
    return Partial(request, amend)


def check_offset_delete(
    rights: Rights, request: OffsetDeleteRequest
) -> Generator[None, None, Verdict]:
    """Refuse a group that the client may not delete, and topics that it may not read."""
    if not rights.allows(DELETE, GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, topics=[])
    order = _TopicOrder(rights, uses_ids=False)
    allowed, refused = yield from order.divide(request.topics)
    if not refused:
        return None
    request.topics = allowed

    def amend(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if response.error_code == ErrorCode.NONE:
            errors = [_delete_error(topic) for topic in refused]
            response.topics = order.joined(errors, response.topics)
        return response

    return Partial(request, amend)


class _TopicOrder:
    """Divides the topics of a request, and joins their results in Kafka's order.

    Topics with a refused or missing part come first, in the order of the request. All other topics
    follow, in the order of the coordinator's response.
    """

    __slots__ = ("_early", "_rights", "_uses_ids")

    def __init__(self, rights: Rights, *, uses_ids: bool) -> None:
        self._rights = rights
        self._uses_ids = uses_ids
        # The topics that come first. The values are not used.
        self._early: dict[str | bytes, None] = {}

    def divide(self, topics: list[T]) -> Generator[None, None, tuple[list[T], list[T]]]:
        """Return the allowed topics, which include unknown ids, and the refused topics."""
        return (yield from divide(topics, self._is_allowed))

    def joined(self, refused: list[R], served: list[R]) -> list[R]:
        """Return the results of all topics. A repeated topic has one result."""
        results: dict[str | bytes, R] = {}
        for topic in [*refused, *served]:
            first = results.setdefault(self._key(topic), topic)
            if first is not topic:
                first.partitions += topic.partitions
        early = [key for key in self._early if key in results]
        late = [key for key in results if key not in self._early]
        return [results[key] for key in (*early, *late)]

    def _key(self, topic: Any) -> str | bytes:
        key: str | bytes = topic.topic_id if self._uses_ids else topic.name
        return key

    def _is_allowed(self, topic: Any) -> bool:
        known = self._rights.image.topics
        known_topic = known.by_id(topic.topic_id) if self._uses_ids else known.by_name(topic.name)
        name = known_topic.name if known_topic is not None else "" if self._uses_ids else topic.name
        is_hidden = bool(name) or not self._uses_ids
        is_hidden = is_hidden and not self._rights.allows(READ, TOPIC, name)
        if (
            is_hidden
            or known_topic is None
            or any(each.partition_index not in known_topic.partitions for each in topic.partitions)
        ):
            self._early[self._key(topic)] = None
        return not is_hidden


def _commit_error(topic: OffsetCommitRequestTopic, error: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
            for each in topic.partitions
        ],
    )


def _txn_error(
    topic: TxnOffsetCommitRequestTopic, error: ErrorCode
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
            for each in topic.partitions
        ],
    )


def _delete_error(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=_REFUSED)
            for each in topic.partitions
        ],
    )


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
    return (
        yield from refuse_items(
            request, lambda topic: rights.allows(DESCRIBE, TOPIC, topic.name), _add_fetch_errors
        )
    )


def _add_fetch_errors(
    response: OffsetFetchResponse, refused: list[OffsetFetchRequestTopic]
) -> None:
    if response.error_code == ErrorCode.NONE:
        response.topics += [_error(topic, _TOPIC_REFUSED) for topic in refused]


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
        known_topic = rights.image.topics.by_id(topic.topic_id)
        if known_topic is None:
            return True
        name = known_topic.name
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
