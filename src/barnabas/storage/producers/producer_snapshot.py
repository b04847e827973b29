"""Snapshot file of the producer state at an offset (Kafka's `.snapshot`, version 1).

The file has the version (2 bytes), the CRC-32C of the rest (4 bytes), the number of entries (4
bytes), and 46 bytes per producer. These are the id, epoch, last sequence, last offset, offset
delta, timestamp, coordinator epoch, and first offset of the open transaction. Only the last of the
remembered batches is stored, as in Kafka.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from barnabas.record.checksum import crc32c
from barnabas.storage.producers.producer_entry import NO_OFFSET, ProducerEntry, RememberedBatch

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def decode_snapshot(content: bytes) -> list[ProducerEntry]:
    """Return the entries in a file's content.

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
    return [_decode_entry(*values) for values in _ENTRY.iter_unpack(entries)]


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
