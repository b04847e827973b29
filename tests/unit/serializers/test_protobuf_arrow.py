"""Protobuf records as Arrow arrays: types, absent fields, other schemas, and hostile bytes."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import Message
from hypothesis import example, given, strategies as st

from barnabas.serializers import (
    ProtobufSerializer,
    SchemaError,
    SchemaMismatchError,
    SchemaRegistry,
    WireFormatError,
)
from barnabas.serializers.decoded_column import decoded_array
from barnabas.serializers.proto_types import ProtoTypes, find_lost_field
from barnabas.serializers.protobuf_arrow import ProtobufColumn, arrow_type
from barnabas.serializers.schema import Schema, SchemaType, encode_header
from unit.serializers.protobuf_messages import ALL, FULL

LEG = pa.struct([("to", pa.string()), ("miles", pa.int64())])
TYPE = pa.struct(
    [
        ("a", pa.int32()),
        ("b", pa.int64()),
        ("c", pa.int32()),
        ("d", pa.int64()),
        ("e", pa.float32()),
        ("f", pa.float64()),
        ("g", pa.bool_()),
        ("h", pa.string()),
        ("i", pa.binary()),
        ("kind", pa.string()),
        ("many", pa.list_(pa.int32())),
        ("legs", pa.list_(LEG)),
        ("by_name", pa.map_(pa.string(), LEG)),
        ("kinds", pa.map_(pa.int32(), pa.string())),
        ("leg", LEG),
        ("weather", pa.string()),
        ("code", pa.int32()),
        ("maybe", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
        ("took", pa.duration("us")),
        ("wrapped", pa.struct([("value", pa.int64())])),
        ("times", pa.list_(pa.timestamp("us", "UTC"))),
    ]
)
FULL_ROW = {
    "a": -1, "b": -2, "c": -1, "d": -1, "e": 0.5, "f": -0.25,
    "g": True, "h": "x", "i": b"\0\1", "kind": "FOG", "many": [0, 7],
    "legs": [{"to": "JFK", "miles": None}, {"to": None, "miles": None}],
    "by_name": [("", {"to": None, "miles": 3})],
    "kinds": [(0, "FOG"), (5, "UNKNOWN_ENUM_VALUE_Kind_9")],
    "leg": {"to": None, "miles": None}, "weather": None, "code": 0, "maybe": 0,
    "at": dt.datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=dt.UTC),
    "took": dt.timedelta(seconds=-1.5), "wrapped": {"value": None},
    "times": [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)],
}  # fmt: skip
EMPTY_ROW: dict[str, Any] = {
    field.name: []
    if pa.types.is_nested(field.type) and not pa.types.is_struct(field.type)
    else None
    for field in TYPE
}
DEFAULTS = {
    "a": 0, "b": 0, "c": 0, "d": 0, "e": 0.0, "f": 0.0, "g": False, "h": "", "i": b"",
    "kind": "UNKNOWN",
}  # fmt: skip


def message_of(text: str) -> type[Message]:
    """The class of the first message of a .proto text."""
    return ProtoTypes(Schema(text, SchemaType.PROTOBUF), {}).message_class()


def proto3(fields: str, more: str = "") -> str:
    return f'syntax = "proto3"; message M {{ {fields} }} {more}'


def written(registry: SchemaRegistry, text: str, *values: dict[str, Any]) -> list[bytes]:
    """The records of messages in the form of dictionaries."""
    writing = ProtobufSerializer(registry, schema=text)
    return [writing.serialize("all", value) or b"" for value in values]


def rows(registry: SchemaRegistry, text: str, data: Sequence[bytes | None]) -> list[Any]:
    return decoded_array(ProtobufColumn(registry, message_of(text)), data).to_pylist()


def record(registry: SchemaRegistry, text: str, payload: bytes) -> bytes:
    """A record of the first message of a text with any bytes."""
    return (
        encode_header(registry.register("any", Schema(text, SchemaType.PROTOBUF))) + b"\0" + payload
    )


def test_messages_become_columns_of_their_types(registry: SchemaRegistry) -> None:
    assert arrow_type(message_of(ALL).DESCRIPTOR) == TYPE
    data = written(registry, ALL, FULL, {})
    full, empty, tombstone = rows(registry, ALL, [*data, None])
    full["kinds"].sort()
    assert full == FULL_ROW
    assert empty == EMPTY_ROW
    assert tombstone is None


def test_a_message_with_the_name_of_a_time_may_have_other_fields() -> None:
    text = 'syntax = "proto3"; package google.protobuf; message M { Timestamp t = 1; } '
    found = arrow_type(message_of(text + "message Timestamp { int64 nanos = 1; }").DESCRIPTOR)
    assert found == pa.struct([("t", pa.struct([("nanos", pa.int64())]))])


def test_fields_that_were_not_written_have_their_default_on_demand(
    registry: SchemaRegistry,
) -> None:
    column = ProtobufColumn(registry, message_of(ALL), with_defaults=True)
    [row] = decoded_array(column, written(registry, ALL, {})).to_pylist()
    assert row == EMPTY_ROW | DEFAULTS


def test_a_negative_zero_is_a_value(registry: SchemaRegistry) -> None:
    [row] = rows(
        registry, proto3("double d = 1;"), written(registry, proto3("double d = 1;"), {"d": -0.0})
    )
    assert math.copysign(1, row["d"]) == -1


def test_a_default_of_proto2_is_a_value(registry: SchemaRegistry) -> None:
    text = "message M { optional int32 a = 1 [default = 7]; optional int32 b = 2; }"
    assert rows(registry, text, written(registry, text, {})) == [{"a": 7, "b": None}]


def test_arrays_have_the_type_that_is_wanted(registry: SchemaRegistry) -> None:
    text = proto3("map<string, int32> m = 1; repeated string r = 2;")
    target = pa.struct(
        [
            pa.field("m", pa.map_(pa.string(), pa.field("v", pa.int32(), nullable=False))),
            ("r", pa.list_(pa.field("element", pa.string()))),
        ]
    )
    column = ProtobufColumn(registry, message_of(text), target)
    found = decoded_array(column, written(registry, text, {"m": {"a": 0}, "r": ["b"]}))
    assert found.type == target
    assert found.to_pylist() == [{"m": [("a", 0)], "r": ["b"]}]


def test_records_of_all_versions_are_converted_to_one_schema(registry: SchemaRegistry) -> None:
    older, newer = proto3("int32 a = 1;"), proto3("int64 a = 1; string b = 2;")
    data = written(registry, older, {"a": 1}) + written(registry, newer, {"a": 2, "b": "x"})
    assert rows(registry, newer, data) == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


@pytest.mark.parametrize(
    ("was", "now", "message"),
    [
        (
            "string a = 1;",
            "int32 a = 1;",
            "field a: number 1 is string in the record's schema and int32",
        ),
        ("sint32 a = 1;", "int32 a = 1;", "field a: number 1 is sint32"),
        ("repeated int32 a = 1;", "int32 a = 1;", "field a: number 1 is repeated int32"),
        (
            "N n = 1; message N { float x = 1; }",
            "N n = 1; message N { fixed32 x = 1; }",
            r"field n\.x",
        ),
    ],
)
def test_a_field_that_cannot_take_the_values_is_named(
    registry: SchemaRegistry, was: str, now: str, message: str
) -> None:
    with pytest.raises(SchemaMismatchError, match=message):
        rows(registry, proto3(now), written(registry, proto3(was), {}))


def test_a_type_within_itself_is_compared_with_a_long_chain() -> None:
    written, wanted = (
        message_of(proto3(fields)).DESCRIPTOR for fields in ("M0 a = 1;" + chain(300), "M a = 1;")
    )
    assert find_lost_field(written, wanted) == (
        "field " + "a." * 301 + "a: number 1 is int32 in the record's schema and M in the reader's"
    )


def test_a_record_of_another_message_is_refused(registry: SchemaRegistry) -> None:
    text = proto3("int32 a = 1;", "message Other { int32 a = 1; }")
    data = ProtobufSerializer(registry, "Other", schema=text).serialize("all", {})
    with pytest.raises(SchemaMismatchError, match="the record is a Other, not a M"):
        rows(registry, text, [data])


def chain(length: int) -> str:
    """Messages of which each contains the next one."""
    inner = "".join(f"message M{i} {{ M{i + 1} a = 1; }} " for i in range(length))
    return f"{inner} message M{length} {{ int32 x = 1; }}"


STRUCT = """
syntax = "proto3";
import "google/protobuf/struct.proto";
message M { google.protobuf.Struct s = 1; }
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            proto3("repeated N all = 1;", "message N { map<string, N> below = 1; }"),
            r"field all\[\]\.below\{\}: the message N contains itself",
        ),
        (
            STRUCT,
            r"field s\.fields\{\}\.struct_value: the message google\.protobuf\.Struct contains",
        ),
        (proto3(""), "M has no fields"),
        (proto3("E e = 1;", "message E {}"), "M has no fields"),
        (
            proto3("M0 a = 1;", "".join(
                f"message M{i} {{ M{i + 1} a = 1; M{i + 1} b = 2; }} " for i in range(20)
            ) + "message M20 { int32 x = 1; }"),
            "more than 10000 columns",
        ),
        (proto3("M0 a = 1;", chain(60)), "nested over 50 deep"),
        (proto3("M0 a = 1;", chain(2000)), "too deep for the library"),
    ],
)  # fmt: skip
def test_a_message_without_columns_is_refused(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        arrow_type(message_of(text).DESCRIPTOR)


PROTO2_TEXT = "message M { optional string s = 1; required int32 n = 2; }"
TIME = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message M { google.protobuf.Timestamp at = 1; }
"""


@pytest.mark.parametrize(
    ("text", "payload", "message"),
    [
        (
            PROTO2_TEXT,
            b"\x0a\x01\xff\x10\x01",
            "field s: the value does not fit its column",
        ),
        (PROTO2_TEXT, b"\x0a\x01a", "lacks the required field n"),
        (TIME, b"\x0a\x0a\x08" + b"\xff" * 8 + b"\x7f", "field at: the value does not fit"),
        (proto3("string s = 1;"), b"\x0a\x01\xff", "the bytes are no M"),
        (proto3("string s = 1;"), b"\x0a\x05a", "the bytes are no M"),
    ],
)
def test_only_the_damaged_record_fails(
    registry: SchemaRegistry, text: str, payload: bytes, message: str
) -> None:
    good = record(registry, text, b"\x10\x01" if text == PROTO2_TEXT else b"")
    failures: dict[int, SchemaError] = {}
    column = ProtobufColumn(registry, message_of(text))
    found = decoded_array(column, [good, record(registry, text, payload), good], failures)
    assert found.is_null().to_pylist() == [False, True, False]
    assert [*failures] == [1]
    with pytest.raises(SchemaError, match=message):
        raise failures[1]


# The example makes a time after the year 9999, which has no `datetime`.
@given(cut=st.integers(0, 400), junk=st.binary(max_size=12))
@example(cut=303, junk=b"\x80")
def test_any_bytes_are_a_row_or_an_error(registry: SchemaRegistry, cut: int, junk: bytes) -> None:
    column = ProtobufColumn(registry, message_of(ALL))
    [data] = written(registry, ALL, FULL)
    # Damage in the middle, behind the schema id.
    at = 6 + cut % (len(data) - 6)
    damaged = data[:at] + junk + data[at + len(junk) :]
    failures: dict[int, SchemaError] = {}
    rows = decoded_array(column, [damaged, data], failures)
    rows.validate(full=True)
    assert rows.is_null().to_pylist() == [0 in failures, False]
    assert rows.field("h")[1].as_py() == "x"


FIELDS = " ".join(f"int64 f{i} = {i};" for i in range(1, 1001))


@pytest.mark.parametrize(
    ("field", "each"),
    [
        ("repeated W w = 1;", b"\x0a\x00"),
        ("map<int32, W> w = 1;", b"\x0a\x00"),
        # The wide message is absent, but its columns are there.
        ("repeated N w = 1; message N { W w = 1; }", b"\x0a\x00"),
        ("N n = 1; message N { repeated W w = 1; }", b"\x0a\x02\x0a\x00"),
    ],
)
def test_many_empty_messages_of_a_wide_type_are_refused(
    registry: SchemaRegistry, field: str, each: bytes
) -> None:
    text = proto3(field, f"message W {{ {FIELDS} }}")
    column = ProtobufColumn(registry, message_of(text))
    with pytest.raises(WireFormatError, match=r"make more than 1[0-9]{5} columns"):
        column.decode(record(registry, text, each * 1000))
    assert column.decode(record(registry, text, each * 90)) is not None


def test_wide_messages_with_values_are_not_refused(registry: SchemaRegistry) -> None:
    text = proto3("repeated W w = 1;", f"message W {{ {FIELDS} }}")
    value = {"w": [{f"f{i}": str(i) for i in range(1, 1001)}]}
    [data] = written(registry, text, value)
    [row] = rows(registry, text, [record(registry, text, data[6:] * 500)])
    assert len(row["w"]) == 500


@pytest.mark.parametrize(
    "tail", [b"\x0a\xff\xff\xff\xff\x0f", b"\x0b" * 5000, b"\xff" * 20, b"\x0c"]
)
def test_damaged_bytes_are_refused_by_the_decoder(registry: SchemaRegistry, tail: bytes) -> None:
    text = proto3("repeated W w = 1;", f"message W {{ {FIELDS} }}")
    column = ProtobufColumn(registry, message_of(text))
    with pytest.raises(WireFormatError):
        column.decode(record(registry, text, b"\x0a\x00" * 500 + tail))


@pytest.mark.parametrize(
    ("name", "kind"), [("Timestamp", pa.timestamp("us", "UTC")), ("Duration", pa.duration("us"))]
)
def test_a_time_of_another_package_is_a_time_as_in_spark(name: str, kind: pa.DataType) -> None:
    text = 'syntax = "proto3"; package mine; message M { Outer.NAME t = 1; } '
    text += "message Outer { message NAME { int64 seconds = 1; int32 nanos = 2; } }"
    message = message_of(text.replace("NAME", name))
    assert arrow_type(message.DESCRIPTOR) == pa.struct([("t", kind)])


def test_the_last_entry_of_a_key_of_a_map_stays() -> None:
    message = message_of(proto3("map<int32, int32> m = 1;"))
    entries = b"\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x01\x10\x03"
    assert dict(message.FromString(entries).m) == {1: 3}
