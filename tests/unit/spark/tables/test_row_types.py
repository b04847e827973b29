"""Types of rows that the sinks for tables store, and how they refuse the other types of Spark."""

from __future__ import annotations

import datetime as dt
import inspect
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import types
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StringType, StructType

from barnabas.spark.delta.columns import row_columns
from barnabas.spark.delta.options import DeltaOptions
from barnabas.spark.errors import OptionError
from barnabas.spark.iceberg.catalog import open_table
from barnabas.spark.tables.merge_options import split_options
from barnabas.spark.tables.rows import stored_schema
from spark.delta_tables import write
from spark.iceberg_tables import Writer, named

MOMENT = dt.datetime(2026, 1, 31, 1, 2, 3, 456789, tzinfo=dt.UTC)
STORED: dict[DataType, Any] = {
    types.BooleanType(): True,
    types.ByteType(): -128,
    types.ShortType(): 32767,
    types.IntegerType(): 1 << 30,
    LongType(): 1 << 60,
    types.FloatType(): 0.5,
    types.DoubleType(): 1e300,
    types.DecimalType(38, 10): Decimal("1234567890123456789012345678.0123456789"),
    StringType(): "grün",
    StringType("UTF8_LCASE"): "Ab",
    types.BinaryType(): b"\0\xff",
    types.DateType(): dt.date(2026, 1, 31),
    types.TimestampType(): MOMENT,
    types.TimestampNTZType(): MOMENT.replace(tzinfo=None),
    ArrayType(LongType()): [1, None],
    MapType(StringType(), LongType()): [("a", 1), ("b", None)],
    StructType().add("x", LongType()): {"x": 1},
}
REFUSED: dict[DataType, str] = {
    types.TimeType(): "time(6)",
    types.DayTimeIntervalType(): "interval day to second",
    types.YearMonthIntervalType(): "interval year to month",
    types.CalendarIntervalType(): "interval",
    types.VariantType(): "variant",
    types.GeometryType(4326): "geometry(4326)",
    types.GeographyType(4326): "geography(4326)",
    types.CharType(3): "char(3)",
    types.VarcharType(3): "varchar(3)",
    StructType(): "struct<>",
}


def row_schema(schema: StructType) -> pa.Schema:
    return stored_schema(schema, "barnabas_iceberg")


def test_each_type_of_spark_is_stored_or_refused() -> None:
    known = {type(each) for each in (*STORED, *REFUSED)}
    others = {types.NullType, types.UserDefinedType, types.StructField}
    for name, kind in inspect.getmembers(types, inspect.isclass):
        # Types with subclasses are the bases of others.
        if issubclass(kind, DataType) and not kind.__subclasses__():
            assert kind in known | others, name


@pytest.mark.parametrize(("kind", "value"), STORED.items(), ids=map(DataType.simpleString, STORED))
def test_values_of_stored_types_are_read_back(kind: DataType, value: Any, tmp_path: Path) -> None:
    schema = StructType().add("id", LongType()).add("v", kind)
    rows = pa.Table.from_pylist([{"id": 1, "v": value}, {"id": 2, "v": None}], row_schema(schema))
    write(DeltaOptions(str(tmp_path / "delta")), rows)
    assert DeltaTable(tmp_path / "delta").to_pyarrow_table().to_pylist() == rows.to_pylist()
    Writer(named(tmp_path), schema=rows.schema).write_rows(rows)
    assert open_table(named(tmp_path)).scan().to_arrow().to_pylist() == rows.to_pylist()


@pytest.mark.parametrize(("kind", "name"), REFUSED.items(), ids=REFUSED.values())
def test_columns_of_other_types_are_named(kind: DataType, name: str) -> None:
    schema = StructType().add("id", LongType()).add("v", kind).add("a", ArrayType(kind))
    schema = schema.add("s", StructType().add("m", MapType(StringType(), kind)))
    message = f"cannot store these columns: v is {name}; a.element is {name}; s.m.value is {name}."
    for convert, sink in ((row_schema, "barnabas_iceberg"), (row_columns, "barnabas_delta")):
        with pytest.raises(OptionError) as caught:
            convert(schema)
        assert f"{sink} {message} Convert them, for instance with CAST" in str(caught.value)


def test_a_column_of_nulls_is_refused_by_tables_that_have_no_type_for_it() -> None:
    schema = StructType().add("v", types.NullType())
    assert [each["type"] for each in row_columns(schema)] == ["void"]
    with pytest.raises(OptionError, match="barnabas_iceberg cannot store these columns: v is void"):
        row_schema(schema)


def test_an_upsert_names_columns_that_spark_cannot_hand_over() -> None:
    """Also of those that exceptColumns names."""
    schema = StructType().add("id", LongType()).add("i", types.YearMonthIntervalType())
    with pytest.raises(OptionError, match="to a sink in Python: i is interval year to month"):
        split_options({"mergeKeys": "id", "exceptColumns": "i"}, schema, overwrite=False)
