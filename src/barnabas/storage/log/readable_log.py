"""Reads and offset lookups of a partition's log (the reading half of Kafka's UnifiedLog).

`Log` derives from this class and changes the offsets. Reads return slices of the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.errors import (
    DamagedLogError,
    InconsistentTopicIdError,
    OffsetOutOfRangeError,
)
from barnabas.storage.file_names import LOG_SUFFIX
from barnabas.storage.files.partition_metadata import is_damaged_copy, write_topic_id
from barnabas.storage.log.disk_guard import DiskGuard
from barnabas.storage.log.local_log import LocalLog
from barnabas.storage.read_result import AbortedTransaction, FetchIsolation, ReadResult
from barnabas.storage.segment.batch_scan import describe_end, valid_batches

if TYPE_CHECKING:
    from barnabas.storage.config import LogConfig
    from barnabas.storage.files.leader_epoch_cache import LeaderEpochCache
    from barnabas.storage.log_dependencies import LogDependencies
    from barnabas.storage.log_opening import LogOpening
    from barnabas.storage.offset_metadata import LogOffsetMetadata
    from barnabas.storage.producers.producer_state import ProducerState
    from barnabas.storage.recovery.log_loader import LoadedLog
    from barnabas.storage.segment.offset_search import Search
    from barnabas.storage.segment.segments import Segments
    from barnabas.storage.segment.transaction_index import AbortedEntry


class ReadableLog:
    """Offsets of a log, and reads at them."""

    __slots__ = (
        "_dependencies",
        "_guard",
        "_high_watermark_metadata",
        "_is_identity_synced",
        "_local",
        "config",
        "high_watermark",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "producer_state",
        "recovery_point",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        dependencies: LogDependencies,
        opening: LogOpening,
        loaded: LoadedLog,
    ) -> None:
        self._dependencies = dependencies
        self._local = LocalLog(
            directory, config, dependencies, loaded.segments, loaded.log_end_offset
        )
        self._guard = DiskGuard(directory, dependencies)
        self.config = config
        self.topic_partition = opening.topic_partition
        # 16 bytes; None while the topic id is unknown.
        self.topic_id = loaded.topic_id
        # Whether the topic id file is synced, or is queued for the next sync.
        self._is_identity_synced = opening.clean_shutdown
        self.leader_epochs: LeaderEpochCache = loaded.leader_epochs
        self.producer_state: ProducerState = loaded.producer_state
        # First readable offset; only rises, except in truncations.
        self.log_start_offset = loaded.log_start_offset
        # Offset of the next record.
        self.log_end_offset = loaded.log_end_offset
        # Everything below it is synced; recovery starts there.
        self.recovery_point = loaded.recovery_point
        # Exclusive end of the records that every in-sync replica has; set by the replica layer.
        self.high_watermark = min(
            max(opening.high_watermark, self.log_start_offset), self.log_end_offset
        )
        # Position of the high watermark; None until it is requested.
        self._high_watermark_metadata: LogOffsetMetadata | None = None
        self.producer_state.on_high_watermark_updated(self.high_watermark)

    # -- identity ----------------------------------------------------------------------------

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Store the topic id, or check it against the stored one.

        Raises:
            InconsistentTopicIdError: the log belongs to another topic.
        """
        if self.topic_id is None:
            with self._guard:
                write_topic_id(self._dependencies.disk, self.directory, topic_id)
            self._is_identity_synced = False
            self.topic_id = topic_id
        elif self.topic_id != topic_id:
            raise InconsistentTopicIdError(f"{self.directory} belongs to another topic id")

    def is_damaged_identity(self, topic_id: bytes) -> bool:
        """Return whether the topic id file is a damaged copy of `topic_id`."""
        with self._guard:
            return is_damaged_copy(self._dependencies.disk, self.directory, topic_id)

    def mend_topic_id(self, topic_id: bytes) -> None:
        """Replace the topic id in the damaged file."""
        self.topic_id = None
        self.assign_topic_id(topic_id)

    # -- properties --------------------------------------------------------------------------

    @property
    def directory(self) -> str:
        """Path of the log's directory."""
        return self._local.directory

    @property
    def segments(self) -> Segments:
        """All segments; the last one is active."""
        return self._local.segments

    @property
    def size(self) -> int:
        """Total size of all segments in bytes."""
        return self._local.segments.size

    @property
    def latest_epoch(self) -> int | None:
        """Leader epoch of the last batch; None if the log has no epoch."""
        return self.leader_epochs.latest_epoch

    @property
    def last_stable_offset(self) -> int:
        """First offset of an undecided transaction; at most the high watermark."""
        if self.producer_state.has_transactions:
            first = self.producer_state.first_unstable_offset()
            if first is not None and first < self.high_watermark:
                return max(first, self.log_start_offset)
        return self.high_watermark

    def end_offset_metadata(self) -> LogOffsetMetadata:
        """Return the log end offset and its position."""
        return self._local.end_metadata()

    def high_watermark_metadata(self) -> LogOffsetMetadata:
        """Return the high watermark and its position."""
        if self.high_watermark == self.log_end_offset:
            return self._local.end_metadata()
        known = self._high_watermark_metadata
        if known is None or known.message_offset != self.high_watermark:
            known = self._high_watermark_metadata = self.metadata_of(self.high_watermark)
        return known

    def last_stable_offset_metadata(self) -> LogOffsetMetadata:
        """Return the last stable offset and its position."""
        offset = self.last_stable_offset
        if offset == self.high_watermark:
            return self.high_watermark_metadata()
        return self.metadata_of(offset)

    def metadata_of(self, offset: int) -> LogOffsetMetadata:
        """Return the position of an offset between log start and log end."""
        with self._guard:
            return self._local.metadata_of(offset)

    # -- watermarks --------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> bool:
        """Set the high watermark within [log start, log end]; return whether it moved.

        It may move back: a leader that must not move it back checks this before the call. Like
        Kafka, the method moves `offset` into the range. The leader's high watermark is above a
        follower's log end while the follower catches up, and below a follower's log start after
        the follower deleted a segment first.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            offset = min(max(offset, self.log_start_offset), self.log_end_offset)
        if offset == self.high_watermark:
            return False
        self.high_watermark = offset
        self._check_order()
        self.producer_state.on_high_watermark_updated(offset)
        return True

    def _check_order(self) -> None:
        """Check the invariant OffsetsInOrder, after a change of an offset."""
        start, end = self.log_start_offset, self.log_end_offset
        stable = self.last_stable_offset
        is_ordered = start <= stable <= self.high_watermark <= end and self.recovery_point <= end
        assert is_ordered, (
            f"OffsetsInOrder: log_start_offset={start} last_stable_offset={stable} "
            f"high_watermark={self.high_watermark} log_end_offset={end} "
            f"recovery_point={self.recovery_point} {self.topic_partition}"
        )

    # -- reading -----------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, isolation: FetchIsolation, min_one_batch: bool
    ) -> ReadResult:
        """Return a slice of the file from the batch that contains `offset` on.

        Args:
            offset: between log start and log end, both inclusive.
            max_bytes: maximum size of the slice; the last batch may be incomplete.
            isolation: up to which offset records are visible.
            min_one_batch: return the whole first batch, however large.

        Raises:
            OffsetOutOfRangeError: `offset` is outside [log start, log end].
            DamagedLogError: the batch of `offset`, or a batch before it, is damaged or missing.
        """
        end, start = self.log_end_offset, self.log_start_offset
        if offset > end or offset < start:
            raise OffsetOutOfRangeError(f"offset {offset} lies outside [{start}, {end}]")
        if offset == end:
            return self._local.empty_at_end(isolation is FetchIsolation.TXN_COMMITTED)
        if isolation is FetchIsolation.LOG_END:
            bound = self._local.end_metadata()
        elif isolation is FetchIsolation.HIGH_WATERMARK:
            bound = self.high_watermark_metadata()
        else:
            return self._read_committed(offset, max_bytes, min_one_batch)
        return self._read_below(offset, max_bytes, bound, min_one_batch)

    def _read_below(
        self, offset: int, max_bytes: int, bound: LogOffsetMetadata, min_one_batch: bool
    ) -> ReadResult:
        if offset >= bound.message_offset:
            return ReadResult(b"", self.metadata_of(offset))
        try:
            return self._local.read(offset, max_bytes, bound, min_one_batch)
        except OSError as error:
            raise self._guard.failure(error) from error
        except DamagedLogError as error:
            self._guard.tell(error)
            raise

    def _read_committed(self, offset: int, max_bytes: int, min_one_batch: bool) -> ReadResult:
        bound = self.last_stable_offset_metadata()
        result = self._read_below(offset, max_bytes, bound, min_one_batch)
        aborted: list[AbortedTransaction] = []
        if len(result.records):
            with self._guard:
                aborted = self._local.aborted_within(result, bound.message_offset)
        return result._replace(aborted_transactions=aborted)

    def verify(self, offset: int, max_bytes: int) -> DamagedLogError | None:
        """Check the CRCs of the batches from `offset` on, within its segment.

        Returns:
            The damage that was found and reported; None if there is none.
        """
        try:
            segment = self._local.segments.floor(offset)
            place = None if segment is None else segment.locate(offset, self._local.may_skip)
            if segment is None or place is None:
                return None
            position = place.position
            end = min(segment.size, position + max(max_bytes, place.size))
            for at, header, _ in valid_batches(segment.file, position, end):
                position = at + header.size
            problem, is_cut_off = describe_end(segment.file, position, end)
            if position == end or (is_cut_off and end < segment.size):
                return None
            error = DamagedLogError(segment.path(LOG_SUFFIX), position, problem)
        except DamagedLogError as damage:
            error = damage
        self._guard.tell(error)
        return error

    def aborted_transactions_below(self, offset: int) -> list[AbortedEntry]:
        """Return the aborted transactions that lie at least partly below `offset`."""
        with self._guard:
            return self._local.segments.collect_aborted(0, offset)

    def offset_for_timestamp(self, timestamp: int) -> Search:
        """Find the first record at or after `timestamp`, in steps.

        Returns:
            Its timestamp, offset and leader epoch. None if no record from the log start on is that
                late.
        """
        from barnabas.storage.segment.offset_search import find_by_timestamp

        with self._guard:
            segments = self._local.segments
            return (yield from find_by_timestamp(segments, timestamp, self.log_start_offset))

    def max_timestamp_offset(self) -> Search:
        """Find the first record with the largest timestamp, in steps.

        Returns:
            Its timestamp, offset and leader epoch, or None.
        """
        from barnabas.storage.segment.offset_search import find_max_timestamp

        with self._guard:
            return (yield from find_max_timestamp(self._local.segments, self.log_start_offset))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch <= `epoch` and its end offset; (-1, -1) if unknown."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)
