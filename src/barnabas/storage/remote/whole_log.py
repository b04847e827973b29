"""Reads the whole log of a remote segment in pieces, and checks every batch of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.storage.remote.batch_walk import check_batch, damaged, headers_in
from barnabas.storage.remote.range_cache import LoadedRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.record.batch import BatchHeader
    from barnabas.storage.remote.remote_storage import RemoteSegment

# Bytes of one read. A larger batch is read with a request of its own.
_PIECE_BYTES = 4 << 20


class LogPiece(NamedTuple):
    """Whole batches of a log, one after the other."""

    content: bytearray
    # Position in the content, and header, of each batch.
    batches: list[tuple[int, BatchHeader]]


def checked_pieces(
    segment: RemoteSegment, read: Callable[[int, int], bytes | memoryview]
) -> Iterator[LogPiece]:
    """Yield the log of a segment in pieces.

    The offsets of the batches must ascend and be those of the segment, their checksums must be
    right, and they must fill its size.

    Args:
        segment: the segment.
        read: returns the bytes [start, end) of its log.

    Raises:
        RemoteDamagedError: the log does not consist of whole, undamaged batches of the segment.
    """
    position, next_offset = 0, segment.start_offset
    wanted = _PIECE_BYTES
    while position < segment.size:
        start, end = position, min(position + wanted, segment.size)
        content = bytearray(read(start, end))
        loaded = LoadedRange(segment.id, start, content)
        batches: list[tuple[int, BatchHeader]] = []
        # Size of the batch that the piece cuts; 0 if it ends with a batch, or in a header.
        cut_size = 0
        while not cut_size:
            before = position
            for at, header in headers_in(segment, loaded, position):
                if header.base_offset < next_offset:
                    words = f"offset {header.base_offset} is not above the offsets before it"
                    raise damaged(segment, at, words)
                if at + header.size > loaded.end:
                    cut_size = header.size
                    break
                check_batch(segment, loaded, at, header)
                batches.append((at - start, header))
                position, next_offset = at + header.size, header.next_offset
            if position == before:
                break
        if position == start and cut_size <= end - start:
            words = f"the last {segment.size - start} bytes are no whole batch"
            raise damaged(segment, start, words)
        wanted = max(_PIECE_BYTES, cut_size)
        if batches:
            del content[position - start :]
            yield LogPiece(content, batches)
