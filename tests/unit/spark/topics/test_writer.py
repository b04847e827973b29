"""Conversion of rows to records: columns, targets and order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from barnabas.spark.errors import OptionError, RowError
from barnabas.spark.topics.options import SinkOptions
from barnabas.spark.topics.sink_rows import SinkRows, sink_columns

WITH_TOPIC = SinkOptions({}, "out")
WITHOUT_TOPIC = SinkOptions({}, None)


class SentBatches:
    """A producer that keeps the batches."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int | None, list[Any]]] = []

    def send_batch(self, topic: str, records: Iterable[Any], partition: int | None = None) -> None:
        self.sent.append((topic, partition, list(records)))


def sent(options: SinkOptions, schema: StructType, **columns: list[Any]) -> list[Any]:
    producer = SentBatches()
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    rows = SinkRows.read(sink_columns(schema, options), batch)
    rows.send(producer, options.topic)  # type: ignore[arg-type]
    return producer.sent


def test_a_row_with_only_a_value_is_a_record() -> None:
    schema = StructType().add("value", StringType())
    assert sent(WITH_TOPIC, schema, value=["a", None]) == [
        ("out", None, [(None, b"a", [], None), (None, None, [], None)])
    ]


def test_the_topic_option_overrides_the_column() -> None:
    schema = StructType().add("topic", StringType()).add("value", StringType())
    assert [s[0] for s in sent(WITH_TOPIC, schema, topic=["x"], value=["a"])] == ["out"]


def test_rows_are_grouped_by_target_in_order() -> None:
    schema = (
        StructType()
        .add("topic", StringType())
        .add("partition", IntegerType())
        .add("value", StringType())
    )
    found = sent(
        WITHOUT_TOPIC, schema, topic=["a", "b", "a", "a"], partition=[1, None, 1, 0],
        value=["1", "2", "3", "4"],
    )  # fmt: skip
    assert [(t, p, [r[1] for r in records]) for t, p, records in found] == [
        ("a", 1, [b"1", b"3"]), ("b", None, [b"2"]), ("a", 0, [b"4"]),
    ]  # fmt: skip


def test_a_row_without_a_topic_is_refused() -> None:
    schema = StructType().add("topic", StringType()).add("value", StringType())
    with pytest.raises(RowError):
        sent(WITHOUT_TOPIC, schema, topic=[None], value=["a"])


def test_a_column_of_another_type_is_refused() -> None:
    with pytest.raises(OptionError, match="key is int"):
        sink_columns(StructType().add("key", IntegerType()).add("value", StringType()), WITH_TOPIC)
