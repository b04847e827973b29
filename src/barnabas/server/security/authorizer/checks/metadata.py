"""Check of Metadata requests: topics that the client may describe or create."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.controller.topic_names import INTERNAL_TOPICS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import MetadataRequestTopic, MetadataResponseTopic
from barnabas.protocol.resources import CLUSTER_NAME, AclResourceType
from barnabas.protocol.schema import ZERO_UUID
from barnabas.server.security.authorizer.checks.check import CREATE, DESCRIBE, TOPIC, Partial

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
    from barnabas.server.security.authorizer.checks.check import Verdict
    from barnabas.server.security.authorizer.rights import Rights

_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
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
    found: dict[str, int] = {}
    if request.include_topic_authorized_operations:
        for name in names:
            found[name] = rights.operations(TOPIC, name)
            yield
    return found


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
        found = rights.image.topics.by_id(topic_id)
        if found is None or rights.allows(DESCRIBE, TOPIC, found.name):
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
