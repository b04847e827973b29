"""The check of a remote segment's contents: its indexes, and every batch of its log."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.storage.files.checkpoint import CheckpointError, decode_lines
from barnabas.storage.producers.producer_entry import CorruptSnapshotError, decode_snapshot
from barnabas.storage.remote.remote_storage import RemoteDamagedError
from barnabas.storage.remote.whole_log import checked_pieces

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.remote.remote_storage import RemoteSegment, RemoteStorage


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
    for piece in checked_pieces(segment, partial(storage.read, segment)):
        advance(len(piece.content))
