"""Header of a v2 record batch (KIP-98; Kafka's record batch format, magic 2), and control records.

A batch has a header of 61 bytes and its records. The first 12 bytes (base offset and length) and
the position of the magic byte are the same in every message format. The CRC-32C covers everything
from the attributes on. So the broker can patch base offset and leader epoch without a new CRC.

The keys of control records define the meaning of a control batch (KIP-98, KIP-595, KIP-853).
"""

from __future__ import annotations

from enum import IntEnum
from functools import partial
from struct import Struct, error
from typing import TYPE_CHECKING, NamedTuple

from barnabas.record.compiled import crc32c
from barnabas.record.record import CorruptBatchError, UnsupportedMagicError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


Buffer = bytes | bytearray | memoryview

# Bytes that `batch_length` does not count: base offset (8) and the length itself (4).
LOG_OVERHEAD = 12
# Size of the header, after which the records follow.
HEADER_SIZE = 61
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
MAX_TIMESTAMP_POSITION = 35
MAGIC_V2 = 2

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1
NO_TIMESTAMP = -1

CREATE_TIME = 0
LOG_APPEND_TIME = 1

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

# A producer's sequence numbers wrap around to 0 after this value.
SEQUENCE_MAX = 0x7FFFFFFF

HEADER = Struct(">qiibIhiqqqhii")
OFFSET_AND_LENGTH = Struct(">qi")
_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")

_unpack_header = HEADER.unpack_from
_unpack_length = OFFSET_AND_LENGTH.unpack_from
_MIN_BATCH_LENGTH = HEADER_SIZE - LOG_OVERHEAD


class BatchHeader(NamedTuple):
    """Header fields of one v2 batch, as in its bytes.

    A named tuple, because `made_header` creates it in one step from the result of
    `Struct.unpack_from`, once per batch.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    # Timestamp of the first record, or the delete horizon if that flag is set (KIP-534).
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes, including the header."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record at creation, even if compaction has removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after this batch (exclusive end)."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """Compression code; 0 to 4 are known."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """`CREATE_TIME` or `LOG_APPEND_TIME`."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_FLAG else CREATE_TIME

    @property
    def has_log_append_time(self) -> bool:
        """Whether every record's timestamp is the batch's `max_timestamp`."""
        return self.attributes & TIMESTAMP_TYPE_FLAG != 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch has control records, which consumers never receive."""
        return self.attributes & CONTROL_FLAG != 0

    @property
    def delete_horizon(self) -> int | None:
        """Time after which tombstones and markers of the batch may be removed, in ms; or None."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer wrote the batch."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, with wrap-around; -1 without one."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX


# The same as `BatchHeader._make`, but without Python code.
made_header: Callable[[Iterable[int]], BatchHeader] = partial(tuple.__new__, BatchHeader)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header of the v2 batch at `position`.

    Only the header must be in the buffer; the records may be truncated.

    Raises:
        UnsupportedMagicError: the batch has another format.
        CorruptBatchError: there are too few bytes, or the length is invalid.
    """
    try:
        header = made_header(_unpack_header(buffer, position))
    except error:
        raise CorruptBatchError(
            f"{len(buffer) - position} bytes at {position} are too few for a batch header"
        ) from None
    if header.magic != MAGIC_V2:
        raise UnsupportedMagicError(header.magic)
    if header.batch_length < _MIN_BATCH_LENGTH:
        raise CorruptBatchError(f"batch length {header.batch_length} at {position} is too small")
    return header


def batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each complete v2 batch from `position` on.

    A truncated batch (at the end of a fetch response) ends the iteration.

    Raises:
        CorruptBatchError: a length or magic is invalid.
    """
    end = len(buffer)
    while end - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        next_position = position + header.batch_length + LOG_OVERHEAD
        if next_position > end:
            return
        yield position, header
        position = next_position
    if end - position > MAGIC_POSITION:
        _check_tail(buffer, position)


def _check_tail(buffer: Buffer, position: int) -> None:
    """Raise CorruptBatchError if the truncated header at `position` is invalid."""
    magic = buffer[position + MAGIC_POSITION]
    if magic != MAGIC_V2:
        raise UnsupportedMagicError(magic)
    if _unpack_length(buffer, position)[1] < _MIN_BATCH_LENGTH:
        raise CorruptBatchError(f"batch length at {position} is too small")


def magic_of(buffer: Buffer, position: int = 0) -> int:
    """Return the magic byte of the batch or message at `position`.

    It has the same position in every format.
    """
    if len(buffer) - position <= MAGIC_POSITION:
        raise CorruptBatchError(f"{len(buffer) - position} bytes are too few to hold a magic byte")
    return buffer[position + MAGIC_POSITION]


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Return whether the CRC-32C matches; False also if the batch is truncated."""
    end = position + header.batch_length + LOG_OVERHEAD
    if end > len(buffer):
        return False
    return crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end]) == header.crc


def set_offset_and_epoch(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Write base offset and leader epoch into the batch at `position`; the CRC covers neither."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + LOG_OVERHEAD, leader_epoch)


def set_max_timestamp(
    buffer: bytearray | memoryview, position: int, timestamp_type: int, max_timestamp: int
) -> None:
    """Write timestamp type and largest timestamp into the batch, and update its CRC."""
    header = read_header(buffer, position)
    attributes = header.attributes & ~TIMESTAMP_TYPE_FLAG
    if timestamp_type == LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_FLAG
    if attributes == header.attributes and max_timestamp == header.max_timestamp:
        return
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_POSITION, attributes)
    _OFFSET.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, max_timestamp)
    set_crc(buffer, position, header.size)


def set_crc(buffer: bytearray | memoryview, position: int, size: int) -> None:
    """Compute and write the CRC-32C of the batch of `size` bytes at `position`."""
    with memoryview(buffer) as view:
        crc = crc32c(view[position + ATTRIBUTES_POSITION : position + size])
    _CRC.pack_into(buffer, position + CRC_POSITION, crc)


_KEY = Struct(">hh")
_END_MARKER = Struct(">hi")
_KEY_VERSION = 0
_END_MARKER_VERSION = 0


class ControlType(IntEnum):
    """Type of a control record; records of other types are kept and ignored."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def encode_control_key(control_type: ControlType) -> bytes:
    """Return the key of a control record."""
    return _KEY.pack(_KEY_VERSION, control_type)


def parse_control_key(key: Buffer | None) -> ControlType | None:
    """Return the type in a control record's key; None for an unknown type.

    Raises:
        CorruptBatchError: the key is missing or too short, or its version is negative.
    """
    try:
        version, number = _KEY.unpack_from(key or b"")
    except error:
        raise CorruptBatchError("control record has no key of four bytes") from None
    if version < 0:
        raise CorruptBatchError(f"control record key has version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return None


def encode_end_marker(coordinator_epoch: int) -> bytes:
    """Return the value of a transaction's ABORT or COMMIT marker."""
    return _END_MARKER.pack(_END_MARKER_VERSION, coordinator_epoch)


def parse_end_marker(value: Buffer | None) -> int:
    """Return the coordinator epoch in the value of an ABORT or COMMIT marker.

    Raises:
        CorruptBatchError: the value is too short or has a negative version.
    """
    try:
        version, coordinator_epoch = _END_MARKER.unpack_from(value or b"")
    except error:
        raise CorruptBatchError("transaction marker has no value of six bytes") from None
    if version < 0:
        raise CorruptBatchError(f"transaction marker has version {version}")
    return int(coordinator_epoch)
