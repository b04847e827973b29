"""Deletes the remote segments of deleted topics (Kafka: RemoteLogManager.stopPartitions).

The broker that led a partition when its topic was deleted deletes the partition's segments. It
keeps the metadata of the partition until all of them are gone, and tries again after failures. If
it stops before, or had stopped when the topic was deleted, the leader of the metadata partition
finds the segments when it becomes the leader. Kafka would leave them in the store for ever.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.remote.segment_deletions import SegmentDeletions
    from barnabas.replication.remote.tier_dependencies import TierDependencies
    from barnabas.storage.remote.remote_storage import RemoteSegment
    from barnabas.storage.topic_partition import TopicIdPartition

_log = logging.getLogger(__name__)

# A metadata partition is searched this long after its leader was elected, so that the former
# leaders of deleted partitions can finish.
SEARCH_DELAY_MS = 60_000.0
# Segments whose deletion is requested in one turn.
_PER_TURN = 500


class DeletedPartitionSearch(Protocol):
    """Finds partitions of deleted topics in the metadata. Part of the metadata topic."""

    def find_deleted(
        self,
        index: int,
        exists: Callable[[bytes], bool],
        on_found: Callable[[list[TopicIdPartition]], None],
    ) -> None:
        """Read a metadata partition once, and report the partitions of deleted topics.

        Args:
            index: the metadata partition.
            exists: returns whether the topic with an id exists.
            on_found: gets the user partitions that have segments whose deletion is not finished.
        """


class DeletedTopics:
    """The partitions of deleted topics whose segments this broker deletes."""

    __slots__ = (
        "_deletions",
        "_is_closed",
        "_on_gone",
        "_partitions",
        "_search",
        "_tier",
        "_topic_exists",
    )

    def __init__(
        self,
        tier: TierDependencies,
        deletions: SegmentDeletions,
        search: DeletedPartitionSearch,
        topic_exists: Callable[[bytes], bool],
        on_gone: Callable[[TopicIdPartition], None],
    ) -> None:
        """Create without partitions.

        Args:
            tier: the parts of the tier.
            deletions: deletes the segments.
            search: finds partitions of topics that were deleted before.
            topic_exists: returns whether the topic with an id exists in the latest metadata.
            on_gone: called with each partition whose metadata is not needed any more.
        """
        self._tier = tier
        self._deletions = deletions
        self._search = search
        self._topic_exists = topic_exists
        self._on_gone = on_gone
        # Each partition, and the number of its requested deletions. Its metadata is assigned.
        self._partitions: dict[TopicIdPartition, int] = {}
        self._is_closed = False

    def __len__(self) -> int:
        """Return the number of partitions that still have segments."""
        return len(self._partitions)

    def __contains__(self, where: TopicIdPartition) -> bool:
        """Return whether the segments of a partition are being deleted."""
        return where in self._partitions

    def delete(self, where: TopicIdPartition) -> None:
        """Delete all segments of a partition, whose metadata is assigned."""
        if where in self._partitions or self._is_closed:
            return
        self._partitions[where] = 0
        self._tier.metadata.on_ready(where, partial(self._begin, where))

    def search_later(self, partition: int) -> None:
        """Delete what is left of deleted topics in a metadata partition that this broker leads."""

        def search() -> None:
            if not self._is_closed:
                self._search.find_deleted(partition, self._topic_exists, self._on_found)

        self._tier.wheel.add(SEARCH_DELAY_MS, search)

    def close(self) -> None:
        """Stop. The leaders of the metadata partitions go on after their next start."""
        self._is_closed = True
        self._partitions.clear()

    def _on_found(self, found: list[TopicIdPartition]) -> None:
        new = [where for where in found if where not in self._partitions]
        if not new or self._is_closed:
            return
        _log.info("Remote segments of deleted topics found: partitions=%d", len(new))
        self._tier.metadata.assign(new)
        for where in new:
            self._tier.metadata.on_ready(where, partial(self._delete_found, where))

    def _delete_found(self, where: TopicIdPartition) -> None:
        """Delete a found partition, unless its topic is newer than the metadata of this broker."""
        if where in self._partitions or self._is_closed:
            return
        remote = self._tier.metadata.log_of(where)
        if remote is None or self._topic_exists(where.topic_id):
            self._on_gone(where)
            return
        age_ms = self._tier.config.barnabas_remote_orphan_age_ms
        oldest_ms = self._tier.clock.wall_ms() - age_ms
        if all(segment.event_ms <= oldest_ms for segment in remote.iterate()):
            self.delete(where)
        else:
            self._tier.wheel.add(age_ms, partial(self._delete_found, where))

    def _begin(self, where: TopicIdPartition) -> None:
        if where not in self._partitions:
            return
        remote = self._tier.metadata.log_of(where)
        if remote is None:
            self._try_later(where)
            return
        segments = [each for each in remote.iterate() if not self._deletions.is_deleting(each.id)]
        if not segments and not remote.count:
            self._finish(where)
            return
        self._request(where, segments)
        if not segments:
            # The expiration has requested all of them before the topic was deleted.
            self._try_later(where)

    def _request(self, where: TopicIdPartition, segments: list[RemoteSegment]) -> None:
        """Request the deletions, some of them in each turn."""
        if where not in self._partitions:
            return
        now, later = segments[:_PER_TURN], segments[_PER_TURN:]
        self._partitions[where] += len(now) + bool(later)
        for segment in now:
            self._deletions.delete(
                where, segment, self._may_go_on, partial(self._on_deleted, where)
            )
        if later:
            self._tier.wheel.add(0, partial(self._request_more, where, later))

    def _request_more(self, where: TopicIdPartition, segments: list[RemoteSegment]) -> None:
        self._request(where, segments)
        self._count_down(where)

    def _on_deleted(self, where: TopicIdPartition, _is_gone: bool) -> None:
        self._count_down(where)

    def _count_down(self, where: TopicIdPartition) -> None:
        if where not in self._partitions:
            return
        self._partitions[where] -= 1
        if self._partitions[where]:
            return
        remote = self._tier.metadata.log_of(where)
        if remote is not None and not remote.count:
            self._finish(where)
        else:
            self._try_later(where)

    def _finish(self, where: TopicIdPartition) -> None:
        del self._partitions[where]
        _log.info("Remote segments of a deleted partition are gone: partition=%s", where)
        self._on_gone(where)

    def _try_later(self, where: TopicIdPartition) -> None:
        interval_ms = self._tier.config.remote_log_manager_task_interval_ms
        self._tier.wheel.add(interval_ms, partial(self._begin, where))

    def _may_go_on(self) -> bool:
        return not self._is_closed
