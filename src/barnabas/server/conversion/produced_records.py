"""Checks of the records for one partition in a Produce request (ProduceRequest.validateRecords)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.errors import ErrorCode
from barnabas.record.compression import ZSTD

if TYPE_CHECKING:
    from barnabas.protocol.encoding import Records


class Refusal(NamedTuple):
    """Error for records that are not appended."""

    error: ErrorCode
    # Whether the error rejects the whole request. Kafka checks the first batch of every partition
    # before it looks up any topic.
    of_request: bool = False
    # Error message for the client. As in Kafka, errors of single partitions have none.
    message: str = ""


# Batch header after the base offset: length, leader epoch, magic, checksum, attributes.
_START = struct.Struct(">8xiibIh")
_unpack_start = _START.unpack_from
_OVERHEAD = 12
_LENGTH = struct.Struct(">i")
_LENGTH_POSITION = 8
# End of the magic in a batch. Kafka looks for another batch only if this many bytes are left.
# `_LENGTH_MIN` is the minimum of the length field.
_MAGIC_END = 17
_LENGTH_MIN = 14
_COMPRESSION_BITS = 0x07
_TRANSACTIONAL_BIT = 0x10
_MAGIC = 2
_ZSTD_SINCE = 7
# Attribute bits that need further checks. Zstd is the only compression type with its bit, and old
# versions do not allow it.
_CHECKED_BITS = _TRANSACTIONAL_BIT | ZSTD


def checked_records(
    records: Records | None, version: int, has_transactional_id: bool = False
) -> memoryview | Refusal:
    """Return the batch to append as a writable view, or the error of the records.

    Storage checks the checksum and the rest of the batch. `OldProduce` handles versions below 3.
    """
    if records is None or len(records) < _START.size:
        # There is no complete batch, but the existing part of its header may already be corrupt.
        return _corruption(records) or Refusal(ErrorCode.INVALID_RECORD)
    assert isinstance(records, memoryview)
    length, _, magic, _, attributes = _unpack_start(records)
    size = length + _OVERHEAD
    if size == len(records) and magic == _MAGIC and not attributes & _CHECKED_BITS:
        return records
    corruption = _corruption(records)
    if corruption:
        return corruption
    if size > len(records) or magic != _MAGIC:
        return Refusal(ErrorCode.INVALID_RECORD)
    if attributes & _COMPRESSION_BITS == ZSTD and version < _ZSTD_SINCE:
        return Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if attributes & _TRANSACTIONAL_BIT and not has_transactional_id:
        return Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, of_request=True)
    if size != len(records):
        return _without_tail(records, size)
    return records


def _corruption(records: Records | None) -> Refusal | None:
    """Return an error in the size or magic of the first batch, if these bytes exist."""
    if records is None or len(records) < _OVERHEAD:
        return None
    assert isinstance(records, memoryview)
    length: int = _LENGTH.unpack_from(records, _LENGTH_POSITION)[0]
    if length < _LENGTH_MIN:
        message = f"A batch cannot have {length + _OVERHEAD} bytes."
        return Refusal(ErrorCode.CORRUPT_MESSAGE, of_request=True, message=message)
    if len(records) < _MAGIC_END:
        return None
    magic = int.from_bytes(records[_MAGIC_END - 1 : _MAGIC_END], signed=True)
    if 0 <= magic <= _MAGIC:
        return None
    message = f"There is no magic {magic}."
    return Refusal(ErrorCode.CORRUPT_MESSAGE, of_request=True, message=message)


def _without_tail(records: memoryview, size: int) -> memoryview | Refusal:
    """Drop an incomplete second batch, and reject a complete one, as Kafka does."""
    left = len(records) - size
    if left < _MAGIC_END:
        return records[:size]
    length: int = _LENGTH.unpack_from(records, size + _LENGTH_POSITION)[0]
    if length < _LENGTH_MIN:
        return Refusal(ErrorCode.CORRUPT_MESSAGE)
    if left < length + _OVERHEAD:
        return records[:size]
    return Refusal(ErrorCode.INVALID_RECORD)
