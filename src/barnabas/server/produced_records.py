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
_unpack_start = _START.unpack_from
_OVERHEAD = 12
_LENGTH = struct.Struct(">i")
_LENGTH_POSITION = 8
# Where the magic ends, up to which Kafka looks for another batch; and what no batch is below.
_MAGIC_END = 17
_LENGTH_MIN = 14
_COMPRESSION_BITS = 0x07
_TRANSACTIONAL_BIT = 0x10
_MAGIC = 2
_ZSTD_SINCE = 7
# Of all compressions zstd alone has this bit, and is not for every version.
_LOOKED_AT = _TRANSACTIONAL_BIT | ZSTD


def checked_records(
    records: Records | None, version: int, names_transaction: bool = False
) -> memoryview | Refusal:
    """The one batch to append, as a writable view; or why there is none.

    The checksum and all else are left to storage, which checks every batch. Versions below 3 are
    taken by `old_produce`.
    """
    if records is None or len(records) < _START.size:
        return ErrorCode.INVALID_RECORD, "A produce request needs one batch per partition."
    assert isinstance(records, memoryview)
    length, _, magic, _, attributes = _unpack_start(records)
    size = length + _OVERHEAD
    if size == len(records) and magic == _MAGIC and not attributes & _LOOKED_AT:
        return records
    if length < _LENGTH_MIN:
        return ErrorCode.CORRUPT_MESSAGE, f"A batch cannot have {size} bytes."
    if size > len(records):
        return ErrorCode.INVALID_RECORD, "The batch is cut off."
    if not 0 <= magic <= _MAGIC:
        return ErrorCode.CORRUPT_MESSAGE, f"There is no magic {magic}."
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
        if names_transaction:
            # Nobody can have been given a transaction to write in.
            return ErrorCode.INVALID_TXN_STATE, "There is no such transaction."
        # Refused for the whole request: it named no transaction.
        return (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "The batch is transactional, the request names no transactional id.",
        )
    if size != len(records):
        return _without_tail(records, size)
    return records


def _without_tail(records: memoryview, size: int) -> memoryview | Refusal:
    """As Kafka: a second batch is refused, what is too short for one is left out."""
    left = len(records) - size
    if left < _MAGIC_END:
        return records[:size]
    length: int = _LENGTH.unpack_from(records, size + _LENGTH_POSITION)[0]
    if length < _LENGTH_MIN:
        return ErrorCode.CORRUPT_MESSAGE, ""
    if left < length + _OVERHEAD:
        return records[:size]
    return ErrorCode.INVALID_RECORD, "A produce request takes exactly one batch per partition."
