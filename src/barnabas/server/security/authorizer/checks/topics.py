"""Checks of requests that create, change and delete topics. The active controller runs them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.topics import (
    CreatableTopicResult,
    CreatePartitionsTopicResult,
    DeletableTopicResult,
)
from barnabas.protocol.schema import ZERO_UUID
from barnabas.server.security.authorizer.checks.check import (
    ALTER,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    TOPIC,
    Partial,
    divide,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.messages.topics import (
        CreatableTopic,
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreatePartitionsTopic,
        CreateTopicsRequest,
        CreateTopicsResponse,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        DeleteTopicState,
    )
    from barnabas.server.security.authorizer.checks.check import Verdict
    from barnabas.server.security.authorizer.rights import Rights

_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
# Error of a request with timeout 0: as in Kafka, the lookup of the topics times out before rights
# are checked.
_TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
_METADATA_TOPIC = "__cluster_metadata"
_CONFIGS_SINCE = 5
_STATES_SINCE = 6


def check_create_topics(
    rights: Rights, request: CreateTopicsRequest
) -> Generator[None, None, Verdict]:
    """Refuse topics that the client may not create, and hide configurations of new topics.

    Names that are invalid regardless of rights are left to the controller, which rejects them.
    """
    may_create_all = rights.allows_on_cluster(CREATE, is_logged=False)
    times = Counter(topic.name for topic in request.topics)

    def is_allowed(topic: CreatableTopic) -> bool:
        name = topic.name
        return (
            may_create_all
            or times[name] > 1
            or name == _METADATA_TOPIC
            or rights.allows(CREATE, TOPIC, name)
        )

    request.topics, refused = yield from divide(request.topics, is_allowed)
    hidden: set[str] = set()
    if rights.version >= _CONFIGS_SINCE:
        for topic in request.topics:
            if not rights.allows(DESCRIBE_CONFIGS, TOPIC, topic.name, is_logged=False):
                hidden.add(topic.name)
            yield
    if not refused and not hidden:
        return None

    def amend(response: CreateTopicsResponse) -> CreateTopicsResponse:
        for each in response.topics:
            if each.error_code == ErrorCode.NONE and each.name in hidden:
                each.topic_config_error_code = _REFUSED
                each.num_partitions = each.replication_factor = -1
                each.configs = []
        response.topics += [
            CreatableTopicResult(
                name=topic.name, error_code=_REFUSED, error_message="Authorization failed."
            )
            for topic in refused
        ]
        return response

    return Partial(request, amend)


def check_delete_topics(
    rights: Rights, request: DeleteTopicsRequest
) -> Verdict | Generator[None, None, Verdict]:
    """Refuse topics that the client may not delete, and hide names that it may not describe."""
    if not rights.config.boolean("delete.topic.enable"):
        # The controller rejects the whole request.
        return None
    if rights.version >= _STATES_SINCE:
        return _check_states(rights, request)
    return _check_names(rights, request)


def _check_names(rights: Rights, request: DeleteTopicsRequest) -> Generator[None, None, Verdict]:
    times = Counter(request.topic_names)
    allowed: list[str] = []
    refused: list[DeletableTopicResult] = []
    for name in request.topic_names:
        yield
        error = None if times[name] > 1 else _error_of_name(rights, name)
        if error is None:
            allowed.append(name)
        else:
            refused.append(_not_deleted(name, ZERO_UUID, error))
    request.topic_names = allowed
    return _deletion(request, refused)


def _check_states(rights: Rights, request: DeleteTopicsRequest) -> Generator[None, None, Verdict]:
    times = Counter((topic.name, topic.topic_id) for topic in request.topics)
    allowed: list[DeleteTopicState] = []
    refused: list[DeletableTopicResult] = []
    for topic in request.topics:
        yield
        name, topic_id = topic.name, topic.topic_id
        result = None
        if times[name, topic_id] > 1:
            # The controller rejects repeated topics.
            pass
        elif name is None:
            result = _refusal_by_id(rights, topic_id)
        elif topic_id == ZERO_UUID:
            error = _error_of_name(rights, name)
            result = None if error is None else _not_deleted(name, ZERO_UUID, error)
        if result is None:
            allowed.append(topic)
        else:
            refused.append(result)
    request.topics = allowed
    return _deletion(request, refused)


def _error_of_name(rights: Rights, name: str) -> ErrorCode | None:
    """Return the error of a topic that is not deleted; None if the controller decides."""
    if rights.allows_on_cluster(DELETE, is_logged=False):
        return None
    if not rights.allows(DESCRIBE, TOPIC, name):
        return _REFUSED
    if rights.image.topics.by_name(name) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return None if rights.allows(DELETE, TOPIC, name) else _REFUSED


def _refusal_by_id(rights: Rights, topic_id: bytes) -> DeletableTopicResult | None:
    """Return the result of a topic that is not deleted; None if the controller decides."""
    found = rights.image.topics.by_id(topic_id)
    if found is None or rights.allows_on_cluster(DELETE, is_logged=False):
        return None
    if rights.allows(DELETE, TOPIC, found.name):
        return None
    may_describe = rights.allows(DESCRIBE, TOPIC, found.name, is_logged=False)
    return _not_deleted(found.name if may_describe else None, topic_id, _REFUSED)


def _deletion(request: DeleteTopicsRequest, refused: list[DeletableTopicResult]) -> Verdict:
    if not refused:
        return None
    if request.timeout_ms <= 0:
        for each in refused:
            each.error_code, each.error_message = _TIMED_OUT, None

    def amend(response: DeleteTopicsResponse) -> DeleteTopicsResponse:
        response.responses += refused
        return response

    return Partial(request, amend)


def _not_deleted(name: str | None, topic_id: bytes, error: ErrorCode) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=error, error_message=error.message
    )


def check_create_partitions(
    rights: Rights, request: CreatePartitionsRequest
) -> Generator[None, None, Verdict]:
    """Refuse topics that the client may not alter. The controller rejects repeated names."""
    times = Counter(topic.name for topic in request.topics)

    def is_allowed(topic: CreatePartitionsTopic) -> bool:
        return times[topic.name] > 1 or rights.allows(ALTER, TOPIC, topic.name)

    request.topics, refused = yield from divide(request.topics, is_allowed)
    if not refused:
        return None

    def amend(response: CreatePartitionsResponse) -> CreatePartitionsResponse:
        response.results += [
            CreatePartitionsTopicResult(name=topic.name, error_code=_REFUSED) for topic in refused
        ]
        return response

    return Partial(request, amend)
