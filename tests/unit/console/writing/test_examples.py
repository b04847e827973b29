"""Examples of values fit the schemas for which they are made, whatever types these have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.console.forms import Fields, FormError
from barnabas.console.writing.payloads import payload, schema_example
from barnabas.serializers import SchemaRegistry
from unit.serializers.registry_server import RegistryServer


def _record(*fields: Any, name: str = "R") -> dict[str, Any]:
    named = [{"name": f"f{number}", "type": each} for number, each in enumerate(fields)]
    return {"type": "record", "name": name, "fields": named}


def _logical(kind: Any, name: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


_NODE = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "next", "type": ["null", "Node"]},
        {"name": "children", "type": {"type": "array", "items": "Node"}},
        {"name": "named", "type": {"type": "map", "values": "Node"}},
    ],
}
AVRO: list[Any] = [
    "string",
    _record("null", "boolean", "int", "long", "float", "double", "bytes", "string"),
    _record(
        _logical("long", "timestamp-millis"), _logical("long", "timestamp-micros"),
        _logical("long", "local-timestamp-millis"), _logical("long", "local-timestamp-micros"),
        _logical("int", "date"), _logical("int", "time-millis"), _logical("long", "time-micros"),
        _logical("string", "uuid"), _logical("bytes", "decimal", precision=5, scale=2),
        _logical("bytes", "decimal", precision=2, scale=2), _logical("long", "unknown"),
    ),
    _record({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "E"),
    _record({"type": "fixed", "name": "F", "size": 4}),
    _record({"type": "array", "items": "int"}, {"type": "map", "values": "string"}),
    _record(["null", "string"], ["int", "null"], ["null"], ["null", _record("int", name="S")]),
    _record(["null", _record("int", name="A"), _record("string", name="B")]),
    _NODE,
]  # fmt: skip
JSON: list[Any] = [
    True,
    {"type": "object", "required": ["a", "z"], "properties": {"a": {"type": "integer"}}},
    {
        "type": "object",
        "properties": {
            "n": {"type": "number", "minimum": 10, "exclusiveMaximum": 11},
            "i": {"type": "integer", "minimum": 7, "multipleOf": 5},
            "e": {"type": "integer", "exclusiveMinimum": 3},
            "s": {"type": "string", "minLength": 6, "maxLength": 7},
            "t": {"type": "string", "format": "date-time"},
            "c": {"const": 7},
            "d": {"enum": ["x", "y"]},
            "m": {"type": ["null", "boolean"]},
            "l": {"type": "array", "items": {"type": "string"}, "minItems": 2},
            "p": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]},
        },
        "additionalProperties": False,
    },
    {"oneOf": [{"type": "null"}, {"type": "string"}]},
    {"allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]},
               {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]},
    {
        "definitions": {
            "node": {
                "type": "object",
                "properties": {
                    "next": {"anyOf": [{"$ref": "#/definitions/node"}, {"type": "null"}]},
                    "all": {"type": "array", "items": {"$ref": "#/definitions/node"}},
                },
            }
        },
        "$ref": "#/definitions/node",
    },
]  # fmt: skip
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message A {
  int32 a = 1; uint64 b = 2; sint64 c = 3; fixed32 d = 4; bool e = 5; float f = 6; double g = 7;
  string h = 8; bytes i = 9; repeated string j = 10; map<int32, B> k = 11; map<bool, string> l = 12;
  enum Color { RED = 0; BLUE = 1; } Color m = 13;
  oneof one { string n = 14; int32 o = 15; }
  google.protobuf.Timestamp p = 16; google.protobuf.Duration q = 17;
  google.protobuf.Int64Value r = 18; google.protobuf.Struct s = 19; google.protobuf.Value t = 20;
  optional int32 u = 21; repeated Color v = 22;
  A self = 23; repeated A others = 24;
}
message B { string b = 1; }
"""


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with RegistryServer() as server:
        for kind, schemas in (("AVRO", AVRO), ("JSON", JSON)):
            for number, schema in enumerate(schemas):
                _add(server, f"{kind}-{number}", json.dumps(schema), kind)
        _add(server, "PROTOBUF-0", PROTO, "PROTOBUF")
        _add(server, "wide", '{"allOf": [{"$ref": "#"}, {"$ref": "#"}]}', "JSON")
        _add(server, "deep", json.dumps(_doubled(40)), "AVRO")
        _add(server, "broken", '{"type": "object", "properties": 5}', "JSON")
        yield SchemaRegistry(server.url)


def _add(server: RegistryServer, subject: str, text: str, kind: str) -> None:
    body = json.dumps({"schema": text, "schemaType": kind}).encode()
    server.answer("POST", f"/subjects/{subject}/versions", body)


SUBJECTS = [
    *(f"AVRO-{number}" for number in range(len(AVRO))),
    *(f"JSON-{number}" for number in range(len(JSON))),
    "PROTOBUF-0",
]


def example(registry: SchemaRegistry, subject: str, **more: str) -> str:
    form = Fields([("value_subject", subject), *more.items()])
    return schema_example(form, "value", "t", registry)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_an_example_is_written_by_its_schema(registry: SchemaRegistry, subject: str) -> None:
    text = example(registry, subject)
    fields = [("value_kind", "schema"), ("value", text), ("value_subject", subject)]
    data = payload(Fields(fields), "value", "t", registry)
    assert data is not None
    assert len(text) < 100_000


def test_an_example_has_all_members_and_ends_recursion(registry: SchemaRegistry) -> None:
    made = json.loads(example(registry, "PROTOBUF-0"))
    assert set(made) == {*"abcdefghijklmnpqrstuv"}
    assert made["k"] == {"1": {"b": "text"}}
    assert made["m"] == "RED"
    assert made["p"] == "2026-01-31T12:00:00Z"
    node = json.loads(example(registry, f"AVRO-{AVRO.index(_NODE)}"))
    assert node == {"next": None, "children": [], "named": {}}


def test_an_example_of_a_chosen_message(registry: SchemaRegistry) -> None:
    text = example(registry, "PROTOBUF-0", value_message="B")
    assert json.loads(text) == {"b": "text"}


@pytest.mark.parametrize(("subject", "field"), [("absent", "value_subject")])
def test_a_schema_that_is_missing_is_refused_at_its_field(
    registry: SchemaRegistry, subject: str, field: str
) -> None:
    with pytest.raises(FormError) as found:
        example(registry, subject)
    assert found.value.field == field


def _doubled(depth: int) -> dict[str, Any]:
    """A record of two records, and so on: the number of its values doubles with each level."""
    inner = _doubled(depth - 1) if depth else "int"
    return _record(inner, f"R{depth - 1}" if depth else "int", name=f"R{depth}")


@pytest.mark.parametrize("subject", ["broken", "wide", "deep"])
def test_a_malformed_or_endless_schema_has_no_example(
    registry: SchemaRegistry, subject: str
) -> None:
    with pytest.raises(FormError, match="has no example") as found:
        example(registry, subject)
    assert found.value.field == "value_subject"
