"""Plan of an append before any byte is written: offsets, positions, producer states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.record.batch import LOG_OVERHEAD, NO_PRODUCER_ID, set_offset_and_epoch
from barnabas.storage.append_info import AppendInfo, AppendOrigin
from barnabas.storage.config import LONG_MAX
from barnabas.storage.errors import (
    CorruptRecordError,
    InvalidRecordError,
    StorageError,
    UnexpectedAppendOffsetError,
)
from barnabas.storage.files.leader_epoch_cache import EpochEntry
from barnabas.storage.producers.end_marker import read_end_marker
from barnabas.storage.producers.producer_change import ProducerChange
from barnabas.storage.segment.placed_batch import PlacedBatch

if TYPE_CHECKING:
    from barnabas.record.batch import BatchHeader
    from barnabas.storage.producers.producer_entry import ProducerEntry, RememberedBatch
    from barnabas.storage.producers.producer_state import ProducerState
    from barnabas.storage.validation.inspected_records import Batches

_RAFT = AppendOrigin.RAFT


def assign(
    records: memoryview,
    found: Batches,
    leader_epoch: int,
    info: AppendInfo,
    origin: AppendOrigin,
    producers: ProducerState,
) -> tuple[list[PlacedBatch], list[ProducerChange]]:
    """Write offset and epoch into each batch in place, and stage the producer states.

    Args:
        info: has the first offset; receives offsets, count and timestamp of the append.

    Returns:
        The places of the batches, and the producer changes to commit after the write.

    Raises:
        InvalidRecordError: a RAFT batch does not have the next offset.
        StorageError: ProducerState rejects a batch.
    """
    placed: list[PlacedBatch] = []
    staging: _Staging | None = None
    next_offset = info.first_offset
    for position, header in found:
        if header.producer_id != NO_PRODUCER_ID:
            staging = staging or _Staging(producers, origin)
            staging.add(records[position : position + header.size], header, next_offset)
        if origin is _RAFT and header.base_offset != next_offset:
            raise InvalidRecordError(
                f"the batch has offset {header.base_offset}, but the log ends at {next_offset}"
            )
        set_offset_and_epoch(records, position, next_offset, leader_epoch)
        placed.append(place(info, position, header, next_offset))
        next_offset = info.last_offset + 1
    info.last_leader_epoch = leader_epoch
    return placed, [] if staging is None else staging.changes


def stage_followed(
    records: memoryview | bytes, found: Batches, producers: ProducerState
) -> list[ProducerChange]:
    """Stage the producer states after the leader's batches, which keep their offsets.

    Raises:
        CorruptRecordError: a transaction marker cannot be read.
        InvalidTxnStateError: a batch does not belong to its producer's open transaction.
    """
    staging = _Staging(producers, AppendOrigin.REPLICATION)
    for position, header in found:
        if header.producer_id > NO_PRODUCER_ID:
            batch = records[position : position + header.size]
            staging.add(batch, header, header.base_offset)
    return staging.changes


class JointPlan:
    """The plan of one write, which appends the batches of several requests.

    Each batch is accepted or rejected as if it were appended alone.
    """

    __slots__ = ("_staging", "buffers", "info", "outcomes", "placed")

    def __init__(self, info: AppendInfo, leader_epoch: int, producers: ProducerState) -> None:
        # The write as a whole. `add` raises its end.
        self.info = info
        info.last_leader_epoch = leader_epoch
        self._staging = _Staging(producers, AppendOrigin.CLIENT)
        # The accepted batches and their places.
        self.buffers: list[memoryview] = []
        self.placed: list[PlacedBatch] = []
        # The result of each batch if the write succeeds.
        self.outcomes: list[AppendInfo | StorageError] = []

    @property
    def changes(self) -> list[ProducerChange]:
        """The producer changes to commit after the write."""
        return self._staging.changes

    def add(self, records: memoryview, header: BatchHeader) -> None:
        """Write offset and epoch into a client's batch in place, and stage its producer state."""
        whole = self.info
        first_offset = whole.last_offset + 1
        if header.producer_id != NO_PRODUCER_ID and not self._stage(records, header, first_offset):
            return
        epoch, count, start = whole.last_leader_epoch, header.record_count, whole.log_start_offset
        set_offset_and_epoch(records, 0, first_offset, epoch)
        placed = place(whole, whole.size, header, first_offset)
        size, last_offset, max_timestamp = placed.size, placed.last_offset, placed.max_timestamp
        whole.size += size
        self.placed.append(placed)
        self.buffers.append(records)
        self.outcomes.append(
            AppendInfo(first_offset, last_offset, start, max_timestamp, -1, epoch, count, size)
        )

    def _stage(self, records: memoryview, header: BatchHeader, first_offset: int) -> bool:
        """Stage the producer state of a batch. Return False for a duplicate or a rejected batch."""
        known = self._staging.find_duplicate(header)
        if known is None:
            try:
                self._staging.add(records, header, first_offset)
            except StorageError as error:
                self.outcomes.append(error)
                return False
            return True
        info = AppendInfo(first_offset, first_offset - 1, self.info.log_start_offset)
        note_duplicate(info, known)
        self.outcomes.append(info)
        return False


class _Staging:
    """Staged producer states of one write, batch by batch."""

    __slots__ = ("_latest", "_origin", "_producers", "changes")

    def __init__(self, producers: ProducerState, origin: AppendOrigin) -> None:
        self._producers = producers
        self._origin = origin
        # By producer id: the state after its last batch in this append.
        self._latest: dict[int, ProducerEntry] = {}
        # In batch order.
        self.changes: list[ProducerChange] = []

    def find_duplicate(self, header: BatchHeader) -> RememberedBatch | None:
        """Return the earlier append of this batch, which may be staged; None if it is new."""
        return self._producers.find_duplicate(header, self._latest.get(header.producer_id))

    def add(self, batch: memoryview | bytes, header: BatchHeader, offset: int) -> None:
        """Stage one batch of a producer, at `offset`."""
        before = self._latest.get(header.producer_id)
        if header.is_control:
            marker = read_end_marker(batch, header)
            if marker is None:
                return
            change = self._producers.stage_marker(header, marker, offset, self._origin, before)
        else:
            change = ProducerChange(self._producers.stage(header, offset, self._origin, before))
        self._latest[header.producer_id] = change.entry
        self.changes.append(change)


def epochs_of(found: Batches) -> list[EpochEntry]:
    """Return leader epoch and offset of each batch that has a leader epoch."""
    return [
        EpochEntry(header.partition_leader_epoch, header.base_offset)
        for _, header in found
        if header.partition_leader_epoch >= 0
    ]


def place(info: AppendInfo, position: int, header: BatchHeader, base_offset: int) -> PlacedBatch:
    """Add a batch to `info`, and return its place within the append."""
    last_offset = base_offset + header.last_offset_delta
    max_timestamp = header.max_timestamp
    info.last_offset = last_offset
    info.record_count += header.record_count
    if max_timestamp > info.max_timestamp:
        info.max_timestamp = max_timestamp
    return PlacedBatch(position, header.batch_length + LOG_OVERHEAD, last_offset, max_timestamp)


def check_offsets(found: Batches, log_end_offset: int) -> None:
    """Check that a follower's batches continue its log.

    Raises:
        UnexpectedAppendOffsetError: they begin below the log end.
        CorruptRecordError: their offsets are negative, do not increase, or exceed 63 bits.
    """
    first = found[0][1].base_offset
    if first < 0:
        raise CorruptRecordError(f"the first offset is {first}")
    expected = first
    for _, header in found:
        if header.base_offset < expected or header.last_offset_delta < 0:
            raise CorruptRecordError(f"offset {header.base_offset} follows {expected - 1}")
        expected = header.next_offset
    if expected > LONG_MAX:
        raise CorruptRecordError(f"the last offset is {expected - 1}, above {LONG_MAX - 1}")
    if first < log_end_offset:
        raise UnexpectedAppendOffsetError(first, expected - 1, log_end_offset)


def find_duplicate(found: Batches, producers: ProducerState, info: AppendInfo) -> bool:
    """Return whether a batch is a duplicate; if so, put its first append into `info`."""
    for _, header in found:
        if header.producer_id == NO_PRODUCER_ID:
            continue
        known = producers.find_duplicate(header)
        if known is not None:
            note_duplicate(info, known)
            return True
    return False


def note_duplicate(info: AppendInfo, known: RememberedBatch) -> None:
    """Set the result of a duplicate: the offsets of the first append."""
    info.first_offset = known.first_offset
    info.last_offset = known.last_offset
    info.max_timestamp = known.timestamp
    info.log_append_time = known.timestamp
    info.duplicate = True
