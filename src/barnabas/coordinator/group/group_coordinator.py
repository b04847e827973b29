"""The group coordinator's interface for request handlers (Kafka's GroupCoordinatorService).

OffsetCommit and OffsetFetch are here. Requests of members are in `member_requests`, requests of
administrators in `group_requests`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.classic.group_memory import GroupMemory
from barnabas.coordinator.group.group_metrics import GroupMetrics
from barnabas.coordinator.group.group_requests import GroupRequests
from barnabas.coordinator.group.group_shard import GroupShard, MemberClaim, OffsetsToCommit
from barnabas.coordinator.group.member_requests import MemberRequests
from barnabas.coordinator.group.offsets.committed_offset import CommittedOffset
from barnabas.coordinator.group.offsets.offset_fetch import (
    GroupOffsets,
    fetch_group,
    group_error,
    groups_of,
    response_of,
)
from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from barnabas.coordinator.runtime.partitioner import partition_for
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from barnabas.coordinator.group.config import GroupCoordinatorConfig
    from barnabas.coordinator.group.offsets.offset_store import PartitionKey
    from barnabas.coordinator.group.topics_view import TopicsView
    from barnabas.coordinator.runtime.coordinator_runtime import RuntimeDependencies
    from barnabas.coordinator.runtime.shard_timers import ShardTimers
    from barnabas.protocol.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )
    from barnabas.protocol.messages.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchResponse,
        OffsetFetchResponseGroup,
    )
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.rng import Rng

_log = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"

# The first version that names topics by id only.
_FIRST_VERSION_WITH_TOPIC_IDS = 10
_NO_EXPIRY = -1
# Minimum size of a committed offset in a batch: one-letter names and no metadata.
_RECORD_BYTES_MIN = 40
# The largest timestamp of a record.
_LATEST_MS = (1 << 63) - 1

# Errors of a failed append, and the errors that clients get for them.
_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


class _Commit(msgspec.Struct, frozen=True):
    """One OffsetCommit in progress."""

    request: OffsetCommitRequest
    response: OffsetCommitResponse
    # The valid offsets, and their entries in the response, in the same order.
    offsets: list[tuple[PartitionKey, CommittedOffset]]
    slots: list[OffsetCommitResponsePartition]
    on_done: Callable[[OffsetCommitResponse], None]


class GroupCoordinator:
    """The groups whose partition of `__consumer_offsets` this broker leads.

    The caller handles authorization: it passes the authorized parts and adds the errors of the
    others.
    """

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        parts: RuntimeDependencies,
        topics: TopicsView,
        rng: Rng,
    ) -> None:
        self._clock: Clock = parts.clock
        self._topics = topics
        self.metrics = GroupMetrics()
        self.memory = GroupMemory()

        def make_shard(timers: ShardTimers) -> GroupShard:
            return GroupShard(config, timers, parts.clock, rng, self.metrics, self.memory)

        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            OFFSETS_TOPIC, parts, make_shard
        )
        self.members = MemberRequests(config, self.runtime, self.partition_for)
        self.groups = GroupRequests(self.runtime, self.partition_for, topics)

    def partition_for(self, group_id: str) -> int | None:
        """Return the partition of `__consumer_offsets` that stores the group.

        Its leader coordinates the group. The partition count of the existing topic is used, not the
        configured one, which applies to creation only.

        Returns:
            The partition, or None if the topic does not exist.
        """
        count = self._topics.partition_count(OFFSETS_TOPIC)
        return partition_for(group_id, count) if count else None

    def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Remove the groups' committed offsets of these topics (ids by name)."""
        for shard in self.runtime.shards():
            shard.forget_topics(topics)

    # OffsetCommit.

    def commit_offsets(
        self,
        request: OffsetCommitRequest,
        version: int,
        on_done: Callable[[OffsetCommitResponse], None],
    ) -> Generator[None, None, None]:
        """Commit the request's offsets (versions 0 to 10). Yields after each partition.

        Args:
            request: the request.
            version: its version.
            on_done: called when the offsets are committed or rejected; perhaps before the generator
                ends.
        """
        commit = _Commit(request, OffsetCommitResponse(topics=[]), [], [], on_done)
        refused: dict[tuple[str, bytes], OffsetCommitResponseTopic] = {}
        taken: list[OffsetCommitResponseTopic] = []
        for topic in request.topics:
            answered = yield from self._take_topic(topic, version, commit, refused)
            taken.append(answered)
            yield
        commit.response.topics = _joined(refused, taken)
        if not commit.offsets:
            on_done(commit.response)
            return
        claim = MemberClaim(
            request.group_id,
            request.member_id,
            request.generation_id_or_member_epoch,
            request.group_instance_id,
        )
        to_commit = OffsetsToCommit(claim, commit.offsets, version)
        state_partition = self.partition_for(request.group_id)
        if state_partition is None:
            _answer_commit(commit, None, ErrorCode.NOT_COORDINATOR)
            return
        if len(commit.offsets) * _RECORD_BYTES_MIN > self.runtime.batch_bytes_max(state_partition):
            # Fail early: the append would reject the batch after a second of work.
            _answer_commit(commit, None, ErrorCode.MESSAGE_TOO_LARGE)
            return
        self.runtime.write(
            state_partition,
            lambda shard: shard.commit_offsets(to_commit),
            partial(_answer_commit, commit),
        )

    def _take_topic(
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
        taken = _answered(topic)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if name is None:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        where = (topic.name, topic.topic_id)
        if name is None or topic_id is None:
            # The topic appears in the response even if the request has no partitions for it.
            refused.setdefault(where, _answered(topic))
        for partition in topic.partitions:
            yield
            index = partition.partition_index
            slot = OffsetCommitResponsePartition(partition_index=index, error_code=unknown)
            if name is None or topic_id is None or not self._topics.has_partition(name, index):
                refused.setdefault(where, _answered(topic)).partitions.append(slot)
                continue
            committed = self._committed(commit.request, partition, topic_id)
            commit.offsets.append(((name, index), committed))
            commit.slots.append(slot)
            taken.partitions.append(slot)
        return taken

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

    def fetch_offsets(
        self, request: OffsetFetchRequest, version: int
    ) -> Generator[None, None, OffsetFetchResponse]:
        """Return the committed offsets or errors (versions 0 to 10). Yields after each step."""
        groups: list[OffsetFetchResponseGroup] = []
        for each in groups_of(request, version):
            groups.append((yield from self._fetch_group(each, version, request.require_stable)))
            yield
        return response_of(groups, version)

    def _fetch_group(
        self, group: OffsetFetchRequestGroup, version: int, require_stable: bool
    ) -> Generator[None, None, OffsetFetchResponseGroup]:
        try:
            offsets = self._group_offsets(group.group_id, require_stable)
            return (yield from fetch_group(offsets, self._topics, group, version))
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - the request's other groups go on
            _log.exception("Unexpected error while fetching offsets: group=%s", group.group_id)
            return group_error(group, ErrorCode.UNKNOWN_SERVER_ERROR, version)

    def _group_offsets(self, group_id: str, require_stable: bool) -> GroupOffsets | ErrorCode:
        """Return the group's committed offsets, or an error.

        Args:
            group_id: the group.
            require_stable: report partitions with an open transaction (KIP-447).
        """
        partition = self.partition_for(group_id)
        if partition is None:
            return ErrorCode.NOT_COORDINATOR

        def read(shard: GroupShard) -> GroupOffsets:
            unstable = shard.offsets.unstable(group_id) if require_stable else frozenset()
            # A copy: building the response may take several turns, and it must show one point in
            # time.
            return GroupOffsets(dict(shard.offsets.offsets(group_id)), unstable)

        return self.runtime.read(partition, read)


def _answered(topic: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=[])


def _joined(
    refused: dict[tuple[str, bytes], OffsetCommitResponseTopic],
    taken: list[OffsetCommitResponseTopic],
) -> list[OffsetCommitResponseTopic]:
    """Return the topics as Kafka does: if any is rejected, these come first, each topic once."""
    named = [topic for topic in taken if topic.partitions]
    if not refused:
        return named
    for topic in named:
        first = refused.setdefault((topic.name, topic.topic_id), topic)
        if first is not topic:
            first.partitions += topic.partitions
    return list(refused.values())


def _answer_commit(commit: _Commit, errors: list[ErrorCode] | None, error: ErrorCode) -> None:
    if errors is None:
        errors = [_APPEND_ERRORS.get(error, error)] * len(commit.slots)
    for slot, each in zip(commit.slots, errors, strict=True):
        slot.error_code = each
    commit.on_done(commit.response)
