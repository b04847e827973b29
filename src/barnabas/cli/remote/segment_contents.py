"""The check of a remote segment's contents: its indexes, and every batch of its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.files.checkpoint import CheckpointError, decode_lines
from barnabas.storage.producers.producer_entry import CorruptSnapshotError, decode_snapshot
from barnabas.storage.remote.batch_walk import check_batch, damaged, headers_in
from barnabas.storage.remote.range_cache import LoadedRange
from barnabas.storage.remote.remote_storage import RemoteDamagedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.remote.remote_storage import RemoteSegment, RemoteStorage

# Bytes of one request. A larger batch is read with a request of its own.
_PIECE_BYTES = 4 << 20


def check_contents(
    storage: RemoteStorage, segment: RemoteSegment, advance: Callable[[int], None]
) -> None:
    """Read all parts of a segment.

    The checksums of the indexes and of each batch must be right. The offsets of the batches must
    ascend and be those of the segment, and the batches must fill its size.

    Args:
        storage: The store.
        segment: A segment whose copy is finished.
        advance: Called with the number of bytes that were checked.

    Raises:
        RemoteStorageError: A part is damaged or missing, or the store does not answer.
    """
    indexes = storage.read_indexes(segment)
    try:
        decode_snapshot(indexes.producer_snapshot)
        decode_lines(indexes.leader_epochs, 2)
    except (CorruptSnapshotError, CheckpointError, ValueError) as error:
        raise RemoteDamagedError(
            f"the indexes have the right checksum, but do not decode: {error}"
        ) from error
    log = _LogCheck(segment)
    wanted = _PIECE_BYTES
    while log.position < segment.size:
        start, end = log.position, min(log.position + wanted, segment.size)
        size = log.check(bytes(storage.read(segment, start, end)))
        advance(log.position - start)
        if log.position == start and size <= end - start:
            words = f"the last {segment.size - start} bytes are no whole batch"
            raise damaged(segment, start, words)
        wanted = max(_PIECE_BYTES, size)


class _LogCheck:
    """The state of a check of a log that is read in pieces."""

    __slots__ = ("_next_offset", "_segment", "position")

    def __init__(self, segment: RemoteSegment) -> None:
        self._segment = segment
        # Offset after the last checked batch.
        self._next_offset = segment.start_offset
        # Position after the last checked batch: where the next piece begins.
        self.position = 0

    def check(self, piece: bytes) -> int:
        """Check the whole batches in a piece.

        Returns:
            The size of the batch that the piece cuts; 0 if it ends with a batch, or in a header.
        """
        loaded = LoadedRange(self._segment.id, self.position, piece)
        while True:
            before = self.position
            for at, header in headers_in(self._segment, loaded, self.position):
                if header.base_offset < self._next_offset:
                    words = f"offset {header.base_offset} is not above the offsets before it"
                    raise damaged(self._segment, at, words)
                if at + header.size > loaded.end:
                    return header.size
                check_batch(self._segment, loaded, at, header)
                self.position, self._next_offset = at + header.size, header.next_offset
            if self.position == before:
                return 0
