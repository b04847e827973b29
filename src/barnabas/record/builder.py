"""Building of v2 record batches (KIP-98), for producers and for the broker's own logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.record.batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    set_crc,
)
from barnabas.record.compression import NONE, compress
from barnabas.record.record import SMALL_MAX, SMALL_VARINTS, varint, write_varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.record.record import Record

# Maximum overhead of one record: length, attributes, timestamp and offset deltas, three lengths.
_RECORD_OVERHEAD_MAX = 5 + 1 + 10 + 5 + 5 + 5 + 5


class BatchBuilder(msgspec.Struct):
    """Collects records and builds one batch from them.

    Offsets are consecutive from `base_offset`, unless `append_at` sets them. With log append time,
    every record has the timestamp `log_append_time_ms`.
    """

    base_offset: int = 0
    compression: int = NONE
    timestamp_type: int = 0
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    transactional: bool = False
    control: bool = False
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH
    # Maximum uncompressed size for `append`, including the header; the first record always fits.
    # None means no limit.
    max_bytes: int | None = None
    compression_level: int | None = None
    log_append_time_ms: int = NO_TIMESTAMP
    # Time after which the batch's tombstones may be removed (KIP-534), in ms; None if unset.
    delete_horizon: int | None = None

    record_count: int = 0
    # Base of the timestamp deltas: the first record's timestamp, or the delete horizon.
    _base_timestamp: int = NO_TIMESTAMP
    _max_timestamp: int = NO_TIMESTAMP
    _last_offset_delta: int = -1
    _payload: bytearray = msgspec.field(default_factory=bytearray)

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> int | None:
        """Append a record.

        Returns:
            Its offset relative to `base_offset`; None if the batch is full and it was not appended.
        """
        if self.max_bytes is not None and self.record_count:
            size = HEADER_SIZE + len(self._payload) + record_size_max(key, value, headers)
            if size > self.max_bytes:
                return None
        delta = self._last_offset_delta + 1
        self._write(delta, timestamp_ms, key, value, headers)
        return delta

    def append_all(self, timestamp_ms: int, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Append keys and values at consecutive offsets, with one timestamp and without headers.

        The builder must be empty and without a limit or a delete horizon.
        """
        assert not self.record_count, f"record_count={self.record_count}"
        assert self.max_bytes is None, f"max_bytes={self.max_bytes}"
        assert self.delete_horizon is None, f"delete_horizon={self.delete_horizon}"
        parts: list[bytes] = []
        small = SMALL_VARINTS
        for offset_delta, (key, value) in enumerate(records):
            # Attributes and timestamp delta are 0, and there are no headers.
            key_size, value_size = len(key), -1 if value is None else len(value)
            body = b"\0\0%b%b%b%b%b\0" % (
                small[offset_delta] if offset_delta < SMALL_MAX else varint(offset_delta),
                small[key_size] if key_size < SMALL_MAX else varint(key_size),
                key,
                small[value_size] if value_size < SMALL_MAX else varint(value_size),
                value or b"",
            )
            size = len(body)
            parts += (small[size] if size < SMALL_MAX else varint(size), body)
        self._payload += b"".join(parts)
        self.record_count = len(records)
        self._last_offset_delta = len(records) - 1
        self._base_timestamp = self._max_timestamp = timestamp_ms

    def append_at(self, record: Record) -> None:
        """Append a record at its own offset, which must exceed the last one; gaps are kept."""
        delta = record.offset - self.base_offset
        if delta <= self._last_offset_delta:
            raise ValueError(f"offset {record.offset} is not above the batch's last offset")
        self._write(delta, record.timestamp, record.key, record.value, record.headers)

    def _write(
        self,
        offset_delta: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> None:
        if not self.record_count:
            horizon = self.delete_horizon
            self._base_timestamp = timestamp_ms if horizon is None else horizon
        timestamp_delta = timestamp_ms - self._base_timestamp
        if not -(1 << 63) <= timestamp_delta < 1 << 63:
            raise ValueError(
                f"timestamp {timestamp_ms} is too far from the batch's first timestamp"
            )
        body = bytearray(1)
        write_varint(body, timestamp_delta)
        write_varint(body, offset_delta)
        _write_bytes(body, key)
        _write_bytes(body, value)
        write_varint(body, len(headers))
        for name, content in headers:
            _write_bytes(body, name.encode())
            _write_bytes(body, content)
        write_varint(self._payload, len(body))
        self._payload += body
        self._last_offset_delta = offset_delta
        self._max_timestamp = max(self._max_timestamp, timestamp_ms)
        self.record_count += 1

    @property
    def estimated_size(self) -> int:
        """Size of the uncompressed batch in bytes."""
        return HEADER_SIZE + len(self._payload)

    @property
    def is_empty(self) -> bool:
        """Whether no record was appended."""
        return self.record_count == 0

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp of the records, -1 without records."""
        return self._max_timestamp

    def build(self) -> bytearray:
        """Return the batch with header and CRC; more records and further builds may follow."""
        payload = compress(self.compression, self._payload, self.compression_level)
        is_append_time = self.timestamp_type == LOG_APPEND_TIME
        batch = bytearray(HEADER_SIZE)
        HEADER.pack_into(
            batch,
            0,
            self.base_offset,
            HEADER_SIZE - LOG_OVERHEAD + len(payload),
            self.leader_epoch,
            MAGIC_V2,
            0,
            self._attributes(),
            self._last_offset_delta,
            self._base_timestamp,
            self.log_append_time_ms if is_append_time else self._max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )
        batch += payload
        set_crc(batch, 0, len(batch))
        return batch

    def _attributes(self) -> int:
        attributes = self.compression
        if self.timestamp_type == LOG_APPEND_TIME:
            attributes |= TIMESTAMP_TYPE_FLAG
        if self.transactional:
            attributes |= TRANSACTIONAL_FLAG
        if self.control:
            attributes |= CONTROL_FLAG
        if self.delete_horizon is not None:
            attributes |= DELETE_HORIZON_FLAG
        return attributes


def _write_bytes(output: bytearray, content: bytes | None) -> None:
    if content is None:
        output.append(1)
        return
    write_varint(output, len(content))
    output += content


def record_size_max(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] = ()
) -> int:
    """Return an upper bound of the size of a record in a batch."""
    size = _RECORD_OVERHEAD_MAX + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += 10 + len(name.encode()) + len(content or b"")
    return size


def build_batch(records: Iterable[Record], builder: BatchBuilder | None = None) -> bytearray:
    """Build one batch of `records`, each at its own offset.

    Args:
        records: at least one record, in order of offsets.
        builder: an empty builder with all other properties; its base offset is set to the first
            record's offset.
    """
    builder = BatchBuilder() if builder is None else builder
    for record in records:
        if builder.is_empty:
            builder.base_offset = record.offset
        builder.append_at(record)
    assert not builder.is_empty, "a batch needs a record"
    return builder.build()
