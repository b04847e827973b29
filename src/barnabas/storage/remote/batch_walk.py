"""A walk over the batches of a loaded range of a remote segment, for one read.

The bytes come from a store, and the position from an index. So each header is compared with the
segment's offsets and size, and the CRC of each batch that is returned is checked, once per range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.record.batch import (
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    check_crc,
    made_header,
)
from barnabas.storage.remote.remote_storage import RemoteDamagedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.record.batch import BatchHeader
    from barnabas.storage.remote.range_cache import LoadedRange
    from barnabas.storage.remote.remote_storage import RemoteSegment

# Batches in one walk: about a millisecond.
BATCHES_PER_WALK = 500
# Limit for the size of a batch, as for requests.
BATCH_BYTES_MAX = 100 << 20
_BATCH_LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD

_unpack_header = HEADER.unpack_from


class ReadRequest(msgspec.Struct, frozen=True):
    """What a read may return."""

    offset: int
    max_bytes: int
    # Whether the first batch is returned even if it is larger than `max_bytes`.
    min_one: bool
    # Exclusive end of the offsets that the consumer may see.
    end_offset: int


class Walk(msgspec.Struct):
    """The result of a walk. All positions are in the segment."""

    # Where the walk has stopped: at the first batch that it has not passed.
    stopped_at: int
    # Size of the batch there; 0 if its header is not in the range.
    size_there: int = 0
    # Position of the first batch that ends at or after the requested offset; None if there is none.
    first: int | None = None
    # Position and offset after the last batch to return; -1 without one.
    end: int = -1
    next_offset: int = -1
    # Whether a limit of the request has stopped the walk.
    is_limited: bool = False
    # Where the limit of bytes cuts the batch after the last whole one; -1 if it does not.
    cut_at: int = -1


def headers_in(
    segment: RemoteSegment, loaded: LoadedRange, position: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch whose header is in the range.

    The last batch may end behind the range. At most `BATCHES_PER_WALK` batches are yielded.

    Args:
        segment: the segment.
        loaded: a range with the position.
        position: where a batch begins.

    Raises:
        RemoteDamagedError: a header does not belong to the segment.
    """
    data, start = loaded.data, loaded.start
    expected = segment.start_offset
    for _ in range(BATCHES_PER_WALK):
        if loaded.end - position < HEADER_SIZE:
            return
        header = made_header(_unpack_header(data, position - start))
        if header.magic != MAGIC_V2 or header.batch_length < _BATCH_LENGTH_MIN:
            raise damaged(segment, position, "no batch begins here")
        size = header.size
        if size > BATCH_BYTES_MAX or position + size > segment.size:
            raise damaged(segment, position, f"the batch cannot have {size} bytes")
        first, last = header.base_offset, header.last_offset
        if not expected <= first <= last <= segment.end_offset:
            raise damaged(segment, position, f"the batch cannot have offsets {first} to {last}")
        yield position, header
        expected = last + 1
        position += size


def walk(segment: RemoteSegment, loaded: LoadedRange, position: int, request: ReadRequest) -> Walk:
    """Find the whole batches that a read returns from a range.

    Args:
        segment: the segment.
        loaded: a range with the position.
        position: where a batch begins, at or before the batch of the requested offset.
        request: what to return.

    Raises:
        RemoteDamagedError: the bytes are not batches of the segment, a CRC is wrong, or the
            requested offset is before the position.
    """
    found = Walk(position)
    try:
        _walk(segment, loaded, position, request, found)
    except RemoteDamagedError:
        if found.end < 0:
            raise
        # The batches before the damage are returned. The next read reports it.
        found.is_limited = True
    return found


def _walk(
    segment: RemoteSegment,
    loaded: LoadedRange,
    position: int,
    request: ReadRequest,
    found: Walk,
) -> None:
    for at, header in headers_in(segment, loaded, position):
        size = header.size
        found.stopped_at, found.size_there = at, size
        is_requested = header.last_offset >= request.offset
        if is_requested:
            if found.first is None:
                if at == position > 0 and header.base_offset > request.offset:
                    # A wrong index: records would be skipped.
                    raise damaged(segment, at, f"offset {request.offset} is not behind it")
                found.first = at
            if _is_beyond_limit(found.first, at, header, request):
                found.is_limited = True
                if header.base_offset < request.end_offset:
                    found.cut_at = min(found.first + request.max_bytes, loaded.end)
                return
        if at + size > loaded.end:
            return
        if is_requested:
            check_batch(segment, loaded, at, header)
            found.end, found.next_offset = at + size, header.next_offset
        found.stopped_at, found.size_there = at + size, 0


def _is_beyond_limit(first: int, at: int, header: BatchHeader, request: ReadRequest) -> bool:
    if header.base_offset >= request.end_offset:
        return True
    if at == first and request.min_one:
        return False
    return at + header.size - first > request.max_bytes


def check_batch(segment: RemoteSegment, loaded: LoadedRange, at: int, header: BatchHeader) -> None:
    """Check the CRC of a whole batch in a range, unless it was checked before.

    Raises:
        RemoteDamagedError: the CRC is wrong.
    """
    end = at + header.size
    if loaded.checked_from <= at and end <= loaded.checked_to:
        return
    if not check_crc(loaded.data, at - loaded.start, header):
        raise damaged(segment, at, "the CRC is wrong")
    if at != loaded.checked_to:
        loaded.checked_from = at
    loaded.checked_to = end


def damaged(segment: RemoteSegment, position: int, problem: str) -> RemoteDamagedError:
    """Return the error for a place in a segment."""
    return RemoteDamagedError(
        f"the remote segment {segment.topic}-{segment.partition} at offset {segment.start_offset} "
        f"is damaged at position {position}: {problem}"
    )
