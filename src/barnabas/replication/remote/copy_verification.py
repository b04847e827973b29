"""Checks that the remote tier has a segment before its local copy may be deleted.

A store may report success and lose the object, or have lost it since. So each replica asks for the
size of each copied segment once, one at a time, before local retention can delete it. With
`barnabas.remote.verify.before.delete=false`, the events alone are trusted, as in Kafka.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.storage.remote.lineage import highest_remote_offset

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.remote.store_health import StoreHealth
    from barnabas.replication.remote.tier_dependencies import TierDependencies
    from barnabas.storage.log.log import Log
    from barnabas.storage.remote.remote_storage import RemoteSegment
    from barnabas.storage.topic_partition import TopicIdPartition

_log = logging.getLogger(__name__)


class CopyVerification:
    """The checks of one replica, as leader or follower."""

    __slots__ = (
        "_health",
        "_is_checking",
        "_is_closed",
        "_is_deleting",
        "_on_lost",
        "_partition",
        "_paused_until_ms",
        "_reported",
        "_suspect",
        "_suspect_since_ms",
        "_tier",
        "_where",
        "is_new_tier",
    )

    def __init__(
        self,
        where: TopicIdPartition,
        partition: Partition,
        tier: TierDependencies,
        health: StoreHealth,
        on_lost: Callable[[RemoteSegment], None],
        is_deleting: Callable[[bytes], bool],
    ) -> None:
        """Create the checks of a replica.

        Args:
            where: the partition.
            partition: the replica.
            tier: the parts of the tier.
            health: gets failures of the store.
            on_lost: called with each segment that the store should have and does not have.
            is_deleting: returns whether this broker deletes a segment, by its id.
        """
        self._where = where
        self._partition = partition
        self._tier = tier
        self._health = health
        self._on_lost = on_lost
        self._is_deleting = is_deleting
        # Whether the store is being asked.
        self._is_checking = False
        self._is_closed = False
        # Whether the topic has just got a tier. If it had one before, that one may be half deleted,
        # and its former leader may not know yet that the topic is tiered again. So no copy of it
        # counts for a while (monotonic, ms): local retention could delete the only records.
        self.is_new_tier = False
        self._paused_until_ms = 0.0
        # The last segment that was reported as lost. A follower finds it in each sweep.
        self._reported = b""
        # The last segment that was missing, and since when (monotonic, ms). It counts as lost if it
        # is still missing after the interval of the sweep: a store may be away for a moment.
        self._suspect = b""
        self._suspect_since_ms = 0.0

    def close(self) -> None:
        """Stop: the partition is gone or not tiered any more."""
        self._is_closed = True

    def check(self) -> None:
        """Learn how far the log is copied, and verify the next copied segment."""
        remote = self._tier.metadata.log_of(self._where)
        if remote is None or self._is_closed:
            return
        if self.is_new_tier:
            self.is_new_tier = False
            if remote.count:
                age_ms = self._tier.config.barnabas_remote_orphan_age_ms
                self._paused_until_ms = self._tier.clock.monotonic_ms() + age_ms
        if not remote.count or self._is_checking:
            return
        log = self._partition.log
        highest, _ = highest_remote_offset(remote, log.leader_epochs, log.log_end_offset)
        log.raise_highest_remote_offset(highest)
        highest = log.highest_remote_offset
        if self._tier.clock.monotonic_ms() < self._paused_until_ms:
            return
        while log.verified_remote_offset < highest:
            offset = max(log.verified_remote_offset + 1, log.local_log_start_offset)
            if offset > highest:
                log.raise_verified_remote_offset(highest)
                return
            epoch = log.leader_epochs.epoch_for_offset(offset)
            segment = None if epoch is None else remote.segment_at(epoch, offset)
            if segment is None or self._is_deleting(segment.id):
                # It is copied again. Until then, the local records may be the only ones.
                return
            if self._tier.config.barnabas_remote_verify_before_delete:
                self._ask(log, segment)
                return
            log.raise_verified_remote_offset(min(segment.end_offset, highest))

    def _ask(self, log: Log, segment: RemoteSegment) -> None:
        """Ask the store for the size of a segment."""
        ticket = self._tier.deletes.submit(
            partial(self._tier.storage.size_of, segment),
            partial(self._on_size, log, segment),
        )
        self._is_checking = ticket is not None

    def _on_size(
        self, log: Log, segment: RemoteSegment, size: int | None, error: BaseException | None
    ) -> None:
        self._is_checking = False
        if self._is_closed or log is not self._partition.log:
            return
        if error is not None:
            # The sweep asks again.
            self._health.on_failure(f"check of a segment of {segment.topic}", error)
            return
        if self._is_deleting(segment.id):
            # The store has found it again, but its objects are deleted soon.
            return
        if size == segment.size:
            self._suspect = b""
            log.raise_verified_remote_offset(min(segment.end_offset, log.highest_remote_offset))
            self.check()
            return
        if not self._is_lost(segment):
            return
        if segment.id != self._reported:
            self._reported = segment.id
            self._report(segment, size)
        self._on_lost(segment)

    def _is_lost(self, segment: RemoteSegment) -> bool:
        """Return whether a missing segment has been missing for the interval of the sweep."""
        now_ms = self._tier.clock.monotonic_ms()
        if segment.id != self._suspect:
            self._suspect, self._suspect_since_ms = segment.id, now_ms
            return False
        interval_ms = self._tier.config.remote_log_manager_task_interval_ms
        return now_ms - self._suspect_since_ms >= interval_ms

    def _report(self, segment: RemoteSegment, size: int | None) -> None:
        _log.error(
            "The remote store has lost a segment: partition=%s base_offset=%d end_offset=%d "
            "size=%d stored=%s; local retention keeps the records",
            self._where.topic_partition,
            segment.start_offset,
            segment.end_offset,
            segment.size,
            "nothing" if size is None else size,
        )
