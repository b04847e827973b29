"""Offsets of the record batches that a read of the log has returned."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from barnabas.record.batch import HEADER, HEADER_SIZE, ControlType, made_header
from barnabas.runtime.disk import FileSlice
from barnabas.server.share.records.acquisition import FetchedBatch
from barnabas.storage.producers.producer_entry import read_end_marker
from barnabas.storage.segment.batch_scan import headers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.record.batch import BatchHeader

# Further batches of a read are not acquired. Each takes a microsecond.
BATCHES_MAX = 10_000


def scan(
    records: FileSlice | bytes, last_needed: int, batches_max: int = BATCHES_MAX
) -> list[FetchedBatch]:
    """Return the whole batches of a read up to an offset, since each costs a read of its header.

    Args:
        records: the result of the read.
        last_needed: the last offset of interest. The batch with this offset is the last one.
        batches_max: maximum number of batches.

    Raises:
        DamagedLogError: a header in the file is invalid.
        CorruptRecordError: a marker in the file is invalid.
    """
    found: list[FetchedBatch] = []
    for header, is_abort in _batches(records):
        if len(found) == batches_max:
            break
        found.append(
            FetchedBatch(
                header.base_offset,
                header.last_offset,
                header.producer_id,
                header.is_transactional,
                is_abort,
                header.size,
            )
        )
        if header.last_offset >= last_needed:
            break
    return found


def cut(
    records: FileSlice | bytes, batches: Sequence[FetchedBatch], first: int, last: int
) -> FileSlice | bytes:
    """Return the record batches with the offsets from `first` to `last`.

    Args:
        records: the result of the read.
        batches: its batches.
        first: the first acquired offset.
        last: the last acquired offset.
    """
    begin = max(0, bisect_right(batches, first, key=_first_of) - 1)
    end = bisect_right(batches, last, key=_first_of)
    start = sum(each.size for each in batches[:begin])
    size = sum(each.size for each in batches[begin:end])
    if isinstance(records, FileSlice):
        return FileSlice(records.file, records.position + start, size)
    return records[start : start + size]


def _first_of(batch: FetchedBatch) -> int:
    return batch.first


def _batches(records: FileSlice | bytes) -> Iterator[tuple[BatchHeader, bool]]:
    if isinstance(records, FileSlice):
        end = records.position + records.length
        for position, header in headers(records.file, records.position, end):
            is_abort = header.is_control and _is_abort(
                records.file.read_at(header.size, position), header
            )
            yield header, is_abort
        return
    position = 0
    while len(records) - position >= HEADER_SIZE:
        header = made_header(HEADER.unpack_from(records, position))
        if header.size > len(records) - position:
            return
        batch = records[position : position + header.size]
        yield header, header.is_control and _is_abort(batch, header)
        position += header.size


def _is_abort(batch: bytes, header: BatchHeader) -> bool:
    marker = read_end_marker(batch, header)
    return marker is not None and marker.control_type is ControlType.ABORT
