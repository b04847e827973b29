"""Decoded records as Arrow record batches with the columns of Spark's Kafka source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from barnabas.record.reader import read_headers
from barnabas.spark.decode import DecodedRecords, decode_record_set, upgraded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray
    from pyspark.sql.types import StructType

    from barnabas.spark.decode import Int64s

# Spark's cost per batch is paid off from here on (measured: 10 k batches halve the throughput).
ROWS_MIN = 50_000
# Emitted before that many rows are there, if values are large.
BYTES_MAX = 64 << 20
_COLUMNS = 7


class RowBatches:
    """Collects record sets of one partition and gives Arrow record batches of some size."""

    def __init__(self, topic: str, partition: int, schema: StructType) -> None:
        self._topic = topic
        self._partition = partition
        # Spark compares the first batch's schema with exactly this one.
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._with_headers = len(self._schema) > _COLUMNS
        self._parts: list[list[pa.Array]] = []
        self._rows = 0
        self._bytes = 0

    def add(
        self, data: bytes, first: int, end: int, aborted: Sequence[tuple[int, int]] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Take the records of `data` with first <= offset < end; gives batches that are full.

        Raises:
            CorruptBatchError: the bytes are not what they should be.
        """
        for decoded in decode_record_set(upgraded(data), aborted):
            wanted = decoded.between(first, end)
            if not len(wanted.offsets):
                continue
            self._parts.append(self._arrays(wanted))
            self._rows += len(wanted.offsets)
            self._bytes += len(wanted.buffer)
            if self._rows >= ROWS_MIN or self._bytes >= BYTES_MAX:
                yield self._take()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What is left when all was added."""
        if self._rows:
            yield self._take()

    def _take(self) -> pa.RecordBatch:
        parts = self._parts
        arrays = parts[0] if len(parts) == 1 else [pa.concat_arrays(c) for c in zip(*parts)]  # noqa: B905
        self._parts, self._rows, self._bytes = [], 0, 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _arrays(self, records: DecodedRecords) -> list[pa.Array]:
        count = len(records.offsets)
        keys, values = _gather(records)
        arrays = [
            keys,
            values,
            pa.repeat(pa.scalar(self._topic, pa.string()), count),
            pa.repeat(pa.scalar(self._partition, pa.int32()), count),
            pa.array(records.offsets),
            pa.array(records.timestamps * 1000).view(self._schema.field(5).type),
            pa.array(records.timestamp_types.astype(np.int32)),
        ]
        if self._with_headers:
            arrays.append(_headers(records, self._schema.field(7).type))
        return arrays


def _gather(records: DecodedRecords) -> tuple[pa.Array, pa.Array]:
    """Keys and values.

    The buffer is taken as one binary array whose elements are, in turn, key, gap, value, gap: its
    offsets grow, as Arrow demands, and `take` copies only the elements asked for.
    """
    count = len(records.offsets)
    bounds = np.empty((count, 4), np.int32)
    bounds[:, 0] = records.key_starts
    bounds[:, 1] = records.key_starts + np.maximum(records.key_sizes, 0)
    bounds[:, 2] = records.value_starts
    bounds[:, 3] = records.header_starts
    elements = pa.Array.from_buffers(
        pa.binary(), 4 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(records.buffer)]
    )
    indices = np.arange(0, 4 * count, 4, dtype=np.int32)
    return (
        _taken(elements, indices, records.key_sizes),
        _taken(elements, indices + 2, records.value_sizes),
    )


def _taken(elements: pa.Array, indices: NDArray[np.int32], sizes: Int64s) -> pa.Array:
    nulls = sizes < 0
    if nulls.all():
        return pa.nulls(len(indices), pa.binary())
    return elements.take(pa.array(indices, mask=nulls if nulls.any() else None))


def _headers(records: DecodedRecords, kind: pa.DataType) -> pa.Array:
    """Headers per record, null for none as in Spark's connector."""
    raw = np.frombuffer(records.buffer, np.uint8)
    # A count of 0 is the byte 0; a record without a byte for it is found corrupt below.
    starts, ends = records.header_starts, records.ends
    has_some = raw[np.minimum(starts, len(raw) - 1)] != 0
    if not has_some.any() and (ends - starts == 1).all():
        return pa.nulls(len(starts), kind)
    buffer = records.buffer
    rows: Iterable[list[dict[str, object]] | None] = (
        [{"key": key, "value": value} for key, value in read_headers(buffer, start, end)] or None
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    )
    return pa.array(rows, kind, size=len(starts))
