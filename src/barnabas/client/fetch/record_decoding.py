"""Decodes record sets: applies offset bounds and skips aborted transactions (KIP-98)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.record.batch import CONTROL_FLAG, MAGIC_V2, BatchHeader, read_header
from barnabas.record.columns import batch_records, iter_records, record_slices, uncompressed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.client.fetch.record_set import BatchSpan, RecordSet
    from barnabas.record.compiled import CompiledRecord

__all__ = [
    "ConsumerRecord",
    "decode_record_set",
    "iter_record_set",
    "iter_span_records",
    "read_records",
    "span_records",
    "visible_batches",
]

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
    data = records.data
    waiting = sorted(records.aborted, key=lambda transaction: transaction[1], reverse=True)
    aborting: set[int] = set()
    visible: list[BatchSpan] = []
    for span in spans:
        header = read_header(data, span.start)
        while waiting and waiting[-1][1] <= header.last_offset:
            aborting.add(waiting.pop()[0])
        if header.is_control:
            if _is_abort(data, span.start, header):
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            visible.append(span)
    return visible


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
