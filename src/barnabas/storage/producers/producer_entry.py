"""State of one producer in a log, its changes and its snapshot file (KIP-98, KIP-360).

Kafka: ProducerStateEntry, CompletedTxn, EndTransactionMarker, ProducerAppendInfo.

The snapshot file (`.snapshot`, version 1) has the state of all producers at an offset. It has the
version (2 bytes), the CRC-32C of the rest (4 bytes), the number of entries (4 bytes), and 46 bytes
per producer. These are the id, epoch, last sequence, last offset, offset delta, timestamp,
coordinator epoch, and first offset of the open transaction. Only the last of the remembered batches
is stored, as in Kafka.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from barnabas.record.batch import ControlType, parse_control_key, parse_end_marker
from barnabas.record.compiled import crc32c
from barnabas.record.reader import first_record
from barnabas.record.record import CorruptBatchError
from barnabas.storage.errors import CorruptRecordError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.record.batch import BatchHeader, Buffer


class CompletedTxn(NamedTuple):
    """A transaction ended by a marker."""

    producer_id: int
    first_offset: int
    # Offset of the marker.
    last_offset: int
    is_aborted: bool


# Limit for a decompressed control batch; a marker has about twenty bytes.
_MARKER_BYTES_MAX = 1 << 16


class EndMarker(NamedTuple):
    """Content of a transaction's control batch."""

    control_type: ControlType
    # Epoch of the transaction coordinator that wrote the marker; older ones are fenced.
    coordinator_epoch: int
    timestamp: int


def read_end_marker(batch: Buffer, header: BatchHeader) -> EndMarker | None:
    """Return the marker in a control batch; None if it is empty or of another control type.

    Raises:
        CorruptRecordError: the record, its key or its value cannot be read.
    """
    if not header.record_count:
        return None
    try:
        record = first_record(batch, 0, header, _MARKER_BYTES_MAX)
        control_type = parse_control_key(record.key)
        if control_type not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        return EndMarker(control_type, parse_end_marker(record.value), record.timestamp)
    except CorruptBatchError as error:
        raise CorruptRecordError(
            f"the control batch of offset {header.base_offset} cannot be read: {error}"
        ) from None


class ProducerChange(msgspec.Struct, gc=False):
    """The producer's state after a batch, to be committed when the batch is in the file."""

    entry: ProducerEntry
    # The transaction that the batch ends, if it is a marker.
    completed: CompletedTxn | None = None
    # Whether the batch is a marker that began a new producer epoch (KIP-890).
    is_bumped: bool = False


NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
REMEMBERED_BATCHES = 5


class RememberedBatch(NamedTuple):
    """A recent batch, kept because the producer retries it if the response is lost."""

    # Sequences of the first and the last record. They wrap around at 2**31.
    base_sequence: int
    last_sequence: int
    # Offsets of the first and the last record, inclusive.
    first_offset: int
    last_offset: int
    # Largest timestamp of the batch in ms.
    timestamp: int


class ProducerEntry(NamedTuple):
    """A producer's state; immutable, so that a failed append changes nothing."""

    producer_id: int
    # Epoch of the last batch or marker. Invariant: it only rises on a leader, which rejects a lower
    # epoch.
    producer_epoch: int = NO_EPOCH
    # The latest batches of this epoch, oldest first, at most REMEMBERED_BATCHES.
    batches: tuple[RememberedBatch, ...] = ()
    # Timestamp of the last batch or marker in ms; decides when the entry expires.
    last_timestamp: int = -1
    # Epoch of the coordinator that wrote the last marker. A leader rejects markers of a lower one.
    coordinator_epoch: int = -1
    # First offset of the open transaction, -1 without one. Its first batch sets it, its marker
    # resets it.
    txn_first_offset: int = NO_OFFSET

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 without one."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """Offset of the last data record, -1 without one."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def find_duplicate(
        self, epoch: int, base_sequence: int, last_sequence: int
    ) -> RememberedBatch | None:
        """Return the remembered batch with these sequences, or None."""
        if epoch == self.producer_epoch:
            for batch in self.batches:
                if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                    return batch
        return None

    def with_batch(
        self, epoch: int, batch: RememberedBatch, is_transactional: bool
    ) -> ProducerEntry:
        """Return the entry after a data batch; a new epoch drops the batches of the old one."""
        if epoch == self.producer_epoch:
            batches = (*self.batches[1 - REMEMBERED_BATCHES :], batch)
        else:
            batches = (batch,)
        first = self.txn_first_offset
        if is_transactional and first == NO_OFFSET:
            first = batch.first_offset
        return ProducerEntry(
            self.producer_id, epoch, batches, batch.timestamp, self.coordinator_epoch, first
        )

    def with_marker(self, epoch: int, coordinator_epoch: int, timestamp: int) -> ProducerEntry:
        """Return the entry after the marker that ends a transaction."""
        batches = self.batches if epoch == self.producer_epoch else ()
        return ProducerEntry(self.producer_id, epoch, batches, timestamp, coordinator_epoch)


VERSION = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
_SEQUENCES = 0x8000_0000


class CorruptSnapshotError(ValueError):
    """The content of a producer snapshot is invalid."""


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the content of the file."""
    packed = [_encode_entry(entry) for entry in entries]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def _encode_entry(entry: ProducerEntry) -> bytes:
    last = entry.batches[-1] if entry.batches else None
    return _ENTRY.pack(
        entry.producer_id,
        entry.producer_epoch,
        entry.last_sequence,
        entry.last_offset,
        last.last_offset - last.first_offset if last else 0,
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.txn_first_offset,
    )


def check_snapshot(content: bytes) -> memoryview:
    """Check the content of a snapshot file, and return the bytes of its entries.

    Raises:
        CorruptSnapshotError: the version, the CRC or the size is wrong.
    """
    if len(content) < _HEAD.size + _COUNT.size:
        raise CorruptSnapshotError("the snapshot is incomplete")
    version, crc = _HEAD.unpack_from(content)
    body = memoryview(content)[_HEAD.size :]
    if version != VERSION:
        raise CorruptSnapshotError(f"the snapshot has version {version}, expected {VERSION}")
    if crc32c(body) != crc:
        raise CorruptSnapshotError("the snapshot's CRC is wrong")
    (count,) = _COUNT.unpack_from(body)
    entries = body[_COUNT.size :]
    if count < 0 or len(entries) != count * _ENTRY.size:
        raise CorruptSnapshotError(f"the snapshot does not have {count} entries")
    return entries


def decode_snapshot(content: bytes) -> list[ProducerEntry]:
    """Return the entries in a file's content.

    Raises:
        CorruptSnapshotError: the version, the CRC or the size is wrong.
    """
    return [_decode_entry(*values) for values in _ENTRY.iter_unpack(check_snapshot(content))]


def decode_snapshot_of(offset: int, content: bytes) -> list[ProducerEntry]:
    """Return the entries of the snapshot at `offset`.

    Raises:
        CorruptSnapshotError: the content is invalid, or has a batch at or above `offset`.
    """
    entries = decode_snapshot(content)
    for entry in entries:
        if entry.last_offset >= offset:
            raise CorruptSnapshotError(
                f"the snapshot of offset {offset} has a batch at {entry.last_offset}"
            )
    return entries


def _decode_entry(*values: int) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator, first = values
    batches: tuple[RememberedBatch, ...] = ()
    if last_offset != NO_OFFSET:
        # Sequences wrap around at 2**31; the -1 of a producer with only markers does not.
        base = last_sequence - delta if last_sequence >= 0 else last_sequence
        base = base + _SEQUENCES if last_sequence >= 0 and base < 0 else base
        batch = RememberedBatch(base, last_sequence, last_offset - delta, last_offset, timestamp)
        batches = (batch,)
    return ProducerEntry(producer_id, epoch, batches, timestamp, coordinator, first)
