"""Deletes segments of one led partition from the remote tier (Kafka's RLMExpirationTask).

A run deletes, in the order of leader epochs and offsets, until a valid segment stays:

- segments below the log start offset, which retention or DeleteRecords have raised;
- segments whose newest record is older than `retention.ms`;
- segments that exceed `retention.bytes`, together with the local log.

The log start offset rises before any of them is deleted. So a consumer never finds an offset in the
log whose segment is gone.

Every few minutes a run looks at all segments, and deletes the others that no read needs:

- deletions that have failed, and copies that were started and not finished. Kafka keeps the latter
  until retention meets them;
- segments of leader epochs below the first one of the log, after an unclean election.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.replication.remote.lost_epochs import find_epochs
from barnabas.storage.errors import StorageError
from barnabas.storage.remote.lineage import (
    first_remote_offset,
    is_within_lineage,
    without_empty_epochs,
)
from barnabas.storage.remote.remote_storage import SegmentState

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.replication.remote.segment_deletions import SegmentDeletions
    from barnabas.replication.remote.tier_dependencies import Leadership, TierDependencies
    from barnabas.storage.files.leader_epoch_cache import EpochEntry
    from barnabas.storage.log.log import Log
    from barnabas.storage.remote.remote_storage import RemoteSegment
    from barnabas.storage.remote.segment_states import RemoteLog
    from barnabas.storage.topic_partition import TopicPartition

    Steps = Generator[None, None, None]

_log = logging.getLogger(__name__)

_STARTED = SegmentState.COPY_SEGMENT_STARTED
_FINISHED = SegmentState.COPY_SEGMENT_FINISHED
_DELETING = SegmentState.DELETE_SEGMENT_STARTED
# Segments in one step.
_PER_STEP = 100
# All segments are looked at, at least, this often in the age of an orphan.
_PASSES_PER_ORPHAN_AGE = 3
_PERCENT = 100


class _Expired:
    """The segments that a run has found, and the log start offset above them."""

    __slots__ = ("log_start", "segments", "surplus", "until_ms")

    def __init__(self, surplus: int, until_ms: int | None) -> None:
        # Bytes above retention.bytes that are still to be deleted.
        self.surplus = surplus
        # Segments with older records only expire (wall clock, ms). None without retention.ms.
        self.until_ms = until_ms
        self.segments: dict[bytes, RemoteSegment] = {}
        # The offset behind the last segment that retention deletes; -1 without one.
        self.log_start = -1

    def expires(self, segment: RemoteSegment) -> bool:
        """Return whether retention deletes a segment of the log, and count it then."""
        if self.until_ms is not None and segment.max_timestamp < self.until_ms:
            self.surplus = max(0, self.surplus - segment.size)
        elif self.surplus > 0 and self.surplus >= segment.size:
            self.surplus -= segment.size
        else:
            return False
        self.log_start = max(self.log_start, segment.end_offset + 1)
        return True


class ExpirationTask:
    """The expiration of one partition during one leadership."""

    __slots__ = (
        "_all_valid",
        "_deletions",
        "_first_epoch",
        "_full_pass_ms",
        "_is_copying",
        "_leadership",
        "_tier",
        "_wake",
    )

    def __init__(
        self,
        leadership: Leadership,
        tier: TierDependencies,
        deletions: SegmentDeletions,
        is_copying: Callable[[bytes], bool],
        wake: Callable[[TopicPartition], None],
    ) -> None:
        """Create the task.

        Args:
            leadership: the leadership of the partition.
            tier: the parts of the tier.
            deletions: deletes the segments.
            is_copying: returns whether this broker is copying a segment, by its id.
            wake: checks the operations that wait for a partition whose log start has moved.
        """
        self._leadership = leadership
        self._tier = tier
        self._deletions = deletions
        self._is_copying = is_copying
        self._wake = wake
        # Whether all finished segments are known to belong to the log. Then those that this leader
        # adds belong to it too.
        self._all_valid = False
        # Time of the last look at all segments (monotonic, ms), and the log's first leader epoch
        # at that time; -1 before the first look.
        self._full_pass_ms = -1.0
        self._first_epoch = -1

    def start(self) -> None:
        """Adopt the start of the tier as soon as the partition's events are known."""
        self._tier.metadata.on_ready(self._leadership.where, self._adopt_log_start)

    def run(self) -> Steps:
        """Find and delete what has expired; stops after some segments each."""
        remote = self._remote
        if remote is None:
            return
        yield from self._count(remote)
        if not remote.count:
            return
        entries = without_empty_epochs(self._log.leader_epochs.entries)
        if not entries or self._log.lacks_epochs:
            # Without the epochs of its first records, the log does not show which segments it has.
            return
        expired = _Expired((yield from self._surplus(remote, entries)), self._expire_until_ms())
        yield from self._collect(remote, entries, expired)
        if self._raise_log_start(expired.log_start):
            self._delete(expired.segments)
        if self._must_look_at_all(entries[0].epoch):
            self._adopt_log_start()
            yield from self._delete_useless(remote, entries[0].epoch)

    def _adopt_log_start(self) -> None:
        """Raise the log start offset to the first record that the tier or the local log has."""
        remote = self._remote
        if remote is None:
            return
        try:
            self._restore_epochs(remote)
            first = first_remote_offset(remote, self._log.leader_epochs)
            local = self._log.local_log_start_offset
            self._raise_log_start(local if first is None else min(first, local))
        except StorageError as error:
            # The partition goes offline soon.
            _log.warning(
                "Start of a tiered log is unknown: partition=%s error=%s",
                self._leadership.where.topic_partition,
                error,
            )

    def _restore_epochs(self, remote: RemoteLog) -> None:
        """Complete the epochs of the log, or start it at the first record with a known epoch."""
        log = self._log
        if not log.lacks_epochs:
            return
        epochs = log.leader_epochs
        first = epochs.first_offset
        end = log.log_end_offset if first is None else first
        known = None if first is None else epochs.epoch_for_offset(first)
        log.restore_epochs(find_epochs(remote, end, known))
        if log.lacks_epochs:
            first = epochs.first_offset
            self._raise_log_start(log.log_end_offset if first is None else first)

    @property
    def _log(self) -> Log:
        # A move to another directory replaces it.
        return self._leadership.partition.log

    @property
    def _remote(self) -> RemoteLog | None:
        """The segments, while this broker leads and knows all of them."""
        if not self._leadership.holds:
            return None
        return self._tier.metadata.log_of(self._leadership.where)

    def _may_delete(self) -> bool:
        return self._leadership.holds

    # Sizes.

    def _count(self, remote: RemoteLog) -> Steps:
        """Update the sizes in the metrics."""
        sizes = self._tier.metrics.sizes_of(self._leadership.where.topic_partition)
        deleting = [0, 0]
        for number, segment in enumerate(remote.iterate() if len(self._deletions) else ()):
            if self._deletions.is_deleting(segment.id):
                deleting[0] += 1
                deleting[1] += segment.size
            if number % _PER_STEP == 0:
                yield
        sizes.delete_lag_segments, sizes.delete_lag_bytes = deleting
        sizes.metadata_count = remote.count
        sizes.size_bytes = remote.finished_bytes + sizes.delete_lag_bytes
        log, config = self._log, self._log.config
        sizes.retention_percent = sizes.local_retention_percent = 0
        if config.retention_bytes > 0:
            total = log.local_size_above(log.highest_remote_offset) + remote.finished_bytes
            sizes.retention_percent = total * _PERCENT // config.retention_bytes
        if config.local_retention_bytes > 0:
            sizes.local_retention_percent = log.size * _PERCENT // config.local_retention_bytes

    def _surplus(self, remote: RemoteLog, entries: list[EpochEntry]) -> Generator[None, None, int]:
        """Return the bytes above retention.bytes in the tier and in the rest of the local log."""
        log, limit = self._log, self._log.config.retention_bytes
        if limit < 0:
            return 0
        local_bytes = log.local_size_above(log.highest_remote_offset)
        if local_bytes + remote.finished_bytes <= limit:
            return 0
        started_ms = self._tier.clock.monotonic_ms()
        valid_bytes = remote.finished_bytes
        if not self._all_valid:
            valid_bytes = 0
            for number, segment in enumerate(remote.iterate()):
                if segment.state is _FINISHED and is_within_lineage(
                    segment, log.log_end_offset, entries
                ):
                    valid_bytes += segment.size
                if number % _PER_STEP == 0:
                    yield
            self._all_valid = valid_bytes == remote.finished_bytes
        sizes = self._tier.metrics.sizes_of(self._leadership.where.topic_partition)
        sizes.size_computation_ms = self._tier.clock.monotonic_ms() - started_ms
        return max(0, local_bytes + valid_bytes - limit)

    def _expire_until_ms(self) -> int | None:
        retention_ms = self._log.config.retention_ms
        if retention_ms < 0:
            return None
        until_ms = self._tier.trusted_clock.wall_ms() - retention_ms
        return until_ms if until_ms >= 0 else None

    # Finding.

    def _collect(self, remote: RemoteLog, entries: list[EpochEntry], expired: _Expired) -> Steps:
        """Collect expired segments by epoch and offset, until a segment of the log stays."""
        first_epoch = entries[0].epoch
        log_start, log_end = self._log.log_start_offset, self._log.log_end_offset
        number = 0
        for epoch, _ in entries:
            for segment in remote.iterate(epoch):
                number += 1
                if number % _PER_STEP == 0:
                    yield
                if self._is_copying(segment.id):
                    return
                if segment.id in expired.segments:
                    continue
                if segment.state is _DELETING or _is_below(segment, log_start, first_epoch):
                    expired.segments[segment.id] = segment
                elif is_within_lineage(segment, log_end, entries):
                    if not expired.expires(segment):
                        return
                    expired.segments[segment.id] = segment

    def _raise_log_start(self, offset: int) -> bool:
        """Raise the log start offset; return False if the log does not allow it now."""
        log = self._log
        if not self._leadership.holds or offset > log.high_watermark:
            # A new leader's high watermark may still be below the end of the tier.
            return False
        if offset > log.log_start_offset:
            log.maybe_increment_log_start_offset(offset, "retention of the remote tier")
            self._wake(self._leadership.where.topic_partition)
        return True

    def _delete(self, segments: dict[bytes, RemoteSegment]) -> None:
        where = self._leadership.where
        for segment in segments.values():
            self._deletions.delete(where, segment, self._may_delete)
        if segments:
            _log.info(
                "Segments of the remote tier expire: partition=%s count=%d log_start_offset=%d",
                where.topic_partition,
                len(segments),
                self._log.log_start_offset,
            )

    # Segments that no read needs.

    def _must_look_at_all(self, first_epoch: int) -> bool:
        """Return whether all segments are due for a look, and count it as done."""
        now_ms = self._tier.clock.monotonic_ms()
        period_ms = self._tier.config.barnabas_remote_orphan_age_ms / _PASSES_PER_ORPHAN_AGE
        is_due = self._full_pass_ms < 0 or now_ms - self._full_pass_ms >= period_ms
        if not is_due and first_epoch == self._first_epoch:
            return False
        self._full_pass_ms, self._first_epoch = now_ms, first_epoch
        return True

    def _delete_useless(self, remote: RemoteLog, first_epoch: int) -> Steps:
        """Delete failed deletions, unfinished copies, and segments of former epochs."""
        useless: dict[bytes, RemoteSegment] = {}
        oldest_ms = self._tier.clock.wall_ms() - self._tier.config.barnabas_remote_orphan_age_ms
        for number, segment in enumerate(remote.iterate()):
            is_orphan = segment.state is _STARTED and segment.event_ms <= oldest_ms
            is_former = all(epoch < first_epoch for epoch, _ in segment.leader_epochs)
            if segment.state is not _DELETING and not is_orphan and not is_former:
                pass
            elif not self._is_copying(segment.id):
                useless[segment.id] = segment
            if number % _PER_STEP == 0:
                yield
        if self._leadership.holds:
            self._delete(useless)


def _is_below(segment: RemoteSegment, log_start: int, first_epoch: int) -> bool:
    """Return whether all records of a segment are below the log start offset."""
    return segment.end_offset < log_start and all(
        epoch <= first_epoch for epoch, _ in segment.leader_epochs
    )
