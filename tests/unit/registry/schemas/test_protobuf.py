"""Protobuf schemas: what is valid, the canonical and the normalized text, compatibility."""

from __future__ import annotations

import base64
from importlib import import_module

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from barnabas.registry.schemas import (
    InvalidSchemaError,
    ParsedSchema,
    Reference,
    ResolvedReference,
    incompatibilities,
    parse,
)

ORDERS = """// Comments are left out.
syntax = "proto3";
package shop.orders;
import public "google/protobuf/timestamp.proto";
import "confluent/meta.proto";
option java_package = "x.y";
option (confluent.file_meta) = { doc: "it's" params { key: "a", value: "b" } tags: ["a", "b"] };
enum State { reserved 7, 9 to max; reserved "OLD"; NEW = 0; PAID = 1 [deprecated = true]; }
message Order {
  option deprecated = true;
  oneof payment { string card = 9; bytes token = 3; }
  reserved 100, 5 to 6;
  reserved "y", "x";
  map<string, Line> lines = 2;
  repeated int32 numbers = 1 [packed = false, json_name = "NN", (confluent.field_meta).doc = "d"];
  optional Line first = 4;
  message Line { google.protobuf.Timestamp at = 1; Kind kind = 2; enum Kind { NONE = 0; } }
}
service Shop {
  rpc Buy (stream Order) returns (Order.Line) { option deprecated = true; };
  rpc Look(Order) returns (stream Order);
}
"""
CANONICAL = """syntax = "proto3";
package shop.orders;

import "confluent/meta.proto";
import public "google/protobuf/timestamp.proto";

option java_package = "x.y";
option (confluent.file_meta) = {
  doc: "it\\'s",
  params: {
    key: "a",
    value: "b"
  },
  tags: [
    "a",
    "b"
  ]
};

message Order {
  reserved 100, 5 to 6;
  reserved "y", "x";

  option deprecated = true;

  map<string, Line> lines = 2;
  repeated int32 numbers = 1 [
    packed = false,
    (confluent.field_meta).doc = "d",
    json_name = "NN"
  ];
  optional Line first = 4;

  oneof payment {
    string card = 9;
    bytes token = 3;
  }

  message Line {
    google.protobuf.Timestamp at = 1;
    Kind kind = 2;
~~
    enum Kind {
      NONE = 0;
    }
  }
}
enum State {
  reserved 7, 9 to max;
  reserved "OLD";
  NEW = 0;
  PAID = 1 [deprecated = true];
}

service Shop {
  rpc Buy (stream Order) returns (Order.Line) {
    option deprecated = true;
  };
  rpc Look (Order) returns (stream Order);
}
""".replace("~", " ")


def proto(text: str, *references: ResolvedReference) -> ParsedSchema:
    return parse("PROTOBUF", text, references)


def referred(name: str, text: str, version: int = 1) -> ResolvedReference:
    return ResolvedReference(Reference(name, name, version), text)


def message(*fields: str, package: str = "p", more: str = "", syntax: str = "proto3") -> str:
    inner = " ".join(f"{each};" for each in fields)
    return f'syntax = "{syntax}"; package {package}; message M {{ {inner} {more} }}'


def kinds(writer: str, reader: str) -> list[str]:
    found = incompatibilities(proto(reader), proto(writer))
    return [each.split("'")[1] for each in found]


def test_the_canonical_text_has_one_order_and_no_comments() -> None:
    assert proto(ORDERS).canonical == CANONICAL
    assert proto(CANONICAL).canonical == CANONICAL


def test_the_normalized_text_has_full_names_and_sorted_parts() -> None:
    normalized = proto(ORDERS).normalized()
    for expected in (
        "  map<string, .shop.orders.Order.Line> lines = 2;",
        "  optional .shop.orders.Order.Line first = 4;",
        "  rpc Look (.shop.orders.Order) returns (stream .shop.orders.Order);",
        '  reserved 5 to 6, 100;\n  reserved "x", "y";',
        "    bytes token = 3;\n    string card = 9;",
        "    .google.protobuf.Timestamp at = 1;",
    ):
        assert expected in normalized.canonical
    assert normalized.normalized().canonical == normalized.canonical
    assert incompatibilities(normalized, proto(ORDERS)) == []


def test_texts_that_differ_in_order_and_names_only_are_normalized_to_one() -> None:
    one = message("int32 a = 1", 'p.M m = 2 [deprecated = true, json_name = "x"]')
    other = message('.p.M m = 2 [json_name = "x", deprecated = true]', "int32 a = 1")
    assert proto(one).canonical != proto(other).canonical
    assert proto(one).normalized().canonical == proto(other).normalized().canonical


def test_a_descriptor_in_base64_is_the_same_schema() -> None:
    serialized = proto(ORDERS).formatted("serialized")
    file = FileDescriptorProto.FromString(base64.b64decode(serialized))
    assert file.options.java_package == "x.y"
    assert not file.options.uninterpreted_option
    again = proto(serialized)
    assert "message Order {" in again.canonical
    assert incompatibilities(again, proto(ORDERS)) == []
    assert proto(again.canonical).canonical == again.canonical


@pytest.mark.parametrize("name", ["any", "descriptor", "struct", "timestamp", "type", "wrappers"])
def test_descriptors_of_a_compiler_are_printed_as_texts_of_the_same_meaning(name: str) -> None:
    path = f"google/protobuf/{name}.proto"
    import_module(f"google.protobuf.{name}_pb2")
    data = descriptor_pool.Default().FindFileByName(path).serialized_pb
    schema = proto(base64.b64encode(data).decode())
    again = proto(schema.canonical)
    assert again.canonical == schema.canonical
    assert incompatibilities(again, schema) == incompatibilities(schema, again) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "line 1"),
        ('syntax = "proto3"; message M { Unknown a = 1; }', "Unknown"),
        ('syntax = "proto3"; import "other.proto";', "imports other.proto"),
        ('syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }', "invalid"),
        ('syntax = "proto3"; message M {} message M {}', "invalid"),
        ('syntax = "proto3"; enum E { A = 1; }', "zero"),
        ('syntax = "proto3"; service S { rpc A (B) returns (B); }', "invalid"),
        ("message M { required int32 a = 0; }", "out of range"),
        ("message M { int32 a = 1; }", "needs a label"),
        ('syntax = "proto3"; message M { required int32 a = 1; }', "cannot be required"),
        ('option (x) = 1; syntax = "proto3";', "a definition expected, not 'syntax'"),
        ('edition = "2023";', "editions"),
    ],
)
def test_a_wrong_schema_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidSchemaError, match=message):
        proto(text)


def test_proto2_keeps_what_proto3_does_not_have() -> None:
    text = (
        'message M { required int32 a = 1 [default = 5]; optional string b = 2 [default = "x"]; '
        "extensions 100 to 199, 500 to max; } extend M { optional int32 c = 100; }"
    )
    assert proto(text).canonical == (
        "message M {\n  required int32 a = 1 [default = 5];\n"
        '  optional string b = 2 [default = "x"];\n\n'
        "  extensions 100 to 199;\n  extensions 500 to max;\n}\n\n"
        "extend M {\n  optional int32 c = 100;\n}\n"
    )


def test_imports_are_found_by_the_names_of_references() -> None:
    line = 'syntax = "proto3"; package lines; message Line { int32 id = 1; }'
    text = 'syntax = "proto3"; import "a/line.proto"; import "confluent/type/decimal.proto"; '
    text += 'import "google/type/money.proto"; '
    text += "message Order { lines.Line line = 1; confluent.type.Decimal price = 2; "
    text += "google.type.Money tip = 3; }"
    assert "lines.Line line = 1;" in proto(text, referred("a/line.proto", line)).canonical


def test_messages_of_other_versions_of_a_reference_are_compared() -> None:
    line = 'syntax = "proto3"; package lines; message Line {{ {kind} id = 1; }}'
    text = 'syntax = "proto3"; import "line.proto"; message Order { lines.Line line = 1; }'
    old, same, other = (
        proto(text, referred("line.proto", line.format(kind=kind), version))
        for kind, version in (("int32", 1), ("int64", 2), ("string", 3))
    )
    assert incompatibilities(same, old) == []
    found = incompatibilities(other, old)
    assert [each.split("'")[1] for each in found] == [
        "FIELD_SCALAR_KIND_CHANGED",
        "FIELD_NAMED_TYPE_CHANGED",
    ]
    assert "'#/Order/1/1'" in found[0]


SAME_BYTES = [
    ("int32", "int64"), ("uint32", "bool"), ("sint32", "sint64"), ("string", "bytes"),
    ("fixed32", "sfixed32"), ("fixed64", "sfixed64"), ("E", "int32"), ("repeated string", "bytes"),
    ("map<int32, int32>", "map<int64, bool>"), ("repeated M", "M"),
]  # fmt: skip
ENUM = "enum E { A = 0; }"


@pytest.mark.parametrize(("before", "after"), SAME_BYTES)
def test_types_with_the_same_bytes_are_compatible(before: str, after: str) -> None:
    one, other = (message(f"{each} a = 1", more=ENUM) for each in (before, after))
    assert kinds(one, other) == kinds(other, one) == []


COMPATIBLE = [
    (message("int32 a = 1"), message()),
    (message(), message("int32 a = 1")),
    (message("int32 a = 1"), message("int32 b = 1")),
    (message(more="enum E { A = 0; B = 1; }"), message(more="enum E { C = 0; }")),
    (message(more=ENUM), message()),
    (message(), message(more="message N {}")),
    (message("oneof o { int32 a = 1; }"), message("int32 a = 1")),
    (message("oneof o { int32 a = 1; }"), message()),
    (message("int32 a = 1"), message("oneof o { int32 a = 1; int32 b = 2; }")),
    (message("oneof o { int32 a = 1; }"), message("oneof o { int32 a = 1; int32 b = 2; }")),
    (message("optional int32 a = 1"), message("int32 a = 1")),
]
INCOMPATIBLE = [
    (message(), message(package="q"), ["PACKAGE_CHANGED"]),
    (message(more="message N {}"), message(), ["MESSAGE_REMOVED"]),
    (message("int32 a = 1"), message("string a = 1"), ["FIELD_SCALAR_KIND_CHANGED"]),
    (message("int32 a = 1"), message("float a = 1"), ["FIELD_SCALAR_KIND_CHANGED"]),
    (message("bytes a = 1"), message("M a = 1"), ["FIELD_KIND_CHANGED"]),
    (message("map<int32, M> a = 1"), message("M a = 1"), ["FIELD_KIND_CHANGED"]),
    (
        message("map<int32, string> a = 1"),
        message("map<int32, int32> a = 1"),
        ["FIELD_SCALAR_KIND_CHANGED"],
    ),
    (
        message("M a = 1", more="message N {}"),
        message("N a = 1", more="message N {}"),
        ["FIELD_NAMED_TYPE_CHANGED"],
    ),
    (
        message("optional int32 a = 1"),
        message("repeated int32 a = 1"),
        ["FIELD_NUMERIC_LABEL_CHANGED"],
    ),
    (
        message(syntax="proto2"),
        message("required int32 a = 1", syntax="proto2"),
        ["REQUIRED_FIELD_ADDED"],
    ),
    (
        message("required int32 a = 1", syntax="proto2"),
        message(syntax="proto2"),
        ["REQUIRED_FIELD_REMOVED"],
    ),
    (
        message("oneof o { int32 a = 1; int32 b = 2; }"),
        message("oneof o { int32 a = 1; }"),
        ["ONEOF_FIELD_REMOVED"],
    ),
    (
        message("int32 a = 1", "int32 b = 2"),
        message("oneof o { int32 a = 1; int32 b = 2; }"),
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"],
    ),
    (
        message("int32 a = 1", "oneof o { int32 b = 2; }"),
        message("oneof o { int32 a = 1; int32 b = 2; }"),
        ["FIELD_MOVED_TO_EXISTING_ONEOF"],
    ),
    (
        message("oneof o { int32 a = 1; }"),
        message("oneof q { string a = 1; }"),
        ["FIELD_SCALAR_KIND_CHANGED"],
    ),
]


@pytest.mark.parametrize(("writer", "reader"), COMPATIBLE)
def test_a_reader_reads_what_was_written(writer: str, reader: str) -> None:
    assert kinds(writer, reader) == []


@pytest.mark.parametrize(("writer", "reader", "expected"), INCOMPATIBLE)
def test_a_reader_that_cannot_read_is_named_with_the_rule(
    writer: str, reader: str, expected: list[str]
) -> None:
    assert kinds(writer, reader) == expected
