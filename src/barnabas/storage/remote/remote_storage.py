"""The interface of stores for the remote tier of logs (KIP-405), and their errors.

A store keeps copies of closed segments. All calls block. They are made on worker threads, and
several at a time. No store decides what is copied or deleted, or when.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Default of `remote.log.metadata.custom.metadata.max.bytes`: what a store may return of a copy.
CUSTOM_METADATA_MAX = 128
# Largest offset of a record: the end of a log, which is exclusive, is an int64 too.
OFFSET_MAX = (1 << 63) - 2


class SegmentState(IntEnum):
    """State of a remote segment, as in the records of `__remote_log_metadata`."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class RemoteSegment(msgspec.Struct, frozen=True, gc=False):
    """One copy of a segment. A second copy of the same offsets has another `id`."""

    topic: str
    # 16 bytes each.
    topic_id: bytes
    partition: int
    id: bytes
    start_offset: int
    # Inclusive.
    end_offset: int
    # Bytes of the log file.
    size: int
    # Largest timestamp of the records, ms.
    max_timestamp: int
    # (leader epoch, first offset of it in this segment), ascending, at least one.
    leader_epochs: tuple[tuple[int, int], ...]
    has_transactions: bool
    # The broker that wrote the latest event, and the time of the event, ms.
    broker_id: int
    event_ms: int
    state: SegmentState
    # What the store returned for the copy.
    custom: bytes | None = None


class SegmentFiles(msgspec.Struct, frozen=True):
    """What is copied of a closed segment. The formats are those of Kafka's files."""

    # The file does not change and is not deleted during the copy.
    log_path: str
    log_size: int
    offset_index: bytes
    time_index: bytes
    # None if the segment has no aborted transaction.
    transaction_index: bytes | None
    # The producers at the end of the segment.
    producer_snapshot: bytes
    # Text of a leader epoch checkpoint, from the log's first epoch to the segment's last.
    leader_epochs: bytes


class SegmentIndexes(msgspec.Struct, frozen=True):
    """The indexes of a stored segment. A missing transaction index is empty."""

    offset_index: bytes
    time_index: bytes
    transaction_index: bytes
    producer_snapshot: bytes
    leader_epochs: bytes


class StoredSegment(msgspec.Struct, frozen=True):
    """A segment found in the store itself, without the metadata topic."""

    # Name to continue a listing after.
    name: str
    segment: RemoteSegment
    # Whether the log and its indexes are there with the sizes that the manifest names.
    is_whole: bool


class StoredObject(msgspec.Struct, frozen=True):
    """An object of the store, as a listing shows it."""

    # Below the root of the cluster: `TOPIC-ID/PARTITION/START-ID.log` and so on.
    name: str
    size: int
    # Time of the last change, ms.
    modified_ms: int


class TopicDescription(msgspec.Struct, frozen=True):
    """What the store keeps of a topic, so that it can be created again."""

    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int
    configs: dict[str, str]


class RemoteStorage(Protocol):
    """A store of segments. Each call raises `RemoteStorageError` and nothing else."""

    def check(self) -> None:
        """Check that this is the store of the cluster, and that it answers. Mark a new store."""

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> bytes:
        """Store a segment, its manifest last; the call can be repeated.

        Returns:
            Custom metadata of at most `CUSTOM_METADATA_MAX` bytes, which comes back in
            `RemoteSegment.custom`.
        """

    def read(self, segment: RemoteSegment, start: int, end: int) -> memoryview:
        """Return exactly the bytes [start, end) of the segment's log."""

    def read_indexes(self, segment: RemoteSegment) -> SegmentIndexes:
        """Return all indexes of the segment, with their checksum verified."""

    def size_of(self, segment: RemoteSegment) -> int | None:
        """Return the stored size of the log; None if any part of the segment is missing."""

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Delete the manifest, then the other parts. Missing parts are no error."""

    def list_segments(self, topic: str | None, after: str = "") -> Iterator[StoredSegment]:
        """Yield the segments of a topic, or of all topics, in the order of their names."""

    def list_objects(self, after: str = "") -> Iterator[StoredObject]:
        """Yield all objects of the cluster in the order of their names, also incomplete ones."""

    def delete_objects(self, names: Sequence[str]) -> None:
        """Delete objects by the names that `list_objects` gave. Missing ones are no error."""

    def write_topic(self, topic: TopicDescription) -> None:
        """Store the description of a topic; an older one is replaced."""

    def delete_topic(self, topic: str, topic_id: bytes) -> None:
        """Delete the description of a topic. A missing one is no error."""

    def list_topics(self) -> Iterator[TopicDescription]:
        """Yield the descriptions of all topics in the store."""

    def close(self) -> None:
        """Close connections. Calls in progress may fail."""


class RemoteStorageError(StorageError):
    """A call to the remote storage failed; the message names the object and the cause."""


class RemoteUnavailableError(RemoteStorageError):
    """The store answers with server errors, throttles, or does not answer: try again later.

    Attributes:
        retry_after_ms: time that the store asked for; 0 if it named none.
    """

    def __init__(self, message: str, retry_after_ms: int = 0) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class RemoteRefusedError(RemoteStorageError):
    """Wrong credentials, missing rights, or a wrong clock: an operator must act."""


class RemoteFullError(RemoteStorageError):
    """The store has no space, or its quota is used up."""


class RemoteMissingError(RemoteStorageError):
    """An object that the metadata names is not in the store."""


class RemoteDamagedError(RemoteStorageError):
    """An object has another size, checksum or content than was stored."""
