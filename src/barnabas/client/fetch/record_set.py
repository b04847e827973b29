"""Record sets of a partition, the failure that ends them, and the scan of their batch headers.

The scan reads offsets, sizes and CRCs. No record is decoded, so raw record sets pass through at the
speed of the network.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from barnabas.record.compiled import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.errors import ClientError
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["BatchSpan", "FetchFailure", "InvalidBatch", "RecordSet", "Scan", "scan_records"]

_HEAD = Struct(">qiibIhi")
_COUNT = Struct(">i")
_COUNT_START = 57
_HEAD_SIZE = 27
_LOG_OVERHEAD = 12
_HEADER_SIZE_V2 = 61
_CRC_START = 21
_MIN_LENGTH = 14
_OFFSET_MAX = 2**63 - 1


class InvalidBatch(NamedTuple):
    """Bytes that are not a valid record batch, or a batch with a wrong CRC."""

    offset: int
    # Offset of the next batch, as far as the header can be trusted.
    next_offset: int
    reason: str


class BatchSpan(NamedTuple):
    """Position and header fields of one batch, or of one message of a format before v2."""

    start: int
    end: int
    base_offset: int
    # Offset after the last record; unreliable for a compressed message of an old format.
    next_offset: int
    # -1 for old formats, where only decoding reveals the count.
    record_count: int
    leader_epoch: int
    attributes: int
    magic: int


class Scan(NamedTuple):
    """Result of scanning a record set."""

    # Offset after the last complete batch; -1 if there is none.
    next_offset: int
    # Bytes of all complete batches.
    length: int
    batches: list[BatchSpan]
    # The invalid batch that ended the scan early, else None.
    invalid: InvalidBatch | None = None


def scan_records(data: bytes | memoryview, *, check_crcs: bool) -> Scan:
    """Scan the complete batches of `data`; an incomplete batch at the end is not counted.

    An invalid length or the wrong CRC of a v2 batch ends the scan; the batches before it are valid.

    Args:
        data: record batches as received.
        check_crcs: whether to verify the CRCs of v2 batches.
    """
    unpack = _HEAD.unpack_from
    position = 0
    end = len(data)
    next_offset = -1
    view = memoryview(data)
    found: list[BatchSpan] = []
    add = found.append
    make = BatchSpan._make
    invalid: InvalidBatch | None = None
    while end - position >= _HEAD_SIZE:
        base_offset, length, epoch, magic, crc, attributes, last_delta = unpack(data, position)
        if length < (_MIN_LENGTH if magic < 2 else _HEADER_SIZE_V2 - _LOG_OVERHEAD):
            invalid = InvalidBatch(base_offset, base_offset + 1, f"invalid batch length {length}")
            break
        batch_end = position + _LOG_OVERHEAD + length
        if batch_end > end:
            break
        if magic < 2:
            next_offset = base_offset + 1
            count = epoch = -1
        else:
            if check_crcs and crc32c(view[position + _CRC_START : batch_end]) != crc:
                next_batch = base_offset + max(last_delta, 0) + 1
                invalid = InvalidBatch(base_offset, next_batch, "the CRC does not match")
                break
            next_offset = base_offset + last_delta + 1
            if last_delta < 0 or base_offset < 0 or next_offset > _OFFSET_MAX:
                invalid = InvalidBatch(base_offset, base_offset + 1, "invalid offsets")
                next_offset = found[-1].next_offset if found else -1
                break
            (count,) = _COUNT.unpack_from(data, position + _COUNT_START)
        span = (position, batch_end, base_offset, next_offset, count, epoch, attributes, magic)
        add(make(span))
        position = batch_end
    return Scan(next_offset, position, found, invalid)


class RecordSet(NamedTuple):
    """Fetched bytes of one partition: whole record batches, as stored in the log.

    The first batch may begin before `first_offset`, and the last batch may end after `end_offset`.
    Records outside [first_offset, end_offset) do not belong to the set.
    """

    topic: str
    partition: int
    first_offset: int
    # End offset (exclusive); the next set begins here.
    end_offset: int
    # Bytes, except in sets that only a consumer reads: it may have a view of a receive buffer.
    data: bytes | memoryview
    # High watermark as of this response.
    high_watermark: int
    # Start offset of the log as of this response.
    log_start_offset: int
    # (producer id, first offset) of aborted transactions; only with isolation.level=read_committed.
    aborted: tuple[tuple[int, int], ...]
    # The batches in `data`.
    batches: Sequence[BatchSpan] = ()
    # Last stable offset as of this response; -1 if unknown.
    last_stable_offset: int = -1


class FetchFailure(NamedTuple):
    """A partition that cannot be read further; it stays stopped until it is started again."""

    topic_partition: TopicPartition
    error: ClientError
