"""What a produce request may carry for one partition (Kafka: ProduceRequest.validateRecords)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.errors import ErrorCode
from barnabas.record.compression import ZSTD

if TYPE_CHECKING:
    from barnabas.protocol.chunks import Records


class Refusal(NamedTuple):
    """Why records are not taken."""

    error: ErrorCode
    # Nothing of the request is taken: Kafka finds it when it looks at the first batch of every
    # partition, before it looks at any topic.
    of_request: bool = False
    # For the client; of single partitions it gets none from Kafka.
    words: str = ""


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
        # No batch; but what there is of its header may be wrong already.
        return _corruption(records) or Refusal(ErrorCode.INVALID_RECORD)
    assert isinstance(records, memoryview)
    length, _, magic, _, attributes = _unpack_start(records)
    size = length + _OVERHEAD
    if size == len(records) and magic == _MAGIC and not attributes & _LOOKED_AT:
        return records
    corruption = _corruption(records)
    if corruption:
        return corruption
    if size > len(records) or magic != _MAGIC:
        return Refusal(ErrorCode.INVALID_RECORD)
    if attributes & _COMPRESSION_BITS == ZSTD and version < _ZSTD_SINCE:
        return Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if attributes & _TRANSACTIONAL_BIT:
        if names_transaction:
            # Nobody can have been given a transaction to write in.
            return Refusal(ErrorCode.INVALID_TXN_STATE)
        return Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, of_request=True)
    if size != len(records):
        return _without_tail(records, size)
    return records


def _corruption(records: Records | None) -> Refusal | None:
    """What is wrong with as much as there is of the first batch's size and magic."""
    if records is None or len(records) < _OVERHEAD:
        return None
    assert isinstance(records, memoryview)
    length: int = _LENGTH.unpack_from(records, _LENGTH_POSITION)[0]
    if length < _LENGTH_MIN:
        words = f"A batch cannot have {length + _OVERHEAD} bytes."
        return Refusal(ErrorCode.CORRUPT_MESSAGE, of_request=True, words=words)
    if len(records) < _MAGIC_END:
        return None
    magic = int.from_bytes(records[_MAGIC_END - 1 : _MAGIC_END], signed=True)
    if 0 <= magic <= _MAGIC:
        return None
    words = f"There is no magic {magic}."
    return Refusal(ErrorCode.CORRUPT_MESSAGE, of_request=True, words=words)


def _without_tail(records: memoryview, size: int) -> memoryview | Refusal:
    """As Kafka: a second batch is refused, what is too short for one is left out."""
    left = len(records) - size
    if left < _MAGIC_END:
        return records[:size]
    length: int = _LENGTH.unpack_from(records, size + _LENGTH_POSITION)[0]
    if length < _LENGTH_MIN:
        return Refusal(ErrorCode.CORRUPT_MESSAGE)
    if left < length + _OVERHEAD:
        return records[:size]
    return Refusal(ErrorCode.INVALID_RECORD)
