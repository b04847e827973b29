"""Record sets of a partition: the scan of their batch headers, and their records.

The scan reads offsets, sizes and CRCs. It decodes no record, so raw record sets pass through at the
speed of the network. Decoding applies offset bounds and skips aborted transactions (KIP-98).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.record.batch import CONTROL_FLAG, MAGIC_V2, BatchHeader, read_header
from barnabas.record.columns import batch_records, iter_records, record_slices, uncompressed
from barnabas.record.compiled import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.client.errors import ClientError
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.record.compiled import CompiledRecord


__all__ = [
    "BatchSpan",
    "ConsumerRecord",
    "ExaminedBatch",
    "FetchFailure",
    "InvalidBatch",
    "RecordSet",
    "Scan",
    "decode_record_set",
    "examine_batches",
    "iter_record_set",
    "iter_span_records",
    "read_records",
    "scan_records",
    "span_records",
    "visible_batches",
]

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


_ABORT_KEY = b"\x00\x00\x00\x00"


class ConsumerRecord(NamedTuple):
    """One record as a consumer receives it."""

    topic: str
    partition: int
    offset: int
    # Milliseconds since 1970; `timestamp_type` is 0 for create time, 1 for log append time.
    timestamp: int
    timestamp_type: int
    # Bytes, None for null, or the return value of a deserializer.
    key: Any
    value: Any
    headers: Sequence[tuple[str, bytes | None]]


def read_records(records: RecordSet) -> list[CompiledRecord]:
    """Decode the records of a set with the compiled reader.

    Each record has `offset`, `timestamp`, `timestamp_type`, `key`, `value` and `headers`. Control
    records and aborted transactions are skipped.

    Raises:
        CorruptBatchError: the bytes are malformed.
    """
    found = list(_committed(records) if records.aborted else iter_records(records.data))
    first, end = records.first_offset, records.end_offset
    if found and (found[0].offset < first or found[-1].offset >= end):
        return [record for record in found if first <= record.offset < end]
    return found


def decode_record_set(records: RecordSet) -> list[ConsumerRecord]:
    """Decode the records of a set as named tuples with topic and partition.

    Raises:
        CorruptBatchError: the bytes are malformed.
    """
    topic, partition = records.topic, records.partition
    make = ConsumerRecord._make
    return [
        make((topic, partition, r.offset, r.timestamp, r.timestamp_type, r.key, r.value, r.headers))
        for r in read_records(records)
    ]


def visible_batches(records: RecordSet) -> list[BatchSpan]:
    """Return the batches visible to consumers: no control batches or aborted transactions."""
    spans = records.batches
    if not records.aborted:
        return [s for s in spans if s.magic != MAGIC_V2 or not s.attributes & CONTROL_FLAG]
    return [
        batch.span
        for batch in examine_batches(records)
        if not batch.is_aborted and not (batch.header is not None and batch.header.is_control)
    ]


class ExaminedBatch(NamedTuple):
    """A batch of a record set with what consumers are not told."""

    span: BatchSpan
    # None for a message of a format before v2.
    header: BatchHeader | None
    # Whether the response lists the batch's transaction as aborted. Only a response with
    # isolation.level=read_committed lists them.
    is_aborted: bool


def examine_batches(records: RecordSet) -> Iterator[ExaminedBatch]:
    """Yield all batches of a set, also control batches and those of aborted transactions.

    `span_records` returns the records of a batch, which may be control records.
    """
    data = records.data
    waiting = sorted(records.aborted, key=lambda transaction: transaction[1], reverse=True)
    aborting: set[int] = set()
    for span in records.batches:
        if span.magic != MAGIC_V2:
            yield ExaminedBatch(span, None, is_aborted=False)
            continue
        header = read_header(data, span.start)
        while waiting and waiting[-1][1] <= header.last_offset:
            aborting.add(waiting.pop()[0])
        if header.is_control and aborting and _is_abort(data, span.start, header):
            aborting.discard(header.producer_id)
        is_aborted = (
            header.is_transactional and not header.is_control and header.producer_id in aborting
        )
        yield ExaminedBatch(span, header, is_aborted)


def _committed(records: RecordSet) -> Iterator[CompiledRecord]:
    """Yield the records outside the aborted transactions that the response lists."""
    for span in visible_batches(records):
        yield from span_records(records.data, span)


def span_records(data: bytes | memoryview, span: BatchSpan) -> Sequence[CompiledRecord]:
    """Decode the records of one batch, or of one message of an old format.

    Raises:
        CorruptBatchError: the bytes are malformed.
    """
    if span.magic == MAGIC_V2:
        return batch_records(data, span.start, read_header(data, span.start))
    return list(iter_records(memoryview(data)[span.start : span.end]))


def iter_span_records(data: bytes | memoryview, span: BatchSpan) -> Iterator[CompiledRecord]:
    """Yield the records of one batch; only a few of them are in memory at a time.

    Raises:
        CorruptBatchError: the bytes are malformed; some records may already be yielded.
    """
    if span.magic != MAGIC_V2:
        yield from iter_records(memoryview(data)[span.start : span.end])
        return
    header = read_header(data, span.start)
    for part in record_slices(uncompressed(data, span.start, header), header):
        yield from part


def iter_record_set(records: RecordSet) -> Iterator[ConsumerRecord]:
    """Yield the records of a set like `decode_record_set`, with few in memory at a time."""
    topic, partition = records.topic, records.partition
    for span in visible_batches(records):
        for r in iter_span_records(records.data, span):
            if records.first_offset <= r.offset < records.end_offset:
                yield ConsumerRecord(
                    topic,
                    partition,
                    r.offset,
                    r.timestamp,
                    r.timestamp_type,
                    r.key,
                    r.value,
                    r.headers,
                )


def _is_abort(data: bytes | memoryview, position: int, header: BatchHeader) -> bool:
    marker = batch_records(data, position, header)
    key = marker[0].key if marker else None
    return key is not None and key[:4] == _ABORT_KEY
