"""ListOffsets of one partition: by timestamp or a special one (KIP-79, KIP-734, KIP-405).

Before KIP-79 (v0) the answer was a list of segments' starts, found by the age of their files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.results import UNKNOWN_EPOCH, ListOffsetResult
from barnabas.storage.errors import StorageError
from barnabas.storage.read_result import FetchIsolation

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.replication.partition import Partition
    from barnabas.waiting.off_loop import OffLoop

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6


def list_offset(
    partition: Partition, timestamp: int, isolation: FetchIsolation
) -> Generator[OffLoop | None, Any, ListOffsetResult]:
    """The offset for a timestamp, in steps; the caller has checked that the client may know it.

    Args:
        isolation: LOG_END for replicas; for others what they may see bounds the answer.

    Returns:
        All -1 and no error if no record fits. OFFSET_NOT_AVAILABLE while a new leader's high
        watermark has not reached the start of its epoch: an answer could go back behind one that
        was given before.
    """
    log = partition.log
    if timestamp == LATEST:
        if _may_go_back(partition, isolation):
            return ListOffsetResult(ErrorCode.OFFSET_NOT_AVAILABLE)
        end = _fetchable_end(partition, isolation)
        return ListOffsetResult(offset=end, leader_epoch=partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = log.leader_epochs.epoch_for_offset(log.log_start_offset)
        return ListOffsetResult(
            offset=log.log_start_offset, leader_epoch=UNKNOWN_EPOCH if epoch is None else epoch
        )
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        # Nothing is tiered.
        return ListOffsetResult()
    return (yield from _by_timestamp(partition, timestamp, isolation))


def offsets_before(
    partition: Partition, timestamp: int, count_max: int, isolation: FetchIsolation, now_ms: int
) -> list[int] | ErrorCode:
    """The offsets of v0: starts of segments whose files were last changed before a time.

    The log end is among them, as changed now, if the last segment holds anything. What an asker of
    that isolation may not see is put down to the end of what it may.

    Args:
        timestamp: ms, or LATEST or EARLIEST.
        count_max: how many at most.

    Returns:
        The latest ones, in falling order.
    """
    log = partition.log
    segments = list(log.segments)
    try:
        found = [
            (max(segment.base_offset, log.log_start_offset), segment.modified_ms())
            for segment in segments
        ]
    except OSError:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if segments[-1].size:
        found.append((log.log_end_offset, now_ms))
    if timestamp == EARLIEST:
        found = found[:1]
    elif timestamp != LATEST:
        while found and found[-1][1] > timestamp:
            found.pop()
    offsets = [offset for offset, _ in reversed(found)][:count_max]
    end = _fetchable_end(partition, isolation)
    if offsets and offsets[0] > end:
        return [end, *(offset for offset in offsets if offset <= end)]
    return offsets


def _by_timestamp(
    partition: Partition, timestamp: int, isolation: FetchIsolation
) -> Generator[OffLoop | None, Any, ListOffsetResult]:
    log = partition.log
    try:
        if timestamp == MAX_TIMESTAMP:
            found = yield from log.max_timestamp_offset()
        elif timestamp >= 0:
            found = yield from log.offset_for_timestamp(timestamp)
        else:
            found = None
    except StorageError as error:
        return ListOffsetResult(error.error_code)
    if found is not None and found[1] < _fetchable_end(partition, isolation):
        at, offset, epoch = found
        return ListOffsetResult(ErrorCode.NONE, at, offset, epoch)
    if _may_go_back(partition, isolation):
        return ListOffsetResult(ErrorCode.OFFSET_NOT_AVAILABLE)
    return ListOffsetResult()


def _fetchable_end(partition: Partition, isolation: FetchIsolation) -> int:
    log = partition.log
    match isolation:
        case FetchIsolation.LOG_END:
            return log.log_end_offset
        case FetchIsolation.HIGH_WATERMARK:
            return log.high_watermark
        case FetchIsolation.TXN_COMMITTED:
            return log.last_stable_offset


def _may_go_back(partition: Partition, isolation: FetchIsolation) -> bool:
    start = partition.leader_epoch_start_offset
    return (
        isolation is not FetchIsolation.LOG_END
        and start is not None
        and start > partition.log.high_watermark
    )
