"""Convert consumed records to an Arrow table, directly from the fetched bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from barnabas.record.arrow_arrays import fixed_width, header_rows, keys_and_values, repeated
from barnabas.record.decoded_columns import DecodedRecords, decode_record_set, upgraded
from barnabas.record.record import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.client.consumer.partition_records import PartitionRecords
    from barnabas.client.fetch.fetched_batch import Piece


__all__ = ["SCHEMA", "to_table"]

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TIME = pa.timestamp("ms", tz="UTC")
SCHEMA = pa.schema([
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", _TIME),
    ("timestamp_type", pa.int8()),
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("headers", _HEADERS),
])  # fmt: skip


class _Run(NamedTuple):
    """Adjacent batches of one record set, and the offset range of their selected records.

    The batches occupy `data[start:end]`. Records with `first_offset <= offset < end_offset` are
    selected.
    """

    data: bytes | memoryview
    start: int
    end: int
    first_offset: int
    end_offset: int


def to_table(parts: Iterable[PartitionRecords]) -> pa.Table:
    """Return one table of all records, in their order.

    Args:
        parts: The records, by partition.

    Raises:
        CorruptRecordsError: A batch has malformed bytes.
    """
    batches = [batch for part in parts for batch in _record_batches(part)]
    return pa.Table.from_batches(batches, schema=SCHEMA)


def _record_batches(part: PartitionRecords) -> list[pa.RecordBatch]:
    try:
        return [
            _record_batch(*part.topic_partition, decoded.between(run.first_offset, run.end_offset))
            for run in _runs(part.pieces)
            for decoded in decode_record_set(upgraded(bytes(run.data[run.start : run.end])))
        ]
    except CorruptBatchError as error:
        part.raise_corrupt(error)


def _runs(pieces: Iterable[Piece]) -> Iterator[_Run]:
    run: _Run | None = None
    for piece in pieces:
        batch, span = piece.batch, piece.batch.span
        end_offset = batch.offset_after(piece.stop)
        if run is not None and run.data is batch.data and run.end == span.start:
            run = run._replace(end=span.end, end_offset=end_offset)
            continue
        if run is not None:
            yield run
        first = batch.offset_after(piece.start) if piece.start else batch.first_offset
        run = _Run(batch.data, span.start, span.end, first, end_offset)
    if run is not None:
        yield run


def _record_batch(topic: str, partition: int, records: DecodedRecords) -> pa.RecordBatch:
    count = len(records.offsets)
    if not count:
        return pa.RecordBatch.from_pylist([], schema=SCHEMA)
    keys, values = keys_and_values(records)
    arrays = [
        repeated(topic, count),
        fixed_width(np.full(count, partition, np.int32), pa.int32()),
        fixed_width(records.offsets, pa.int64()),
        fixed_width(records.timestamps, _TIME),
        fixed_width(records.timestamp_types.astype(np.int8), pa.int8()),
        keys,
        values,
        header_rows(records, _HEADERS),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
