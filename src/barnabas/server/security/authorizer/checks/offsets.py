"""Checks of requests for committed offsets."""

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
)
from barnabas.protocol.messages.transactions import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.server.security.authorizer.checks.check import (
    DELETE,
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

    from barnabas.protocol.messages.committed_offsets import (
        OffsetCommitRequest,
        OffsetCommitRequestTopic,
        OffsetDeleteRequest,
        OffsetDeleteRequestTopic,
    )
    from barnabas.protocol.messages.transactions import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestTopic,
    )
    from barnabas.server.security.authorizer.checks.check import Verdict
    from barnabas.server.security.authorizer.rights import Rights

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
    allowed, refused = yield from order.divide(request.topics)
    if not refused:
        return None

    def amend(response: OffsetCommitResponse) -> OffsetCommitResponse:
        errors = [_commit_error(topic, _REFUSED) for topic in refused]
        response.topics = order.joined(errors, response.topics)
        return response

    if not allowed:
        # As in Kafka, the group is not looked up.
        return amend(OffsetCommitResponse(topics=[]))
    request.topics = allowed
    return Partial(request, amend)


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
    allowed, refused = yield from order.divide(request.topics)
    if not refused:
        return None

    def amend(response: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
        errors = [_txn_error(topic, _REFUSED) for topic in refused]
        response.topics = order.joined(errors, response.topics)
        return response

    if not allowed:
        return amend(TxnOffsetCommitResponse(topics=[]))
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
        found = known.by_id(topic.topic_id) if self._uses_ids else known.by_name(topic.name)
        name = found.name if found is not None else "" if self._uses_ids else topic.name
        is_hidden = bool(name) or not self._uses_ids
        is_hidden = is_hidden and not self._rights.allows(READ, TOPIC, name)
        if (
            is_hidden
            or found is None
            or any(each.partition_index not in found.partitions for each in topic.partitions)
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
