"""`df.write` and `df.writeStream` with `format("barnabas")`: produces rows at least once.

A row has a `value` and optionally `key`, `topic`, `partition` and `headers`; other columns are
ignored. A task returns when all its records are acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from barnabas.spark.errors import OptionError, RowError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from barnabas.client.producer.shared_producer import SharedProducer
    from barnabas.spark.options import SinkOptions

    Header = tuple[str, bytes | None]
    BatchRecord = tuple[bytes | None, bytes | None, list[Header], int | None]

_TYPES = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Indexes of the columns of a record; None for a column that the rows do not have."""

    value: int
    key: int | None
    topic: int | None
    partition: int | None
    headers: int | None


@dataclass
class WrittenRecords(WriterCommitMessage):
    """Result of a task: the number of its records."""

    records: int


def sink_columns(schema: StructType, options: SinkOptions) -> SinkColumns:
    """Find the columns of a record in the rows to write.

    Raises:
        OptionError: `value` or the topic is missing, or a column has the wrong type.
    """
    found: dict[str, int] = {}
    for index, column in enumerate(schema.fields):
        expected = _TYPES.get(column.name)
        if expected is None:
            continue
        actual = column.dataType.simpleString()
        if actual not in expected:
            raise OptionError(
                f"column {column.name} is {actual}, expected {' or '.join(expected)}; cast it"
            )
        found[column.name] = index
    if "value" not in found:
        raise OptionError(
            f"no column 'value' among {', '.join(schema.fieldNames())}: name the column that "
            "holds what is to be written 'value' (string or binary)"
        )
    if options.topic is None and "topic" not in found:
        raise OptionError("no topic to write to: set the option 'topic' or add a column 'topic'")
    return SinkColumns(
        found["value"],
        found.get("key"),
        None if options.topic is not None else found.get("topic"),
        found.get("partition"),
        found.get("headers"),
    )


class TopicWriter(DataSourceArrowWriter):
    """Writes a DataFrame to topics."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows and wait for their acknowledgement."""
        return write_rows(self._options, self._columns, iterator)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches; a batch that Spark repeats after a failure is written again."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows and wait for their acknowledgement."""
        return write_rows(self._options, self._columns, iterator)


def write_rows(
    options: SinkOptions, columns: SinkColumns, batches: Iterable[RecordBatch]
) -> WrittenRecords:
    """Produce all rows and wait for their acknowledgement.

    Raises:
        RowError: a row has no topic.
        ClientError: a record was not acknowledged.
    """
    from barnabas.spark.clients import discard_producer, producer

    sender = producer(options.client)
    count = 0
    try:
        for batch in batches:
            _send(sender, options.topic, columns, batch)
            count += batch.num_rows
        sender.flush()
    except BaseException:
        # The producer's pending records belong to the failed task; the next task must not send
        # them.
        discard_producer(options.client)
        raise
    return WrittenRecords(count)


def _send(
    sender: SharedProducer, topic: str | None, columns: SinkColumns, batch: RecordBatch
) -> None:
    records = _records(columns, batch)
    partitions = _values(batch, columns.partition)
    topics = _values(batch, columns.topic)
    if topic is not None and partitions is None:
        sender.send_batch(topic, records)
        return
    # Records by target, in the order of the rows.
    targets: dict[tuple[str, int | None], list[BatchRecord]] = {}
    for name, partition, record in zip(
        topics or repeat(topic), partitions or repeat(None), records, strict=False
    ):
        if name is None:
            raise RowError("a row has no topic: its column 'topic' is null")
        targets.setdefault((name, partition), []).append(record)
    for (name, partition), chosen in targets.items():
        sender.send_batch(name, chosen, partition)


def _records(columns: SinkColumns, batch: RecordBatch) -> Iterator[BatchRecord]:
    none = repeat(None)
    headers = _values(batch, columns.headers)
    return zip(
        _bytes(batch, columns.key) or none,
        _bytes(batch, columns.value) or none,
        repeat([], batch.num_rows) if headers is None else map(_header_list, headers),
        none,
        strict=False,
    )


def _header_list(headers: list[dict[str, Any]] | None) -> list[Header]:
    return [(header["key"], header["value"]) for header in headers or ()]


def _values(batch: RecordBatch, index: int | None) -> list[Any] | None:
    return None if index is None else batch.column(index).to_pylist()


def _bytes(batch: RecordBatch, index: int | None) -> list[bytes | None] | None:
    if index is None:
        return None
    import pyarrow as pa

    column = batch.column(index)
    if not pa.types.is_binary(column.type):
        column = column.cast(pa.binary())
    values: list[bytes | None] = column.to_pylist()
    return values
