"""Arrow batches of a read: schema, nulls, headers, sizes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from barnabas.record.builder import BatchBuilder
from barnabas.spark.errors import RecordTimeError
from barnabas.spark.topics.task import BYTES_MIN, ROWS_MIN, RowBatches

SCHEMA = (
    StructType()
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
    .add("timestampType", IntegerType())
)
HEADER = StructType().add("key", StringType()).add("value", BinaryType())
WITH_HEADERS = StructType(list(SCHEMA.fields)).add("headers", ArrayType(HEADER))


def rows(
    schema: StructType, data: bytes, first: int = 0, end: int = 1 << 60
) -> list[pa.RecordBatch]:
    batches = RowBatches("t", 3, schema)
    return [*batches.add(data, first, end), *batches.rest()]


def test_columns_are_exactly_those_that_spark_expects() -> None:
    builder = BatchBuilder(base_offset=9)
    builder.append(1500, b"k", None)
    builder.append(-1, None, b"v")
    (batch,) = rows(SCHEMA, bytes(builder.build()))
    assert batch.schema.equals(to_arrow_schema(SCHEMA, timezone="UTC"))
    assert batch.column("key").to_pylist() == [b"k", None]
    assert batch.column("value").to_pylist() == [None, b"v"]
    assert batch.column("topic").to_pylist() == ["t", "t"]
    assert batch.column("partition").to_pylist() == [3, 3]
    assert batch.column("offset").to_pylist() == [9, 10]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [1_500_000, -1000]


@pytest.mark.parametrize("time_ms", [10**16, -(10**16)])
def test_a_time_that_microseconds_cannot_hold_names_the_record(time_ms: int) -> None:
    builder = BatchBuilder(base_offset=9)
    builder.append(1500, b"k", None)
    builder.append(time_ms, None, b"v")
    data = bytes(builder.build())
    with pytest.raises(RecordTimeError, match=f"offset 10 of t-3 has the time {time_ms} ms"):
        rows(SCHEMA, data)
    assert len(rows(SCHEMA, data, end=10)) == 1, "the record is not in the range"


def test_the_last_microsecond_of_64_bits_is_a_time() -> None:
    builder = BatchBuilder()
    latest = ((1 << 63) - 1) // 1000
    builder.append(latest, None, b"v")
    (batch,) = rows(SCHEMA, bytes(builder.build()))
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [latest * 1000]


def test_headers_are_lists_and_null_where_there_are_none() -> None:
    builder = BatchBuilder()
    builder.append(1, None, b"v", [("a", b"x"), ("b", None)])
    builder.append(1, None, b"v")
    (batch,) = rows(WITH_HEADERS, bytes(builder.build()))
    assert batch.schema.equals(to_arrow_schema(WITH_HEADERS, timezone="UTC"))
    assert batch.column("headers").to_pylist() == [
        [{"key": "a", "value": b"x"}, {"key": "b", "value": None}],
        None,
    ]


def test_without_any_header_the_column_is_null() -> None:
    builder = BatchBuilder()
    builder.append(1, None, b"v")
    (batch,) = rows(WITH_HEADERS, bytes(builder.build()))
    assert batch.column("headers").to_pylist() == [None]


def test_small_record_sets_are_collected_into_large_batches() -> None:
    batches = RowBatches("t", 0, SCHEMA)
    sizes = []
    for number in range(11):
        builder = BatchBuilder(base_offset=number * 2_000)
        for _ in range(2_000):
            builder.append(1, None, b"v")
        sizes += [b.num_rows for b in batches.add(bytes(builder.build()), 0, 21_000)]
    sizes += [b.num_rows for b in batches.rest()]
    assert sizes == [ROWS_MIN, ROWS_MIN, 5_000]


def test_large_values_make_batches_of_fewer_rows() -> None:
    batches = RowBatches("t", 0, SCHEMA)
    builder = BatchBuilder()
    builder.append(1, None, bytes(BYTES_MIN // 4))
    data = bytes(builder.build())
    sizes = [b.num_rows for _ in range(4) for b in batches.add(data, 0, 1)]
    assert sizes == [4]
