"""Processes a fetch response on the follower, partition by partition.

An error of one partition does not affect the others. A partition with an error becomes *delayed*
(backoff) or *failed* (not fetched until its leader changes), or keeps its state.
"""

from __future__ import annotations

import logging
import struct
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.errors import ErrorCode
from barnabas.record.batch import HEADER_SIZE, read_header
from barnabas.record.record import CorruptBatchError
from barnabas.replication.fetcher.fetch_states import (
    FIRST_BACKOFF_MS,
    USUAL_ERRORS_MAX,
    FetchPhase,
)
from barnabas.replication.partition.partition_roles import (
    Fetched,
    NotLeadingError,
    OffsetMismatchError,
)
from barnabas.replication.partition.results import UNKNOWN_EPOCH, EpochEndOffset
from barnabas.storage.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KafkaStorageError,
    StorageError,
    log_level_of,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from barnabas.protocol.messages.fetch import PartitionData
    from barnabas.replication.fetcher.fetch_states import FetchState, FetchStates
    from barnabas.replication.fetcher.leader_endpoint import RequestedPartition
    from barnabas.replication.fetcher.local_replicas import LocalReplicas
    from barnabas.storage.topic_partition import TopicPartition


_log = logging.getLogger(__name__)

# Expected errors during leader changes, topic creation and topic deletion, since leader and
# follower receive metadata at different times. They are logged only if they persist.
_USUAL = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
# Bytes of batches that are appended in one step. The batches may be small: a thousand of them take
# some milliseconds.
STEP_BYTES = 128 << 10
# Base offset and length at the start of each batch.
_BATCH_START = struct.Struct(">qi")


class Processed(NamedTuple):
    """The work that remains after processing a response."""

    # Partitions whose logs diverge, with the leader's end of the epoch.
    diverging: dict[TopicPartition, EpochEndOffset]
    # Partitions with appended records that must be synced before the next fetch.
    to_sync: list[TopicPartition]
    # Partitions whose high watermark moved. The caller checks pending operations.
    moved: list[TopicPartition]
    bytes_appended: int


class FetchProcessing:
    """Appends fetched records and updates the fetch states."""

    __slots__ = ("_has_tier", "_local", "_max_bytes", "_states")

    def __init__(
        self, states: FetchStates, local: LocalReplicas, max_bytes: int, *, has_tier: bool = False
    ) -> None:
        self._states = states
        # Whether this broker has a remote tier.
        self._has_tier = has_tier
        self._local = local
        # `replica.fetch.max.bytes`
        self._max_bytes = max_bytes

    def process(
        self,
        requested: Mapping[TopicPartition, RequestedPartition],
        received: Mapping[TopicPartition, PartitionData],
    ) -> Generator[None, None, Processed]:
        """Append the records, and update the state of every partition.

        Stop after each partition, and within a partition after `STEP_BYTES`: other work of the loop
        may run then, and partitions may be removed. If the caller pauses, it calls `keep_records`.
        """
        processed = _Processing()
        for key, data in received.items():
            state = self._states.get(key)
            query = requested.get(key)
            if (
                state is None
                or query is None
                or state.phase is not FetchPhase.FETCHING
                or state.is_syncing
                or query.fetch_offset != state.fetch_offset
            ):
                # The partition was removed, re-added or truncated after the request: the data is
                # stale.
                continue
            self._states.mark_changed(key)
            if data.error_code:
                self._handle_error(key, state, query, data)
            elif data.diverging_epoch.epoch != UNKNOWN_EPOCH:
                # The watermarks follow with the first fetch after the truncation.
                end = data.diverging_epoch
                processed.diverging[key] = EpochEndOffset(end.epoch, end.end_offset)
            else:
                try:
                    yield from self._append_in_steps(key, state, data, processed)
                except AssertionError:
                    raise
                except Exception:  # noqa: BLE001 - the other partitions are still handled
                    self._states.fail_unexpectedly(key, "appending records")
                data.records = None
            yield
        return Processed(
            processed.diverging,
            list(processed.to_sync),
            list(processed.moved),
            processed.bytes_appended,
        )

    def _append_in_steps(
        self, key: TopicPartition, state: FetchState, data: PartitionData, processing: _Processing
    ) -> Generator[None, None, None]:
        start = 0
        while True:
            # After a pause, this is a copy.
            records = data.records or b""
            assert isinstance(records, memoryview | bytes)
            if start == 0:
                self._warn_if_oversized(key, records)
            end = _end_of_step(records, start)
            step = records[start:end]
            size = self._append(key, state, step, data, processing)
            # Fewer bytes are appended if later batches are truncated or have a later epoch.
            if end == len(records) or size < len(step):
                return
            start = end
            yield
            if self._states.get(key) is not state or state.phase is not FetchPhase.FETCHING:
                # The remaining bytes are stale.
                return

    def _append(
        self,
        key: TopicPartition,
        state: FetchState,
        records: memoryview | bytes,
        data: PartitionData,
        processing: _Processing,
    ) -> int:
        """Append batches, and note what changed. Return the number of bytes appended."""
        fetched = Fetched(
            records, data.high_watermark, data.log_start_offset, data.snapshot_id.end_offset
        )
        try:
            appended = self._local.append(key, state.fetch_offset, fetched)
        except (CorruptRecordError, InvalidRecordError) as error:
            _log.error(
                "Damaged records from the leader are not appended: partition=%s error=%s",
                key,
                error,
            )
            self._states.delay([key])
            return 0
        except KafkaStorageError as error:
            _log.log(
                log_level_of(error),
                "Append of fetched records failed: partition=%s error=%s",
                key,
                error,
            )
            self._states.delay([key])
            return 0
        except NotLeadingError as error:
            _log.debug("Fetched records are not appended: %s", error)
            self._states.delay([key], FIRST_BACKOFF_MS)
            return 0
        except (StorageError, OffsetMismatchError) as error:
            _log.error(
                "Replication of a partition failed until its leader changes: partition=%s error=%s",
                key,
                error,
            )
            self._states.fail(key)
            return 0
        state.errors_in_a_row = 0
        state.logged_error = ErrorCode.NONE
        info = appended.info
        if appended.moved:
            processing.moved[key] = None
        if info.size:
            state.fetch_offset = info.last_offset + 1
            if info.last_leader_epoch >= 0:
                state.last_fetched_epoch = info.last_leader_epoch
            processing.bytes_appended += info.size
            if self._states.get(key) is state:
                self._states.move_to_end(key)
            if info.needs_flush:
                state.is_syncing = True
                processing.to_sync[key] = None
        state.lag = max(0, data.high_watermark - state.fetch_offset)
        return info.size

    def _warn_if_oversized(self, key: TopicPartition, records: memoryview | bytes) -> None:
        """Log a warning about a batch above the limit, which leaders send whole."""
        if len(records) > self._max_bytes and len(records) >= HEADER_SIZE:
            try:
                size = read_header(records).size
            except CorruptBatchError:
                # The append rejects the batch and logs the reason.
                return
            if size > self._max_bytes:
                _log.warning(
                    "Batch is larger than replica.fetch.max.bytes: partition=%s bytes=%d", key, size
                )

    def _handle_error(
        self,
        key: TopicPartition,
        state: FetchState,
        requested: RequestedPartition,
        data: PartitionData,
    ) -> None:
        error = ErrorCode.of(data.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            state.phase = FetchPhase.OUT_OF_RANGE
            return
        if error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE and self._has_tier:
            state.begin_tiered(data.log_start_offset, data.high_watermark)
            return
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self._states.fence(key, requested.current_leader_epoch)
            return
        state.errors_in_a_row += 1
        if error not in _USUAL:
            # Log a persisting error once.
            level = logging.ERROR if error is not state.logged_error else logging.DEBUG
            state.logged_error = error
        else:
            level = logging.WARNING if state.errors_in_a_row == USUAL_ERRORS_MAX else logging.DEBUG
        _log.log(level, "Fetch failed at the leader: partition=%s error=%s", key, error.name)
        self._states.delay([key], state.usual_backoff_ms if error in _USUAL else inf)


class _Processing:
    """The mutable form of `Processed`."""

    __slots__ = ("bytes_appended", "diverging", "moved", "to_sync")

    def __init__(self) -> None:
        self.diverging: dict[TopicPartition, EpochEndOffset] = {}
        self.to_sync: dict[TopicPartition, None] = {}
        self.moved: dict[TopicPartition, None] = {}
        self.bytes_appended = 0


def keep_records(received: Mapping[TopicPartition, PartitionData]) -> None:
    """Copy the records that are not appended yet: the next turn overwrites the receive buffer."""
    for data in received.values():
        if isinstance(data.records, memoryview):
            data.records = bytes(data.records)


def _end_of_step(records: memoryview | bytes, start: int) -> int:
    """Return where the batches end that are appended in one step, from `start` on.

    The lengths are those that the leader sent. Where one cannot be right, all of the rest is one
    step, and the append rejects it.
    """
    end, total = start, len(records)
    if total - start <= STEP_BYTES:
        return total
    while end - start < STEP_BYTES and end + _BATCH_START.size <= total:
        length = _BATCH_START.unpack_from(records, end)[1]
        if length < 0:
            return total
        end += _BATCH_START.size + length
    return min(end, total)
