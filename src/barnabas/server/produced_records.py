"""What a produce request may carry for one partition (Kafka: ProduceRequest.validateRecords)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.record.compression import ZSTD

if TYPE_CHECKING:
    from barnabas.protocol.chunks import Records

Refusal = tuple[ErrorCode, str]

# Size behind the first 12 bytes, leader epoch, magic, checksum, attributes.
_START = struct.Struct(">8xiibIh")
_OVERHEAD = 12
_COMPRESSION_BITS = 0x07
_TRANSACTIONAL_BIT = 0x10
_MAGIC = 2
_ZSTD_SINCE = 7


def checked_records(records: Records | None, version: int) -> memoryview | Refusal:
    """The one batch to append, as a writable view; or why there is none.

    The checksum and all else are left to storage, which checks every batch. Versions below 3 are
    taken by `old_produce`.
    """
    if records is None or len(records) < _START.size:
        return ErrorCode.INVALID_RECORD, "A produce request needs one batch per partition."
    assert isinstance(records, memoryview)
    length, _, magic, _, attributes = _START.unpack_from(records)
    size = length + _OVERHEAD
    if size < _START.size:
        return ErrorCode.CORRUPT_MESSAGE, f"A batch cannot have {size} bytes."
    if size > len(records):
        return ErrorCode.INVALID_RECORD, "The batch is cut off."
    if magic != _MAGIC:
        return (
            ErrorCode.INVALID_RECORD,
            f"Produce v{version} takes batches of magic 2 only, not {magic}.",
        )
    if attributes & _COMPRESSION_BITS == ZSTD and version < _ZSTD_SINCE:
        return (
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce v{version} does not know zstd; v{_ZSTD_SINCE} does.",
        )
    if attributes & _TRANSACTIONAL_BIT:
        # Refused for the whole request: it named no transaction.
        return (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "The batch is transactional, the request names no transactional id.",
        )
    if size != len(records):
        if _is_complete(records, size):
            return (
                ErrorCode.INVALID_RECORD,
                "A produce request takes exactly one batch per partition.",
            )
        return records[:size]
    return records


def _is_complete(records: memoryview, position: int) -> bool:
    if len(records) - position < _START.size:
        return False
    length: int = _START.unpack_from(records, position)[0]
    return position + length + _OVERHEAD <= len(records)
