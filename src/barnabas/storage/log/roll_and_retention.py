"""Rolling of a log to a new segment, and deletion of old segments.

Kafka: UnifiedLog.roll, and deleteOldSegments for deletion by age, size and log start
(retention.ms, retention.bytes).

While segments are copied to the remote tier (KIP-405), `local.retention.*` applies instead. Then a
segment is deleted only if its copy was verified or if it lies below the log start. The log start
stays, because the tier has the records. An active segment that a rule matches is rolled, so that it
can be copied. If copying is disabled (KIP-950), the total retention applies and raises the log
start.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

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

    # Returns whether a segment with that exclusive end is expired.
    Rule: TypeAlias = Callable[[Segment, int], bool]


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
            rules = _rules(local.config, local.segments, self._offsets, now_ms)
            return sum(self._apply(rule) for rule in rules)

    def _apply(self, is_expired: Rule) -> int:
        """Delete the first segments of the log that match a rule; return their number.

        Segments at or above the high watermark and an empty active segment stay.
        """
        segments, offsets = self._local.segments, self._offsets
        # Segments that end above it are not in the remote tier yet.
        deletable_end = offsets.log_end_offset
        if self._local.config.copies_to_remote:
            deletable_end = max(offsets.copied_end_offset, offsets.log_start_offset)
        found: list[Segment] = []
        ordered = list(segments)
        for segment, following in zip(ordered, [*ordered[1:], None], strict=True):
            if following is None and segment.size == 0:
                break
            end = offsets.log_end_offset if following is None else following.base_offset
            if offsets.high_watermark < end or not is_expired(segment, end):
                break
            if end > deletable_end:
                if following is None:
                    self._roller.roll_now()
                break
            found.append(segment)
        return self._delete(found)

    def _delete(self, segments: list[Segment]) -> int:
        if not segments:
            return 0
        self._local.finish_swap()
        if len(segments) == len(self._local.segments):
            # All segments expire: continue the log in a new, empty segment.
            self._roller.roll_now()
        following = self._local.segments.higher(segments[-1].base_offset)
        assert following is not None, f"{self._guard.directory}: no segment would remain"
        self._raise_start(following.base_offset)
        self._local.delete_segments(segments)
        _log.debug(
            "Deleted segments: directory=%s count=%d log_start_offset=%d local_log_start_offset=%d",
            self._guard.directory,
            len(segments),
            self._offsets.log_start_offset,
            self._offsets.local_log_start_offset,
        )
        self._producers.remove_snapshots_below(following.base_offset)
        return len(segments)

    def _raise_start(self, offset: int) -> None:
        """Begin the log at `offset`, or only its local part if the tier has the records before."""
        if self._local.config.copies_to_remote:
            if offset > self._offsets.local_log_start_offset:
                self._offsets.raise_local_log_start_offset(offset)
        elif offset > self._offsets.log_start_offset:
            self._offsets.raise_log_start_offset(offset)
            self._leader_epochs.truncate_from_start(offset)


def _rules(
    config: LogConfig, segments: Segments, offsets: LogOffsets, now_ms: int
) -> Iterator[Rule]:
    """Yield the rules of retention; the caller applies each before it requests the next."""
    retention_ms, retention_bytes = _retention(config)
    if retention_ms >= 0:
        oldest = now_ms - retention_ms
        active = segments.active
        yield lambda segment, _: _is_older(segment, oldest, segment is active)
    if retention_bytes >= 0:
        surplus = segments.size - retention_bytes

        def exceeds(segment: Segment, _: int) -> bool:
            nonlocal surplus
            if surplus < segment.size:
                return False
            surplus -= segment.size
            return True

        yield exceeds
    start, active = offsets.local_log_start_offset, segments.active
    yield lambda segment, end: end <= start and segment is not active


def _retention(config: LogConfig) -> tuple[int, int]:
    """Return the retention of local segments in ms and in bytes; negative for no limit."""
    if config.copies_to_remote:
        return config.effective_local_retention_ms, config.effective_local_retention_bytes
    if config.deletes:
        return config.retention_ms, config.retention_bytes
    return -1, -1


def _is_older(segment: Segment, oldest: int, is_active: bool) -> bool:
    """Return whether all records are older, despite a possibly damaged time index."""
    if segment.largest_timestamp() >= oldest:
        return False
    timestamp = segment.trusted_max_timestamp(is_active)
    return timestamp < 0 or timestamp < oldest
