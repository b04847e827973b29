"""A walk over the batch headers of fetched bytes: where they end, and whether they are sound.

No record is decoded, so raw record sets can be handed on at the speed of the network.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from barnabas.record.checksum import crc32c

__all__ = ["BatchSpan", "Flaw", "Scan", "scan_records"]

_HEAD = Struct(">qiibIhi")
_COUNT = Struct(">i")
_COUNT_START = 57
_HEAD_SIZE = 27
_LOG_OVERHEAD = 12
_HEADER_SIZE_V2 = 61
_CRC_START = 21
_MIN_LENGTH = 14
_OFFSET_MAX = 2**63 - 1


class Flaw(NamedTuple):
    """Bytes that are not a record batch, or whose CRC is wrong."""

    offset: int
    # Of the batch behind it, as far as its header can be trusted.
    next_offset: int
    reason: str


class BatchSpan(NamedTuple):
    """One batch, or one message of the formats before v2, as its header tells."""

    start: int
    end: int
    base_offset: int
    # Offset after its last record; of a compressed message of old format not to be relied on.
    next_offset: int
    # -1 where only decoding tells.
    record_count: int
    leader_epoch: int
    attributes: int
    magic: int


class Scan(NamedTuple):
    """What a record set holds."""

    # Offset after its last complete batch; -1 if there is none.
    next_offset: int
    # Bytes of its complete batches.
    length: int
    batches: list[BatchSpan]
    # What ended the walk before the end.
    flaw: Flaw | None = None


def scan_records(data: bytes, *, check_crcs: bool) -> Scan:
    """Walk the complete batches of `data`; what is cut off at the end is not counted.

    A length that cannot be, or a wrong CRC of a v2 batch, ends the walk: what lies before is good.
    """
    unpack = _HEAD.unpack_from
    position = 0
    end = len(data)
    next_offset = -1
    view = memoryview(data)
    found: list[BatchSpan] = []
    add = found.append
    make = BatchSpan._make
    flaw: Flaw | None = None
    while end - position >= _HEAD_SIZE:
        base_offset, length, epoch, magic, crc, attributes, last_delta = unpack(data, position)
        if length < (_MIN_LENGTH if magic < 2 else _HEADER_SIZE_V2 - _LOG_OVERHEAD):
            flaw = Flaw(base_offset, base_offset + 1, f"a batch of {length} bytes")
            break
        batch_end = position + _LOG_OVERHEAD + length
        if batch_end > end:
            break
        if magic < 2:
            next_offset = base_offset + 1
            count = epoch = -1
        else:
            if check_crcs and crc32c(view[position + _CRC_START : batch_end]) != crc:
                behind = base_offset + max(last_delta, 0) + 1
                flaw = Flaw(base_offset, behind, "the CRC does not match")
                break
            next_offset = base_offset + last_delta + 1
            if last_delta < 0 or base_offset < 0 or next_offset > _OFFSET_MAX:
                flaw = Flaw(base_offset, base_offset + 1, "its offsets cannot be")
                next_offset = found[-1].next_offset if found else -1
                break
            (count,) = _COUNT.unpack_from(data, position + _COUNT_START)
        span = (position, batch_end, base_offset, next_offset, count, epoch, attributes, magic)
        add(make(span))
        position = batch_end
    return Scan(next_offset, position, found, flaw)
