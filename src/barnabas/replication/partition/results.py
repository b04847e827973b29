"""Results of produce, fetch, ListOffsets and OffsetForLeaderEpoch for one partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.runtime.disk import FileSlice
    from barnabas.storage.remote.remote_reader import Miss
    from barnabas.storage.results import AbortedTransaction, FetchIsolation, LogOffsetMetadata

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1


class ProduceResult(msgspec.Struct):
    """The result of a produce request for one partition."""

    error: ErrorCode = ErrorCode.NONE
    # Offset of the first record; -1 if nothing was appended.
    base_offset: int = UNKNOWN_OFFSET
    # Offset of the last record; -1 if nothing was appended.
    last_offset: int = UNKNOWN_OFFSET
    # The broker's time in ms on a LogAppendTime topic, else -1.
    log_append_time: int = -1
    log_start_offset: int = UNKNOWN_OFFSET
    error_message: str | None = None
    # (index of the record in its batch, error message), KIP-467.
    record_errors: Sequence[tuple[int, str | None]] = ()


class EpochEndOffset(NamedTuple):
    """The end of an epoch: the diverging epoch of a fetch, or a result of OffsetForLeaderEpoch."""

    # The largest epoch not above the requested one; -1 if the log has none.
    epoch: int
    # Exclusive; -1 if unknown.
    end_offset: int
    error: ErrorCode = ErrorCode.NONE


class FetchResult(msgspec.Struct):
    """The result of a fetch for one partition."""

    error: ErrorCode
    # Values before the read; -1 with an error.
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    # Bytes from the file, b"" if there are none. A view if the remote tier has returned them.
    records: FileSlice | bytes | memoryview
    # For read_committed only.
    aborted_transactions: list[AbortedTransaction] | None = None
    # Set if the follower's log diverges: the follower truncates to it.
    diverging_epoch: EpochEndOffset | None = None
    # For mirrors in other clusters, as in `LeaderRole`; 0 for other clients.
    truncations: int = 0
    # Broker id of the preferred replica (KIP-392). -1: read from this broker.
    preferred_read_replica: int = -1
    # Whether the follower is a replica that is being added. Its bytes are counted separately.
    is_reassignment: bool = False
    # Not sent: log position of the fetch offset. None if nothing was read.
    position: LogOffsetMetadata | None = None
    # Not sent: the leader's log end offset before the read.
    leader_log_end_offset: int = UNKNOWN_OFFSET
    # Not sent: what must be loaded from the remote tier before this offset can be read.
    remote: Miss | None = None


def failed_fetch(error: ErrorCode) -> FetchResult:
    """Return the result of a failed read: no records and unknown offsets."""
    return FetchResult(error, UNKNOWN_OFFSET, UNKNOWN_OFFSET, UNKNOWN_OFFSET, b"")


class RemoteLookup(NamedTuple):
    """A lookup by timestamp that searches the remote tier before the local log."""

    timestamp: int
    # Decides up to which offset the client may see the result.
    isolation: FetchIsolation


class ListOffsetResult(msgspec.Struct):
    """The result of ListOffsets for one partition. All -1 if no record matches."""

    error: ErrorCode = ErrorCode.NONE
    timestamp: int = -1
    offset: int = UNKNOWN_OFFSET
    leader_epoch: int = UNKNOWN_EPOCH
    # Not sent: a search in the remote tier, whose result replaces this one.
    remote: RemoteLookup | None = None
