"""JSON Schemas: what is valid, the canonical and the normalized text, compatibility."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.registry.schemas import (
    InvalidSchemaError,
    ParsedSchema,
    Reference,
    ResolvedReference,
    incompatibilities,
    parse,
)

DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


def schema(value: Any, *references: ResolvedReference) -> ParsedSchema:
    return parse("JSON", value if isinstance(value, str) else json.dumps(value), references)


def referred(name: str, value: Any, *inner: ResolvedReference) -> ResolvedReference:
    return ResolvedReference(Reference(name, f"{name}-subject", 1), json.dumps(value), inner)


def kinds(writer: Any, reader: Any) -> list[str]:
    found = incompatibilities(schema(reader), schema(writer))
    return [each.split("'")[1] for each in found]


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def opened(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_the_canonical_text_keeps_the_order_and_the_numbers() -> None:
    text = '{ "b" : 1.50, "a": [1e5, -0, true, null, "\\u00e9\\n"] }'
    assert schema(text).canonical == '{"b":1.50,"a":[1e5,0,true,null,"é\\n"]}'


def test_the_normalized_text_has_sorted_keys() -> None:
    assert schema('{"b": {"d": 1, "c": 2}, "a": 1}').normalized().canonical == (
        '{"a":1,"b":{"c":2,"d":1}}'
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[]", "an object or a boolean"),
        ('{"a": NaN}', "NaN"),
        ('{"type": "text"}', "'#/type'"),
        ('{"properties": {"a": {"minimum": "1"}}}', "'#/properties/a/minimum'"),
        ('{"$ref": "other.json"}', "other.json is not among the references"),
        ('{"$ref": "#/definitions/a"}', "leads to no part of it"),
        ('{"$ref": "#"}', "leads to itself"),
        ('{"properties": {"a": {"$ref": "http://[x"}}}', "uri-reference"),
        (json.dumps({"$schema": DRAFT_2020, "prefixItems": {}}), "prefixItems"),
    ],
)
def test_a_wrong_schema_is_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(InvalidSchemaError, match=message):
        schema(text)


@pytest.mark.parametrize(
    "valid",
    [
        True,
        {},
        {"required": ["a", "a"], "enum": []},
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "exclusiveMinimum": True,
            "minimum": 1,
        },
        {"$schema": "http://example.com/unknown", "minimum": 1.5},
        {"$ref": "http://json-schema.org/draft-07/schema#"},
        {
            "$id": "http://a.com/b.json",
            "definitions": {"c": {"$id": "c.json"}},
            "items": {"$ref": "c.json"},
        },
        {"$schema": DRAFT_2020, "$defs": {"a": {"$anchor": "b"}}, "$ref": "#b", "type": "string"},
    ],
)
def test_valid_schemas_of_all_drafts_are_accepted(valid: Any) -> None:
    assert schema(json.dumps(valid)).normalized().canonical


def test_references_are_found_by_name_and_relative_to_the_id() -> None:
    inner = referred("inner.json", {"type": "integer"})
    outer = referred("outer.json", opened(a={"$ref": "inner.json"}), inner)
    for root in ({}, {"$id": "http://example.com/root.json"}):
        for uri in ("outer.json", "./outer.json"):
            assert schema(root | opened(o={"$ref": uri}), outer).canonical


def test_referred_schemas_are_compared() -> None:
    text = opened(a={"$ref": "a.json"})
    old, new = (schema(text, referred("a.json", {"type": kind})) for kind in ("number", "string"))
    assert incompatibilities(new, old) != []
    assert incompatibilities(old, old) == []


RANGES = [
    ("string", "maxLength", "minLength"),
    ("number", "maximum", "minimum"),
    ("number", "exclusiveMaximum", "exclusiveMinimum"),
    ("array", "maxItems", "minItems"),
    ("object", "maxProperties", "minProperties"),
]


@pytest.mark.parametrize(("kind", "upper", "lower"), RANGES)
def test_a_range_may_only_grow(kind: str, upper: str, lower: str) -> None:
    for word, narrower, wider in ((upper, 5, 6), (lower, 6, 5)):
        narrow, wide = ({"type": kind, word: value} for value in (narrower, wider))
        assert kinds(narrow, wide) == kinds(narrow, {"type": kind}) == []
        assert len(kinds(wide, narrow)) == len(kinds({"type": kind}, narrow)) == 1


COMPATIBLE: list[tuple[Any, Any]] = [
    ({"type": "string"}, {}),
    ({"type": "string"}, True),
    (False, {"type": "string"}),
    ({"type": "integer"}, {"type": "number"}),
    ({"type": "string"}, {"type": ["string", "null"]}),
    ({"type": ["string"]}, {"type": ["null", "string"]}),
    ({"type": "string"}, {"anyOf": [{"type": "number"}, {"type": "string"}]}),
    ({"type": "string"}, {"allOf": [{"type": "string"}]}),
    ({"allOf": [{"type": "string"}, {"maxLength": 5}]}, {"type": "string"}),
    ({"oneOf": [{"type": "string"}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
    ({"anyOf": [{"type": "string"}]}, {"oneOf": [{"type": "null"}, {"type": "string"}]}),
    ({"allOf": [{"type": "string"}, {"enum": ["a"]}]}, {"allOf": [{"type": "string"}]}),
    ({"anyOf": [{"enum": [1]}, {"enum": [1]}]}, {"anyOf": [{"enum": [1]}]}),
    ({"type": "string", "enum": ["a"]}, {"type": "string"}),
    ({"enum": ["a", {"b": 1}]}, {"enum": [{"b": 1}, "c", "a"]}),
    ({"not": {"type": "number"}}, {"not": {"type": "integer"}}),
    ({"type": "string", "pattern": "a"}, {"type": "string"}),
    ({"type": "number", "multipleOf": 10}, {"type": "number", "multipleOf": 2.5}),
    ({"type": "string", "title": "a", "default": "b"}, {"type": "string", "title": "c"}),
    (opened(a={"type": "string"}), opened()),
    (opened(), opened(a={})),
    (closed(), closed(a={"type": "string"})),
    (closed(), closed(a={"type": "string", "default": "x"}) | {"required": ["a"]}),
    (opened(a={}) | {"required": ["a"]}, opened(a={})),
    (opened(a={}), opened(a={"default": 1}) | {"required": ["a"]}),
    (closed(a=False), closed()),
    (closed(), opened()),
    (
        {"additionalProperties": {"type": "string"}},
        opened(a={"type": "string"}) | {"additionalProperties": {"type": "string"}},
    ),
    (
        closed() | {"patternProperties": {"^s_": {"type": "integer"}}},
        closed(s_x={"type": "number"}) | {"patternProperties": {"^s_": {"type": "integer"}}},
    ),
    ({"dependencies": {"a": ["b", "c"]}}, {"dependencies": {"a": ["b"]}}),
    (
        {"type": "array", "items": [{}], "additionalItems": False},
        {"type": "array", "items": [{}, {}], "additionalItems": False},
    ),
    ({"type": "array", "items": [{}, {}]}, {"type": "array", "items": [{}]}),
    ({"type": "array", "uniqueItems": True}, {"type": "array"}),
    ({"type": "string", "connect.type": "bytes"}, {"type": "number", "connect.type": "bytes"}),
    (
        {"$schema": DRAFT_2020, "prefixItems": [{"type": "string"}], "items": False},
        {"$schema": DRAFT_2020, "prefixItems": [{"type": "string"}, {}], "items": False},
    ),
    (
        {"$schema": DRAFT_2020, "$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a"},
        {"type": "string"},
    ),
]
INCOMPATIBLE: list[tuple[Any, Any, list[str]]] = [
    ({}, {"type": "string"}, ["TYPE_CHANGED"]),
    ({"type": "string"}, {"type": "number"}, ["TYPE_CHANGED"]),
    ({"type": "number"}, {"type": "integer"}, ["TYPE_NARROWED"]),
    ({"type": ["string", "null"]}, {"type": "string"}, ["TYPE_CHANGED"]),
    ({"type": ["string", "null"]}, {"type": ["string"]}, ["SUM_TYPE_NARROWED"]),
    (
        {"oneOf": [{"type": "string"}]},
        {"oneOf": [{"type": "number"}]},
        ["COMBINED_TYPE_SUBSCHEMAS_CHANGED"],
    ),
    (
        {"allOf": [{"type": "string"}]},
        {"allOf": [{"type": "string"}, {"maxLength": 1}]},
        ["PRODUCT_TYPE_EXTENDED"],
    ),
    (
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"oneOf": [{"type": "string"}, {"type": "null"}]},
        ["COMBINED_TYPE_CHANGED"],
    ),
    ({"enum": ["a", "b"]}, {"enum": ["a"]}, ["ENUM_ARRAY_NARROWED"]),
    ({"enum": ["a"]}, {"enum": ["b"]}, ["ENUM_ARRAY_CHANGED"]),
    ({"enum": [True]}, {"enum": [1]}, ["ENUM_ARRAY_CHANGED"]),
    ({"const": 1}, {"const": 2}, ["ENUM_ARRAY_CHANGED"]),
    ({"not": {"type": "integer"}}, {"not": {"type": "number"}}, ["NOT_TYPE_EXTENDED"]),
    ({"type": "string"}, {"type": "string", "pattern": "a"}, ["PATTERN_ADDED"]),
    ({"type": "string", "pattern": "b"}, {"type": "string", "pattern": "a"}, ["PATTERN_CHANGED"]),
    ({"type": "number"}, {"type": "number", "multipleOf": 2}, ["MULTIPLE_OF_ADDED"]),
    (
        {"type": "number", "multipleOf": 2},
        {"type": "number", "multipleOf": 4},
        ["MULTIPLE_OF_EXPANDED"],
    ),
    (
        {"type": "number", "multipleOf": 2},
        {"type": "number", "multipleOf": 3},
        ["MULTIPLE_OF_CHANGED"],
    ),
    (opened(), opened(a={"type": "string"}), ["OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]),
    (
        opened(),
        opened(a={"type": "string"}) | {"required": ["a"]},
        ["REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"],
    ),
    (
        closed(),
        closed(a={}) | {"required": ["a"]},
        ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"],
    ),
    (closed(a={}), closed(), ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"]),
    (opened(a={}), opened(a={}) | {"required": ["a"]}, ["REQUIRED_ATTRIBUTE_ADDED"]),
    (opened(a={"type": "string"}), opened(a={"type": "null"}), ["TYPE_CHANGED"]),
    (opened(), closed(), ["ADDITIONAL_PROPERTIES_REMOVED"]),
    (opened(), opened() | {"additionalProperties": {}}, ["ADDITIONAL_PROPERTIES_NARROWED"]),
    (
        {"additionalProperties": {"type": "string"}},
        {"properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "string"}},
        ["TYPE_CHANGED", "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"],
    ),
    (
        {"type": "object"},
        {"type": "object", "dependencies": {"a": ["b"]}},
        ["DEPENDENCY_ARRAY_ADDED"],
    ),
    (
        {"dependencies": {"a": ["b"]}},
        {"dependencies": {"a": ["b", "c"]}},
        ["DEPENDENCY_ARRAY_EXTENDED"],
    ),
    ({"dependencies": {"a": ["b"]}}, {"dependencies": {"a": ["c"]}}, ["DEPENDENCY_ARRAY_CHANGED"]),
    (
        {"type": "object"},
        {"type": "object", "dependencies": {"a": {"type": "null"}}},
        ["DEPENDENCY_SCHEMA_ADDED"],
    ),
    ({"type": "array"}, {"type": "array", "items": {"type": "string"}}, ["SCHEMA_ADDED"]),
    (
        {"type": "array", "items": {"type": "string"}},
        {"type": "array", "items": {"type": "null"}},
        ["TYPE_CHANGED"],
    ),
    (
        {"type": "array", "items": [{}]},
        {"type": "array", "items": [{}, {"type": "null"}]},
        ["ITEM_ADDED_TO_OPEN_CONTENT_MODEL"],
    ),
    (
        {"items": [{}, {}], "additionalItems": False},
        {"items": [{}], "additionalItems": False},
        ["ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"],
    ),
    ({"items": [{}]}, {"items": [{}], "additionalItems": False}, ["ADDITIONAL_ITEMS_REMOVED"]),
    (
        {"items": [{}]},
        {"items": [{}], "additionalItems": {"type": "null"}},
        ["ADDITIONAL_ITEMS_NARROWED"],
    ),
    ({"type": "array"}, {"type": "array", "uniqueItems": True}, ["UNIQUE_ITEMS_ADDED"]),
    (
        {"$schema": DRAFT_2020, "type": "array"},
        {"$schema": DRAFT_2020, "type": "array", "unevaluatedItems": False},
        ["UNEVALUATED_ITEMS_REMOVED"],
    ),
    (
        {"$schema": DRAFT_2020, "type": "object"},
        {"$schema": DRAFT_2020, "type": "object", "dependentRequired": {"a": ["b"]}},
        ["DEPENDENCY_ARRAY_ADDED"],
    ),
]


@pytest.mark.parametrize(("writer", "reader"), COMPATIBLE)
def test_a_change_that_accepts_more_is_compatible(writer: Any, reader: Any) -> None:
    assert kinds(writer, reader) == []


@pytest.mark.parametrize(("writer", "reader", "expected"), INCOMPATIBLE)
def test_a_change_that_accepts_less_is_named(writer: Any, reader: Any, expected: list[str]) -> None:
    assert kinds(writer, reader) == expected


def test_the_message_has_the_path() -> None:
    old, new = (
        schema(opened(a={"type": "array", "items": {"type": kind}})) for kind in ("string", "null")
    )
    [found] = incompatibilities(new, old)
    assert "'#/properties/a/items'" in found


def test_recursive_schemas_are_compared() -> None:
    def tree(kind: str) -> Any:
        node = opened(value={"type": kind}, left={"$ref": "#/definitions/node"})
        return {"definitions": {"node": node}, "$ref": "#/definitions/node"}

    assert kinds(tree("string"), tree("string")) == []
    assert kinds(tree("string"), tree("null")) == ["TYPE_CHANGED"]


def test_many_alternatives_are_matched_as_well_as_possible() -> None:
    old = {"oneOf": [{"type": "integer"}, {"type": "number"}]}
    new = {"oneOf": [{"type": "number"}, {"type": "number", "maximum": 5}]}
    # integer fits the first of the new ones only, and number, too.
    assert kinds(old, new) == ["COMBINED_TYPE_SUBSCHEMAS_CHANGED"]
    assert kinds(old, {"oneOf": [{"type": "number"}, {"type": "integer"}]}) == []


@pytest.mark.parametrize("value", [5, "x", [5], {"a": 5}, None, [{}], {"a": {}}])
def test_a_reference_may_lead_to_what_is_no_schema(value: Any) -> None:
    """Nothing checks the value of a default, to which a reference may lead."""
    keywords = [
        *("type", "properties", "required", "patternProperties", "additionalProperties", "enum"),
        *("items", "prefixItems", "additionalItems", "anyOf", "not", "const", "maximum", "pattern"),
        *("multipleOf", "dependencies", "dependentRequired", "uniqueItems", "if", "minLength"),
    ]
    for keyword in keywords:
        for kind in ({}, {"type": "object"}, {"type": "array"}):
            target = {"default": {**kind, keyword: value}, "$ref": "#/default"}
            for other in (kind, {"properties": {"b": {}}}, {"items": [{}, {}]}, target):
                try:
                    kinds(target, other)
                    kinds(other, target)
                except InvalidSchemaError:
                    continue
