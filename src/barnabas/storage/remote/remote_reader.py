"""Reads of remote segments, from cached indexes and ranges (Kafka's RemoteLogManager.read).

All calls run on the event loop and never block. A read that needs bytes that are not in memory
returns a `Miss`. The caller loads it and reads again. So a read finds its segment, its position and
its limits anew each time, and no state outlives a change of the partition.

A read returns batches of one loaded range only. Many small batches are returned in several reads,
since the CRC of each is checked here.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from barnabas.record.batch import HEADER_SIZE
from barnabas.storage.errors import OffsetOutOfRangeError
from barnabas.storage.remote.batch_walk import ReadRequest, walk
from barnabas.storage.remote.remote_storage import RemoteDamagedError, RemoteSegment
from barnabas.storage.results import (
    AbortedTransaction,
    FetchIsolation,
    LogOffsetMetadata,
    ReadResult,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.storage.files.leader_epoch_cache import LeaderEpochCache
    from barnabas.storage.remote.batch_walk import Walk
    from barnabas.storage.remote.index_cache import RemoteIndexCache
    from barnabas.storage.remote.loaded_indexes import LoadedIndexes
    from barnabas.storage.remote.range_cache import LoadedRange, RangeCache
    from barnabas.storage.remote.segment_states import RemoteLog
    from barnabas.storage.segment.transaction_index import AbortedEntry
    from barnabas.waiting.steps import OffLoop

# Segments without the requested offset that one read passes. Only compacted logs have such.
_SEGMENTS_PER_READ = 8
# Places that were damaged once, and are loaded a second time.
_SUSPECTS_MAX = 1_000
_TXN_COMMITTED = FetchIsolation.TXN_COMMITTED


class Miss(msgspec.Struct, frozen=True):
    """What must be loaded before a read can go on."""

    segment: RemoteSegment
    # Where a batch begins. None: the indexes of the segment are missing.
    position: int | None
    # Bytes from the position on that the read needs at least.
    needed: int


class LocalReads(Protocol):
    """Reads of the local part of a log."""

    def read(
        self, offset: int, max_bytes: int, isolation: FetchIsolation, min_one_batch: bool
    ) -> ReadResult:
        """Return batches from the one with an offset on."""
        ...

    def aborted_transactions_below(self, offset: int) -> list[AbortedEntry]:
        """Return the aborted transactions that lie at least partly below an offset."""
        ...

    def offset_for_timestamp(
        self, timestamp: int
    ) -> Generator[OffLoop | None, Any, tuple[int, int, int] | None]:
        """Find the first record at or after a time: its timestamp, offset and leader epoch."""
        ...


class TieredLog(Protocol):
    """The part of a log that reads of the remote tier use."""

    leader_epochs: LeaderEpochCache

    @property
    def reader(self) -> LocalReads:
        """Reads the local part."""
        ...

    @property
    def log_start_offset(self) -> int:
        """First readable offset."""
        ...

    @property
    def local_log_start_offset(self) -> int:
        """First offset of the local part."""
        ...

    @property
    def high_watermark(self) -> int:
        """Exclusive end of the records that every in-sync replica has."""
        ...

    @property
    def last_stable_offset(self) -> int:
        """First offset of an undecided transaction; at most the high watermark."""
        ...


class _Found(msgspec.Struct):
    """The records of one segment that a read returns."""

    segment: RemoteSegment
    indexes: LoadedIndexes
    # Position of the first batch, and offset after the last one.
    position: int
    next_offset: int
    records: memoryview | bytes = b""


class RemoteLogReader:
    """Reads records that only the remote tier has, of all partitions of a broker."""

    __slots__ = ("_suspects", "indexes", "ranges")

    def __init__(self, indexes: RemoteIndexCache, ranges: RangeCache) -> None:
        self.indexes = indexes
        self.ranges = ranges
        # Segment id and position of damaged places that are being loaded a second time.
        self._suspects: OrderedDict[tuple[bytes, int], None] = OrderedDict()

    def read(
        self,
        log: TieredLog,
        remote: RemoteLog,
        offset: int,
        limit: tuple[int, bool],
        isolation: FetchIsolation,
    ) -> ReadResult | Miss:
        """Return batches from the one with `offset` on, or what is not in memory.

        Args:
            log: the local log. `offset` is at or above its start, and below its local start.
            remote: the segments of the partition.
            offset: the first offset to read.
            limit: bytes at most, and whether the first batch is returned even if it is larger.
            isolation: up to which offset records are visible.

        Raises:
            OffsetOutOfRangeError: no segment has the offset.
            RemoteDamagedError: the store returned other bytes than were stored, twice.
        """
        is_committed = isolation is _TXN_COMMITTED
        end_offset = log.last_stable_offset if is_committed else log.high_watermark
        request = ReadRequest(offset, *limit, end_offset)
        at = offset
        for _ in range(_SEGMENTS_PER_READ):
            segment = self.segment_at(log, remote, at)
            if segment is None:
                break
            found = self._read_segment(segment, request)
            if isinstance(found, Miss):
                return found
            if found is not None:
                return self._completed(log, remote, request, found, is_committed=is_committed)
            at = segment.end_offset + 1
        if at == offset:
            raise OffsetOutOfRangeError(f"no remote segment has offset {offset}")
        if at >= log.local_log_start_offset:
            return log.reader.read(at, limit[0], isolation, limit[1])
        return ReadResult(b"", LogOffsetMetadata(offset), False, [] if is_committed else None)

    def segment_at(self, log: TieredLog, remote: RemoteLog, offset: int) -> RemoteSegment | None:
        """Return the segment with the log's record at an offset."""
        epoch = log.leader_epochs.epoch_for_offset(offset)
        return None if epoch is None else remote.segment_at(epoch, offset)

    def reload(self, segment: RemoteSegment, position: int, error: RemoteDamagedError) -> None:
        """Drop what is loaded of a damaged segment, so that it is loaded once more.

        Another range in memory may have the same damaged bytes. If one stayed, a read would fail
        after the object was restored.

        Raises:
            RemoteDamagedError: the place was loaded a second time already.
        """
        self.ranges.forget([segment.id])
        self.indexes.forget([segment.id])
        place = (segment.id, position)
        if place in self._suspects:
            del self._suspects[place]
            raise error
        if len(self._suspects) >= _SUSPECTS_MAX:
            self._suspects.popitem(last=False)
        self._suspects[place] = None

    # One segment.

    def _read_segment(self, segment: RemoteSegment, request: ReadRequest) -> _Found | Miss | None:
        """Return batches of a segment; None if it ends before the offset."""
        indexes = self.indexes.get(segment.id)
        if indexes is None:
            return Miss(segment, None, 0)
        position = indexes.position_of(request.offset)
        if position >= segment.size:
            return None
        needed = min(HEADER_SIZE, segment.size - position)
        loaded = self.ranges.find(segment.id, position, needed)
        if loaded is None:
            self._note_reader(segment, request.offset, request.offset)
            return Miss(segment, position, needed)
        try:
            walked = walk(segment, loaded, position, request)
        except RemoteDamagedError as error:
            self.reload(segment, position, error)
            return Miss(segment, None, 0)
        first = walked.first
        if first is None or (walked.end < 0 and not walked.is_limited):
            return self._beyond(segment, indexes, walked, request)
        if walked.end < 0:
            return _Found(segment, indexes, first, request.offset)
        if self._suspects:
            self._suspects.pop((segment.id, position), None)
        indexes.learn(walked.next_offset, walked.end)
        if self._note_reader(segment, request.offset, walked.next_offset):
            self._maybe_read_ahead(segment, loaded, walked.end)
        # The end of the last batch may be cut off, as in a read of the local log.
        records = loaded.lend(first, max(walked.end, walked.cut_at))
        return _Found(segment, indexes, first, walked.next_offset, records)

    def _beyond(
        self, segment: RemoteSegment, indexes: LoadedIndexes, walked: Walk, request: ReadRequest
    ) -> Miss | None:
        """Return what a walk needs that has found no whole batch to return."""
        at = walked.stopped_at
        if at >= segment.size:
            return None
        # The next read continues there.
        indexes.learn(request.offset, at)
        return Miss(segment, at, walked.size_there or min(HEADER_SIZE, segment.size - at))

    def _note_reader(self, segment: RemoteSegment, offset: int, next_offset: int) -> bool:
        """Note a read; return whether the reader reads in sequence."""
        partition = (segment.topic_id, segment.partition)
        return self.ranges.readers.move(partition, offset, next_offset)

    def _maybe_read_ahead(self, segment: RemoteSegment, loaded: LoadedRange, end: int) -> None:
        is_in_second_half = 2 * (end - loaded.start) >= loaded.end - loaded.start
        if is_in_second_half and loaded.ends_batch:
            self.ranges.read_ahead(segment, loaded.end)

    # Aborted transactions.

    def _completed(
        self,
        log: TieredLog,
        remote: RemoteLog,
        request: ReadRequest,
        found: _Found,
        *,
        is_committed: bool,
    ) -> ReadResult | Miss:
        position = LogOffsetMetadata(request.offset, found.segment.start_offset, found.position)
        aborted: list[AbortedTransaction] | None = None
        if is_committed and not len(found.records):
            aborted = []
        elif is_committed:
            entries = self._aborted(log, remote, request.offset, found)
            if isinstance(entries, Miss):
                return entries
            # In the order of their ends, as for the local log: kafkajs loses aborted transactions
            # in the order of their beginnings, if the records begin inside of two of them.
            named = dict.fromkeys((each.producer_id, each.first_offset) for each in entries)
            aborted = [AbortedTransaction(*each) for each in named]
        return ReadResult(found.records, position, False, aborted)

    def _aborted(
        self, log: TieredLog, remote: RemoteLog, offset: int, found: _Found
    ) -> list[AbortedEntry] | Miss:
        """Return the aborted transactions that overlap the records of a read.

        Such a transaction may end in this segment, in a later one, or in the local log.
        """
        end = found.next_offset
        entries, is_complete = found.indexes.aborted(offset, end)
        at = found.segment.end_offset + 1
        while not is_complete:
            following = self._next_with_transactions(log, remote, at)
            if following is None:
                return entries + log.reader.aborted_transactions_below(end)
            indexes = self.indexes.get(following.id)
            if indexes is None:
                return Miss(following, None, 0)
            more, is_complete = indexes.aborted(offset, end)
            entries += more
            at = following.end_offset + 1
        return entries

    def _next_with_transactions(
        self, log: TieredLog, remote: RemoteLog, offset: int
    ) -> RemoteSegment | None:
        """Return the first segment from an offset on that may have aborted transactions."""
        epochs = log.leader_epochs
        first = epochs.epoch_for_offset(offset)
        for epoch, start in epochs.entries:
            if first is None or epoch < first:
                continue
            at = max(offset, start)
            segment = remote.next_with_transactions(epoch, at)
            # A former leader may have copied records of the epoch that this log does not have.
            if segment is not None and (
                epochs.epoch_for_offset(max(at, segment.start_offset)) == epoch
            ):
                return segment
        return None
