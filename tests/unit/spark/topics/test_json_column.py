"""JSON values as columns: what fits a type, and what is an error that names the field."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from pyspark.sql.types import ArrayType, DayTimeIntervalType, IntegerType, MapType, StructType

from barnabas.serializers.decoded_column import decoded_array
from barnabas.serializers.errors import SchemaError
from barnabas.spark.errors import OptionError
from barnabas.spark.topics.value_reader import JsonColumn, check_type

TYPE = pa.struct(
    [
        ("flag", pa.bool_()),
        ("small", pa.int8()),
        ("large", pa.int64()),
        ("real", pa.float64()),
        ("text", pa.string()),
        ("data", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(5, 2)),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("within", pa.struct([("text", pa.string())])),
        ("größe in cm", pa.int32()),
    ]
)
COLUMN = JsonColumn(TYPE)


def decoded(*values: bytes | None) -> tuple[list[Any], dict[int, str]]:
    failures: dict[int, SchemaError] = {}
    rows = decoded_array(COLUMN, values, failures).to_pylist()
    return rows, {row: str(error) for row, error in failures.items()}


def only(field: str, text: str) -> Any:
    """Return the value of one field, which fits."""
    [row], failures = decoded(f'{{"{field}": {text}}}'.encode())
    assert failures == {}
    return row[field]


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("flag", "true", True),
        ("small", "-128", -128),
        ("large", "9223372036854775807", (1 << 63) - 1),
        ("real", "1", 1.0),
        ("text", '"\\u00e9"', "é"),
        ("data", '"AP8="', b"\x00\xff"),
        ("day", '"2026-01-31"', date(2026, 1, 31)),
        ("at", '"2026-01-31T12:00:00+02:00"', datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ("local", '"2026-01-31T12:00:00"', datetime(2026, 1, 31, 12)),  # noqa: DTZ001 - no zone
        ("price", "120.5", Decimal("120.50")),
        ("price", '"-1.25"', Decimal("-1.25")),
        ("tags", '["a", null]', ["a", None]),
        ("counts", '{"a": 1, "b": null}', [("a", 1), ("b", None)]),
        ("within", '{"text": null}', {"text": None}),
        ("größe in cm", "180", 180),
    ],
)
def test_values_have_the_types_of_their_columns(field: str, text: str, value: object) -> None:
    assert only(field, text) == value
    assert only(field, "null") is None


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("text", "1", "1"),
        ("text", "1.5", "1.5"),
        ("text", "false", "false"),
        ("text", '{"a": [1, null]}', '{"a":[1,null]}'),
        ("text", "123456789012345678901234", "123456789012345678901234"),
        ("tags", '["a", 1, {"b": 2}]', ["a", "1", '{"b":2}']),
        ("within", '{"text": [1]}', {"text": "[1]"}),
    ],
)
def test_text_columns_have_the_json_of_other_values(field: str, text: str, value: object) -> None:
    assert only(field, text) == value


def test_missing_fields_are_null_and_unknown_fields_are_ignored() -> None:
    [row], failures = decoded(b'{"unknown": {"deep": [1]}, "large": 2}')
    assert failures == {}
    assert {name: value for name, value in row.items() if value is not None} == {"large": 2}


def test_null_and_missing_values_are_null_rows() -> None:
    assert decoded(None, b"null", b" null\n") == ([None, None, None], {})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"", "not JSON"),
        (b"plain text", "not JSON"),
        (b'{"large": 1', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"text": "\\ud800"}', "not JSON"),
        (b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "recursion"),
        (b"[1]", "Expected `object`, got `array`"),
        (b'{"large": 1.5}', r"got `float` - at `\$.large`"),
        (b'{"large": 9223372036854775808}', r"at `\$.large`"),
        (b'{"small": 128}', r"at `\$.small`"),
        (b'{"at": "2026-01-31T12:00:00"}', r"timezone.* at `\$.at`"),
        (b'{"local": "2026-01-31T12:00:00Z"}', r"timezone.* at `\$.local`"),
        (b'{"day": "yesterday"}', r"at `\$.day`"),
        (b'{"tags": "a"}', r"at `\$.tags`"),
        (b'{"counts": {"a": "1"}}', r"at `\$.counts"),
        (b'{"price": 1.255}', r"1.255 is not a DECIMAL\(5,2\)"),
        (b'{"price": 12345}', "do not fit"),
        (b'{"price": "NaN"}', "NaN is not a DECIMAL"),
        # pyarrow ends the process for this exponent.
        (b'{"price": "-1e-999999999"}', "is not a DECIMAL"),
        (b'{"price": 1e999999999}', "is not a DECIMAL"),
    ],
)
def test_what_does_not_fit_is_an_error_of_its_record_only(value: bytes, words: str) -> None:
    rows, failures = decoded(b'{"large": 1}', value, b'{"large": 2}')
    assert [row and row["large"] for row in rows] == [1, None, 2]
    assert [*failures] == [1]
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(failures[1])


@given(st.lists(st.binary(max_size=60) | st.text(alphabet='{}[]":,.0123eEtfn\\ u-', max_size=60)))
def test_no_bytes_fail_otherwise(texts: list[bytes | str]) -> None:
    values = [each.encode() if isinstance(each, str) else each for each in texts]
    rows, failures = decoded(*values)
    assert len(rows) == len(values)
    assert all(rows[row] is None for row in failures)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (StructType().add("a", DayTimeIntervalType()), "value.a has the type duration"),
        (StructType().add("a", ArrayType(DayTimeIntervalType())), r"value.a\[\] has the type"),
        (StructType().add("a", MapType(IntegerType(), IntegerType())), "value.a has the type map"),
        (StructType().add("a", IntegerType(), nullable=False), "value.a is NOT NULL"),
        (StructType().add("a", IntegerType()).add("a", IntegerType()), "two fields of the same"),
    ],
)
def test_a_type_that_json_does_not_have_is_refused(kind: StructType, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        check_type(kind)
