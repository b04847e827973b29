"""Committed offsets of a group (OffsetCommit, OffsetFetch), for members and for other clients.

A member commits with its generation; the broker refuses commits of an outdated generation. A client
that chooses its partitions itself, such as the Spark source, passes only the group id. The group
must then have no members.

Requests name topics by their ids if metadata has all of them. Then an offset of a deleted topic
never becomes the offset of a new topic with the same name.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.client.connections.metadata_cache import ZERO_ID
from barnabas.client.connections.versions import (
    OFFSET_COMMIT_MAX_BY_NAME,
    OFFSET_FETCH_MAX_BY_NAME,
)
from barnabas.client.errors import ClientError, broker_error
from barnabas.client.group.membership import GroupGeneration
from barnabas.client.retries import OnDone, RetryingCall
from barnabas.client.topic_partition import (
    K,
    TopicPartition,
    as_partition,
    by_topic,
    numbers_by_topic,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.lookups import Coordinators
    from barnabas.protocol.schema import Message

    # The ids of topics by name; all zero where metadata has none.
    TopicIds = Mapping[str, bytes]

T = TypeVar("T")

__all__ = ["CommittedOffset", "GroupOffsets", "commit_request", "offsets_of"]

# From this version on a request may contain several groups.
_MANY_GROUPS_FROM = 8
# From this version on the broker can delay the response until transactions have ended.
_STABLE_FROM = 7
_TOPIC_IS_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
# Retriable errors that do not mean that the coordinator has moved.
_COORDINATOR_IS_RIGHT = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)


class CommittedOffset(NamedTuple):
    """A committed offset with its leader epoch and metadata."""

    # Offset of the next record to read.
    offset: int
    # Leader epoch of the record before `offset`; -1 if unknown.
    leader_epoch: int = -1
    # Free text of the committer.
    metadata: str = ""


def offsets_of(given: Mapping[K, int | CommittedOffset]) -> dict[TopicPartition, CommittedOffset]:
    """Convert the users' offsets, including plain integers, to `CommittedOffset` values."""
    return {
        as_partition(tp): offset if isinstance(offset, CommittedOffset) else CommittedOffset(offset)
        for tp, offset in given.items()
    }


class GroupOffsets:
    """Commits and fetches offsets of any group."""

    def __init__(self, cluster: Cluster, coordinators: Coordinators) -> None:
        self._cluster = cluster
        self._coordinators = coordinators

    def commit(
        self,
        group: str | GroupGeneration,
        offsets: Mapping[TopicPartition, CommittedOffset],
        topic_ids: TopicIds,
        timeout_ms: float,
        on_done: OnDone[bool],
    ) -> None:
        """Commit `offsets`; the call succeeds only if every partition succeeds.

        Args:
            group: The group's id, or a member's generation; retries use the same generation.
            offsets: For each partition the offset of the next record to read.
            topic_ids: The id of each topic; missing or all zero if it is unknown.
            timeout_ms: Time for retries after retriable errors (ms); 0 means a single attempt.
            on_done: Receives the error of the first refused partition. A member passes it to
                `Membership.on_commit_error`.
        """
        member = _as_member(group)
        group = member.group_id
        is_by_id = all(topic_ids.get(tp.topic, ZERO_ID) != ZERO_ID for tp in offsets)
        max_version = None if is_by_id else OFFSET_COMMIT_MAX_BY_NAME

        is_retry = False

        def attempt(done: OnDone[bool]) -> None:
            nonlocal is_retry
            deleted = self._deleted_error(topic_ids) if is_retry else None
            if deleted is not None:
                done(None, deleted)
                return
            is_retry = True

            def build(_version: int) -> Message:
                return commit_request(member, offsets, topic_ids)

            def on_response(response: Message | None, error: ClientError | None) -> None:
                if response is not None:
                    assert isinstance(response, OffsetCommitResponse)
                    error = _commit_error(member, offsets, topic_ids, response)
                self._on_error(group, topic_ids, error)
                done(None if error is not None else True, error)

            self._coordinators.call(
                group, ApiKey.OFFSET_COMMIT, build, on_response, None, max_version
            )

        self._retry(timeout_ms, f"commit of group {group}", attempt, on_done)

    def _deleted_error(self, topic_ids: TopicIds) -> ClientError | None:
        """Return the error of a commit of a topic that no longer exists, or None."""
        for topic, topic_id in topic_ids.items():
            if topic_id not in (ZERO_ID, self._cluster.metadata.topic_id(topic)):
                detail = "the topic was deleted since the records were read"
                error = broker_error(ErrorCode.UNKNOWN_TOPIC_ID, f"commit of {topic}", detail)
                error.retriable = False
                return error
        return None

    def committed(
        self,
        group: str | GroupGeneration | Callable[[], GroupGeneration],
        partitions: Iterable[TopicPartition] | None,
        timeout_ms: float,
        on_done: OnDone[dict[TopicPartition, CommittedOffset]],
    ) -> None:
        """Fetch committed offsets; partitions without one are omitted.

        With isolation.level=read_committed the response waits for open transactions that contain
        offsets of these partitions (KIP-447).

        Args:
            group: The group's id, a generation, or a function that returns the current generation.
                The function is called for each attempt, because a heartbeat response may change the
                member epoch between attempts (KIP-848).
            partitions: The partitions; None for all.
            timeout_ms: Time for retries after retriable errors (ms).
            on_done: Receives the offsets or the error.
        """
        current_member = group if callable(group) else partial(_as_member, group)
        name = current_member().group_id
        wanted = None if partitions is None else list(partitions)
        require_stable = self._cluster.config.isolation_level == "read_committed"

        def attempt(done: OnDone[dict[TopicPartition, CommittedOffset]]) -> None:
            member = current_member()
            ids = self.current_ids(wanted)

            def build(version: int) -> Message:
                request = _fetch_request(member, wanted, ids, version)
                # Older brokers do not support the flag; Kafka's consumer then also accepts unstable
                # offsets.
                request.require_stable = require_stable and version >= _STABLE_FROM
                return request

            def on_response(response: Message | None, error: ClientError | None) -> None:
                found: dict[TopicPartition, CommittedOffset] | None = None
                if response is not None:
                    assert isinstance(response, OffsetFetchResponse)
                    found, error = _read_response(name, ids, response)
                if found is not None and ids != self.current_ids(wanted):
                    # These may be offsets of a topic that was deleted meanwhile.
                    found = None
                    error = broker_error(ErrorCode.UNKNOWN_TOPIC_ID, "committed offsets")
                if error is not None and error.error_code is ErrorCode.STALE_MEMBER_EPOCH:
                    error.retriable = callable(group)
                self._on_error(name, ids, error)
                done(found, error)

            is_by_name = wanted is None or ZERO_ID in ids.values()
            max_version = OFFSET_FETCH_MAX_BY_NAME if is_by_name else None
            self._coordinators.call(
                name, ApiKey.OFFSET_FETCH, build, on_response, None, max_version
            )

        self._retry(timeout_ms, f"committed offsets of group {name}", attempt, on_done)

    def current_ids(self, partitions: Iterable[TopicPartition] | None) -> TopicIds:
        """Return the ids of the topics as metadata has them; all zero where it has none."""
        return {tp.topic: self._cluster.metadata.topic_id(tp.topic) for tp in partitions or ()}

    def _retry(
        self,
        timeout_ms: float,
        operation: str,
        attempt: Callable[[OnDone[T]], None],
        on_done: OnDone[T],
    ) -> None:
        RetryingCall(self._cluster.retry_timer(timeout_ms), operation, attempt, on_done).start()

    def _on_error(self, group: str, topics: Iterable[str], error: ClientError | None) -> None:
        """Look up what an error shows to be outdated: the coordinator, or the ids of topics."""
        if error is None or not error.retriable:
            return
        if error.error_code in _TOPIC_IS_UNKNOWN:
            self._cluster.refresh(topics, _ignore)
        elif error.error_code not in _COORDINATOR_IS_RIGHT:
            self._coordinators.forget(group)


def _ignore(_none: None, _error: ClientError | None) -> None:
    """Ignore the result of a refresh: the next attempt uses the metadata."""


def _as_member(group: str | GroupGeneration) -> GroupGeneration:
    return GroupGeneration(group) if isinstance(group, str) else group


def commit_request(
    member: GroupGeneration,
    offsets: Mapping[TopicPartition, CommittedOffset],
    topic_ids: TopicIds,
) -> OffsetCommitRequest:
    """Return the OffsetCommit request of a group or of one of its members.

    Args:
        member: The member, or only the group.
        offsets: The offsets by partition.
        topic_ids: The ids of all topics, for versions with ids; empty for versions with names.
    """
    topics = by_topic(
        (
            tp,
            OffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            ),
        )
        for tp, committed in offsets.items()
    )
    return OffsetCommitRequest(
        group_id=member.group_id,
        generation_id_or_member_epoch=member.generation_id,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=name, topic_id=topic_ids.get(name, ZERO_ID), partitions=entries
            )
            for name, entries in topics.items()
        ],
    )


def _commit_error(
    member: GroupGeneration,
    offsets: Mapping[TopicPartition, CommittedOffset],
    topic_ids: TopicIds,
    response: OffsetCommitResponse,
) -> ClientError | None:
    missing = set(offsets)
    names = _names_by_id(topic_ids)
    for topic in response.topics:
        name = topic.name or names.get(topic.topic_id, "")
        for partition in topic.partitions:
            code = partition.error_code
            place = TopicPartition(name, partition.partition_index)
            missing.discard(place)
            if code:
                subject = f"commit of {place} in group {member.group_id}"
                detail = None
                if code == ErrorCode.UNKNOWN_MEMBER_ID and not member.member_id:
                    detail = "the group has members: stop them, or commit under another group name"
                return broker_error(code, subject, detail)
    if missing:
        subject = f"commit of {min(missing)} in group {member.group_id}"
        return broker_error(ErrorCode.UNKNOWN_SERVER_ERROR, subject, "missing in the response")
    return None


def _names_by_id(topic_ids: TopicIds) -> dict[bytes, str]:
    return {topic_id: name for name, topic_id in topic_ids.items() if topic_id != ZERO_ID}


def _fetch_request(
    member: GroupGeneration,
    partitions: list[TopicPartition] | None,
    topic_ids: TopicIds,
    version: int,
) -> OffsetFetchRequest:
    topics = None if partitions is None else numbers_by_topic(partitions)
    if version >= _MANY_GROUPS_FROM:
        named = None
        if topics is not None:
            named = [
                OffsetFetchRequestTopics(name=n, topic_id=topic_ids[n], partition_indexes=p)
                for n, p in topics.items()
            ]
        requested = OffsetFetchRequestGroup(group_id=member.group_id, topics=named)
        if member.is_epoch:
            requested.member_id = member.member_id
            requested.member_epoch = member.generation_id
        return OffsetFetchRequest(groups=[requested])
    request = OffsetFetchRequest(group_id=member.group_id, topics=None)
    if topics is not None:
        request.topics = [
            OffsetFetchRequestTopic(name=n, partition_indexes=p) for n, p in topics.items()
        ]
    return request


def _read_response(
    group: str, topic_ids: TopicIds, response: OffsetFetchResponse
) -> tuple[dict[TopicPartition, CommittedOffset] | None, ClientError | None]:
    group_response = response.groups[0] if response.groups else response
    if group_response.error_code:
        return None, broker_error(group_response.error_code, f"committed offsets of group {group}")
    found: dict[TopicPartition, CommittedOffset] = {}
    names = _names_by_id(topic_ids)
    for topic in group_response.topics:
        topic_id = getattr(topic, "topic_id", ZERO_ID)
        name = topic.name or names.get(topic_id)
        if name is None:
            continue
        for partition in topic.partitions:
            tp = TopicPartition(name, partition.partition_index)
            if partition.error_code:
                return None, broker_error(partition.error_code, f"committed offset of {tp}")
            if partition.committed_offset >= 0:
                found[tp] = CommittedOffset(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.metadata or "",
                )
    return found, None
