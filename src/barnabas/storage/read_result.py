"""What a read gives (Kafka's FetchDataInfo), and how far it may see (FetchIsolation)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from barnabas.runtime.disk import FileSlice
    from barnabas.storage.offset_metadata import LogOffsetMetadata


class FetchIsolation(Enum):
    """How far a read sees."""

    # Followers.
    LOG_END = "log_end"
    # Consumers.
    HIGH_WATERMARK = "high_watermark"
    # Consumers with read_committed: to the last stable offset, with the aborted transactions.
    TXN_COMMITTED = "txn_committed"


class AbortedTransaction(NamedTuple):
    """A transaction whose records a read_committed consumer skips."""

    producer_id: int
    first_offset: int


class ReadResult(NamedTuple):
    """Bytes of whole segments' worth of batches, as they lie in the file."""

    # The last batch may be cut off by the byte limit.
    records: FileSlice | bytes
    # The asked offset and where it lies.
    position: LogOffsetMetadata
    # Not even the first batch is whole: the byte limit was hard.
    first_batch_incomplete: bool = False
    # Those that overlap the records; None unless read with TXN_COMMITTED.
    aborted_transactions: list[AbortedTransaction] | None = None
