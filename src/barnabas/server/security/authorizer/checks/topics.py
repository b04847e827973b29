"""Checks of requests for topics: Metadata, and changes that the active controller makes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from barnabas.controller.topic_names import INTERNAL_TOPICS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import MetadataRequestTopic, MetadataResponseTopic
from barnabas.protocol.messages.topics import (
    CreatableTopicResult,
    CreatePartitionsTopicResult,
    DeletableTopicResult,
)
from barnabas.protocol.resources import CLUSTER_NAME, AclResourceType
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
    refuse_items,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
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
    from barnabas.server.security.authorizer.authorizer import Rights
    from barnabas.server.security.authorizer.checks.check import Verdict


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
    topic = rights.image.topics.by_id(topic_id)
    if topic is None or rights.allows_on_cluster(DELETE, is_logged=False):
        return None
    if rights.allows(DELETE, TOPIC, topic.name):
        return None
    may_describe = rights.allows(DESCRIBE, TOPIC, topic.name, is_logged=False)
    return _not_deleted(topic.name if may_describe else None, topic_id, _REFUSED)


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

    return refuse_items(request, is_allowed, _add_partition_errors)


def _add_partition_errors(
    response: CreatePartitionsResponse, refused: list[CreatePartitionsTopic]
) -> None:
    response.results += [
        CreatePartitionsTopicResult(name=topic.name, error_code=_REFUSED) for topic in refused
    ]


_CLUSTER = int(AclResourceType.CLUSTER)
_CREATION_FLAG_SINCE = 4
_TOPIC_IDS_SINCE = 12


def check_metadata(rights: Rights, request: MetadataRequest) -> Generator[None, None, Verdict]:
    """Refuse topics that the client may not describe or create. A list of all topics omits them."""
    topics = request.topics
    if topics is None or (rights.version == 0 and not topics):
        visible = yield from _visible(rights)
        operations = yield from _operations(rights, request, list(visible))
        return Partial(request, _amendment(rights, request, _Findings(operations, visible, [])))
    has_ids = any(topic.topic_id != ZERO_UUID for topic in topics)
    if rights.version < _TOPIC_IDS_SINCE and (has_ids or any(each.name is None for each in topics)):
        # The handler rejects the whole request without looking up any topic.
        return None
    if has_ids:
        refused = yield from _refuse_ids(rights, request, topics)
        known = map(rights.image.topics.by_id, (topic.topic_id for topic in request.topics or ()))
        names = [topic.name for topic in known if topic is not None]
    else:
        refused = yield from _refuse_names(rights, request, topics)
        names = [topic.name for topic in request.topics or () if topic.name is not None]
    operations = yield from _operations(rights, request, names)
    wants_operations = (
        request.include_topic_authorized_operations or request.include_cluster_authorized_operations
    )
    if not refused and not wants_operations:
        return None
    # Without any allowed topic, a request of version 0 would mean all topics.
    listed = set[str]() if rights.version == 0 and not names else None
    return Partial(request, _amendment(rights, request, _Findings(operations, listed, refused)))


class _Findings:
    """Results of the check, for the response."""

    __slots__ = ("operations", "refused", "visible")

    def __init__(
        self,
        operations: dict[str, int],
        visible: set[str] | None,
        refused: list[MetadataResponseTopic],
    ) -> None:
        # Bit fields by topic.
        self.operations = operations
        # The topics that a list of all topics may contain; None if the request names topics.
        self.visible = visible
        self.refused = refused


def _visible(rights: Rights) -> Generator[None, None, set[str]]:
    names: set[str] = set()
    for topic in rights.image.topics:
        if rights.allows(DESCRIBE, TOPIC, topic.name, is_logged=False):
            names.add(topic.name)
        yield
    return names


def _operations(
    rights: Rights, request: MetadataRequest, names: list[str]
) -> Generator[None, None, dict[str, int]]:
    operations: dict[str, int] = {}
    if request.include_topic_authorized_operations:
        for name in names:
            operations[name] = rights.operations(TOPIC, name)
            yield
    return operations


def _refuse_ids(
    rights: Rights, request: MetadataRequest, topics: list[MetadataRequestTopic]
) -> Generator[None, None, list[MetadataResponseTopic]]:
    """Remove ids of topics that the client may not describe, and entries without an id."""
    refused: dict[bytes, MetadataResponseTopic] = {}
    allowed: list[MetadataRequestTopic] = []
    for topic in topics:
        yield
        topic_id = topic.topic_id
        if topic_id == ZERO_UUID or topic_id in refused:
            continue
        known = rights.image.topics.by_id(topic_id)
        if known is None or rights.allows(DESCRIBE, TOPIC, known.name):
            allowed.append(topic)
        else:
            refused[topic_id] = _failed(None, topic_id)
    request.topics = allowed
    return list(refused.values())


def _refuse_names(
    rights: Rights, request: MetadataRequest, topics: list[MetadataRequestTopic]
) -> Generator[None, None, list[MetadataResponseTopic]]:
    """Remove names that the client may not describe, or that it may not create if they are new."""
    creates = rights.config.boolean("auto.create.topics.enable") and (
        request.allow_auto_topic_creation or rights.version < _CREATION_FLAG_SINCE
    )
    uncreated: dict[str, MetadataResponseTopic] = {}
    hidden: dict[str, MetadataResponseTopic] = {}
    allowed: list[MetadataRequestTopic] = []
    for topic in topics:
        yield
        name = topic.name or ""
        if name in hidden or name in uncreated:
            continue
        if not rights.allows(DESCRIBE, TOPIC, name):
            hidden[name] = _failed(name, ZERO_UUID)
        elif (
            creates and rights.image.topics.by_name(name) is None and not _may_create(rights, name)
        ):
            uncreated[name] = _failed(name, ZERO_UUID)
            uncreated[name].is_internal = name in INTERNAL_TOPICS
        else:
            allowed.append(topic)
    request.topics = allowed
    return [*uncreated.values(), *hidden.values()]


def _may_create(rights: Rights, name: str) -> bool:
    return rights.allows(CREATE, _CLUSTER, CLUSTER_NAME, is_logged=False) or rights.allows(
        CREATE, TOPIC, name
    )


def _failed(name: str | None, topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=_REFUSED, name=name, topic_id=topic_id, partitions=[])


def _amendment(
    rights: Rights, request: MetadataRequest, findings: _Findings
) -> Callable[[Any], MetadataResponse]:
    visible, operations = findings.visible, findings.operations

    def amend(response: MetadataResponse) -> MetadataResponse:
        topics = response.topics
        if visible is not None:
            topics = [topic for topic in topics if topic.name in visible]
        if request.include_topic_authorized_operations:
            for topic in topics:
                if topic.name is not None:
                    topic.topic_authorized_operations = operations.get(topic.name, 0)
        response.topics = [*topics, *findings.refused]
        if request.include_cluster_authorized_operations:
            may_describe = rights.allows_on_cluster(DESCRIBE)
            response.cluster_authorized_operations = (
                rights.operations(_CLUSTER, CLUSTER_NAME) if may_describe else 0
            )
        return response

    return amend
