"""Finding an offset by time in a log (ListOffsets; KIP-79, KIP-734)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.record.batch import CorruptBatchError
from barnabas.record.reader import records
from barnabas.storage.batch_scan import headers
from barnabas.storage.errors import CorruptRecordError

if TYPE_CHECKING:
    from barnabas.record.batch import BatchHeader
    from barnabas.storage.segment import Segment
    from barnabas.storage.segments import Segments


def find_by_timestamp(
    segments: Segments, timestamp: int, log_start_offset: int
) -> tuple[int, int, int] | None:
    """(timestamp, offset, leader epoch) of the first record at or after both limits."""
    for segment in segments.from_offset(log_start_offset):
        if segment.max_timestamp >= timestamp:
            found = _find_in_segment(segment, timestamp, log_start_offset)
            if found is not None:
                return found
    return None


def find_max_timestamp(segments: Segments, log_start_offset: int) -> tuple[int, int, int] | None:
    """(timestamp, offset, leader epoch) of the first record with the largest timestamp."""
    latest = max((segment.max_timestamp for segment in segments), default=-1)
    return find_by_timestamp(segments, latest, log_start_offset) if latest >= 0 else None


def _find_in_segment(
    segment: Segment, timestamp: int, log_start_offset: int
) -> tuple[int, int, int] | None:
    start = max(segment.time_index.lookup(timestamp), log_start_offset)
    for position, header in headers(segment.file, segment.lookup(start), segment.size):
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
