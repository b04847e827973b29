"""Chooses the next segment of a led partition to copy to the remote tier.

A candidate is closed, and all of its records are below the last stable offset. With
`remote.copy.lag.*` it also has to be old enough, or to have enough bytes after it (KIP-1241). If
only the last stable offset is missing, the task is called back when it is high enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.replication.remote.copy_causes import CopyCause
from barnabas.storage.errors import StorageError
from barnabas.storage.remote.lineage import highest_remote_offset

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.partition.partition_registry import HighWatermarkListeners
    from barnabas.replication.remote.segment_deletions import SegmentDeletions
    from barnabas.replication.remote.tier_dependencies import Leadership, TierDependencies
    from barnabas.storage.log.log import Log
    from barnabas.storage.log.segment_copy import CopyableSegment
    from barnabas.storage.remote.remote_storage import RemoteSegment
    from barnabas.storage.remote.segment_states import RemoteLog

# Local segments that are looked at in one call.
_SCANNED_AT_ONCE = 200


class OldestSegment(NamedTuple):
    """The oldest closed segment without a copy."""

    base_offset: int
    # Since when it is the oldest one (monotonic, ms).
    since_ms: float


class CopyCandidates:
    """The segments of one partition that are not copied yet, or whose copies were lost."""

    __slots__ = (
        "_deletions",
        "_high_watermarks",
        "_is_listening",
        "_leadership",
        "_lost",
        "_on_stable",
        "_stable_needed",
        "_tier",
        "_unscanned",
        "oldest",
    )

    def __init__(
        self,
        leadership: Leadership,
        tier: TierDependencies,
        deletions: SegmentDeletions,
        high_watermarks: HighWatermarkListeners,
        on_stable: Callable[[], None],
    ) -> None:
        """Create for one leadership.

        Args:
            leadership: the leadership of the partition.
            tier: the parts of the tier.
            deletions: the deletions of segments that wait or run.
            high_watermarks: has one listener for each partition.
            on_stable: called in a later turn, when another segment may have become a candidate.
        """
        self._leadership = leadership
        self._tier = tier
        self._deletions = deletions
        self._high_watermarks = high_watermarks
        self._on_stable = on_stable
        # First offsets that the store has lost of copies, ascending. They are copied again.
        self._lost: list[int] = []
        # Where the next look for gaps in the tier begins.
        self._unscanned = 0
        # The last stable offset that the next closed segment needs, while this object listens.
        self._stable_needed = 0
        self._is_listening = False
        # The oldest closed segment without a copy; None if there is none. The sweep moves it.
        self.oldest: OldestSegment | None = None

    def next(self) -> CopyableSegment | None:
        """Return the next segment to copy now; None if there is none yet."""
        self.close()
        log = self._leadership.partition.log
        remote = self._tier.metadata.log_of(self._leadership.where)
        if remote is None or not log.config.copies_to_remote:
            return None
        if len(log.segments) == 1 and not self._lost:
            # The usual case of an idle partition in a sweep.
            return None
        stable = log.last_stable_offset
        highest, _ = highest_remote_offset(remote, log.leader_epochs, log.log_end_offset)
        self._scan(log, remote, highest)
        lost = self._next_lost(log, remote, stable)
        if lost is not None:
            return lost
        log.raise_highest_remote_offset(highest)
        first = max(highest + 1, log.log_start_offset)
        if first >= log.segments.active.base_offset:
            return None
        candidates = log.copyable_segments(first, stable, 1)
        if not candidates:
            self._listen(log, first)
            return None
        return candidates[0] if self._is_eligible(candidates[0], log) else None

    def add_lost(self, segment: RemoteSegment) -> None:
        """Make a segment a candidate again: the store has lost its copy, which is deleted now."""
        self._add_lost(segment.start_offset)

    def close(self) -> None:
        """Stop to listen to the high watermark."""
        if self._is_listening:
            self._is_listening = False
            self._high_watermarks.remove(self._leadership.where.topic_partition)

    def update_lag(self) -> None:
        """Update the lag in the metrics: closed segments that are not copied yet."""
        log = self._leadership.partition.log
        sizes = self._tier.metrics.sizes_of(self._leadership.where.topic_partition)
        copied = log.highest_remote_offset
        if not log.config.copies_to_remote or copied + 1 >= log.segments.active.base_offset:
            sizes.copy_lag_bytes = sizes.copy_lag_segments = 0
            self.oldest = None
            return
        sizes.copy_lag_bytes = max(0, log.local_size_above(copied) - log.segments.active.size)
        sizes.copy_lag_segments = max(0, log.local_count_above(copied) - 1)
        first = log.segments.floor(max(copied + 1, log.local_log_start_offset))
        base_offset = log.local_log_start_offset if first is None else first.base_offset
        if self.oldest is None or self.oldest.base_offset != base_offset:
            self.oldest = OldestSegment(base_offset, self._tier.clock.monotonic_ms())

    def why_waiting(self) -> CopyCause | None:
        """Return why the oldest segment is no candidate yet; None if it is copied."""
        log = self._leadership.partition.log
        first = max(log.highest_remote_offset + 1, log.log_start_offset)
        if first >= log.segments.active.base_offset:
            return None
        try:
            candidates = log.copyable_segments(first, log.last_stable_offset, 1)
        except StorageError:
            return CopyCause.LOG
        if candidates:
            is_ready = self._is_eligible(candidates[0], log)
            return CopyCause.COPYING if is_ready else CopyCause.COPY_LAG
        following = log.segments.higher(first)
        if following is not None and log.high_watermark >= following.base_offset:
            return CopyCause.TRANSACTION
        return CopyCause.UNCOMMITTED

    def _add_lost(self, offset: int) -> None:
        if offset not in self._lost:
            self._lost.append(offset)
            self._lost.sort()

    def _scan(self, log: Log, remote: RemoteLog, highest: int) -> None:
        """Find local segments that the tier should have and lacks, a few with each call.

        They are above the verified copies. A lost copy may be deleted without another one: by a
        former leader, or because the event of its deletion came late.
        """
        at = max(self._unscanned, log.local_log_start_offset, log.verified_remote_offset + 1)
        for _ in range(_SCANNED_AT_ONCE):
            following = log.segments.higher(at)
            if at > highest or following is None:
                # The next call begins again.
                self._unscanned = 0
                return
            gap = _first_gap(log, remote, range(at, min(following.base_offset, highest + 1)))
            if gap is not None:
                self._add_lost(gap)
            self._unscanned = at = following.base_offset

    def _next_lost(self, log: Log, remote: RemoteLog, stable: int) -> CopyableSegment | None:
        """Return a segment whose copy was lost, and whose records are still here."""
        while self._lost:
            start = self._lost[0]
            epoch = log.leader_epochs.epoch_for_offset(start)
            known = None if epoch is None else remote.segment_at(epoch, start)
            if known is None and start >= log.local_log_start_offset:
                # Without a candidate, the last stable offset is still below.
                candidates = log.copyable_segments(start, stable, 1)
                return candidates[0] if candidates else None
            if known is not None and self._deletions.is_deleting(known.id):
                # The event of its deletion is on the way.
                return None
            del self._lost[0]
        return None

    def _is_eligible(self, candidate: CopyableSegment, log: Log) -> bool:
        """Return whether a segment is old enough, or has enough bytes after it."""
        # Negative for no limit.
        lag_ms = log.config.effective_remote_copy_lag_ms
        lag_bytes = log.config.effective_remote_copy_lag_bytes
        if 0 in (lag_ms, lag_bytes):
            return True
        age_ms = self._tier.clock.wall_ms() - candidate.max_timestamp
        if lag_ms > 0 and (age_ms < 0 or age_ms >= lag_ms):
            return True
        return 0 < lag_bytes <= candidate.bytes_after

    def _listen(self, log: Log, first: int) -> None:
        """Look again when the last stable offset reaches the end of the next closed segment."""
        waiting = log.copyable_segments(first, log.log_end_offset, 1)
        if waiting:
            self._stable_needed = waiting[0].next_base_offset
            self._is_listening = True
            self._high_watermarks.add(
                self._leadership.where.topic_partition, self._on_high_watermark
            )

    def _on_high_watermark(self) -> None:
        if self._leadership.partition.log.last_stable_offset >= self._stable_needed:
            self.close()
            # In another turn: the caller serves a request.
            self._tier.wheel.add(0, self._on_stable)


def _first_gap(log: Log, remote: RemoteLog, offsets: range) -> int | None:
    """Return the first of the offsets that no finished copy has; None if all have one."""
    at = offsets.start
    while at < offsets.stop:
        epoch = log.leader_epochs.epoch_for_offset(at)
        segment = None if epoch is None else remote.segment_at(epoch, at)
        if segment is None:
            return at
        at = segment.end_offset + 1
    return None
