"""Reading fetched record sets of any format fast, for clients: v2 batches through compiled code.

Decompression is ours, and bounded; the compiled reader sees uncompressed batches only.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING

from barnabas.record.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    BatchHeader,
    Buffer,
    read_header,
)
from barnabas.record.compiled import CompiledReader, CompiledRecord
from barnabas.record.compression import DECOMPRESSED_BYTES_MAX, NONE, decompress
from barnabas.record.conversion import entries
from barnabas.record.errors import CorruptBatchError
from barnabas.record.legacy import messages, unwrap
from barnabas.record.reader import check_record_count, iter_records_of, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Records that are read at once: some 0.2 ms of work in C, 2 ms in Python.
RECORDS_PER_SLICE = 500

_LENGTH = Struct(">i")
_ATTRIBUTES = Struct(">h")


# What the compiled reader raises beside its own error. A header key that is not UTF-8 is no reason
# to stop reading; Java shows it changed. The others are numbers that cannot be: of more than ten
# bytes (ValueError), or sizes that its check of bounds does not see because their sum wraps around.
_UNREADABLE = (ValueError, OverflowError, MemoryError)


@lru_cache(maxsize=1)
def _reader() -> CompiledReader:
    return CompiledReader()


def iter_records(
    buffer: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[CompiledRecord]:
    """All records of complete batches of any format, in order; control records are left out.

    Args:
        buffer: a fetched record set; a cut-off tail is left out.
        max_bytes: limit of what one batch may decompress to.

    Raises:
        CorruptBatchError: anything malformed. CRCs are not checked here.
    """
    for position, size, magic in entries(buffer):
        if magic == MAGIC_V2:
            header = read_header(buffer, position)
            if not header.is_control:
                yield from batch_records(buffer, position, header, max_bytes)
        else:
            for message in messages(memoryview(buffer)[position : position + size]):
                yield from unwrap(message, max_bytes)


def batch_records(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Sequence[CompiledRecord]:
    """The records of the v2 batch at `position`, control records too.

    Raises:
        CorruptBatchError: anything malformed. The CRC is not checked here.
    """
    return uncompressed_records(uncompressed(buffer, position, header, max_bytes))


def uncompressed_records(batch: Buffer) -> Sequence[CompiledRecord]:
    """The records of a batch that `uncompressed` gave.

    Raises:
        CorruptBatchError: anything malformed.
    """
    reader = _reader()
    try:
        return list(reader.batch(batch))
    except reader.corrupt as problem:
        raise CorruptBatchError(str(problem)) from None
    except _UNREADABLE:
        return records_of(batch, 0, read_header(batch))


def record_slices(batch: Buffer, header: BatchHeader) -> Iterator[Sequence[CompiledRecord]]:
    """The records of a batch that `uncompressed` gave, up to RECORDS_PER_SLICE at a time.

    What the compiled reader cannot read is read in Python from the start, and slices are empty
    until it gets to records that were not given yet.

    Raises:
        CorruptBatchError: anything malformed, perhaps after some slices.
    """
    reader = _reader()
    count = header.record_count
    given = 0
    try:
        unread = iter(reader.batch(batch))
        while given < count:
            size = min(count - given, RECORDS_PER_SLICE)
            part = [next(unread) for _ in range(size)]
            given += size
            if given == count:
                # Looks whether bytes are left.
                next(unread, None)
            yield part
        return
    except (reader.corrupt, *_UNREADABLE):
        pass
    again = iter_records_of(batch, 0, read_header(batch))
    for start in range(0, count, RECORDS_PER_SLICE):
        found = list(islice(again, RECORDS_PER_SLICE))
        yield found[max(given - start, 0) :]


def append_columns(
    batch: Buffer,
    header: BatchHeader,
    offsets: list[int],
    keys: list[bytes | None],
    values: list[bytes | None],
) -> None:
    """Append what a batch that `uncompressed` gave holds, without keeping an object per record.

    In one pass, since each record is freed before the next is read: a third faster than by lists of
    records. Offsets are counted where there are as many records as offsets.

    Raises:
        CorruptBatchError: anything malformed; the lists may have more than they had.
    """
    reader = _reader()
    count = len(keys)
    add_key, add_value = keys.append, values.append
    is_dense = header.last_offset_delta + 1 == header.record_count
    try:
        if is_dense:
            offsets += range(header.base_offset, header.last_offset + 1)
            for record in reader.batch(batch):
                add_key(record.key)
                add_value(record.value)
        else:
            add_offset = offsets.append
            for record in reader.batch(batch):
                add_offset(record.offset)
                add_key(record.key)
                add_value(record.value)
    except reader.corrupt as problem:
        raise CorruptBatchError(str(problem)) from None
    except _UNREADABLE:
        del offsets[count:], keys[count:], values[count:]
        for record in uncompressed_records(batch):
            offsets.append(record.offset)
            add_key(record.key)
            add_value(record.value)


def uncompressed(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Buffer:
    """The batch at `position` alone, its records decompressed; a view if they were not compressed.

    Raises:
        CorruptBatchError: it is cut off, or its compression is broken or a bomb.
    """
    if header.record_count < 0 or position + header.size > len(buffer):
        raise CorruptBatchError("batch is cut off or has a negative record count")
    if header.compression == NONE:
        check_record_count(header.record_count, header.size - HEADER_SIZE)
        return memoryview(buffer)[position : position + header.size]
    view = memoryview(buffer)[position : position + header.size]
    head = bytearray(view[:HEADER_SIZE])
    _ATTRIBUTES.pack_into(head, ATTRIBUTES_POSITION, header.attributes & ~COMPRESSION_MASK)
    batch = decompress(header.compression, view[HEADER_SIZE:], max_bytes, head)
    assert not isinstance(batch, bytes), "what has a head can be written to"
    _LENGTH.pack_into(batch, 8, len(batch) - LOG_OVERHEAD)
    check_record_count(header.record_count, len(batch) - HEADER_SIZE)
    return batch
