"""The segments of one log in one directory (Kafka's LocalLog): read, roll, truncate, delete.

It deals with bytes and offsets only; `Log` handles leaders, producers and watermarks.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.runtime.disk import FileSlice, is_out_of_descriptors
from barnabas.storage.errors import DamagedLogError, DamageKind
from barnabas.storage.log.flusher import RETRY_MS, sync_files
from barnabas.storage.results import AbortedTransaction, LogOffsetMetadata, ReadResult
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.segments import SegmentSwap
from barnabas.storage.topic_partition import CLEANED_FILE_SUFFIX, LOG_SUFFIX, TXN_INDEX_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.config import LogConfig
    from barnabas.storage.log.log_offsets import LogOffsets
    from barnabas.storage.log_dependencies import DiskGuard, LogDependencies
    from barnabas.storage.segment.segments import Segments


class LocalLog:
    """Segments in one directory."""

    __slots__ = (
        "_dependencies",
        "_guard",
        "_offsets",
        "_sealed",
        "_swap",
        "_syncing",
        "_syncing_sizes",
        "config",
        "is_changed",
        "layout_count",
        "may_skip",
        "segments",
    )

    def __init__(
        self,
        config: LogConfig,
        dependencies: LogDependencies,
        segments: Segments,
        offsets: LogOffsets,
        guard: DiskGuard,
    ) -> None:
        # Configuration of the topic; `update_config` replaces it.
        self.config = config
        # Read only: `Log` moves the offsets.
        self._offsets = offsets
        # Holds the path of the log directory, which a renaming changes.
        self._guard = guard
        self._dependencies = dependencies
        self.segments = segments
        # The swap in progress, which renames files after a compaction.
        self._swap: SegmentSwap | None = None
        # Sealed segments with unsynced indexes. Their batches may be synced. `roll` adds them, and
        # `on_synced` removes them.
        self._sealed: list[Segment] = []
        # The subset of `_sealed` that the running sync covers.
        self._syncing: list[Segment] = []
        # Segments whose batches the running sync covers, each with its size at that time.
        self._syncing_sizes: list[tuple[Segment, int]] = []
        # Whether offsets may be missing. Stays true: a log that was ever compacted may have gaps.
        self.may_skip = config.is_compacted
        # Whether a file was written to since the log was opened. If not, closing needs no sync.
        # Stays true.
        self.is_changed = False
        # Number of rolls, truncations and swaps. A position in the log is valid only until this
        # number changes.
        self.layout_count = 0
        segments.listen(self._on_damaged_index)

    def update_config(self, config: LogConfig) -> None:
        """Apply a changed topic configuration."""
        self.config = config
        self.may_skip = self.may_skip or config.is_compacted

    # -- positions ---------------------------------------------------------------------------

    def end_metadata(self) -> LogOffsetMetadata:
        """Return the log end offset and its position."""
        active = self.segments.active
        return LogOffsetMetadata(self._offsets.log_end_offset, active.base_offset, active.size)

    def metadata_of(self, offset: int) -> LogOffsetMetadata:
        """Return the position of `offset`, which must lie within the log."""
        if offset >= self._offsets.log_end_offset:
            return self.end_metadata()
        segment = self.segments.floor(offset) or self.segments[0]
        while True:
            place = segment.locate(offset)
            if place is not None:
                return LogOffsetMetadata(offset, segment.base_offset, place.position)
            following = self.segments.higher(segment.base_offset)
            if following is None:
                return self.end_metadata()
            segment = following

    # -- reading -----------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, bound: LogOffsetMetadata, min_one_batch: bool
    ) -> ReadResult:
        """Return a slice of the log that starts with the batch of `offset` and ends before `bound`.

        Args:
            offset: first offset to read; it must be below `bound`.
            max_bytes: maximum size of the slice.
            bound: exclusive end of the readable records.
            min_one_batch: return the first batch whole, even if it exceeds `max_bytes`.
        """
        segment: Segment | None = self.segments.active
        if offset < self.segments.active.base_offset:
            segment = self.segments.floor(offset) or self.segments[0]
        while segment is not None and segment.base_offset <= bound.segment_base_offset:
            is_last = segment.base_offset == bound.segment_base_offset
            limit = bound.relative_position if is_last else segment.size
            result = self._read_segment(segment, offset, max_bytes, limit, min_one_batch)
            if result is not None:
                return result
            segment = self.segments.higher(segment.base_offset)
        where = LogOffsetMetadata(offset, bound.segment_base_offset, bound.relative_position)
        return ReadResult(b"", where)

    def empty_at_end(self, is_committed_read: bool) -> ReadResult:
        """Return the result of a read at the log end."""
        aborted: list[AbortedTransaction] | None = [] if is_committed_read else None
        return ReadResult(b"", self.end_metadata(), False, aborted)

    def _read_segment(
        self, segment: Segment, offset: int, max_bytes: int, limit: int, min_one_batch: bool
    ) -> ReadResult | None:
        """Return the slice in one segment; None if it has no batch below `limit` for `offset`."""
        place = segment.locate(offset, self.may_skip)
        if place is None or place.position >= limit:
            return None
        position = place.position
        if place.base_offset > offset and not self.may_skip:
            # At least one whole segment is missing.
            problem = f"offsets {offset} to {place.base_offset - 1} are missing before it"
            raise DamagedLogError(segment.path(LOG_SUFFIX), position, problem, is_gap=True)
        where = LogOffsetMetadata(offset, segment.base_offset, position)
        length_max = max(max_bytes, place.size) if min_one_batch else max_bytes
        length = min(limit - position, length_max)
        if length <= 0:
            return ReadResult(b"", where)
        if length == len(segment.tail) and position + length == segment.size:
            return ReadResult(segment.tail, where)
        # A hard limit below the first batch's size returns a part of the batch, as in Kafka.
        incomplete = length_max < place.size
        return ReadResult(FileSlice(segment.file, position, length), where, incomplete)

    def aborted_within(self, result: ReadResult, bound: int) -> list[AbortedTransaction]:
        """Return the aborted transactions below `bound` that overlap the result of a read."""
        offset = result.position.message_offset
        upper_bound = min(self._upper_bound_of(result), bound)
        found = self.segments.collect_aborted(offset, upper_bound)
        return [AbortedTransaction(entry.producer_id, entry.first_offset) for entry in found]

    def _on_damaged_index(self, path: str, position: int) -> None:
        problem, action = (
            "entries do not point to a batch",
            "the entries are ignored; no action is needed",
        )
        self._dependencies.damage.report(DamageKind.INDEX, path, problem, action, position)

    def _upper_bound_of(self, result: ReadResult) -> int:
        """Return an offset at or after the end of the result, found through the index."""
        position = result.position
        segment = self.segments.floor(position.segment_base_offset)
        if segment is None:
            return self._offsets.log_end_offset
        end = position.relative_position + len(result.records)
        bound = segment.offset_index.offset_beyond(end)
        if bound is not None:
            return bound
        following = self.segments.higher(segment.base_offset)
        return self._offsets.log_end_offset if following is None else following.base_offset

    # -- rolling -----------------------------------------------------------------------------

    def roll(self, now_ms: int, roll_jitter_ms: int) -> Segment:
        """Roll to a new segment at the log end; return the previously active segment.

        Raises:
            OSError: nothing has changed; appends can continue in the active segment.
        """
        self.layout_count += 1
        previous = self.segments.active
        is_replaced = previous.base_offset == self._offsets.log_end_offset
        if is_replaced:
            # The empty segment cannot accept the append; a new segment of the same name replaces
            # it.
            assert previous.size == 0, f"{previous!r} begins at the log end but is not empty"
        else:
            previous.seal()
        segment = self._new_segment(now_ms, roll_jitter_ms, is_replaced)
        if is_replaced:
            self.segments.remove(previous)
            previous.close()
        else:
            self._sealed.append(previous)
        self.segments.add(segment)
        if not is_replaced:
            self.segments.times.add([previous], anew=True)
        return previous

    def _new_segment(self, now_ms: int, roll_jitter_ms: int, is_replaced: bool) -> Segment:
        """Create and open a segment at the log end; delete its files if that fails."""
        segment = Segment(
            self._dependencies.disk,
            self._guard.directory,
            self._offsets.log_end_offset,
            self.config,
        )
        try:
            segment.create(now_ms, roll_jitter_ms)
            segment.prepare_append()
        except OSError:
            if not is_replaced:
                # Appends may continue in the previous segment. Recovery would truncate batches that
                # reach beyond the base offset of an empty segment left here.
                segment.delete_files()
            raise
        return segment

    # -- truncation --------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Truncate to `offset`; the first segment must begin at or before it.

        A batch that contains `offset` is removed whole, and the log ends before it. Kafka sets the
        log end to `offset` in that case, which leaves a gap that no follower ever fills.

        Returns:
            The new log end offset, at most `offset`.
        """
        self.layout_count += 1
        # Delete backwards, so that a crash in between leaves a log without a gap.
        self.segments.times.drop(self.segments.from_offset(offset))
        later = [segment for segment in self.segments if segment.base_offset > offset]
        self.delete_segments(list(reversed(later)))
        if later:
            # Files restored by a power loss would lie after a gap behind newer batches.
            self._dependencies.disk.sync_directory(self._guard.directory)
        return self.segments.active.truncate_to(offset)

    def delete_all(self) -> None:
        """Delete all segments for good; `start_at` must follow."""
        self.layout_count += 1
        self.segments.times.drop(self.segments)
        self.delete_segments(list(reversed(list(self.segments))))
        self._dependencies.disk.sync_directory(self._guard.directory)

    def start_at(self, offset: int, now_ms: int, roll_jitter_ms: int) -> None:
        """Start the first segment at `offset`."""
        segment = Segment(self._dependencies.disk, self._guard.directory, offset, self.config)
        segment.create(now_ms, roll_jitter_ms)
        self.segments.add(segment)

    def delete_segments(self, segments: list[Segment]) -> None:
        """Remove segments from the log now; delete their files after `file.delete.delay.ms`."""
        for segment in segments:
            self.segments.remove(segment)
            segment.mark_deleted()
        self.segments.times.forget(segments)
        if segments:
            self._delete_later(segments)

    def cleaned_segment(self, base_offset: int, size: int) -> Segment:
        """Return the compacted segment whose complete files have the suffix `.cleaned`."""
        segment = Segment(
            self._dependencies.disk,
            self._guard.directory,
            base_offset,
            self.config,
            size,
            CLEANED_FILE_SUFFIX,
        )
        segment.created_ms = self._dependencies.clock.wall_ms()
        if not self._dependencies.disk.exists(segment.path(TXN_INDEX_SUFFIX)):
            segment.txn_index.create()
        return segment

    def replace_segments(
        self, new: Segment, old: list[Segment], on_gone: Callable[[int], None]
    ) -> None:
        """Replace `old` by a compacted segment; `continue_swap` renames the files."""
        assert self._swap is None, f"{self._guard.directory}: a swap is in progress"
        self.layout_count += 1
        self.segments.times.drop(old)
        self._swap = SegmentSwap(new, old, on_gone)
        for segment in old:
            self.segments.remove(segment)
        self.segments.add(new)

    @property
    def is_swapping(self) -> bool:
        """Whether a swap still has files to rename."""
        return self._swap is not None

    def continue_swap(self) -> None:
        """Rename the next files of the swap."""
        swap = self._swap
        if swap is not None and swap.step():
            self._swap = None
            self.segments.times.add([swap.new], anew=True)
            self._delete_later(swap.old)

    def finish_swap(self) -> None:
        """Complete the swap, which other changes of segments require."""
        while self._swap is not None:
            self.continue_swap()

    def close_idle(self) -> None:
        """Close descriptors that are idle, including that of the active segment."""
        for segment in self.segments:
            segment.close_if_idle()

    def release_idle(self) -> None:
        """Release descriptors and indexes of idle, synced segments, and trim the other indexes."""
        recovery_point = self._offsets.recovery_point
        for segment in list(self.segments):
            following = self.segments.higher(segment.base_offset)
            if following is not None and following.base_offset <= recovery_point:
                segment.release_if_idle()
            else:
                segment.trim_indexes()

    def prepare_sync(
        self, paths: list[str], is_final: bool, with_parent: bool = True
    ) -> Callable[[], None]:
        """Return a function, callable on any thread, that syncs from the recovery point on.

        Args:
            paths: other files to sync.
            is_final: whether to sync the indexes of the active segment too.
            with_parent: whether to sync the parent directory too if the log directory has new
                names; otherwise the caller syncs it.
        """
        *sealed, active = self.segments.from_offset(self._offsets.recovery_point)
        self._syncing = list(self._sealed)
        sealed += [
            segment
            for segment in self._syncing
            if segment not in sealed and segment in self.segments and segment is not active
        ]
        self._syncing_sizes = [(segment, segment.size) for segment in (*sealed, active)]
        syncs = [segment.sync_all() for segment in sealed]
        syncs.append(active.sync_all() if is_final else active.sync_batches())
        # For new files, the directory must be synced too.
        has_new_names = bool(paths or sealed or active.is_new)
        active.is_new = False
        names = paths if has_new_names else None
        return partial(
            sync_files, self._dependencies.disk, self._guard.directory, syncs, names, with_parent
        )

    @property
    def has_unsynced_indexes(self) -> bool:
        """Whether a sealed segment has unsynced indexes."""
        return bool(self._sealed)

    def sealed_from(self, offset: int) -> int:
        """Return `offset`, or a lower base offset of a sealed segment with unsynced indexes."""
        return min([offset, *(segment.base_offset for segment in self._sealed)])

    def on_synced(self) -> None:
        """Record that the sync prepared last has completed."""
        for segment, size in self._syncing_sizes:
            segment.synced_size = size
        self._syncing_sizes = []
        done, self._syncing = self._syncing, []
        self._sealed = [segment for segment in self._sealed if segment not in done]

    def _delete_later(self, segments: list[Segment]) -> None:
        disk, directory = self._dependencies.disk, self._guard.directory

        def delete() -> None:
            # Names restored by a power loss must not lead to deleted files.
            if disk.exists(directory):
                disk.sync_directory(directory)
            for segment in segments:
                segment.close()
                segment.delete_files()

        def done(_: None, error: BaseException | None) -> None:
            if is_out_of_descriptors(error):
                self._dependencies.on_descriptor_shortage()
                self._dependencies.timer.call_later(RETRY_MS, submit)
            elif isinstance(error, OSError):
                self._dependencies.on_disk_failure(self._guard.directory, error)

        def submit() -> None:
            self._dependencies.executor.submit(delete, done)

        self._dependencies.timer.call_later(self.config.file_delete_delay_ms, submit)
