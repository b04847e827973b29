"""Rows of Arrow batches as records of topics: their columns, sending them, and their digest.

The digest tells whether a replayed batch has the same rows as its first attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any
from zlib import crc32

from barnabas.spark.errors import OptionError, RowError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from barnabas.client.producer.producer import SharedProducer
    from barnabas.spark.topics.options import SinkOptions

    Header = tuple[str, bytes | None]
    BatchRecord = tuple[bytes | None, bytes | None, list[Header], int | None]

_TYPES = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
_UINT64 = (1 << 64) - 1
# Added to the digest for each null, so that null and an empty value differ.
_NULL = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Indexes of the columns of a record; None for a column that the rows do not have."""

    value: int
    key: int | None
    topic: int | None
    partition: int | None
    headers: int | None


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
            "holds the values of the records 'value' (string or binary)"
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


@dataclass(frozen=True, slots=True)
class SinkRows:
    """The rows of one Arrow batch as lists; None for a column that the rows do not have."""

    count: int
    values: list[bytes | None]
    keys: list[bytes | None] | None
    headers: list[list[Header]] | None
    topics: list[str | None] | None
    partitions: list[int | None] | None

    @classmethod
    def read(cls, columns: SinkColumns, batch: RecordBatch) -> SinkRows:
        """Convert an Arrow batch."""
        headers = _values(batch, columns.headers)
        return cls(
            count=batch.num_rows,
            values=_bytes(batch, columns.value),
            keys=None if columns.key is None else _bytes(batch, columns.key),
            headers=None if headers is None else [_header_list(each) for each in headers],
            topics=_values(batch, columns.topic),
            partitions=_values(batch, columns.partition),
        )

    def send(self, sender: SharedProducer, topic: str | None) -> None:
        """Queue the records; `topic` is None if each row names its topic.

        Raises:
            RowError: a row has no topic.
        """
        if topic is not None and self.partitions is None:
            sender.send_batch(topic, self._records())
            return
        # Records by target, in the order of the rows.
        targets: dict[tuple[str, int | None], list[BatchRecord]] = {}
        for name, partition, record in zip(
            self.topics or repeat(topic),
            self.partitions or repeat(None),
            self._records(),
            strict=False,
        ):
            if name is None:
                raise RowError("a row has no topic: its column 'topic' is null")
            targets.setdefault((name, partition), []).append(record)
        for (name, partition), chosen in targets.items():
            sender.send_batch(name, chosen, partition)

    def _records(self) -> Iterator[BatchRecord]:
        none = repeat(None)
        headers = repeat([], self.count) if self.headers is None else self.headers
        return zip(self.keys or none, self.values, headers, none, strict=False)

    def digest(self) -> int:
        """Return the sum of the rows' checksums modulo 2^64; it is the same in every order."""
        nulls = 0
        sums: Iterator[int] = repeat(0, self.count)
        for column in self._byte_columns():
            missing = column.count(None)
            if missing:
                nulls += missing
                sums = map(crc32, (each or b"" for each in column), sums)
            else:
                sums = map(crc32, column, sums)  # type: ignore[arg-type]  # no None in it
        return (sum(sums) + nulls * _NULL) & _UINT64

    def _byte_columns(self) -> Iterator[list[bytes | None]]:
        yield self.values
        if self.keys is not None:
            yield self.keys
        for other in (self.topics, self.partitions, self.headers):
            if other is not None:
                yield [repr(each).encode() for each in other]


def _header_list(headers: Iterable[dict[str, Any]] | None) -> list[Header]:
    return [(header["key"], header["value"]) for header in headers or ()]


def _values(batch: RecordBatch, index: int | None) -> list[Any] | None:
    return None if index is None else batch.column(index).to_pylist()


def _bytes(batch: RecordBatch, index: int) -> list[bytes | None]:
    import pyarrow as pa

    column = batch.column(index)
    if not pa.types.is_binary(column.type):
        column = column.cast(pa.binary())
    values: list[bytes | None] = column.to_pylist()
    return values
