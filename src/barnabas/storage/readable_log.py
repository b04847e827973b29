"""What may be read of a partition's log, where it lies and whose it is: half of Kafka's UnifiedLog.

Offsets are moved by `Log`, which derives from this; here they are only looked at. Bytes go out as
slices of the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.batch_scan import describe_end, valid_batches
from barnabas.storage.disk_guard import DiskGuard
from barnabas.storage.errors import (
    DamagedLogError,
    InconsistentTopicIdError,
    OffsetOutOfRangeError,
)
from barnabas.storage.file_names import LOG_SUFFIX
from barnabas.storage.local_log import LocalLog
from barnabas.storage.partition_metadata import is_damaged_copy, write_topic_id
from barnabas.storage.read_result import AbortedTransaction, FetchIsolation, ReadResult

if TYPE_CHECKING:
    from barnabas.storage.config import LogConfig
    from barnabas.storage.doors import LogDoors, LogOpening
    from barnabas.storage.leader_epoch_cache import LeaderEpochCache
    from barnabas.storage.offset_metadata import LogOffsetMetadata
    from barnabas.storage.offset_search import Search
    from barnabas.storage.producer_state import ProducerState
    from barnabas.storage.recovery import LoadedLog
    from barnabas.storage.segments import Segments
    from barnabas.storage.transaction_index import AbortedEntry


class ReadableLog:
    """The offsets of a log, and reading by them."""

    __slots__ = (
        "_doors",
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
        doors: LogDoors,
        opening: LogOpening,
        loaded: LoadedLog,
    ) -> None:
        self._doors = doors
        self._local = LocalLog(directory, config, doors, loaded.segments, loaded.log_end_offset)
        self._guard = DiskGuard(directory, doors)
        self.config = config
        self.topic_partition = opening.topic_partition
        # 16 bytes; None while nobody has said it.
        self.topic_id = loaded.topic_id
        # Whether the file with the topic's id is synced, or among those that are to be.
        self._is_identity_synced = opening.clean_shutdown
        self.leader_epochs: LeaderEpochCache = loaded.leader_epochs
        self.producer_state: ProducerState = loaded.producer_state
        # First offset that may be read; moves up only, but for a full truncation.
        self.log_start_offset = loaded.log_start_offset
        # Offset of the next record.
        self.log_end_offset = loaded.log_end_offset
        # Below it everything survived a sync; recovery starts there.
        self.recovery_point = loaded.recovery_point
        # Exclusive end of what every in-sync replica has; moved by the layer above.
        self.high_watermark = min(
            max(opening.high_watermark, self.log_start_offset), self.log_end_offset
        )
        # Where it lies; None until somebody asks.
        self._high_watermark_metadata: LogOffsetMetadata | None = None
        self.producer_state.on_high_watermark_updated(self.high_watermark)

    # -- identity ----------------------------------------------------------------------------

    def assign_topic_id(self, topic_id: bytes) -> None:
        """The topic's id has become known.

        Raises:
            InconsistentTopicIdError: the log belongs to another one.
        """
        if self.topic_id is None:
            with self._guard:
                write_topic_id(self._doors.disk, self.directory, topic_id)
            self._is_identity_synced = False
            self.topic_id = topic_id
        elif self.topic_id != topic_id:
            raise InconsistentTopicIdError(f"{self.directory} belongs to another topic id")

    def is_damaged_identity(self, topic_id: bytes) -> bool:
        """Whether the file with the topic's id surely had that id, and is damaged."""
        with self._guard:
            return is_damaged_copy(self._doors.disk, self.directory, topic_id)

    def mend_topic_id(self, topic_id: bytes) -> None:
        """Write the topic's id anew: the file with it was damaged."""
        self.topic_id = None
        self.assign_topic_id(topic_id)

    # -- facts -------------------------------------------------------------------------------

    @property
    def directory(self) -> str:
        """Where the files lie."""
        return self._local.directory

    @property
    def segments(self) -> Segments:
        """All segments, the active one last."""
        return self._local.segments

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._local.segments.size

    @property
    def latest_epoch(self) -> int | None:
        """Leader epoch of the last batch; None if the log has no epoch."""
        return self.leader_epochs.latest_epoch

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is undecided; never above the high watermark."""
        if self.producer_state.has_transactions:
            first = self.producer_state.first_unstable_offset()
            if first is not None and first < self.high_watermark:
                return max(first, self.log_start_offset)
        return self.high_watermark

    def end_offset_metadata(self) -> LogOffsetMetadata:
        """The log end and where it lies."""
        return self._local.end_metadata()

    def high_watermark_metadata(self) -> LogOffsetMetadata:
        """The high watermark and where it lies."""
        if self.high_watermark == self.log_end_offset:
            return self._local.end_metadata()
        known = self._high_watermark_metadata
        if known is None or known.message_offset != self.high_watermark:
            known = self._high_watermark_metadata = self.metadata_of(self.high_watermark)
        return known

    def last_stable_offset_metadata(self) -> LogOffsetMetadata:
        """The last stable offset and where it lies."""
        offset = self.last_stable_offset
        if offset == self.high_watermark:
            return self.high_watermark_metadata()
        return self.metadata_of(offset)

    def metadata_of(self, offset: int) -> LogOffsetMetadata:
        """Where an offset between log start and log end lies."""
        with self._guard:
            return self._local.metadata_of(offset)

    # -- reading -----------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, isolation: FetchIsolation, min_one_batch: bool
    ) -> ReadResult:
        """A slice of the file from the batch that holds `offset` on.

        Args:
            offset: between log start and log end, both allowed.
            max_bytes: limit of the slice; the last batch may be cut off by it.
            isolation: how far the read may see.
            min_one_batch: give the whole first batch, however large.

        Raises:
            OffsetOutOfRangeError: `offset` lies outside [log start, log end].
            DamagedLogError: the batch of `offset` is damaged or missing, or one on the way to it.
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
        """Check the CRC of the batches from `offset` on, within its segment.

        Returns:
            The damage that was found, which was told; None if there is none.
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
        """Those of which any part lies below `offset`."""
        with self._guard:
            return self._local.segments.collect_aborted(0, offset)

    def offset_for_timestamp(self, timestamp: int) -> Search:
        """(timestamp, offset, leader epoch) of the first record at or after `timestamp`, in steps.

        Offsets below the log start are not found; None if no record is that late.
        """
        from barnabas.storage.offset_search import find_by_timestamp

        with self._guard:
            segments = self._local.segments
            return (yield from find_by_timestamp(segments, timestamp, self.log_start_offset))

    def max_timestamp_offset(self) -> Search:
        """(timestamp, offset, leader epoch) of the first record with the largest timestamp."""
        from barnabas.storage.offset_search import find_max_timestamp

        with self._guard:
            return (yield from find_max_timestamp(self._local.segments, self.log_start_offset))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch <= `epoch`, its end offset); (-1, -1) if the log does not know it."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)
