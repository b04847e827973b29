"""Avro records as Arrow arrays: types, versions of a schema, and what has no Arrow type."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from barnabas.serializers import (
    AvroSerializer,
    SchemaError,
    SchemaRegistry,
    WireFormatError,
    avro_to_arrow,
)
from barnabas.serializers.avro_arrow import AvroColumn, arrow_type
from barnabas.serializers.avro_schema import AvroSchema
from barnabas.serializers.decoded_column import decoded_array

ALL = {
    "type": "record",
    "name": "All",
    "fields": [
        {"name": "n", "type": ["null", "long"]},
        {"name": "wide", "type": ["int", "long", "null"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "fare",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {
            "name": "legs",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Leg",
                    "fields": [{"name": "to", "type": "string"}],
                },
            },
        },
    ],
}
VALUE = {
    "n": None,
    "wide": 2**40,
    "at": datetime(2026, 1, 31, 12, 0, 0, 1000, tzinfo=UTC),
    "day": date(2026, 1, 31),
    "fare": Decimal("120.50"),
    "id": UUID(int=7),
    "kind": "B",
    "hash": b"ab",
    "tags": {"x": 1},
    "legs": [{"to": "JFK"}, {"to": "ORD"}],
}


def test_records_become_columns_of_their_types(registry: SchemaRegistry) -> None:
    data = AvroSerializer(registry, ALL).serialize("all", VALUE)
    found = avro_to_arrow(registry, [data, None])
    assert found.type == pa.struct(
        [
            ("n", pa.int64()),
            ("wide", pa.int64()),
            ("at", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
            ("fare", pa.decimal128(9, 2)),
            ("id", pa.string()),
            ("kind", pa.string()),
            ("hash", pa.binary(2)),
            ("tags", pa.map_(pa.string(), pa.int32())),
            ("legs", pa.list_(pa.struct([("to", pa.string())]))),
        ]
    )
    expected = {**VALUE, "id": str(VALUE["id"]), "tags": [("x", 1)]}
    assert found.to_pylist() == [expected, None]
    batch = pa.RecordBatch.from_struct_array(found)
    assert batch.column("fare").to_pylist() == [Decimal("120.50"), None]


def test_records_of_all_versions_are_converted_to_one_schema(registry: SchemaRegistry) -> None:
    older = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "string", "default": "-"}]
    newer = {**older, "fields": fields}
    values = [
        AvroSerializer(registry, older).serialize("r", {"a": 1}),
        AvroSerializer(registry, newer).serialize("r", {"a": 2, "b": "x"}),
    ]
    assert avro_to_arrow(registry, values, newer).to_pylist() == [
        {"a": 1, "b": "-"},
        {"a": 2, "b": "x"},
    ]


def test_values_without_fields_and_none_at_all_are_arrays_too(registry: SchemaRegistry) -> None:
    data = AvroSerializer(registry, '"string"').serialize("names", "JFK")
    assert avro_to_arrow(registry, [data]).to_pylist() == ["JFK"]
    assert avro_to_arrow(registry, [None, None]).to_pylist() == [None, None]


def test_a_damaged_record_is_an_error_or_null(registry: SchemaRegistry) -> None:
    data = AvroSerializer(registry, '"string"').serialize("names", "JFK")
    column = AvroColumn(registry, AvroSchema('"string"'))
    values = [data, b"plain text", None]
    with pytest.raises(WireFormatError):
        decoded_array(column, values)
    failures: dict[int, SchemaError] = {}
    assert decoded_array(column, values, failures).to_pylist() == ["JFK", None, None]
    assert {row: type(error) for row, error in failures.items()} == {1: WireFormatError}


def test_only_the_records_that_do_not_fit_the_type_fail(registry: SchemaRegistry) -> None:
    time = {"type": "long", "logicalType": "timestamp-millis"}
    writing = AvroSerializer(registry, time)
    column = AvroColumn(registry, AvroSchema(json.dumps(time)), pa.timestamp("ns", "UTC"))
    at = datetime(2026, 1, 31, tzinfo=UTC)
    late = at.replace(year=2900)
    values = [writing.serialize("times", each) for each in (at, late, at)]
    failures: dict[int, SchemaError] = {}
    assert decoded_array(column, values, failures).cast(pa.timestamp("us", "UTC")).to_pylist() == [
        at,
        None,
        at,
    ]
    assert [*failures] == [1]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            {
                "type": "record",
                "name": "T",
                "fields": [{"name": "next", "type": ["null", "T"]}],
            },
            "recursive",
        ),
        (
            {
                "type": "record",
                "name": "U",
                "fields": [{"name": "either", "type": ["string", "int"]}],
            },
            "field either: a union of string and int has no Arrow type",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 200, "scale": 2},
            "decimal of 200 digits",
        ),
    ],
)
def test_a_schema_without_an_arrow_type_is_refused(schema: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        arrow_type(AvroSchema(json.dumps(schema)))


def test_a_small_schema_of_countless_columns_is_refused() -> None:
    schema: Any = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": "int"}]}
    for number in range(1, 41):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{number - 1}"}]
        schema = {"type": "record", "name": f"R{number}", "fields": fields}
    with pytest.raises(SchemaError, match="more than 10000 columns"):
        arrow_type(AvroSchema(json.dumps(schema)))
