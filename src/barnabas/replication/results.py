"""What a partition answers to a produce, a fetch, a list of offsets, an epoch's end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.runtime.disk import FileSlice
    from barnabas.storage.offset_metadata import LogOffsetMetadata
    from barnabas.storage.read_result import AbortedTransaction

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1


class ProduceResult(msgspec.Struct):
    """Answer to the records for one partition."""

    error: ErrorCode = ErrorCode.NONE
    # Offset of the first record; -1 if nothing was appended.
    base_offset: int = UNKNOWN_OFFSET
    # Inclusive; -1 if nothing was appended.
    last_offset: int = UNKNOWN_OFFSET
    # The broker's time on a LogAppendTime topic, else -1.
    log_append_time: int = -1
    log_start_offset: int = UNKNOWN_OFFSET
    error_message: str | None = None
    # (index of the record in its batch, what is wrong with it), KIP-467.
    record_errors: Sequence[tuple[int, str | None]] = ()


class EpochEndOffset(NamedTuple):
    """Where an epoch ends: the diverging epoch of a fetch, the answer to OffsetForLeaderEpoch."""

    # The largest epoch not above the asked one; -1 if the log knows none.
    epoch: int
    # Exclusive; -1 if unknown.
    end_offset: int
    error: ErrorCode = ErrorCode.NONE


class FetchResult(msgspec.Struct):
    """Answer to a fetch of one partition."""

    error: ErrorCode
    # As they were before the read; -1 with an error.
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    # Bytes from the file, b"" if there are none.
    records: FileSlice | bytes
    # For read_committed only.
    aborted_transactions: list[AbortedTransaction] | None = None
    # Set if the asker's log has left ours: where to truncate to.
    diverging_epoch: EpochEndOffset | None = None
    # -1: stay with this broker (KIP-392).
    preferred_read_replica: int = -1
    # The asker is a replica that is being added: its bytes are counted apart.
    is_reassignment: bool = False
    # Not for the answer: where the fetch offset lies in the file; None if nothing was read.
    position: LogOffsetMetadata | None = None
    # Not for the answer: our log end before the read.
    leader_log_end_offset: int = UNKNOWN_OFFSET


def failed_fetch(error: ErrorCode) -> FetchResult:
    """The answer to a partition that cannot be read: no records, offsets unknown."""
    return FetchResult(error, UNKNOWN_OFFSET, UNKNOWN_OFFSET, UNKNOWN_OFFSET, b"")


class ListOffsetResult(msgspec.Struct):
    """Answer to a ListOffsets of one partition; all -1 if no record fits."""

    error: ErrorCode = ErrorCode.NONE
    timestamp: int = -1
    offset: int = UNKNOWN_OFFSET
    leader_epoch: int = UNKNOWN_EPOCH
