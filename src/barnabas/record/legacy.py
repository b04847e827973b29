"""Message sets of magic 0 and 1, written by Kafka before 0.11 (KIP-31, KIP-32), and mixed sets.

A message set is a sequence of messages, each with offset, size and CRC-32. A compressed message is
a wrapper whose value is a message set. With magic 1, the inner offsets start at 0, and the wrapper
has the offset of the last one. With magic 0, they are absolute. Wrappers cannot be nested. Logs of
old Kafka versions mix these sets with v2 batches; `format_conversion` converts between the formats.
"""

from __future__ import annotations

import zlib
from struct import Struct, error
from typing import TYPE_CHECKING, NamedTuple

from barnabas.record.batch import (
    COMPRESSION_MASK,
    CREATE_TIME,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_TIMESTAMP,
    OFFSET_AND_LENGTH,
    TIMESTAMP_TYPE_FLAG,
    Buffer,
    magic_of,
    read_header,
)
from barnabas.record.builder import BatchBuilder
from barnabas.record.compression import (
    DECOMPRESSED_BYTES_MAX,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    compress,
    decompress,
    with_lz4_checksum,
)
from barnabas.record.reader import records_of
from barnabas.record.record import (
    CorruptBatchError,
    InvalidMessageSetError,
    Record,
    UnsupportedMagicError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from barnabas.record.batch import BatchHeader
    from barnabas.record.compiled import CompiledRecord


MAGIC_V0 = 0
MAGIC_V1 = 1

_CRC_MAGIC_ATTRIBUTES = Struct(">Ibb")
_TIMESTAMP = Struct(">q")
_LENGTH = Struct(">i")
_MAGIC_START = LOG_OVERHEAD + 4
_MESSAGE_BYTES_MIN = (14, 22)
_OFFSET_MAX = (1 << 63) - 1
# zstd is newer than these formats.
_MESSAGE_CODECS = frozenset((GZIP, SNAPPY, LZ4))


class Message(NamedTuple):
    """One message of a set, which may be a wrapper; key and value are views."""

    offset: int
    size: int
    crc: int
    magic: int
    attributes: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None

    @property
    def compression(self) -> int:
        """Compression code of the wrapped set, 0 for a plain message."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """`CREATE_TIME` or `LOG_APPEND_TIME`; magic 0 has no type and counts as create time."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_FLAG else CREATE_TIME

    def content(self, timestamp: int) -> tuple[int, bytes | None, bytes | None]:
        """Return `timestamp` after checking it, with copies of key and value.

        Raises:
            CorruptBatchError: the timestamp is invalid.
        """
        if timestamp < NO_TIMESTAMP:
            raise CorruptBatchError(f"a message has the invalid timestamp {timestamp}")
        return (
            timestamp,
            None if self.key is None else bytes(self.key),
            None if self.value is None else bytes(self.value),
        )


def messages(buffer: Buffer, position: int = 0, *, check: bool = True) -> Iterator[Message]:
    """Yield the outer messages of a set; a truncated message at the end is skipped.

    Args:
        buffer: a message set of magic 0 or 1.
        position: start of the first message.
        check: whether to check CRCs.

    Raises:
        UnsupportedMagicError: a message has magic 2 or an unknown magic.
        CorruptBatchError: the data is malformed.
    """
    view = memoryview(buffer)
    end = len(view)
    while end - position >= LOG_OVERHEAD:
        offset, size = OFFSET_AND_LENGTH.unpack_from(view, position)
        if size < _MESSAGE_BYTES_MIN[0]:
            raise CorruptBatchError(f"message of {size} bytes is too small")
        next_position = position + LOG_OVERHEAD + size
        if next_position > end:
            return
        yield _read_message(view[position:next_position], offset, size, check=check)
        position = next_position


def _read_message(view: memoryview, offset: int, size: int, *, check: bool) -> Message:
    crc, magic, attributes = _CRC_MAGIC_ATTRIBUTES.unpack_from(view, LOG_OVERHEAD)
    if magic not in (MAGIC_V0, MAGIC_V1):
        raise UnsupportedMagicError(magic)
    if size < _MESSAGE_BYTES_MIN[magic]:
        raise CorruptBatchError(f"message of {size} bytes is too small")
    if check and zlib.crc32(view[_MAGIC_START:]) != crc:
        raise CorruptBatchError(f"message at offset {offset} has a wrong CRC")
    position = LOG_OVERHEAD + _CRC_MAGIC_ATTRIBUTES.size
    timestamp = NO_TIMESTAMP
    if magic == MAGIC_V1:
        (timestamp,) = _TIMESTAMP.unpack_from(view, position)
        position += _TIMESTAMP.size
    key, position = _read_bytes(view, position)
    value, position = _read_bytes(view, position)
    if position != len(view):
        raise CorruptBatchError(f"{len(view) - position} bytes remain after a message's value")
    return Message(offset, size + LOG_OVERHEAD, crc, magic, attributes, timestamp, key, value)


def _read_bytes(view: memoryview, position: int) -> tuple[memoryview | None, int]:
    try:
        (length,) = _LENGTH.unpack_from(view, position)
    except error:
        raise CorruptBatchError("message is truncated") from None
    position += _LENGTH.size
    if length < 0:
        return None, position
    if length > len(view) - position:
        raise CorruptBatchError(f"field of {length} bytes does not fit its message")
    return view[position : position + length], position + length


def unwrap(message: Message, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """Return the records of a message with absolute offsets; several for a wrapper.

    Raises:
        InvalidMessageSetError: the wrapper is empty, or has an inner wrapper or inner messages of
            another format.
        CorruptBatchError: the data or its compression is malformed.
    """
    if message.compression == NONE:
        return [_record(message, message.offset, message.timestamp, message.timestamp_type)]
    inner = list(inner_messages(message, decompressed_set(message, max_bytes)))
    shift = 0
    if message.magic == MAGIC_V1:
        shift = message.offset - inner[-1].offset
    if message.timestamp_type == LOG_APPEND_TIME:
        return [_record(m, m.offset + shift, message.timestamp, LOG_APPEND_TIME) for m in inner]
    return [_record(m, m.offset + shift, m.timestamp, CREATE_TIME) for m in inner]


def inner_messages(message: Message, inner_set: Buffer) -> Iterator[Message]:
    """Yield the messages in a wrapper, at least one, with their inner offsets.

    Args:
        inner_set: the result of `decompressed_set`.

    Raises:
        InvalidMessageSetError: as in `unwrap`.
        CorruptBatchError: as in `unwrap`.
    """
    is_empty = True
    for inner in messages(inner_set):
        is_empty = False
        if inner.compression != NONE or inner.magic != message.magic:
            raise InvalidMessageSetError(
                "compressed message contains compressed messages or messages of another format"
            )
        yield inner
    if is_empty:
        raise InvalidMessageSetError("compressed message contains no messages")


def decompressed_set(message: Message, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Return the decompressed message set of a wrapper.

    Raises:
        InvalidMessageSetError: the value is missing or the compression is unknown.
        CorruptBatchError: the compression is malformed.
    """
    if message.compression not in _MESSAGE_CODECS or message.value is None:
        raise InvalidMessageSetError("compressed message has no value or an unknown compression")
    value: Buffer = message.value
    if message.compression == LZ4 and message.magic == MAGIC_V0:
        value = with_lz4_checksum(value, covers_magic=False)
    return decompress(message.compression, value, max_bytes)


def _record(message: Message, offset: int, timestamp: int, timestamp_type: int) -> Record:
    if timestamp < NO_TIMESTAMP or not -_OFFSET_MAX <= offset <= _OFFSET_MAX:
        raise CorruptBatchError("message has an invalid offset or timestamp")
    return Record(
        offset,
        timestamp,
        timestamp_type,
        None if message.key is None else bytes(message.key),
        None if message.value is None else bytes(message.value),
    )


def read_message_set(
    buffer: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[tuple[Message, list[Record]]]:
    """Yield each outer message of magic 0 or 1 with its records.

    Args:
        max_bytes: maximum decompressed size of the whole set.
    """
    room = max_bytes
    for message in messages(buffer):
        unwrapped = unwrap(message, room)
        if message.compression != NONE:
            room -= sum(len(r.key or b"") + len(r.value or b"") for r in unwrapped)
        yield message, unwrapped


def write_message(magic: int, offset: int, record: Record, compression: int = NONE) -> bytes:
    """Return one message.

    Args:
        magic: 0 or 1.
        offset: absolute, or relative inside a wrapper of magic 1.
        record: timestamp (not written in magic 0), key and value; headers are lost.
        compression: compression code of a wrapper, whose value is the compressed set.
    """
    attributes = compression
    if magic == MAGIC_V1 and record.timestamp_type == LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_FLAG
    body = bytearray((magic, attributes))
    if magic == MAGIC_V1:
        body += _TIMESTAMP.pack(record.timestamp)
    for part in (record.key, record.value):
        body += _LENGTH.pack(-1 if part is None else len(part))
        body += part or b""
    head = OFFSET_AND_LENGTH.pack(offset, len(body) + 4)
    return head + zlib.crc32(body).to_bytes(4, "big") + body


def write_message_set(magic: int, records: Sequence[Record], compression: int = NONE) -> bytes:
    """Return a message set of `records` at their offsets; one wrapper if compressed.

    Args:
        magic: 0 or 1.
        records: at least one record; all have the same timestamp type.
        compression: code 0 to 3; these formats do not support zstd.
    """
    if compression == NONE:
        return b"".join(write_message(magic, record.offset, record) for record in records)
    first, last = records[0].offset, records[-1].offset
    shift = first if magic == MAGIC_V1 else 0
    inner = b"".join(write_message(magic, record.offset - shift, record) for record in records)
    timestamp = max(record.timestamp for record in records)
    stamp = (timestamp, records[0].timestamp_type)
    return write_wrapper(magic, last, inner, compression, stamp)


def write_wrapper(
    magic: int, last_offset: int, inner: Buffer, compression: int, stamp: tuple[int, int]
) -> bytes:
    """Return a compressed message that wraps the message set `inner`.

    Args:
        magic: 0 or 1.
        last_offset: absolute offset of the last inner message.
        inner: message set with offsets from 0 in magic 1, and absolute offsets in magic 0.
        compression: code 1 to 3.
        stamp: largest timestamp, and timestamp type.
    """
    value = compress(compression, inner)
    if compression == LZ4 and magic == MAGIC_V0:
        value = with_lz4_checksum(value, covers_magic=True)
    wrapper = Record(last_offset, *stamp, None, bytes(value))
    return write_message(magic, last_offset, wrapper, compression)


# Minimum value of the length field: a message of magic 0 without key and value.
_ENTRY_BYTES_MIN = 14
# Maximum offset delta in a batch, when a conversion keeps gaps.
_DELTA_MAX = 0x7FFFFFFF


def entries(buffer: Buffer) -> Iterator[tuple[int, int, int]]:
    """Yield position, size and magic of each complete batch or message of any format.

    Raises:
        CorruptBatchError: a length is too small.
    """
    position, end = 0, len(buffer)
    while end - position > LOG_OVERHEAD + 4:
        _, length = OFFSET_AND_LENGTH.unpack_from(buffer, position)
        if length < _ENTRY_BYTES_MIN:
            raise CorruptBatchError(f"batch length {length} at {position} is too small")
        size = length + LOG_OVERHEAD
        if size > end - position:
            return
        yield position, size, magic_of(buffer, position)
        position += size


def read_records(
    buffer: Buffer,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
    of_batch: Callable[[Buffer, int, BatchHeader, int], Iterable[CompiledRecord]] = records_of,
) -> Iterator[CompiledRecord]:
    """Yield the records of all complete batches of any format, without control records.

    Args:
        buffer: a record set; a truncated batch at the end is skipped.
        max_bytes: maximum decompressed size of one batch.
        of_batch: reads a v2 batch; `columns.batch_records` is the fast reader.

    Raises:
        CorruptBatchError: the data is malformed. CRCs are not checked.
    """
    for position, size, magic in entries(buffer):
        if magic == MAGIC_V2:
            header = read_header(buffer, position)
            if not header.is_control:
                yield from of_batch(buffer, position, header, max_bytes)
        else:
            for message in messages(memoryview(buffer)[position : position + size]):
                yield from unwrap(message, max_bytes)


def to_v2_at_offsets(buffer: Buffer, leader_epoch: int = -1) -> Iterator[bytearray]:
    """Yield one v2 batch per old message or wrapper, with unchanged offsets."""
    for message, unwrapped in read_message_set(buffer):
        builder = BatchBuilder(
            base_offset=unwrapped[0].offset,
            compression=message.compression,
            timestamp_type=message.timestamp_type,
            log_append_time_ms=message.timestamp,
            leader_epoch=leader_epoch,
        )
        if not 0 <= unwrapped[-1].offset - unwrapped[0].offset <= _DELTA_MAX:
            raise CorruptBatchError("offsets of a compressed message do not increase")
        for record in unwrapped:
            _append(builder, record)
        yield builder.build()


def _append(builder: BatchBuilder, record: Record) -> None:
    try:
        builder.append_at(record)
    except ValueError as problem:
        raise CorruptBatchError(str(problem)) from None
