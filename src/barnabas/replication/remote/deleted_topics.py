"""Deletes the remote segments of deleted topics, and of topics without a tier (KIP-405, KIP-950).

The broker that led a partition when its topic was deleted deletes the partition's segments. It
keeps the metadata of the partition until all of them are gone, and tries again after failures. If
it stops before, or had stopped when the topic was deleted, the leader of the metadata partition
finds the segments when it becomes the leader. Kafka would leave them in the store for ever.
`TierRemovals` begins the deletions of topics that have switched their tier off.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.remote.segment_deletions import SegmentDeletions
    from barnabas.replication.remote.tier_dependencies import TierDependencies
    from barnabas.replication.remote.topic_descriptions import TopicDescriptions
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


class _Removal:
    """The deletion of all segments of one partition."""

    __slots__ = ("is_wanted", "requested", "where")

    def __init__(self, where: TopicIdPartition, is_wanted: Callable[[], bool]) -> None:
        self.where = where
        # Asked before each step. Once it is false, the removal is dropped.
        self.is_wanted = is_wanted
        # Number of requested deletions that have not ended.
        self.requested = 0


class DeletedTopics:
    """The partitions of deleted topics, and of topics without their tier, that are removed here."""

    __slots__ = (
        "_deletions",
        "_descriptions",
        "_is_closed",
        "_on_gone",
        "_removals",
        "_search",
        "_tier",
        "_topic_exists",
    )

    def __init__(
        self,
        tier: TierDependencies,
        deletions: SegmentDeletions,
        descriptions: TopicDescriptions,
        search: DeletedPartitionSearch,
        topic_exists: Callable[[bytes], bool],
        on_gone: Callable[[TopicIdPartition], None],
    ) -> None:
        """Create without partitions.

        Args:
            tier: the parts of the tier.
            deletions: deletes the segments.
            descriptions: deletes the descriptions of topics.
            search: finds partitions of topics that were deleted before.
            topic_exists: returns whether the topic with an id exists in the latest metadata.
            on_gone: called with each partition whose metadata is not needed any more.
        """
        self._tier = tier
        self._deletions = deletions
        self._descriptions = descriptions
        self._search = search
        self._topic_exists = topic_exists
        self._on_gone = on_gone
        # By partition. Its metadata is assigned.
        self._removals: dict[TopicIdPartition, _Removal] = {}
        self._is_closed = False

    def __len__(self) -> int:
        """Return the number of partitions that still have segments."""
        return len(self._removals)

    def __contains__(self, where: TopicIdPartition) -> bool:
        """Return whether the segments of a partition are being deleted."""
        return where in self._removals

    def delete(self, where: TopicIdPartition, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Delete all segments of a partition, whose metadata is assigned.

        Args:
            where: the partition.
            is_wanted: asked before each step. The rest of the segments stays once it is false.
        """
        removal = self._removals.get(where)
        if self._is_closed or (removal is not None and removal.is_wanted()):
            return
        removal = self._removals[where] = _Removal(where, is_wanted)
        self._tier.metadata.on_ready(where, partial(self._begin, removal))

    def stop(self, where: TopicIdPartition) -> None:
        """Delete no more segments of a partition, which is tiered again or has another leader."""
        if self._removals.pop(where, None) is not None:
            self._on_gone(where)

    def search_later(self, partition: int) -> None:
        """Delete what is left of deleted topics in a metadata partition that this broker leads."""

        def search() -> None:
            if not self._is_closed:
                self._search.find_deleted(partition, self._topic_exists, self._on_found)

        self._tier.wheel.add(SEARCH_DELAY_MS, search)

    def close(self) -> None:
        """Stop. The leaders of the metadata partitions go on after their next start."""
        self._is_closed = True
        self._removals.clear()

    def _on_found(self, found: list[TopicIdPartition]) -> None:
        new = [where for where in found if where not in self._removals]
        if not new or self._is_closed:
            return
        _log.info("Remote segments of deleted topics found: partitions=%d", len(new))
        self._tier.metadata.assign(new)
        for where in new:
            self._tier.metadata.on_ready(where, partial(self._delete_found, where))

    def _delete_found(self, where: TopicIdPartition) -> None:
        """Delete a found partition, unless its topic is newer than the metadata of this broker."""
        if where in self._removals or self._is_closed:
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

    # One removal.

    def _may_go_on(self, removal: _Removal) -> bool:
        return (
            not self._is_closed
            and self._removals.get(removal.where) is removal
            and removal.is_wanted()
        )

    def _begin(self, removal: _Removal) -> None:
        if not self._may_go_on(removal):
            return
        where = removal.where
        if where.partition == 0:
            # Before the segments: while some of them exist, their metadata remembers the topic.
            self._descriptions.delete(where, partial(self._on_description_deleted, removal))
        else:
            self._delete_segments(removal)

    def _on_description_deleted(self, removal: _Removal, is_gone: bool) -> None:
        if is_gone:
            self._delete_segments(removal)
        else:
            self._try_later(removal)

    def _delete_segments(self, removal: _Removal) -> None:
        if not self._may_go_on(removal):
            return
        remote = self._tier.metadata.log_of(removal.where)
        if remote is None:
            self._try_later(removal)
            return
        segments = [each for each in remote.iterate() if not self._deletions.is_deleting(each.id)]
        if not segments and not remote.count:
            self._finish(removal)
            return
        self._request(removal, segments)
        if not segments:
            # The expiration has requested all of them before.
            self._try_later(removal)

    def _request(self, removal: _Removal, segments: list[RemoteSegment]) -> None:
        """Request the deletions, some of them in each turn."""
        if not self._may_go_on(removal):
            return
        now, later = segments[:_PER_TURN], segments[_PER_TURN:]
        removal.requested += len(now) + bool(later)
        for segment in now:
            self._deletions.delete(
                removal.where,
                segment,
                partial(self._may_go_on, removal),
                partial(self._on_deleted, removal),
            )
        if later:
            self._tier.wheel.add(0, partial(self._request_more, removal, later))

    def _request_more(self, removal: _Removal, segments: list[RemoteSegment]) -> None:
        self._request(removal, segments)
        self._count_down(removal)

    def _on_deleted(self, removal: _Removal, _is_gone: bool) -> None:
        self._count_down(removal)

    def _count_down(self, removal: _Removal) -> None:
        removal.requested -= 1
        if removal.requested or not self._may_go_on(removal):
            return
        remote = self._tier.metadata.log_of(removal.where)
        if remote is not None and not remote.count:
            self._finish(removal)
        else:
            self._try_later(removal)

    def _finish(self, removal: _Removal) -> None:
        del self._removals[removal.where]
        _log.info("All remote segments of a partition are deleted: partition=%s", removal.where)
        self._on_gone(removal.where)

    def _try_later(self, removal: _Removal) -> None:
        interval_ms = self._tier.config.remote_log_manager_task_interval_ms
        self._tier.wheel.add(interval_ms, partial(self._begin, removal))
