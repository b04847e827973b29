"""All versions of OffsetCommit and OffsetFetch."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.offsets.committed_offset import CommittedOffset
from barnabas.coordinator.group.offsets.offset_changes import MemberClaim, OffsetsToCommit
from barnabas.coordinator.group.offsets.offset_fetch import (
    GroupOffsets,
    fetch_group,
    group_error,
    groups_of,
    response_of,
)
from barnabas.coordinator.runtime.append_errors import client_error
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.coordinator.group.group_shard import GroupShard
    from barnabas.coordinator.group.offsets.offset_store import PartitionKey
    from barnabas.coordinator.group.topics_view import TopicsView
    from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
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

_log = logging.getLogger(__name__)

# The first version that names topics by id only.
_FIRST_VERSION_WITH_TOPIC_IDS = 10
_NO_EXPIRY = -1
# Minimum size of a committed offset in a batch: one-letter names and no metadata.
_RECORD_BYTES_MIN = 40
# The largest timestamp of a record.
_LATEST_MS = (1 << 63) - 1


class _Commit(msgspec.Struct, frozen=True):
    """One OffsetCommit in progress."""

    request: OffsetCommitRequest
    response: OffsetCommitResponse
    # The valid offsets, and their entries in the response, in the same order.
    offsets: list[tuple[PartitionKey, CommittedOffset]]
    slots: list[OffsetCommitResponsePartition]
    on_done: Callable[[OffsetCommitResponse], None]


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
            response_topic = yield from self._take_topic(topic, version, commit, refused)
            taken.append(response_topic)
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
        bytes_max = self._runtime.batch_bytes_max(request.group_id)
        if len(commit.offsets) * _RECORD_BYTES_MIN > bytes_max:
            # Fail early: the append would reject the batch after a second of work.
            _respond(commit, None, ErrorCode.MESSAGE_TOO_LARGE)
            return
        self._runtime.write(
            request.group_id,
            lambda shard: shard.offset_changes.commit(to_commit),
            partial(_respond, commit),
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
        taken = _empty_response_of(topic)
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

    def fetch(
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

        def read(shard: GroupShard) -> GroupOffsets:
            unstable = shard.offsets.unstable(group_id) if require_stable else frozenset()
            # A copy: building the response may take several turns, and it must show one point in
            # time.
            return GroupOffsets(dict(shard.offsets.offsets(group_id)), unstable)

        return self._runtime.read(group_id, read)


def _empty_response_of(topic: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
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


def _respond(commit: _Commit, errors: list[ErrorCode] | None, error: ErrorCode) -> None:
    if errors is None:
        for_client = client_error(error, size_error=ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        errors = [for_client] * len(commit.slots)
    for slot, each in zip(commit.slots, errors, strict=True):
        slot.error_code = each
    commit.on_done(commit.response)
