"""Reads one range of offsets in a Spark task, as Arrow batches in the columns of Spark's source."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from barnabas.client.errors import OffsetOutOfRangeError, RangeStalledError, UnknownTopicError
from barnabas.client.topic_partition import TopicPartition
from barnabas.record.arrow_arrays import fixed_width, header_rows, keys_and_values, repeated
from barnabas.record.decoded_columns import DecodedRecords, decode_record_set, upgraded
from barnabas.spark.errors import DataLossError, RecordTimeError
from barnabas.spark.topics.clients import reading_client
from barnabas.spark.worker_process import freeze_imports

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from barnabas.client.facade import Client
    from barnabas.record.decoded_columns import Int64s
    from barnabas.spark.topics.offsets import OffsetRange
    from barnabas.spark.topics.options import SourceOptions
    from barnabas.spark.topics.value_reader import ValueReader

logger = logging.getLogger(__name__)
# Record sets are joined until a batch has this many rows or bytes. Small batches are slow in Spark.
# Joining copies all columns, so a typical record set of 4 MB is a batch of its own.
ROWS_MIN = 8_000
BYTES_MIN = 1 << 20
_COLUMNS = 7
# The latest time in ms whose microseconds fit into 64 bits.
_TIME_MAX_MS = ((1 << 63) - 1) // 1000


def read_range(
    options: SourceOptions, wanted: OffsetRange, schema: StructType
) -> Iterator[RecordBatch]:
    """Yield the records of a range as Arrow batches; each call yields the same records.

    The range is complete when its last offset is passed. Offsets without a record (compaction,
    transaction markers) do not count as data loss.

    Raises:
        DataLossError: records of the range were deleted, and failOnDataLoss is on.
        ValueDecodeError: a value cannot be decoded, and valueErrors is `fail`.
        RegistryError: the schema registry was not reached, or refused a request.
        DeadLetterError: a record that cannot be decoded was not written to its topic.
    """
    freeze_imports()
    client = reading_client(options.client | _poll_timeout(options))
    tp = wanted.topic_partition
    rows = RowBatches(wanted.topic, wanted.partition, schema, _value_reader(options, tp))
    position: int | None = wanted.start
    while position is not None and position < wanted.end:
        try:
            for part in client.fetch_range({tp: (position, wanted.end)}):
                records = bytes(part.data)
                yield from rows.add(records, part.first_offset, part.end_offset, part.aborted)
                position = part.end_offset
        except (OffsetOutOfRangeError, RangeStalledError, UnknownTopicError) as problem:
            if options.fail_on_data_loss:
                raise DataLossError(
                    f"Offsets {position} to {wanted.end} of {tp} cannot be read: {problem}."
                ) from problem
            position = _after_gap(client, tp, position, wanted.end)
    yield from rows.rest()


def _value_reader(options: SourceOptions, tp: TopicPartition) -> ValueReader | None:
    """Return the reader of values; None if values are bytes."""
    given = options.value_format
    if given is None:
        return None
    from barnabas.spark.topics.value_reader import DeadLetters, ValueReader

    return ValueReader(given, tp, DeadLetters(options) if given.dead_letter_topic else None)


def _poll_timeout(options: SourceOptions) -> dict[str, str]:
    """Return the client's timeout for a stalled range, if kafkaConsumer.pollTimeoutMs is set."""
    timeout_ms = options.poll_timeout_ms
    return {} if timeout_ms is None else {"default.api.timeout.ms": str(timeout_ms)}


def _after_gap(client: Client, tp: TopicPartition, position: int, end: int) -> int | None:
    """Return the offset after lost records; None if no record of the range is left."""
    try:
        earliest = client.list_offsets({tp: "earliest"})[tp].offset
    except UnknownTopicError:
        earliest = end
    if position < earliest < end:
        logger.warning("%s: records from %d to %d are lost and skipped", tp, position, earliest)
        return earliest
    logger.warning("%s: records from %d to %d are lost and skipped", tp, position, end)
    return None


class RowBatches:
    """Collects record sets of one partition and emits Arrow batches of sufficient size."""

    def __init__(
        self,
        topic: str,
        partition: int,
        schema: StructType,
        values: ValueReader | None = None,
    ) -> None:
        self._topic = topic
        self._partition = partition
        # Spark requires the schema of the first batch to be equal to this one.
        self._schema = to_arrow_schema(schema, timezone="UTC")
        # None for values as bytes.
        self._values = values
        self._with_headers = len(self._schema) > _COLUMNS
        # Columns of the record sets that are not yet emitted, with their rows and bytes.
        self._parts: list[list[pa.Array]] = []
        self._rows = 0
        self._bytes = 0

    def add(
        self, data: bytes, first: int, end: int, aborted: Sequence[tuple[int, int]] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Add the records of `data` with first <= offset < end; yield batches that are full.

        Raises:
            CorruptBatchError: the bytes are malformed.
            ValueDecodeError: a value cannot be decoded, and valueErrors is `fail`.
            RegistryError: the schema registry was not reached, or refused a request.
            DeadLetterError: a record that cannot be decoded was not written to its topic.
        """
        for decoded in decode_record_set(upgraded(data), aborted):
            wanted = decoded.between(first, end)
            if not len(wanted.offsets):
                continue
            self._parts.append(self._arrays(wanted))
            self._rows += len(self._parts[-1][0])
            self._bytes += len(wanted.buffer)
            if self._rows >= ROWS_MIN or self._bytes >= BYTES_MIN:
                yield self._take()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows after the last `add`.

        Raises:
            DeadLetterError: a record that cannot be decoded was not written to its topic.
        """
        if self._values is not None:
            self._values.close()
        if self._rows:
            yield self._take()

    def _take(self) -> pa.RecordBatch:
        parts = self._parts
        arrays = (
            parts[0] if len(parts) == 1 else [pa.concat_arrays(c) for c in zip(*parts, strict=True)]
        )
        self._parts, self._rows, self._bytes = [], 0, 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _arrays(self, records: DecodedRecords) -> list[pa.Array]:
        count = len(records.offsets)
        keys, values = keys_and_values(records)
        dropped = None
        if self._values is not None:
            values, dropped = self._values.read(records, keys, values, self._schema.field(1).type)
        arrays = [
            keys,
            values,
            repeated(self._topic, count),
            fixed_width(np.full(count, self._partition, np.int32), pa.int32()),
            fixed_width(records.offsets, pa.int64()),
            fixed_width(self._microseconds(records), self._schema.field(5).type),
            fixed_width(records.timestamp_types.astype(np.int32), pa.int32()),
        ]
        if self._with_headers:
            arrays.append(header_rows(records, self._schema.field(7).type))
        if dropped is None:
            return arrays
        kept = pa.array(np.delete(np.arange(count), dropped))
        return [array.take(kept) for array in arrays]

    def _microseconds(self, records: DecodedRecords) -> Int64s:
        """Return the times of the records in microseconds.

        Raises:
            RecordTimeError: a time does not fit into 64 bits.
        """
        times = records.timestamps
        if len(times) and (times.max() > _TIME_MAX_MS or times.min() < -_TIME_MAX_MS):
            at = int(np.flatnonzero((times > _TIME_MAX_MS) | (times < -_TIME_MAX_MS))[0])
            raise RecordTimeError(
                TopicPartition(self._topic, self._partition),
                int(records.offsets[at]),
                int(times[at]),
            )
        return times * 1000
