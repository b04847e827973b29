"""ListOffsets for one partition, by timestamp or special timestamp (KIP-79, KIP-734, KIP-405).

A search by timestamp that may end in the remote tier is only begun here, see `RemoteLookup`.

Before KIP-79 (v0) the response was a list of segment base offsets, selected by file modification
time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.results import UNKNOWN_EPOCH, ListOffsetResult, RemoteLookup
from barnabas.storage.errors import StorageError
from barnabas.storage.results import FetchIsolation

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.replication.partition.partition import Partition
    from barnabas.storage.log.log import Log
    from barnabas.waiting.steps import OffLoop

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6


def list_offset(
    partition: Partition, timestamp: int, isolation: FetchIsolation
) -> Generator[OffLoop | None, Any, ListOffsetResult]:
    """Return the offset for a timestamp, in steps. The caller has checked the access.

    Args:
        partition: the partition.
        timestamp: ms, or a special timestamp.
        isolation: LOG_END for replicas. For clients, the visible end limits the result.

    Returns:
        All -1 and no error if no record matches. OFFSET_NOT_AVAILABLE while a new leader's high
        watermark is below the start of its epoch, since the offset could be lower than in an
        earlier response.
    """
    log = partition.log
    if timestamp == LATEST:
        if _may_go_back(partition, isolation):
            return ListOffsetResult(ErrorCode.OFFSET_NOT_AVAILABLE)
        end = _fetchable_end(partition, isolation)
        return ListOffsetResult(offset=end, leader_epoch=partition.leader_epoch)
    if timestamp == EARLIEST:
        return _at(log, log.log_start_offset)
    if timestamp == EARLIEST_LOCAL:
        return _at(log, log.local_log_start_offset)
    if timestamp == LATEST_TIERED:
        return _latest_tiered(log)
    if timestamp == EARLIEST_PENDING_UPLOAD:
        return _earliest_pending_upload(log)
    if timestamp >= 0 and partition.has_only_remotely(log.log_start_offset):
        return ListOffsetResult(remote=RemoteLookup(timestamp, isolation))
    return (yield from _by_timestamp(partition, timestamp, isolation))


def _at(log: Log, offset: int) -> ListOffsetResult:
    epoch = log.leader_epochs.epoch_for_offset(offset)
    return ListOffsetResult(offset=offset, leader_epoch=UNKNOWN_EPOCH if epoch is None else epoch)


def _latest_tiered(log: Log) -> ListOffsetResult:
    """Return the highest offset in the remote tier, -1 without one (KIP-1005)."""
    if not log.config.is_remote or log.highest_remote_offset < 0:
        return ListOffsetResult()
    return _at(log, log.highest_remote_offset)


def _earliest_pending_upload(log: Log) -> ListOffsetResult:
    """Return the first offset that is not in the remote tier yet (KIP-1023)."""
    if not log.config.is_remote:
        return ListOffsetResult()
    start = log.log_start_offset
    if log.highest_remote_offset < 0 and log.local_log_start_offset > start:
        # After a start, this broker does not know yet how far the tier reaches.
        return ListOffsetResult()
    first = max(log.highest_remote_offset + 1, start)
    # As in Kafka, the log end is no such offset: there is no record yet.
    return _at(log, first) if first < log.log_end_offset else ListOffsetResult()


def offsets_before(
    partition: Partition, timestamp: int, count_max: int, isolation: FetchIsolation, now_ms: int
) -> list[int] | ErrorCode:
    """Return the offsets of v0: base offsets of local segments last modified before a time.

    The log end offset is included, with the current time, if the last segment has records. The log
    start is, if it is only in the remote tier. Offsets above the visible end of the isolation level
    are replaced by this end.

    Args:
        partition: the partition.
        timestamp: ms, or LATEST or EARLIEST.
        count_max: the maximum number of offsets.
        isolation: determines the visible end.
        now_ms: the current time.

    Returns:
        The latest offsets, in descending order.
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
    if log.log_start_offset < segments[0].base_offset:
        # The remote tier has the beginning. The times of its segments are not known here.
        found.insert(0, (log.log_start_offset, 0))
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
            found = yield from log.reader.max_timestamp_offset()
        elif timestamp >= 0:
            found = yield from log.reader.offset_for_timestamp(timestamp)
        else:
            found = None
    except StorageError as error:
        return ListOffsetResult(error.error_code)
    return visible_result(partition, found, isolation)


def visible_result(
    partition: Partition, found: tuple[int, int, int] | None, isolation: FetchIsolation
) -> ListOffsetResult:
    """Return the result of a search by timestamp, as far as the client may see it.

    Args:
        partition: the partition.
        found: timestamp, offset and leader epoch of the record; None without one.
        isolation: determines the visible end.
    """
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
    leader = partition.leader
    return (
        isolation is not FetchIsolation.LOG_END
        and leader is not None
        and leader.leader_epoch_start_offset > partition.log.high_watermark
    )
