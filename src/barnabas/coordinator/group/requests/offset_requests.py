"""All versions of OffsetCommit and OffsetFetch.

OffsetFetch reads one or several groups, with topics by name or id (KIP-709).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.group.offset_changes import MemberClaim, OffsetsToCommit, check_fetch
from barnabas.coordinator.group.offset_store import CommittedOffset
from barnabas.coordinator.group.streams.streams_group import StreamsGroup
from barnabas.coordinator.runtime.responses import client_error
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Set as AbstractSet

    from barnabas.coordinator.group.group_shard import GroupShard
    from barnabas.coordinator.group.offset_store import PartitionKey
    from barnabas.coordinator.group.topics import TopicsView
    from barnabas.coordinator.runtime.coordinator_record import TransactionalProducer
    from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
    from barnabas.protocol.messages.committed_offsets import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
        OffsetFetchRequest,
    )
    from barnabas.runtime.clock import Clock


_log = logging.getLogger(__name__)


# The first version that names topics by id only.
_FIRST_VERSION_WITH_TOPIC_IDS = 10
_NO_EXPIRY = -1
# Minimum size of a committed offset in a batch: one-letter names and no metadata.
_RECORD_BYTES_MIN = 40
# The largest timestamp of a record.
_LATEST_MS = (1 << 63) - 1


# Errors by state partition.
Errors = Mapping[int, ErrorCode]
_NO_ERRORS: Errors = MappingProxyType({})


class InTransaction(msgspec.Struct, frozen=True):
    """The transaction in which offsets are committed."""

    producer: TransactionalProducer
    # Calls its argument once, perhaps at once: with NONE if the producer may commit offsets of this
    # group.
    verify: Callable[[Callable[[ErrorCode], None]], None]


class _Commit(msgspec.Struct, frozen=True):
    """One OffsetCommit in progress."""

    request: OffsetCommitRequest
    response: OffsetCommitResponse
    # The valid offsets, and their entries in the response, in the same order.
    offsets: list[tuple[PartitionKey, CommittedOffset]]
    slots: list[OffsetCommitResponsePartition]
    on_done: Callable[[OffsetCommitResponse], None]
    transaction: InTransaction | None


class OffsetRequests:
    """Requests of members and other clients about committed offsets.

    The caller handles authorization: it passes the authorized parts and adds the errors of the
    others.
    """

    def __init__(
        self, runtime: CoordinatorRuntime[GroupShard], topics: TopicsView, clock: Clock
    ) -> None:
        self._runtime = runtime
        self._topics = topics
        self._clock = clock

    # OffsetCommit.

    def commit(
        self,
        request: OffsetCommitRequest,
        version: int,
        on_done: Callable[[OffsetCommitResponse], None],
        transaction: InTransaction | None = None,
    ) -> Generator[None, None, None]:
        """Commit the request's offsets (versions 0 to 10). Yields after each partition.

        Args:
            request: the request.
            version: its version.
            on_done: called when the offsets are committed or rejected; perhaps before the generator
                ends.
            transaction: the transaction in which the offsets are committed, or None.
        """
        commit = _Commit(request, OffsetCommitResponse(topics=[]), [], [], on_done, transaction)
        refused: dict[tuple[str, bytes], OffsetCommitResponseTopic] = {}
        collected: list[OffsetCommitResponseTopic] = []
        for topic in request.topics:
            response_topic = yield from self._collect_topic(topic, version, commit, refused)
            collected.append(response_topic)
            yield
        commit.response.topics = _joined(refused, collected)
        if not commit.offsets:
            on_done(commit.response)
            return
        if transaction is None:
            self._write(commit, version, ErrorCode.NONE)
        else:
            transaction.verify(partial(self._write, commit, version))

    def _write(self, commit: _Commit, version: int, verified: ErrorCode) -> None:
        """Write the valid offsets, unless the producer must not commit them."""
        if verified is not ErrorCode.NONE:
            _respond(commit, None, verified)
            return
        request, transaction = commit.request, commit.transaction
        claim = MemberClaim(
            request.group_id,
            request.member_id,
            request.generation_id_or_member_epoch,
            request.group_instance_id,
        )
        to_commit = OffsetsToCommit(claim, commit.offsets, version, transaction is not None)
        bytes_max = self._runtime.batch_bytes_max(request.group_id)
        if len(commit.offsets) * _RECORD_BYTES_MIN > bytes_max:
            # Fail early: the append would reject the batch after a second of work.
            _respond(commit, None, ErrorCode.MESSAGE_TOO_LARGE)
            return
        self._runtime.write(
            request.group_id,
            lambda shard: shard.offset_changes.commit(to_commit),
            partial(_respond, commit),
            None if transaction is None else transaction.producer,
        )

    def _collect_topic(
        self,
        topic: OffsetCommitRequestTopic,
        version: int,
        commit: _Commit,
        refused: dict[tuple[str, bytes], OffsetCommitResponseTopic],
    ) -> Generator[None, None, OffsetCommitResponseTopic]:
        """Collect the valid offsets of a topic and their response entries. Reject the others."""
        uses_ids = version >= _FIRST_VERSION_WITH_TOPIC_IDS
        name = self._topics.topic_name(topic.topic_id) if uses_ids else topic.name
        topic_id = topic.topic_id if uses_ids else self._topics.topic_id(topic.name)
        collected = _empty_response_of(topic)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if name is None:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        where = (topic.name, topic.topic_id)
        if name is None or topic_id is None:
            # The topic appears in the response even if the request has no partitions for it.
            refused.setdefault(where, _empty_response_of(topic))
        for partition in topic.partitions:
            yield
            index = partition.partition_index
            slot = OffsetCommitResponsePartition(partition_index=index, error_code=unknown)
            if name is None or topic_id is None or not self._topics.has_partition(name, index):
                refused.setdefault(where, _empty_response_of(topic)).partitions.append(slot)
                continue
            committed = self._committed(commit.request, partition, topic_id)
            commit.offsets.append(((name, index), committed))
            commit.slots.append(slot)
            collected.partitions.append(slot)
        return collected

    def _committed(
        self,
        request: OffsetCommitRequest,
        partition: OffsetCommitRequestPartition,
        topic_id: bytes,
    ) -> CommittedOffset:
        now_ms = self._clock.wall_ms()
        # Only version 1 has a timestamp, and only versions 2 to 4 have a retention time. Otherwise
        # -1.
        timestamp, retention_ms = partition.commit_timestamp, request.retention_time_ms
        return CommittedOffset(
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
            now_ms if timestamp < 0 else timestamp,
            _NO_EXPIRY if retention_ms < 0 else min(now_ms + retention_ms, _LATEST_MS),
            topic_id,
        )

    # OffsetFetch.

    def partitions_of(
        self, request: OffsetFetchRequest, version: int
    ) -> Generator[None, None, set[int]]:
        """Return the state partitions of the request's groups. Yields after each group."""
        partitions: set[int] = set()
        for each in groups_of(request, version):
            partition = self._runtime.partition_for(each.group_id)
            if partition is not None:
                partitions.add(partition)
            yield
        return partitions

    def confirm(self, partitions: set[int], on_done: Callable[[Errors], None]) -> None:
        """Check that the committed offsets of state partitions are not out of date.

        Otherwise a transaction could begin at offsets that an earlier transaction has processed:
        this broker may be cut off from the cluster, which has elected another coordinator.

        Args:
            partitions: the state partitions.
            on_done: called once with the errors by partition, perhaps before this returns.
        """
        errors: dict[int, ErrorCode] = {}
        awaited = set(partitions)

        def confirmed(partition: int, error: ErrorCode) -> None:
            awaited.remove(partition)
            if error is not ErrorCode.NONE:
                errors[partition] = error
            if not awaited:
                on_done(errors)

        if not partitions:
            on_done(errors)
        for partition in partitions:
            self._runtime.confirm_leadership(partition, partial(confirmed, partition))

    def fetch(
        self, request: OffsetFetchRequest, version: int, errors: Errors = _NO_ERRORS
    ) -> Generator[None, None, OffsetFetchResponse]:
        """Return the committed offsets or errors (versions 0 to 10). Yields after each step.

        Args:
            request: the request.
            version: its version.
            errors: the results of `confirm`.
        """
        groups: list[OffsetFetchResponseGroup] = []
        for each in groups_of(request, version):
            groups.append((yield from self._fetch_group(each, version, request, errors)))
            yield
        return response_of(groups, version)

    def _fetch_group(
        self,
        group: OffsetFetchRequestGroup,
        version: int,
        request: OffsetFetchRequest,
        errors: Errors,
    ) -> Generator[None, None, OffsetFetchResponseGroup]:
        try:
            partition = self._runtime.partition_for(group.group_id) if errors else None
            if partition is not None and partition in errors:
                return group_error(group, errors[partition], version)
            offsets = self._group_offsets(group, request.require_stable)
            return (yield from fetch_group(offsets, self._topics, group, version))
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - the request's other groups are still handled
            _log.exception("Unexpected error while fetching offsets: group=%s", group.group_id)
            return group_error(group, ErrorCode.UNKNOWN_SERVER_ERROR, version)

    def _group_offsets(
        self, group: OffsetFetchRequestGroup, require_stable: bool
    ) -> GroupOffsets | ErrorCode:
        """Return the group's committed offsets, or an error.

        Args:
            group: the group in the request, perhaps with a member and its epoch.
            require_stable: report partitions with an open transaction (KIP-447).
        """

        group_id = group.group_id

        def read(shard: GroupShard) -> GroupOffsets | ErrorCode:
            found, error = shard.groups.find(group_id), ErrorCode.NONE
            if isinstance(found, ConsumerGroup | StreamsGroup):
                error = check_fetch(found, group.member_id, group.member_epoch)
            if error is not ErrorCode.NONE:
                return error
            unstable = shard.offsets.unstable(group_id) if require_stable else frozenset()
            # A copy: building the response may take several turns, and it must show one point in
            # time.
            return GroupOffsets(dict(shard.offsets.offsets(group_id)), unstable)

        return self._runtime.read(group_id, read)


def _empty_response_of(topic: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=[])


def _joined(
    refused: dict[tuple[str, bytes], OffsetCommitResponseTopic],
    collected: list[OffsetCommitResponseTopic],
) -> list[OffsetCommitResponseTopic]:
    """Return the topics as Kafka does: if any is rejected, these come first, each topic once."""
    named = [topic for topic in collected if topic.partitions]
    if not refused:
        return named
    for topic in named:
        first = refused.setdefault((topic.name, topic.topic_id), topic)
        if first is not topic:
            first.partitions += topic.partitions
    return list(refused.values())


def _respond(commit: _Commit, errors: list[ErrorCode] | None, error: ErrorCode) -> None:
    if errors is None:
        for_client = client_error(error, size_error=ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        errors = [for_client] * len(commit.slots)
    for slot, each in zip(commit.slots, errors, strict=True):
        slot.error_code = each
    commit.on_done(commit.response)


_FIRST_VERSION_WITH_GROUPS = 8
_FIRST_VERSION_WITH_GROUP_ERROR = 2
_NO_OFFSET = -1
_NO_EPOCH = -1


class GroupOffsets(msgspec.Struct, frozen=True):
    """The committed offsets of one group."""

    committed: Mapping[PartitionKey, CommittedOffset]
    # Partitions whose result is UNSTABLE_OFFSET_COMMIT.
    unstable: AbstractSet[PartitionKey]


def groups_of(request: OffsetFetchRequest, version: int) -> list[OffsetFetchRequestGroup]:
    """Return the groups of a request in the format of version 8. Older versions have one group."""
    if version >= _FIRST_VERSION_WITH_GROUPS:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
            for each in request.topics
        ]
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def response_of(groups: list[OffsetFetchResponseGroup], version: int) -> OffsetFetchResponse:
    """Return the response in the format of `version`."""
    if version >= _FIRST_VERSION_WITH_GROUPS:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=each.partition_index,
                    committed_offset=each.committed_offset,
                    committed_leader_epoch=each.committed_leader_epoch,
                    metadata=each.metadata,
                    error_code=each.error_code,
                )
                for each in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def fetch_group(
    offsets: GroupOffsets | ErrorCode,
    topics: TopicsView,
    group: OffsetFetchRequestGroup,
    version: int,
) -> Generator[None, None, OffsetFetchResponseGroup]:
    """Return the result for one group. Yields after each partition.

    A partition without a committed offset has offset -1, epoch -1, empty metadata and no error.
    From version 2 on, an error of the group is returned once. In older versions it is repeated in
    every partition.

    Args:
        offsets: the group's offsets, or an error.
        topics: the topics of the cluster.
        group: the group in the request.
        version: the version of the request.
    """
    if isinstance(offsets, ErrorCode):
        return group_error(group, offsets, version)
    uses_ids = version >= _FIRST_VERSION_WITH_TOPIC_IDS
    if group.topics is None:
        found = yield from _all_topics(offsets, topics, uses_ids)
    else:
        found = []
        for each in group.topics:
            response = yield from _topic(each, offsets, topics, uses_ids)
            found.append(response)
            yield
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=found)


def group_error(
    group: OffsetFetchRequestGroup, error: ErrorCode, version: int
) -> OffsetFetchResponseGroup:
    """Return the result of a group with an error."""
    if version >= _FIRST_VERSION_WITH_GROUP_ERROR:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=error)
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[_without_offset(index, error) for index in topic.partition_indexes],
            )
            for topic in group.topics or ()
        ],
        error_code=error,
    )


def _topic(
    requested: OffsetFetchRequestTopics,
    offsets: GroupOffsets,
    topics: TopicsView,
    uses_ids: bool,
) -> Generator[None, None, OffsetFetchResponseTopics]:
    name = topics.topic_name(requested.topic_id) if uses_ids else requested.name
    topic_id = requested.topic_id if uses_ids else topics.topic_id(requested.name)
    partitions: list[OffsetFetchResponsePartitions] = []
    for index in requested.partition_indexes:
        yield
        if name is None:
            partitions.append(_without_offset(index, ErrorCode.UNKNOWN_TOPIC_ID))
            continue
        key = (name, index)
        committed = offsets.committed.get(key)
        if key in offsets.unstable:
            partitions.append(_without_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
        elif committed is None or _is_of_another_topic(committed, topic_id):
            partitions.append(_without_offset(index, ErrorCode.NONE))
        else:
            partitions.append(_found(index, committed))
    return OffsetFetchResponseTopics(
        name=requested.name, topic_id=requested.topic_id, partitions=partitions
    )


def _all_topics(
    offsets: GroupOffsets, topics: TopicsView, uses_ids: bool
) -> Generator[None, None, list[OffsetFetchResponseTopics]]:
    """Return all topics with an offset. If topics have ids, only existing topics."""
    found: dict[str, OffsetFetchResponseTopics] = {}
    for key, committed in offsets.committed.items():
        yield
        name, index = key
        topic_id = topics.topic_id(name)
        if uses_ids and (topic_id is None or _is_of_another_topic(committed, topic_id)):
            continue
        if name not in found:
            shown_id = topic_id if uses_ids and topic_id is not None else ZERO_UUID
            found[name] = OffsetFetchResponseTopics(name=name, topic_id=shown_id, partitions=[])
        is_unstable = key in offsets.unstable
        found[name].partitions.append(
            _without_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            if is_unstable
            else _found(index, committed)
        )
    return list(found.values())


def _is_of_another_topic(committed: CommittedOffset, topic_id: bytes | None) -> bool:
    """Whether the offset belongs to a deleted topic with the same name."""
    return topic_id is not None and committed.topic_id not in (ZERO_UUID, topic_id)


def _found(index: int, committed: CommittedOffset) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=ErrorCode.NONE,
    )


def _without_offset(index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=_NO_OFFSET,
        committed_leader_epoch=_NO_EPOCH,
        metadata="",
        error_code=error,
    )
