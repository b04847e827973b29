"""Search for a record by its timestamp, first in the remote tier and then in the local log.

Kafka's RemoteLogManager.findOffsetByTimestamp. The search is a generator. It yields None for a
pause, `OffLoop` for a call in a thread, and `Miss` for what must be loaded before the next step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from barnabas.record.batch import HEADER_SIZE, NO_TIMESTAMP
from barnabas.record.record import CorruptBatchError
from barnabas.storage.remote.batch_walk import check_batch, damaged, headers_in
from barnabas.storage.remote.remote_reader import Miss
from barnabas.storage.remote.remote_storage import RemoteDamagedError, SegmentState
from barnabas.storage.segment.record_search import find_record

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.record.compiled import CompiledRecord
    from barnabas.storage.remote.range_cache import LoadedRange
    from barnabas.storage.remote.remote_reader import RemoteLogReader, TieredLog
    from barnabas.storage.remote.remote_storage import RemoteSegment
    from barnabas.storage.remote.segment_states import RemoteLog
    from barnabas.waiting.steps import OffLoop

    # Timestamp, offset, leader epoch.
    Found: TypeAlias = tuple[int, int, int]
    Search: TypeAlias = Generator[Miss | OffLoop | None, Any, Found | None]

# Segments that one step passes.
_SEGMENTS_PER_STEP = 200


def find_by_timestamp(
    reader: RemoteLogReader, log: TieredLog, remote: RemoteLog, timestamp: int
) -> Search:
    """Find the first record of a log at or after a time.

    Returns:
        Its timestamp, offset and leader epoch. None if no record is that late.

    Raises:
        StorageError: the store or the disk failed, or a batch is damaged.
    """
    offset, left = log.log_start_offset, _SEGMENTS_PER_STEP
    while offset < log.local_log_start_offset:
        segment = reader.segment_at(log, remote, offset)
        if segment is None:
            offset = _after_gap(log, remote, offset)
        else:
            if segment.max_timestamp >= timestamp:
                search = _SegmentSearch(reader, segment, timestamp, offset)
                found = yield from search.run()
                if found is not None:
                    return found
            offset = segment.end_offset + 1
        left -= 1
        if not left:
            left = _SEGMENTS_PER_STEP
            yield None
    return (yield from log.reader.offset_for_timestamp(timestamp))


def _after_gap(log: TieredLog, remote: RemoteLog, offset: int) -> int:
    """Return the next offset that a segment may have, if no segment has this one."""
    epochs = log.leader_epochs
    epoch = epochs.epoch_for_offset(offset)
    following = [log.local_log_start_offset]
    following += [start for _, start in epochs.entries if start > offset][:1]
    if epoch is not None:
        for segment in remote.iterate(epoch):
            is_later = segment.start_offset > offset
            if is_later and segment.state is SegmentState.COPY_SEGMENT_FINISHED:
                following.append(segment.start_offset)
                break
    return min(following)


class _SegmentSearch:
    """The search in one segment, from an offset on."""

    def __init__(
        self, reader: RemoteLogReader, segment: RemoteSegment, timestamp: int, first_offset: int
    ) -> None:
        self._reader = reader
        self._segment = segment
        self._timestamp = timestamp
        self._first_offset = first_offset

    def run(self) -> Search:
        """Return timestamp, offset and leader epoch of the first record that matches, or None."""
        reader, segment = self._reader, self._segment
        while (indexes := reader.indexes.get(segment.id)) is None:
            yield Miss(segment, None, 0)
        position = indexes.position_of_time(self._timestamp, self._first_offset)
        while position < segment.size:
            needed = min(HEADER_SIZE, segment.size - position)
            loaded = reader.ranges.find(segment.id, position, needed)
            if loaded is None:
                yield Miss(segment, position, needed)
                continue
            try:
                at, is_candidate = self._candidate(loaded, position)
            except RemoteDamagedError as error:
                reader.reload(segment, position, error)
                continue
            if is_candidate:
                found = yield from self._search_batch(at)
                if isinstance(found, tuple):
                    return found
                at = found
            elif at == position:
                # The bytes that are left are too few for a batch.
                raise damaged(segment, at, "the last batch is incomplete")
            position = at
            yield None
        return None

    def _candidate(self, loaded: LoadedRange, position: int) -> tuple[int, bool]:
        """Return the position of the next batch that may have the record, or where to continue.

        Returns:
            The position, and whether a batch that may have the record begins there.
        """
        for at, header in headers_in(self._segment, loaded, position):
            is_late = header.max_timestamp >= self._timestamp
            if is_late and header.last_offset >= self._first_offset:
                return at, True
            position = at + header.size
        return position, False

    def _search_batch(self, position: int) -> Generator[Miss | OffLoop | None, Any, Found | int]:
        """Search a batch; return the record, or the position behind the batch."""
        segment, ranges = self._segment, self._reader.ranges
        size = HEADER_SIZE
        while True:
            loaded = ranges.find(segment.id, position, size)
            if loaded is None:
                yield Miss(segment, position, size)
                continue
            _, header = next(headers_in(segment, loaded, position))
            if position + header.size <= loaded.end:
                break
            size = header.size
        try:
            check_batch(segment, loaded, position, header)
        except RemoteDamagedError as error:
            self._reader.reload(segment, position, error)
            return position
        # A copy, because the search may take long.
        batch = bytes(loaded.lend(position, position + header.size))
        try:
            record = yield from find_record(batch, header, self._is_found)
        except CorruptBatchError as error:
            raise damaged(segment, position, f"{error}") from error
        if record is None:
            return position + header.size
        at = NO_TIMESTAMP if record.timestamp is None else record.timestamp
        return at, record.offset, header.partition_leader_epoch

    def _is_found(self, record: CompiledRecord) -> bool:
        at = NO_TIMESTAMP if record.timestamp is None else record.timestamp
        return at >= self._timestamp and record.offset >= self._first_offset
