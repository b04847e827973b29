"""Retention of records during compaction (Kafka's Cleaner and MemoryRecords.filterTo).

A record is retained if it is the last record of its key. A tombstone is retained until its delete
horizon (KIP-534). A pass sets the horizon when it retains a tombstone without one, and stores it in
the batch's base timestamp. Offsets, sequences and the batch's last offset never change. A batch is
copied unchanged if all records are retained. If none are, an empty batch is kept only where its
header is needed: for a producer's last sequence, or for the end of the cleaned range.

The input of a pass, its results and its `OffsetMap` cross a process border. The map has the last
offset of each key in the dirty part of the log (Kafka's OffsetMap), in bounded memory:
`log.cleaner.dedupe.buffer.size` bounds it, at a fixed number of bytes per entry. It is a
dictionary. Short keys are stored directly. Longer keys are replaced by a digest that is longer than
any directly stored key, so the two kinds never collide.

`CleanedTransactions` has the aborted transactions of a log that is read from its start
(CleanedTransactionMetadata; KIP-98). The first cleaning removes the records of an aborted
transaction. The marker of an aborted or a committed transaction is kept until all batches of the
transaction are removed.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from barnabas.record.batch import (
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_TIMESTAMP,
    ControlType,
    parse_control_key,
    set_crc,
)
from barnabas.record.columns import record_slices, uncompressed
from barnabas.record.compression import NONE, compress
from barnabas.record.reader import records_of
from barnabas.record.record import CorruptBatchError, read_varint, write_varint

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from barnabas.record.batch import BatchHeader, Buffer
    from barnabas.record.compiled import CompiledRecord
    from barnabas.storage.config import LogConfig
    from barnabas.storage.segment.transaction_index import AbortedEntry


class SourceSegment(NamedTuple):
    """A sealed segment to read."""

    base_offset: int
    size: int
    # Base offset of the next segment.
    end_offset: int


class LastRecord(NamedTuple):
    """Last entry of an active producer in the log (Kafka's LastRecord)."""

    # Last offset of its last data batch; -1 if only markers are known.
    last_data_offset: int
    producer_epoch: int


class CleaningJob(msgspec.Struct, frozen=True):
    """Input of one pass over one log."""

    directory: str
    config: LogConfig
    # All segments below `first_uncleanable_offset`, from the first one on.
    sources: tuple[SourceSegment, ...]
    # End of the last pass; keys are collected from here on.
    first_dirty_offset: int
    # Base offset of the first segment that must not change.
    first_uncleanable_offset: int
    # Every aborted transaction that lies at least partly below that offset.
    aborted: tuple[AbortedEntry, ...]
    # Key: producer id.
    active_producers: Mapping[int, LastRecord]
    now_ms: int
    # Maximum number of keys in the offset map.
    map_capacity: int
    # Size of a read in bytes.
    buffer_bytes: int


class MapBuilt(NamedTuple):
    """Report after the dirty part was read, before any segment is written."""

    # Exclusive end of the range that the pass compacts.
    end_offset: int
    utilization: float


class CleanedSegment(NamedTuple):
    """Report that a group of segments was rewritten, with suffix `.cleaned`, and synced.

    There is one report per group. An unchanged single segment is neither rewritten nor reported.
    """

    base_offset: int
    size: int
    # Base offsets of the segments that it replaces.
    replaced: tuple[int, ...]


class CleaningStats(msgspec.Struct):
    """Totals of a pass, reported last."""

    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    # Removed records without a key, written before the topic was compacted.
    keyless: int = 0


# Memory for key, offset and dictionary slot of an entry. Measured: at most 145 to 157 bytes, while
# the dictionary grows.
ENTRY_BYTES = 160
# A digest is one byte longer than the longest key that is stored directly.
_PLAIN_KEY_BYTES_MAX = 31
_DIGEST_BYTES = 32
NO_OFFSET = -1


def _stored_key(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


class OffsetMap:
    """Map from keys to offsets, for at most `capacity` keys."""

    __slots__ = ("_offsets", "capacity", "keyless", "latest_offset")

    def __init__(self, capacity: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self.capacity = capacity
        # Number of records without a key that `latest` has skipped.
        self.keyless = 0
        # Last offset that the map covers; -1 for none.
        self.latest_offset = NO_OFFSET

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def utilization(self) -> float:
        """The used fraction of the capacity."""
        return len(self._offsets) / self.capacity if self.capacity else 1.0

    def put(self, records: Sequence[CompiledRecord], first_offset: int) -> bool:
        """Add the keys of records from `first_offset` on, which must follow all earlier records.

        Returns:
            False if the map is full; `latest_offset` is the last offset covered.
        """
        offsets, capacity = self._offsets, self.capacity
        may_fill = capacity - len(offsets) < len(records)
        for record in records:
            key, offset = record.key, record.offset
            if key is None or offset < first_offset:
                continue
            if len(key) > _PLAIN_KEY_BYTES_MAX:
                key = _stored_key(key)
            if may_fill and len(offsets) >= capacity:
                return False
            offsets[key] = offset
            self.latest_offset = offset
        return True

    def latest(self, records: Iterable[CompiledRecord]) -> list[CompiledRecord]:
        """Return the records that are the last of their key; records without a key are dropped."""
        get = self._offsets.get
        found = []
        for record in records:
            key = record.key
            if key is None:
                self.keyless += 1
                continue
            if len(key) > _PLAIN_KEY_BYTES_MAX:
                key = _stored_key(key)
            if record.offset >= get(key, NO_OFFSET):
                found.append(record)
        return found


def capacity_for(memory_bytes: int, load_factor: float) -> int:
    """Return the number of keys that fit."""
    return max(1, int(memory_bytes // ENTRY_BYTES * load_factor))


class _Aborted(NamedTuple):
    entry: AbortedEntry
    # Whether the log still has a batch of the transaction.
    was_observed: bool


class CleanedTransactions:
    """State of transactions while all batches are read in log order."""

    __slots__ = ("_aborted", "_committed", "_upcoming", "retained")

    def __init__(self, aborted: Iterable[AbortedEntry]) -> None:
        # Aborted transactions that begin later in the log; the next one is last in the list.
        self._upcoming = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        # Key: producer id. Aborted transactions whose marker has not been read.
        self._aborted: dict[int, _Aborted] = {}
        # Producer ids with a transactional batch that is not known to be aborted.
        self._committed: set[int] = set()
        # Aborted transactions whose marker is kept; they form the new transaction index.
        self.retained: list[AbortedEntry] = []

    def on_batch(self, header: BatchHeader) -> bool:
        """Process a data batch; return whether its transaction was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        known = self._aborted.get(header.producer_id)
        if known is None:
            self._committed.add(header.producer_id)
            return False
        if not known.was_observed:
            self._aborted[header.producer_id] = _Aborted(known.entry, was_observed=True)
        return True

    def on_control_batch(self, batch: Buffer, position: int, header: BatchHeader) -> bool:
        """Process a control batch; return whether its transaction has no batches left."""
        self._begin_up_to(header.last_offset)
        if not header.record_count:
            # An earlier cleaning emptied the marker, because no batches were left.
            return True
        control_type = parse_control_key(records_of(batch, position, header)[0].key)
        if control_type is ControlType.ABORT:
            known = self._aborted.pop(header.producer_id, None)
            if known is None or not known.was_observed:
                return True
            self.retained.append(known.entry)
            return False
        if control_type is ControlType.COMMIT:
            was_observed = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not was_observed
        return False

    def _begin_up_to(self, offset: int) -> None:
        upcoming = self._upcoming
        while upcoming and upcoming[-1].first_offset <= offset:
            entry = upcoming.pop()
            self._aborted.setdefault(entry.producer_id, _Aborted(entry, was_observed=False))


_FLAGS_OF_EMPTY = ~(0x07 | DELETE_HORIZON_FLAG)
_INT64_LIMIT = 1 << 63


class BatchFilter:
    """Filter of one pass over a log."""

    __slots__ = ("_job", "_offsets", "_stats", "_transactions")

    def __init__(
        self,
        job: CleaningJob,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        stats: CleaningStats,
    ) -> None:
        self._job = job
        self._offsets = offsets
        self._transactions = transactions
        self._stats = stats

    def retain(
        self, block: Buffer, position: int, header: BatchHeader, needed_ends: Container[int]
    ) -> Buffer | None:
        """Return the bytes to write for the batch at `position`.

        Args:
            needed_ends: a batch whose next offset is among these is kept, even if empty.

        Returns:
            `block` itself if the batch is unchanged, None if the batch is removed.
        """
        self._stats.records_read += header.record_count
        is_needed = self._is_last_of_producer(header) or header.next_offset in needed_ends
        if header.is_control:
            return self._retain_control(block, position, header, is_needed)
        if self._transactions.on_batch(header) or not header.record_count:
            return _without_records(header) if is_needed else None
        if header.base_offset > self._offsets.latest_offset:
            self._stats.records_kept += header.record_count
            return block
        batch = uncompressed(block, position, header)
        kept = _KeptRecords()
        for records in record_slices(batch, header):
            kept.add(self._kept(records, header))
        self._stats.records_kept += kept.count
        if not kept.count:
            return _without_records(header) if is_needed else None
        horizon = self._new_horizon(header) if kept.has_tombstone else None
        if kept.count == header.record_count:
            return block if horizon is None else _rebuilt(batch, header, kept, horizon)
        return _rebuilt(batch, header, kept, horizon)

    def _retain_control(
        self, block: Buffer, position: int, header: BatchHeader, is_needed: bool
    ) -> Buffer | None:
        is_done = self._transactions.on_control_batch(block, position, header)
        horizon = header.delete_horizon
        is_over = is_done and horizon is not None and horizon <= self._job.now_ms
        if is_over or not header.record_count:
            return _without_records(header) if is_needed else None
        self._stats.records_kept += header.record_count
        if not is_done or horizon is not None:
            return block
        batch = uncompressed(block, position, header)
        kept = _KeptRecords()
        for records in record_slices(batch, header):
            kept.add(records)
        return _rebuilt(batch, header, kept, self._new_horizon(header))

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Return whether the state of an active producer depends on this batch."""
        if not header.has_producer_id:
            return False
        last = self._job.active_producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _new_horizon(self, header: BatchHeader) -> int | None:
        """Return the delete horizon to set; None if the batch already has one."""
        if header.delete_horizon is not None:
            return None
        return self._job.now_ms + self._job.config.delete_retention_ms

    def _kept(
        self, records: Sequence[CompiledRecord], header: BatchHeader
    ) -> Sequence[CompiledRecord]:
        latest_offset = self._offsets.latest_offset
        if header.last_offset <= latest_offset:
            kept = self._offsets.latest(records)
        else:
            # Records after the end of the pass are not filtered.
            seen = [record for record in records if record.offset <= latest_offset]
            kept = [*self._offsets.latest(seen), *records[len(seen) :]]
        horizon = header.delete_horizon
        if horizon is None or horizon > self._job.now_ms:
            return kept
        return [
            record for record in kept if record.value is not None or record.offset > latest_offset
        ]


class _KeptRecords:
    """Summary of a batch's retained records, of which there may be millions."""

    __slots__ = ("count", "has_tombstone", "max_timestamp", "offsets")

    def __init__(self) -> None:
        self.count = 0
        self.offsets: set[int] = set()
        self.has_tombstone = False
        self.max_timestamp = NO_TIMESTAMP

    def add(self, records: Sequence[CompiledRecord]) -> None:
        """Add retained records to the summary."""
        self.count += len(records)
        for record in records:
            self.offsets.add(record.offset)
            self.has_tombstone = self.has_tombstone or record.value is None
            # The compiled reader returns None for timestamp -1.
            at = NO_TIMESTAMP if record.timestamp is None else record.timestamp
            self.max_timestamp = max(self.max_timestamp, at)


def _without_records(header: BatchHeader) -> bytearray:
    """Return an empty batch with the offsets, sequences and flags of the header."""
    batch = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        batch,
        0,
        header.base_offset,
        HEADER_SIZE - LOG_OVERHEAD,
        header.partition_leader_epoch,
        MAGIC_V2,
        0,
        header.attributes & _FLAGS_OF_EMPTY,
        header.last_offset_delta,
        NO_TIMESTAMP,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        0,
    )
    set_crc(batch, 0, HEADER_SIZE)
    return batch


def _rebuilt(
    batch: Buffer, header: BatchHeader, kept: _KeptRecords, horizon: int | None
) -> bytearray:
    """Return the batch with only the records in `kept`, in the same compression.

    The records are copied as bytes, since their deltas refer to an unchanged base offset and base
    timestamp. A new delete horizon replaces the base timestamp, so timestamp deltas change then.
    """
    offsets, written = kept.offsets, 0
    payload = bytearray()
    # Single bytes are read, and `bytes` is faster at that than a view.
    source = bytes(batch)
    position, view = HEADER_SIZE, memoryview(source)
    base_offset = header.base_offset
    shift = 0 if horizon is None else header.base_timestamp - horizon
    for _ in range(header.record_count):
        length, start = read_varint(source, position)
        end = start + length
        delta, delta_end = read_varint(source, start + 1)
        if base_offset + read_varint(source, delta_end)[0] in offsets:
            written += 1
            if shift:
                _append_shifted(payload, view[start:end], delta + shift, delta_end - start)
            else:
                payload += view[position:end]
        position = end
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if horizon is not None:
        attributes, base_timestamp = attributes | DELETE_HORIZON_FLAG, horizon
    content = compress(header.compression, payload) if header.compression != NONE else payload
    max_timestamp = header.max_timestamp
    if not header.has_log_append_time:
        max_timestamp = kept.max_timestamp
    output = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        output,
        0,
        base_offset,
        HEADER_SIZE - LOG_OVERHEAD + len(content),
        header.partition_leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        written,
    )
    output += content
    set_crc(output, 0, len(output))
    return output


def _append_shifted(payload: bytearray, body: memoryview, delta: int, delta_end: int) -> None:
    """Append a record with a changed timestamp delta.

    Args:
        body: the record without its length.
        delta: the new timestamp delta.
        delta_end: end of the old timestamp delta in `body`.
    """
    if not -_INT64_LIMIT <= delta < _INT64_LIMIT:
        raise CorruptBatchError(f"a record's timestamp lies {delta} ms from the delete horizon")
    changed = bytearray(body[:1])
    write_varint(changed, delta)
    write_varint(payload, len(changed) + len(body) - delta_end)
    payload += changed
    payload += body[delta_end:]
