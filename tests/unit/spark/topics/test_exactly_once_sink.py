"""Decisions of the sink that writes exactly once, without a broker."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from barnabas.protocol.api_keys import ApiKey
from barnabas.spark.errors import OptionError
from barnabas.spark.topics.options import SinkOptions, parse_sink_options
from barnabas.spark.topics.sink_rows import SinkRows, sink_columns
from barnabas.spark.topics.transactions import Marker
from barnabas.spark.topics.writer import has_transactions

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
SCHEMA = (
    StructType()
    .add("key", StringType())
    .add("value", StringType())
    .add("topic", StringType())
    .add("partition", IntegerType())
)
WITH_TRANSACTIONS = set(ApiKey)
WITHOUT_TRANSACTIONS = WITH_TRANSACTIONS - {ApiKey.END_TXN}


def digest(*rows: tuple[Any, Any, Any, Any]) -> int:
    columns = [list(column) for column in zip(*rows, strict=True)]
    batch = pa.record_batch(columns, names=SCHEMA.fieldNames())
    return SinkRows.read(sink_columns(SCHEMA, SinkOptions({}, None)), batch).digest()


def test_the_order_of_rows_does_not_change_the_digest() -> None:
    first, second = ("k", "a", "t", 0), (None, "b", "t", 1)
    assert digest(first, second) == digest(second, first)


@pytest.mark.parametrize(
    "other",
    [("x", "v", "t", 0), ("k", "x", "t", 0), ("k", "v", "x", 0), ("k", "v", "t", 1),
     ("v", "k", "t", 0), (None, "v", "t", 0), ("", "v", "t", 0), ("k", None, "t", 0)],
)  # fmt: skip
def test_each_column_counts_for_the_digest(other: tuple[Any, Any, Any, Any]) -> None:
    assert digest(("k", "v", "t", 0)) != digest(other)


def test_null_and_an_empty_value_have_different_digests() -> None:
    assert digest(("k", None, "t", 0)) != digest(("k", "", "t", 0))


def test_keys_belong_to_their_values() -> None:
    right = digest(("1", "a", "t", 0), ("2", "b", "t", 0))
    assert right != digest(("2", "a", "t", 0), ("1", "b", "t", 0))


def test_a_marker_is_the_offset_of_the_next_batch() -> None:
    ((place, committed),) = Marker(4, {"rows": 2, "digest": 7}, "t").offsets().items()
    assert (place, committed.offset) == (("t", 0), 5)
    assert committed.metadata == '{"rows": 2, "digest": 7}'


def test_brokers_without_transactions_get_rows_at_least_once() -> None:
    options = parse_sink_options(SERVERS)
    assert has_transactions(options, WITH_TRANSACTIONS)
    assert not has_transactions(options, WITHOUT_TRANSACTIONS)


def test_exactly_once_without_transactions_is_refused() -> None:
    options = parse_sink_options({**SERVERS, "exactlyOnce": "true"})
    assert has_transactions(options, WITH_TRANSACTIONS)
    with pytest.raises(OptionError, match=r"do not serve END_TXN.*exactlyOnce=false"):
        has_transactions(options, WITHOUT_TRANSACTIONS)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("exactlyOnce", "perhaps", "neither true nor false"),
        ("transactionalIdPrefix", " ", "transactionalIdPrefix is empty"),
        ("kafka.transactional.id", "x", "use transactionalIdPrefix"),
    ],
)
def test_wrong_options_are_named(option: str, value: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse_sink_options({**SERVERS, option: value})
