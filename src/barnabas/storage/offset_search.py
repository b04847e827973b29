"""Finding an offset by time in a log (ListOffsets; KIP-79, KIP-734)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.record.batch import NO_TIMESTAMP, CorruptBatchError
from barnabas.record.reader import records
from barnabas.storage.batch_scan import whole_headers
from barnabas.storage.errors import CorruptRecordError

if TYPE_CHECKING:
    from barnabas.record.batch import BatchHeader
    from barnabas.storage.segment import Segment
    from barnabas.storage.segments import Segments


def find_by_timestamp(
    segments: Segments, timestamp: int, log_start_offset: int
) -> tuple[int, int, int] | None:
    """(timestamp, offset, leader epoch) of the first record at or after both limits."""
    for segment in segments.reaching(timestamp, log_start_offset):
        found = _find_in_segment(segment, timestamp, log_start_offset)
        if found is not None:
            return found
    return None


def find_max_timestamp(segments: Segments, log_start_offset: int) -> tuple[int, int, int] | None:
    """(timestamp, offset, leader epoch) of the first record with the largest timestamp.

    Where no record has a time, the first one is that.
    """
    first, later = segments.max_timestamps(log_start_offset)
    found = find_by_timestamp(segments, max(first.max_timestamp, later), log_start_offset)
    if found is not None:
        return found
    # The record of that time lies below the log's start, which only its segment's batches tell.
    latest = max(_max_timestamp_above(first, log_start_offset), later)
    return find_by_timestamp(segments, latest, log_start_offset)


def _max_timestamp_above(segment: Segment, log_start_offset: int) -> int:
    """The largest timestamp of the records that are left in the log's first segment."""
    latest = NO_TIMESTAMP
    start = segment.position_of(log_start_offset)
    for position, header in whole_headers(segment.file, start, segment.size):
        if header.last_offset < log_start_offset or header.max_timestamp <= latest:
            continue
        if header.base_offset >= log_start_offset:
            latest = header.max_timestamp
            continue
        limits = (latest + 1, log_start_offset)
        while (found := _find_in_batch(segment, position, header, limits)) is not None:
            latest = found[0]
            limits = (latest + 1, log_start_offset)
    return latest


def _find_in_segment(
    segment: Segment, timestamp: int, log_start_offset: int
) -> tuple[int, int, int] | None:
    start = segment.position_of(max(segment.lookup_time(timestamp), log_start_offset))
    for position, header in whole_headers(segment.file, start, segment.size):
        if header.max_timestamp < timestamp or header.last_offset < log_start_offset:
            continue
        found = _find_in_batch(segment, position, header, (timestamp, log_start_offset))
        if found is not None:
            return found
    return None


def _find_in_batch(
    segment: Segment, position: int, header: BatchHeader, limits: tuple[int, int]
) -> tuple[int, int, int] | None:
    timestamp, log_start_offset = limits
    batch = segment.file.read_at(header.size, position)
    try:
        for record in records(batch):
            if record.timestamp >= timestamp and record.offset >= log_start_offset:
                return record.timestamp, record.offset, header.partition_leader_epoch
    except CorruptBatchError as error:
        raise CorruptRecordError(f"{segment!r} at {position}: {error}") from error
    return None
