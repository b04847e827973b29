"""The group coordinator as request handlers see it (Kafka's GroupCoordinatorService).

Here are OffsetCommit and OffsetFetch; what members ask is in `member_requests`, what administrators
ask in `group_requests`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.driver import CoordinatorDriver
from barnabas.coordinator.group.committed_offset import CommittedOffset
from barnabas.coordinator.group.group_memory import GroupMemory
from barnabas.coordinator.group.group_metrics import GroupMetrics
from barnabas.coordinator.group.group_requests import GroupRequests
from barnabas.coordinator.group.group_shard import GroupShard, MemberClaim, OffsetsToCommit
from barnabas.coordinator.group.member_requests import MemberRequests
from barnabas.coordinator.group.offset_fetch import (
    GroupOffsets,
    fetch_group,
    group_error,
    groups_of,
    response_of,
)
from barnabas.coordinator.group.partitioner import partition_for
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from barnabas.coordinator.config import GroupCoordinatorConfig
    from barnabas.coordinator.driver import DriverParts
    from barnabas.coordinator.group.offset_store import PartitionKey
    from barnabas.coordinator.group.topics_view import TopicsView
    from barnabas.coordinator.shard_timers import ShardTimers
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

# From this version on topics are named by id alone.
_FIRST_VERSION_WITH_TOPIC_IDS = 10
_NO_EXPIRY = -1
# What a committed offset takes in a batch at least: names of one letter, no metadata.
_RECORD_BYTES_MIN = 40
# The last time that a record can hold.
_LATEST_MS = (1 << 63) - 1

# What a failed append of the coordinator means to its client.
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
    """One commit on its way."""

    request: OffsetCommitRequest
    response: OffsetCommitResponse
    # What can be committed, and where in the response the outcome of each goes.
    offsets: list[tuple[PartitionKey, CommittedOffset]]
    slots: list[OffsetCommitResponsePartition]
    on_done: Callable[[OffsetCommitResponse], None]


class GroupCoordinator:
    """The groups whose partition of `__consumer_offsets` this broker leads.

    Authorization is the caller's: it passes what is allowed and adds what is not.
    """

    def __init__(
        self, config: GroupCoordinatorConfig, parts: DriverParts, topics: TopicsView, rng: Rng
    ) -> None:
        self._clock: Clock = parts.clock
        self._topics = topics
        self.metrics = GroupMetrics()
        self.memory = GroupMemory()

        def make_shard(timers: ShardTimers) -> GroupShard:
            return GroupShard(config, timers, parts.clock, rng, self.metrics, self.memory)

        self.driver: CoordinatorDriver[GroupShard] = CoordinatorDriver(
            OFFSETS_TOPIC, parts, make_shard
        )
        self.members = MemberRequests(config, self.driver, self.partition_for)
        self.groups = GroupRequests(self.driver, self.partition_for, topics)

    def partition_for(self, group_id: str) -> int | None:
        """The partition of `__consumer_offsets` whose leader coordinates the group; None without
        such a topic. It has as many partitions as it has: the configuration only says how many a
        new one gets."""
        count = self._topics.partition_count(OFFSETS_TOPIC)
        return partition_for(group_id, count) if count else None

    def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Forget what groups have committed for these topics (ids by name)."""
        for shard in self.driver.shards():
            shard.forget_topics(topics)

    # OffsetCommit.

    def commit_offsets(
        self,
        request: OffsetCommitRequest,
        version: int,
        on_done: Callable[[OffsetCommitResponse], None],
    ) -> Generator[None, None, None]:
        """Commit what the request has (versions 0 to 10); stops after each partition.

        Args:
            on_done: called once the offsets are committed or refused; may be before the end.
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
        if len(commit.offsets) * _RECORD_BYTES_MIN > self.driver.batch_bytes_max(state_partition):
            # The append would say so, after a second's work.
            _answer_commit(commit, None, ErrorCode.MESSAGE_TOO_LARGE)
            return
        self.driver.write(
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
        """Note what of a topic can be committed, for the answer too; refuse what cannot."""
        uses_ids = version >= _FIRST_VERSION_WITH_TOPIC_IDS
        name = self._topics.topic_name(topic.topic_id) if uses_ids else topic.name
        topic_id = topic.topic_id if uses_ids else self._topics.topic_id(topic.name)
        taken = _answered(topic)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if name is None:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        where = (topic.name, topic.topic_id)
        if name is None or topic_id is None:
            # Answered even where none of its partitions is named.
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
        # Only version 1 carries a timestamp, only 2 to 4 a retention time; -1 elsewhere.
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
        """What is committed (versions 0 to 10), or why it cannot be told; stops after each step."""
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
        """Return the group's committed offsets, or the error that prevents it.

        Args:
            require_stable: name the partitions for which a transaction is open (KIP-447).
        """
        partition = self.partition_for(group_id)
        if partition is None:
            return ErrorCode.NOT_COORDINATOR

        def read(shard: GroupShard) -> GroupOffsets:
            unstable = shard.offsets.unstable(group_id) if require_stable else frozenset()
            # A copy: the answer may take several turns, and shows one moment.
            return GroupOffsets(dict(shard.offsets.offsets(group_id)), unstable)

        return self.driver.read(partition, read)


def _answered(topic: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=[])


def _joined(
    refused: dict[tuple[str, bytes], OffsetCommitResponseTopic],
    taken: list[OffsetCommitResponseTopic],
) -> list[OffsetCommitResponseTopic]:
    """As Kafka: what is refused comes first, and then each topic is answered once."""
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
