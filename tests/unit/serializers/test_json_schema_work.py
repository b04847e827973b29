"""Schemas and values that would make an exponential number of checks are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.serializers import JsonSchemaDeserializer, JsonSchemaSerializer, SchemaRegistry
from barnabas.serializers.errors import SchemaError, SchemaMismatchError
from barnabas.serializers.json_schema import SchemaWork
from barnabas.serializers.schema import Schema, SchemaReference, SchemaType
from unit.serializers.registry_server import RegistryServer

# Twice at each of these levels: 2^60 checks.
LEVELS = 60
MODERN = "https://json-schema.org/draft/2020-12/schema"


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with RegistryServer() as server:
        yield SchemaRegistry(server.url)


def chain(keyword: str, link: Any, names: Any = lambda number: {}) -> dict[str, Any]:
    """A schema in which each definition applies the next one twice to the same value."""
    parts = {f"a{n}": {**names(n), keyword: [link(n + 1), link(n + 1)]} for n in range(LEVELS)}
    parts[f"a{LEVELS}"] = {**names(LEVELS), "type": "object"}
    return {"definitions": parts, "allOf": [link(0)]}


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"p": value}
    return value


def pointer(number: int) -> Any:
    return {"$ref": f"#/definitions/a{number}"}


BOMBS = {
    "all of": chain("allOf", pointer),
    "any of": chain("anyOf", pointer),
    "encoded pointer": chain("oneOf", lambda n: {"$ref": f"#/definitions/%61{n}"}),
    "anchor": {
        "$schema": MODERN,
        **chain("allOf", lambda n: {"$ref": f"#x{n}"}, lambda n: {"$anchor": f"x{n}"}),
    },
    "id": chain("allOf", lambda n: {"$ref": f"x{n}.json"}, lambda n: {"$id": f"x{n}.json"}),
    "nested not": chain("allOf", lambda n: {"not": {"if": {}, "then": pointer(n)}}),
    "dependency": chain("allOf", lambda n: {"dependencies": {"p": pointer(n)}}),
}


@pytest.mark.parametrize("schema", BOMBS.values(), ids=BOMBS.keys())
def test_a_schema_that_applies_countless_schemas_is_refused(
    registry: SchemaRegistry, schema: Any
) -> None:
    with pytest.raises(SchemaError, match="more than 20000000 schemas to a value"):
        JsonSchemaSerializer(registry, schema)


TWICE = {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}
GROWING = {
    "property": {"properties": {"p": TWICE}},
    "pattern": {"properties": {"p": {"$ref": "#"}}, "patternProperties": {"^p": {"$ref": "#"}}},
    "additional": {"additionalProperties": TWICE},
    "dynamic": {
        "$schema": MODERN,
        "$dynamicAnchor": "node",
        "properties": {"p": {"allOf": [{"$dynamicRef": "#node"}, {"$dynamicRef": "#node"}]}},
    },
}


@pytest.mark.parametrize("schema", GROWING.values(), ids=GROWING.keys())
def test_a_value_that_makes_countless_checks_is_refused(
    registry: SchemaRegistry, schema: Any
) -> None:
    serializer = JsonSchemaSerializer(registry, schema)
    data = serializer.serialize("t", nested(8))
    assert JsonSchemaDeserializer(registry)(data) == nested(8)
    for depth in (40, 200):
        with pytest.raises(SchemaMismatchError, match="more than 20000000 checks"):
            serializer.serialize("t", nested(depth))


def test_references_to_other_subjects_count_too() -> None:
    def answer(_method: str, path: str, _headers: Any) -> tuple[int, bytes] | None:
        if path != "/subjects/nodes/versions/1":
            return None
        text = json.dumps(GROWING["property"])
        return 200, json.dumps(
            {"subject": "nodes", "version": 1, "id": 1, "schemaType": "JSON", "schema": text}
        ).encode()

    schema = Schema(
        '{"allOf": [{"$ref": "nodes.json"}]}',
        SchemaType.JSON,
        (SchemaReference("nodes.json", "nodes", 1),),
    )
    with RegistryServer(answer) as server:
        serializer = JsonSchemaSerializer(SchemaRegistry(server.url), schema)
        assert serializer.serialize("t", nested(5)) is not None
        with pytest.raises(SchemaMismatchError, match="more than 20000000 checks"):
            serializer.serialize("t", nested(40))


@pytest.mark.parametrize("identity", [{}, {"$id": "http://example.com/schemas/root.json"}])
def test_references_are_found_by_their_names_beside_an_id(identity: dict[str, str]) -> None:
    def answer(_method: str, path: str, _headers: Any) -> tuple[int, bytes] | None:
        if path != "/subjects/nodes/versions/1":
            return None
        body = {"subject": "nodes", "version": 1, "id": 1, "schemaType": "JSON"}
        return 200, json.dumps(body | {"schema": '{"type": "integer"}'}).encode()

    schema = Schema(
        json.dumps(identity | {"properties": {"a": {"$ref": "nodes.json"}}}),
        SchemaType.JSON,
        (SchemaReference("nodes.json", "nodes", 1),),
    )
    with RegistryServer(answer) as server:
        serializer = JsonSchemaSerializer(SchemaRegistry(server.url), schema)
        assert serializer.serialize("t", {"a": 1}) is not None
        with pytest.raises(SchemaMismatchError, match="field a"):
            serializer.serialize("t", {"a": "x"})


@pytest.mark.parametrize(
    "schema", [{"$ref": "#"}, {"allOf": [{"anyOf": [{"$ref": "#"}]}]}], ids=["itself", "within"]
)
def test_a_schema_that_only_refers_to_itself_is_refused(
    registry: SchemaRegistry, schema: Any
) -> None:
    with pytest.raises(SchemaError, match="without an end"):
        JsonSchemaSerializer(registry, schema)


TREE = {
    "title": "Tree",
    "oneOf": [
        {"type": "integer"},
        {
            "type": "object",
            "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}},
            "additionalProperties": False,
        },
    ],
}


def test_usual_recursive_schemas_accept_deep_and_large_values(registry: SchemaRegistry) -> None:
    serializer = JsonSchemaSerializer(registry, TREE)
    deep: Any = 1
    for _ in range(200):
        deep = {"left": deep, "right": 2}
    assert serializer.serialize("trees", deep) is not None
    draft = JsonSchemaSerializer(registry, {"$ref": "http://json-schema.org/draft-07/schema#"})
    assert draft.serialize("schemas", TREE) is not None
    with pytest.raises(SchemaMismatchError):
        draft.serialize("schemas", {"type": "strin"})


def test_the_number_of_schemas_at_each_level_is_exact_for_a_small_schema() -> None:
    inner = {"items": [{"type": "string"}, {"anyOf": [{}, {"type": "null"}]}]}
    work = SchemaWork({"allOf": [inner, {"additionalProperties": {"not": {"const": 1}}}]}, {})
    # The value: itself and two of allOf. Within: of the alternatives the larger, and two more.
    assert work._levels == [3, 5, 0]
