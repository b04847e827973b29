"""Results of appends and reads, and positions of offsets.

Kafka: LogAppendInfo and AppendOrigin, FetchDataInfo and FetchIsolation, LogOffsetMetadata.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from barnabas.runtime.disk import FileSlice


UNKNOWN_SEGMENT = -1
UNKNOWN_POSITION = -1


class LogOffsetMetadata(msgspec.Struct, frozen=True, gc=False):
    """An offset with its segment and the byte position in it, if known."""

    message_offset: int
    segment_base_offset: int = UNKNOWN_SEGMENT
    relative_position: int = UNKNOWN_POSITION

    @property
    def is_known(self) -> bool:
        """Whether segment and position are known."""
        return self.relative_position != UNKNOWN_POSITION

    def on_older_segment(self, other: LogOffsetMetadata) -> bool:
        """Return whether this offset lies in an earlier segment; both must be known."""
        assert self.is_known
        assert other.is_known
        return self.segment_base_offset < other.segment_base_offset

    def on_same_segment(self, other: LogOffsetMetadata) -> bool:
        """Return whether both offsets lie in one segment. Both must be known."""
        assert self.is_known
        assert other.is_known
        return self.segment_base_offset == other.segment_base_offset

    def bytes_since(self, other: LogOffsetMetadata) -> int:
        """Return the bytes from `other` to this offset; both must lie in one segment."""
        assert self.on_same_segment(other)
        return self.relative_position - other.relative_position


class AppendOrigin(Enum):
    """Origin of an append, which decides how much is validated."""

    # Produce request of a client: everything is validated.
    CLIENT = "client"
    # A coordinator's records and transaction markers: only the producer epoch is validated.
    COORDINATOR = "coordinator"
    # A marker of a transaction of version 2: its epoch must be above the producer's (KIP-1228).
    BUMPING_MARKER = "bumping marker"
    # The leader of the metadata quorum: offsets are checked, not assigned.
    RAFT = "raft"
    # The leader's batches on a follower, which are stored unchanged.
    REPLICATION = "replication"
    # The abort marker of a promoted mirror: validated like a coordinator's.
    PROMOTION = "promotion"


class AppendInfo(msgspec.Struct, gc=False):
    """Result of one append."""

    # Offset of the first record; for a duplicate, the offset of the first append. -1 if there was
    # nothing to append.
    first_offset: int
    # Offset of the last record, inclusive; first_offset - 1 if there was nothing to append.
    last_offset: int
    # Log start offset at the time of the append.
    log_start_offset: int
    # Largest timestamp of the appended batches, -1 without one.
    max_timestamp: int = -1
    # The broker's time for a LogAppendTime topic, else -1.
    log_append_time: int = -1
    # Leader epoch of the last batch.
    last_leader_epoch: int = -1
    record_count: int = 0
    # Bytes appended to the file.
    size: int = 0
    # Whether the batch was already appended earlier; nothing was written now.
    duplicate: bool = False
    # Whether flush.messages is reached. Acknowledgments then wait for `LogSync.flush_async`.
    needs_flush: bool = False
    # Whether the append moved the high watermark, since no follower limits it. Set by the leader.
    moved_high_watermark: bool = False
    # Whether a segment was closed to make room for the append.
    rolled: bool = False


class FetchIsolation(Enum):
    """The offset up to which a read returns records."""

    # Up to the log end offset, for followers.
    LOG_END = "log_end"
    # Up to the high watermark, for consumers.
    HIGH_WATERMARK = "high_watermark"
    # Up to the last stable offset, for read_committed consumers, with aborted transactions.
    TXN_COMMITTED = "txn_committed"


class AbortedTransaction(NamedTuple):
    """A transaction whose records a read_committed consumer skips."""

    producer_id: int
    first_offset: int


class ReadResult(msgspec.Struct):
    """Batches of one read, as they are in the file."""

    # The last batch may be incomplete because of the byte limit. A view is of the memory in which
    # reads of the remote tier are kept.
    records: FileSlice | bytes | memoryview
    # The requested offset and its position.
    position: LogOffsetMetadata
    # Whether even the first batch is incomplete because of a hard byte limit.
    first_batch_incomplete: bool = False
    # The aborted transactions that overlap the records; None unless TXN_COMMITTED.
    aborted_transactions: list[AbortedTransaction] | None = None

    def content(self) -> bytes:
        """Return the records; those of a file are read."""
        return content_of(self.records)


def content_of(records: FileSlice | bytes | memoryview) -> bytes:
    """Return the bytes of records: those of a file are read, and those of a view are copied."""
    return bytes(records) if isinstance(records, bytes | memoryview) else records.read()
