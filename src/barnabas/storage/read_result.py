"""Result of a read (Kafka's FetchDataInfo), and its isolation (FetchIsolation)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from barnabas.runtime.disk import FileSlice
    from barnabas.storage.offset_metadata import LogOffsetMetadata


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

    # The last batch may be incomplete because of the byte limit.
    records: FileSlice | bytes
    # The requested offset and its position.
    position: LogOffsetMetadata
    # Whether even the first batch is incomplete because of a hard byte limit.
    first_batch_incomplete: bool = False
    # The aborted transactions that overlap the records; None unless TXN_COMMITTED.
    aborted_transactions: list[AbortedTransaction] | None = None
