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
    words: str = ""
    # Nothing of the request is taken: Kafka finds it when it looks at the first batch of every
    # partition, before it looks at any topic.
    of_request: bool = False


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
        return _too_short(records)
    assert isinstance(records, memoryview)
    length, _, magic, _, attributes = _unpack_start(records)
    size = length + _OVERHEAD
    if size == len(records) and magic == _MAGIC and not attributes & _LOOKED_AT:
        return records
    if length < _LENGTH_MIN:
        return _corrupt(f"A batch cannot have {size} bytes.")
    if not 0 <= magic <= _MAGIC:
        return _corrupt(f"There is no magic {magic}.")
    if size > len(records):
        return Refusal(ErrorCode.INVALID_RECORD, "The batch is cut off.")
    if magic != _MAGIC:
        return Refusal(
            ErrorCode.INVALID_RECORD,
            f"Produce v{version} takes batches of magic 2 only, not {magic}.",
        )
    if attributes & _COMPRESSION_BITS == ZSTD and version < _ZSTD_SINCE:
        return Refusal(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce v{version} does not know zstd; v{_ZSTD_SINCE} does.",
        )
    if attributes & _TRANSACTIONAL_BIT:
        if names_transaction:
            # Nobody can have been given a transaction to write in.
            return Refusal(ErrorCode.INVALID_TXN_STATE, "There is no such transaction.")
        return Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, of_request=True)
    if size != len(records):
        return _without_tail(records, size)
    return records


def _corrupt(words: str) -> Refusal:
    return Refusal(ErrorCode.CORRUPT_MESSAGE, words, of_request=True)


def _too_short(records: Records | None) -> Refusal:
    """There is no batch; but what there is of its header may be wrong already."""
    if records is not None and len(records) >= _OVERHEAD:
        assert isinstance(records, memoryview)
        length: int = _LENGTH.unpack_from(records, _LENGTH_POSITION)[0]
        if length < _LENGTH_MIN:
            return _corrupt(f"A batch cannot have {length + _OVERHEAD} bytes.")
        if len(records) >= _MAGIC_END and not 0 <= records[_MAGIC_END - 1] <= _MAGIC:
            return _corrupt(f"There is no magic {records[_MAGIC_END - 1]}.")
    return Refusal(ErrorCode.INVALID_RECORD, "A produce request needs one batch per partition.")


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
    return Refusal(
        ErrorCode.INVALID_RECORD, "A produce request takes exactly one batch per partition."
    )
