"""The state of a log at the end of a stored segment: its leader epochs and producers (KIP-405)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.storage.files.checkpoint import CheckpointError
from barnabas.storage.files.leader_epoch_cache import decode_epochs
from barnabas.storage.producers.producer_entry import CorruptSnapshotError, decode_snapshot
from barnabas.storage.remote.remote_storage import RemoteDamagedError

if TYPE_CHECKING:
    from barnabas.storage.files.leader_epoch_cache import EpochEntry
    from barnabas.storage.remote.remote_storage import RemoteSegment, RemoteStorage


class AuxiliaryState(NamedTuple):
    """What is known at the end of a stored segment."""

    segment: RemoteSegment
    # Epochs of the records below `offset`, from the log start at the time of the copy.
    epochs: list[EpochEntry]
    # Content of a producer snapshot, with the producers below `offset`.
    producer_snapshot: bytes

    @property
    def offset(self) -> int:
        """Offset of the first record that the follower fetches."""
        return self.segment.end_offset + 1


def read_state(storage: RemoteStorage, segment: RemoteSegment) -> AuxiliaryState:
    """Read and check the state at the end of a segment. Blocks: call it on a worker thread.

    Raises:
        RemoteStorageError: the store failed, or the content is damaged.
    """
    indexes = storage.read_indexes(segment)
    try:
        epochs = epochs_of(indexes.leader_epochs, segment.end_offset)
        decode_snapshot(indexes.producer_snapshot)
    except (CheckpointError, CorruptSnapshotError) as error:
        raise RemoteDamagedError(
            f"the indexes of a remote segment are damaged: partition={segment.topic}-"
            f"{segment.partition} start_offset={segment.start_offset} problem={error}"
        ) from error
    return AuxiliaryState(segment, epochs, indexes.producer_snapshot)


def epochs_of(content: bytes, end_offset: int) -> list[EpochEntry]:
    """Return the entries of a leader epoch checkpoint of a log that has records to `end_offset`.

    Raises:
        CheckpointError: the content is damaged, or has entries that such a log cannot have.
    """
    entries = decode_epochs(content)
    if not entries:
        raise CheckpointError("the leader epoch checkpoint is empty")
    if entries[0].epoch < 0 or entries[0].start_offset < 0:
        raise CheckpointError(f"{entries[0]} is not the epoch of a record")
    if entries[-1].start_offset > end_offset:
        raise CheckpointError(f"{entries[-1]} begins behind the segment: end_offset={end_offset}")
    return entries
