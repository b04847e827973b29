"""JSON Schema: checks when writing and when reading, drafts, references and hostile schemas."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from barnabas.serializers import (
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    SchemaError,
    SchemaMismatchError,
    SchemaRegistry,
    WireFormatError,
)
from barnabas.serializers.schema import encode_header
from unit.serializers.registry_server import RegistryServer

PLANE = {
    "title": "Plane",
    "type": "object",
    "properties": {"seats": {"type": "array", "items": {"type": "integer", "minimum": 1}}},
    "required": ["seats"],
}


@dataclass
class Plane:
    seats: list[int]


def test_dictionaries_and_dataclasses_are_written(registry: SchemaRegistry) -> None:
    serializer = JsonSchemaSerializer(registry, PLANE)
    data = serializer.serialize("planes", Plane([1, 2]))
    assert data == serializer.serialize("planes", {"seats": [1, 2]})
    assert JsonSchemaDeserializer(registry)(data) == {"seats": [1, 2]}


@pytest.mark.parametrize(
    ("value", "field"),
    [({"seats": [1, 0]}, "seats[1]"), ({}, ""), ({"seats": "x"}, "seats"), ([], "")],
)
def test_both_directions_check_the_schema_and_name_the_field(
    server: RegistryServer, registry: SchemaRegistry, value: Any, field: str
) -> None:
    with pytest.raises(SchemaMismatchError) as written:
        JsonSchemaSerializer(registry, PLANE).serialize("planes", value)
    header = encode_header(server.add(json.dumps(PLANE), "JSON"))
    with pytest.raises(SchemaMismatchError) as read:
        JsonSchemaDeserializer(registry)(header + json.dumps(value).encode())
    assert written.value.field == read.value.field == field


def test_a_reader_schema_replaces_the_one_of_the_record(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    header = encode_header(server.add("{}", "JSON"))
    data = header + b'{"seats":[0]}'
    assert JsonSchemaDeserializer(registry)(data) == {"seats": [0]}
    with pytest.raises(SchemaMismatchError, match=r"seats\[0\]"):
        JsonSchemaDeserializer(registry, PLANE)(data)


def test_a_schema_without_a_draft_is_of_draft_7(registry: SchemaRegistry) -> None:
    # From draft 2019-09 on, a list in "items" has another name.
    pair = {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}
    with pytest.raises(SchemaMismatchError, match=r"field \[1\]"):
        JsonSchemaSerializer(registry, pair).serialize("pairs", ["a", "b"])


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b"[" * 100_000])
def test_bytes_that_are_no_json_are_refused(
    server: RegistryServer, registry: SchemaRegistry, payload: bytes
) -> None:
    header = encode_header(server.add("{}", "JSON"))
    with pytest.raises(WireFormatError, match="not JSON"):
        JsonSchemaDeserializer(registry)(header + payload)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"type": "strin"}',
        '{"$ref": "http://127.0.0.1:1/other.json"}',
        '{"$ref": "file:///etc/passwd"}',
        '{"type": "string", "pattern": "("}',
        '{"not": ' * 300 + "{}" + "}" * 300,
    ],
    ids=["cut", "type", "http", "file", "pattern", "deep"],
)
def test_a_wrong_or_hostile_schema_is_refused(registry: SchemaRegistry, text: str) -> None:
    with pytest.raises(SchemaError):
        JsonSchemaSerializer(registry, text)


@pytest.mark.parametrize(
    "keywords",
    [
        {"$ref": "URL/other.json"},
        {"properties": {"a": {"$ref": "URL/other.json#/definitions/a"}}},
        {"$schema": "URL/draft.json"},
        {"$id": "URL/main.json", "$ref": "other.json"},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$dynamicRef": "URL/a.json#b"},
    ],
    ids=["reference", "inner", "draft", "relative", "dynamic"],
)
def test_no_address_of_a_schema_is_asked(
    server: RegistryServer, registry: SchemaRegistry, keywords: dict[str, Any]
) -> None:
    text = json.dumps(keywords).replace("URL", server.url)
    before = len(server.requests)
    with pytest.raises(SchemaError):
        JsonSchemaSerializer(registry, text)
    number = server.add(text, "JSON")
    with pytest.raises(SchemaError):
        JsonSchemaDeserializer(registry)(encode_header(number) + b"{}")
    assert server.requests[before:] == [f"GET /schemas/ids/{number}"]


def test_a_pattern_takes_linear_time(registry: SchemaRegistry) -> None:
    schema = {"type": "string", "pattern": "^(a+)+$"}
    with pytest.raises(SchemaMismatchError):
        JsonSchemaSerializer(registry, schema).serialize("words", "a" * 100_000 + "b")


def test_values_without_a_json_form_are_refused(registry: SchemaRegistry) -> None:
    with pytest.raises(SchemaMismatchError, match="not JSON"):
        JsonSchemaSerializer(registry, {}).serialize("objects", object())
