"""Rolling of a log to a new segment, and deletion of old segments.

Kafka: UnifiedLog.roll, and deleteOldSegments for deletion by age, size and log start
(retention.ms, retention.bytes).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.runtime.disk import is_out_of_descriptors
from barnabas.storage.errors import KafkaStorageError
from barnabas.storage.segment.segments import roll_jitter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.storage.config import LogConfig
    from barnabas.storage.files.leader_epoch_cache import LeaderEpochCache
    from barnabas.storage.log.local_log import LocalLog
    from barnabas.storage.log.log_offsets import LogOffsets
    from barnabas.storage.log.log_sync import LogSync
    from barnabas.storage.log_dependencies import DiskGuard, LogDependencies
    from barnabas.storage.producers.producer_state import ProducerState
    from barnabas.storage.segment.segment import Segment
    from barnabas.storage.segment.segments import Segments


_log = logging.getLogger(__name__)


class LogRoller:
    """Adds segments to a log."""

    __slots__ = ("_dependencies", "_guard", "_local", "_offsets", "_producers", "_sync")

    def __init__(
        self,
        local: LocalLog,
        offsets: LogOffsets,
        guard: DiskGuard,
        producers: ProducerState,
        sync: LogSync,
        dependencies: LogDependencies,
    ) -> None:
        self._local = local
        self._offsets = offsets
        self._guard = guard
        self._producers = producers
        self._sync = sync
        self._dependencies = dependencies

    def wall_ms(self) -> int:
        """Return the wall clock by which segments are rolled."""
        return self._dependencies.clock.wall_ms()

    def roll(self) -> None:
        """Roll to a new segment at the log end, unless the active segment is empty."""
        if self._local.segments.active.size:
            with self._guard:
                self.roll_now()

    def roll_now(self, now_ms: int | None = None) -> None:
        """Roll to a new segment, even if the active one is empty.

        Args:
            now_ms: creation time of the segment (wall clock); If None, the clock is read.

        Raises:
            OSError: the log has not changed.
        """
        # Recovery of the new segment starts from the producer state at its base offset.
        self._producers.map_end_offset = self._offsets.log_end_offset
        self._producers.take_snapshot()
        created_ms = self.wall_ms() if now_ms is None else now_ms
        self._local.roll(created_ms, roll_jitter(self._local.config, self._dependencies.rng))
        _log.debug(
            "Rolled to a new segment: directory=%s base_offset=%d",
            self._guard.directory,
            self._offsets.log_end_offset,
        )
        # Sealed segments are synced soon, which keeps recovery after a crash short.
        self._sync.flush_async(lambda _: None)

    def roll_for(self, now_ms: int, *, is_required: bool) -> Segment:
        """Roll for an append, and return the segment to append to.

        Args:
            now_ms: wall clock.
            is_required: whether the append does not fit into the active segment. If it fits, the
                roll may fail for lack of a descriptor.

        Raises:
            OSError: the disk failed.
            KafkaStorageError: the sync that the roll started has failed.
        """
        segment = self._local.segments.active
        try:
            self.roll_now(now_ms)
        except OSError as error:
            if not is_out_of_descriptors(error) or is_required:
                raise
            # A segment that is too large or too old is better than a rejected append.
            self._dependencies.on_descriptor_shortage()
            return segment
        if self._guard.has_failed:
            raise KafkaStorageError(f"{self._guard.directory} is offline")
        return self._local.segments.active


class LogRetention:
    """Deletes the first segments of a log, with the producer snapshots and epochs below."""

    __slots__ = ("_guard", "_leader_epochs", "_local", "_offsets", "_producers", "_roller")

    def __init__(
        self,
        local: LocalLog,
        offsets: LogOffsets,
        guard: DiskGuard,
        leader_epochs: LeaderEpochCache,
        producers: ProducerState,
        roller: LogRoller,
    ) -> None:
        self._local = local
        self._offsets = offsets
        self._guard = guard
        self._leader_epochs = leader_epochs
        self._producers = producers
        self._roller = roller

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply retention by time, size and log start offset, only below the high watermark.

        Returns:
            The number of segments deleted.
        """
        local = self._local
        with self._guard:
            expired = _expired_segments(local.config, local.segments, self._offsets, now_ms)
            return sum(self._delete(segments) for segments in expired)

    def _delete(self, segments: list[Segment]) -> int:
        if not segments:
            return 0
        self._local.finish_swap()
        if len(segments) == len(self._local.segments):
            # All segments expire: continue the log in a new, empty segment.
            self._roller.roll_now()
        following = self._local.segments.higher(segments[-1].base_offset)
        assert following is not None, f"{self._guard.directory}: no segment would remain"
        if following.base_offset > self._offsets.log_start_offset:
            self._offsets.raise_log_start_offset(following.base_offset)
            self._leader_epochs.truncate_from_start(following.base_offset)
        self._local.delete_segments(segments)
        _log.debug(
            "Deleted segments: directory=%s count=%d log_start_offset=%d",
            self._guard.directory,
            len(segments),
            self._offsets.log_start_offset,
        )
        self._producers.remove_snapshots_below(following.base_offset)
        return len(segments)


def _expired_segments(
    config: LogConfig, segments: Segments, offsets: LogOffsets, now_ms: int
) -> Iterator[list[Segment]]:
    """Yield the segments to delete, one list per rule.

    The caller deletes each list before requesting the next. Only the first segments of the log are
    deleted. Segments at or above the high watermark and an empty active segment stay.
    """
    if config.deletes and config.retention_ms >= 0:
        oldest = now_ms - config.retention_ms
        active = segments.active
        yield _prefix(
            segments, offsets, lambda segment, _: _is_older(segment, oldest, segment is active)
        )
    if config.deletes and config.retention_bytes >= 0:
        surplus = segments.size - config.retention_bytes

        def exceeds(segment: Segment, _: int) -> bool:
            nonlocal surplus
            if surplus < segment.size:
                return False
            surplus -= segment.size
            return True

        yield _prefix(segments, offsets, exceeds)
    start = offsets.log_start_offset
    yield _prefix(segments, offsets, lambda _, end: end <= start, with_active=False)


def _is_older(segment: Segment, oldest: int, is_active: bool) -> bool:
    """Return whether all records are older, despite a possibly damaged time index."""
    if _age_timestamp(segment) >= oldest:
        return False
    timestamp = segment.trusted_max_timestamp(is_active)
    return timestamp < 0 or timestamp < oldest


def _age_timestamp(segment: Segment) -> int:
    """Return the largest record timestamp; without timestamps, the time of the last write."""
    timestamp = segment.max_timestamp
    return timestamp if timestamp >= 0 else segment.modified_ms()


def _prefix(
    segments: Segments,
    offsets: LogOffsets,
    is_expired: Callable[[Segment, int], bool],
    with_active: bool = True,
) -> list[Segment]:
    """Return the first segments while `is_expired(segment, its end offset)` returns True."""
    found: list[Segment] = []
    ordered = list(segments)
    for segment, following in zip(ordered, [*ordered[1:], None], strict=True):
        if following is None and (segment.size == 0 or not with_active):
            break
        end = offsets.log_end_offset if following is None else following.base_offset
        if offsets.high_watermark < end or not is_expired(segment, end):
            break
        found.append(segment)
    return found
