"""Topics: create, delete and describe them, and add partitions (KIP-4, KIP-195, KIP-966).

Descriptions by partition have the eligible leader replicas, and come in pages. Brokers before 3.8
lack the API; the client then uses Metadata, which does not contain these replicas.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.client.admin.sender import (
    AdminCall,
    checked,
    errors_by_name,
    errors_of,
    fixed_call,
    names_of,
    raise_error,
    raise_failed,
)
from barnabas.client.connections.cluster import ANY_NODE, CONTROLLER
from barnabas.client.errors import (
    BrokerError,
    ClientError,
    UnsupportedVersionError,
    broker_error,
    error_or_none,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.messages.metadata import (
    CursorRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    TopicRequest,
)
from barnabas.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.primitives import uuid_to_string

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.admin.sender import AdminSender, Plan
    from barnabas.protocol.schema import Message


__all__ = ["NewPartitions", "NewTopic", "PartitionState", "TopicListing", "TopicState"]

# From this version on, the request names topics by a struct of name and id.
_DELETE_BY_STRUCT_FROM = 6
# Partitions that one page describes, unless the caller asks for less.
PAGE_PARTITIONS = 2_000
_AUTO_CREATION_FROM = 4


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 means the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    # Replicas (broker ids) by partition, preferred leader first. With assignments, partitions and
    # replication_factor stay -1.
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The new number of partitions of a topic, and the replicas of the added partitions."""

    count: int
    # Replicas (broker ids) of each added partition, in order; None lets the controller choose.
    assignments: Sequence[Sequence[int]] | None = None


def create_topics(
    sender: AdminSender,
    new: Sequence[NewTopic],
    *,
    validate_only: bool = False,
    raise_errors: bool = True,
) -> Plan[dict[str, BrokerError | None]]:
    """Create topics; the new partitions may not have leaders yet when this returns.

    Returns:
        An error or None for each topic name.

    Raises:
        AdminResultsError: a topic was not created; not raised with `raise_errors=False`.
    """

    def create() -> Plan[dict[str, BrokerError | None]]:
        return errors_of((yield from create_topic_ids(sender, new, validate_only=validate_only)))

    return checked(create(), raise_errors=raise_errors)


def create_topic_ids(
    sender: AdminSender, new: Sequence[NewTopic], *, validate_only: bool = False
) -> Plan[dict[str, bytes | BrokerError]]:
    """Create topics; return the id or the error for each. Old brokers return ids of zeros."""
    metadata = sender.cluster.metadata
    # Topics that were deleted before, if these can be created. Encoding reports a wrong type.
    known = {each.name: metadata.topic_id(each.name) for each in new if isinstance(each, NewTopic)}

    def build(_version: int) -> Message:
        return CreateTopicsRequest(
            topics=[_creatable(topic) for topic in new],
            timeout_ms=sender.timeout_ms,
            validate_only=validate_only,
        )

    def read(response: CreateTopicsResponse) -> dict[str, bytes | BrokerError]:
        results = [(t.name, t.error_code, t.error_message) for t in response.topics]
        errors = errors_by_name("create topic", results)
        return {t.name: errors[t.name] or t.topic_id for t in response.topics}

    call = AdminCall(ApiKey.CREATE_TOPICS, build, read)
    ids = yield from sender.send(CONTROLLER, call)
    if not validate_only:
        metadata.note_deleted(
            topic_id for name, topic_id in known.items() if isinstance(ids.get(name), bytes)
        )
    return ids


def delete_topics(
    sender: AdminSender, names: Iterable[str], *, raise_errors: bool = True
) -> Plan[dict[str, BrokerError | None]]:
    """Delete topics by name.

    Returns:
        An error or None for each topic name.

    Raises:
        AdminResultsError: a topic was not deleted; not raised with `raise_errors=False`.
    """
    wanted = names_of(names)

    def build(version: int) -> Message:
        if version >= _DELETE_BY_STRUCT_FROM:
            return DeleteTopicsRequest(
                topics=[DeleteTopicState(name=name, topic_id=bytes(16)) for name in wanted],
                timeout_ms=sender.timeout_ms,
            )
        return DeleteTopicsRequest(topic_names=list(wanted), timeout_ms=sender.timeout_ms)

    def read(response: DeleteTopicsResponse) -> dict[str, bytes | BrokerError]:
        results = [(t.name or "", t.error_code, t.error_message) for t in response.responses]
        errors = errors_by_name("delete topic", results)
        return {t.name or "": errors[t.name or ""] or t.topic_id for t in response.responses}

    call = AdminCall(ApiKey.DELETE_TOPICS, build, read)

    def delete() -> Plan[dict[str, BrokerError | None]]:
        ids = yield from sender.send(CONTROLLER, call)
        sender.cluster.metadata.note_deleted(i for i in ids.values() if isinstance(i, bytes))
        return errors_of(ids)

    return checked(delete(), raise_errors=raise_errors)


def delete_topics_by_id(
    sender: AdminSender, ids: Sequence[bytes], *, raise_errors: bool = True
) -> Plan[dict[bytes, BrokerError | None]]:
    """Delete topics by id (KIP-516), which never deletes a new topic of the same name.

    The ids are `bytes` of length 16.

    Returns:
        An error or None for each id.

    Raises:
        AdminResultsError: a topic was not deleted; not raised with `raise_errors=False`.
    """

    def build(version: int) -> Message:
        if version < _DELETE_BY_STRUCT_FROM:
            raise ProtocolError("requests before version 6 cannot delete topics by id")
        return DeleteTopicsRequest(
            topics=[DeleteTopicState(name=None, topic_id=each) for each in ids],
            timeout_ms=sender.timeout_ms,
        )

    def read(response: DeleteTopicsResponse) -> dict[bytes, BrokerError | None]:
        return {
            each.topic_id: error_or_none(
                each.error_code, f"delete topic {uuid_to_string(each.topic_id)}", each.error_message
            )
            for each in response.responses
        }

    call = AdminCall(ApiKey.DELETE_TOPICS, build, read)

    def delete() -> Plan[dict[bytes, BrokerError | None]]:
        result = yield from sender.send(CONTROLLER, call)
        sender.cluster.metadata.note_deleted(i for i, error in result.items() if error is None)
        return result

    return checked(delete(), raise_errors=raise_errors)


def create_partitions(
    sender: AdminSender,
    counts: Mapping[str, int | NewPartitions],
    *,
    validate_only: bool = False,
    raise_errors: bool = True,
) -> Plan[dict[str, BrokerError | None]]:
    """Increase the number of partitions of topics.

    `counts` has the new total for each topic name, or `NewPartitions` with assignments.

    Returns:
        An error or None for each topic name.

    Raises:
        AdminResultsError: a topic was not changed; not raised with `raise_errors=False`.
    """
    request = CreatePartitionsRequest(
        topics=[
            _added_partitions(name, new if isinstance(new, NewPartitions) else NewPartitions(new))
            for name, new in counts.items()
        ],
        timeout_ms=sender.timeout_ms,
        validate_only=validate_only,
    )

    def read(response: CreatePartitionsResponse) -> dict[str, BrokerError | None]:
        results = [(t.name, t.error_code, t.error_message) for t in response.results]
        return errors_by_name("create partitions of", results)

    return checked(sender.send(CONTROLLER, fixed_call(request, read)), raise_errors=raise_errors)


def _added_partitions(name: str, new: NewPartitions) -> CreatePartitionsTopic:
    assignments = None
    if new.assignments is not None:
        assignments = [
            CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in new.assignments
        ]
    return CreatePartitionsTopic(name=name, count=new.count, assignments=assignments)


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in topic.assignments.items()
        ],
        configs=[CreatableTopicConfig(name=k, value=v) for k, v in topic.configs.items()],
    )


class Cursor(NamedTuple):
    """Topic and partition at which the next page begins."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class PartitionState:
    """State of one partition according to the controller; replicas are broker ids."""

    number: int
    # -1 while the partition has no leader.
    leader: int
    # -1 if the broker does not send it.
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    # Replicas outside the ISR that have all committed records; None if the broker is too old.
    elr: tuple[int, ...] | None
    # The last known in-sync replicas after an unclean loss of the others; None as above.
    last_known_elr: tuple[int, ...] | None
    # Replicas on brokers that are down, or in failed log directories.
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic with its partitions by number."""

    name: str
    # 16 bytes; all zero if the broker does not send it.
    topic_id: bytes
    is_internal: bool
    partitions: dict[int, PartitionState]


@dataclass(frozen=True, slots=True)
class TopicListing:
    """Name and id of an existing topic."""

    name: str
    # 16 bytes; all zero if the broker does not send it.
    topic_id: bytes
    is_internal: bool


@dataclass(frozen=True, slots=True)
class TopicPage:
    """A page of partitions, and the cursor of the next page (None at the end)."""

    topics: dict[str, TopicState | ClientError]
    next_cursor: Cursor | None


def _topic_page(
    names: Sequence[str], cursor: Cursor | None, partitions_max: int
) -> AdminCall[TopicPage]:
    """Describe a page of the named topics; no names means all topics."""
    request = DescribeTopicPartitionsRequest(
        # The broker requires the names in order.
        topics=[TopicRequest(name=name) for name in sorted(names)],
        response_partition_limit=partitions_max,
    )
    if cursor is not None:
        request.cursor = CursorRequest(topic_name=cursor.topic, partition_index=cursor.partition)

    def read(response: DescribeTopicPartitionsResponse) -> TopicPage:
        found = {topic.name or "": _topic(topic) for topic in response.topics}
        following = response.next_cursor
        if following is None:
            return TopicPage(found, None)
        return TopicPage(found, Cursor(following.topic_name, following.partition_index))

    return fixed_call(request, read)


def _topic(topic: Any) -> TopicState | ClientError:
    """Convert a topic of either API."""
    name = topic.name or ""
    if topic.error_code:
        return broker_error(topic.error_code, name)
    partitions = {each.partition_index: _state(each) for each in topic.partitions}
    return TopicState(name, topic.topic_id, topic.is_internal, partitions)


def _state(
    partition: DescribeTopicPartitionsResponsePartition | MetadataResponsePartition,
) -> PartitionState:
    elr, last_known = None, None
    if isinstance(partition, DescribeTopicPartitionsResponsePartition):
        # A broker without the feature sends null or an empty list.
        elr = tuple(partition.eligible_leader_replicas or ())
        last_known = tuple(partition.last_known_elr or ())
    return PartitionState(
        number=partition.partition_index,
        leader=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        replicas=tuple(partition.replica_nodes),
        isr=tuple(partition.isr_nodes),
        elr=elr,
        last_known_elr=last_known,
        offline_replicas=tuple(partition.offline_replicas),
    )


def _topics_by_metadata(names: Sequence[str]) -> AdminCall[TopicPage]:
    """Describe topics with a Metadata request, in one page."""

    def build(version: int) -> Message:
        topics = [MetadataRequestTopic(name=name) for name in sorted(names)] or None
        return MetadataRequest(
            topics=topics, allow_auto_topic_creation=version < _AUTO_CREATION_FROM
        )

    def read(response: MetadataResponse) -> TopicPage:
        return TopicPage({topic.name or "": _topic(topic) for topic in response.topics}, None)

    return AdminCall(ApiKey.METADATA, build, read)


def list_topics(sender: AdminSender, *, internal: bool = False) -> Plan[dict[str, TopicListing]]:
    """List the topics that the user may see, by name; `internal` includes internal topics."""

    def build(version: int) -> Message:
        return MetadataRequest(topics=None, allow_auto_topic_creation=version < _AUTO_CREATION_FROM)

    def read(response: MetadataResponse) -> dict[str, TopicListing]:
        raise_error(response.error_code, "list topics")
        return {
            topic.name: TopicListing(topic.name, topic.topic_id, topic.is_internal)
            for topic in response.topics
            if topic.name and not topic.error_code
        }

    call = AdminCall(ApiKey.METADATA, build, read)
    topics = yield from sender.send(ANY_NODE, call)
    return {
        name: topics[name] for name in sorted(topics) if internal or not topics[name].is_internal
    }


def describe_topics(
    sender: AdminSender, names: Iterable[str] | None = None
) -> Plan[dict[str, TopicState]]:
    """Describe topics with their partitions, leaders and replicas; None means all topics.

    `describe_topic_partitions` returns an error for a missing topic instead of raising it.

    Raises:
        AdminResultsError: a topic does not exist; the error's `results` has the other topics.
    """
    wanted = None if names is None else names_of(names)
    if wanted == []:
        return {}
    found = yield from describe_topic_partitions(sender, wanted or ())
    for name in wanted or ():
        if name not in found:
            found[name] = BrokerError(
                ErrorCode.UNKNOWN_SERVER_ERROR, name, "missing in the response"
            )
    raise_failed(found)
    return {name: state for name, state in found.items() if isinstance(state, TopicState)}


def describe_topic_partitions(
    sender: AdminSender, names: Iterable[str] = (), page_partitions: int = PAGE_PARTITIONS
) -> Plan[dict[str, TopicState | ClientError]]:
    """Describe topics with their partitions; no names means all topics.

    Args:
        sender: sends the requests.
        names: names of topics; none of them means all topics.
        page_partitions: partitions of one response, whose decoding holds the event loop.

    Returns:
        The topic's state, or an error, for each name.

    Raises:
        ClientError: the call as a whole failed.
    """
    names = names_of(names)
    found: dict[str, TopicState | ClientError] = {}
    cursor: Cursor | None = None
    clock = sender.cluster.runtime.clock
    deadline_ms = clock.monotonic_ms() + sender.cluster.config.default_api_timeout_ms
    while True:
        call = _topic_page(names, cursor, page_partitions)
        try:
            page = yield from sender.send(ANY_NODE, call)
        except UnsupportedVersionError:
            call = _topics_by_metadata(names)
            return (yield from sender.send(ANY_NODE, call)).topics
        for name, topic in page.topics.items():
            known = found.get(name)
            if known is None or isinstance(known, ClientError) or isinstance(topic, ClientError):
                found[name] = topic
            else:
                # The topic continues from the previous page.
                known.partitions.update(topic.partitions)
        if page.next_cursor is None:
            return found
        if page.next_cursor == cursor or clock.monotonic_ms() >= deadline_ms:
            # Bounds the number of pages: a faulty broker could send pages forever.
            raise BrokerError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "describe topics",
                "the broker returns pages without end",
            )
        cursor = page.next_cursor
