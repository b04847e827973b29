"""Levels of compatibility, and what all types of schemas share."""

from __future__ import annotations

import pickle

import pytest

from barnabas.registry.schemas import (
    LEVELS,
    SCHEMA_TYPES,
    InvalidSchemaError,
    ParsedSchema,
    Reference,
    ResolvedReference,
    check_level,
    find_conflict,
    incompatibilities,
    parse,
)
from barnabas.registry.schemas.limits import REFERENCES_MAX, TEXT_MAX

INT, LONG, STRING = (parse("AVRO", f'"{name}"') for name in ("int", "long", "string"))


@pytest.mark.parametrize(
    ("level", "new", "earlier", "index"),
    [
        ("NONE", STRING, [INT], None),
        ("BACKWARD", LONG, [INT], None),
        ("BACKWARD", INT, [LONG], 0),
        ("BACKWARD", LONG, [STRING, INT], None),
        ("BACKWARD_TRANSITIVE", LONG, [STRING, INT], 0),
        ("FORWARD", INT, [LONG], None),
        ("FORWARD", LONG, [INT], 0),
        ("FORWARD_TRANSITIVE", INT, [STRING, LONG], 0),
        ("FULL", LONG, [INT], 0),
        ("FULL", LONG, [STRING, LONG], None),
        ("FULL_TRANSITIVE", LONG, [STRING, LONG], 0),
        # The newest of the conflicting versions.
        ("FULL_TRANSITIVE", LONG, [STRING, STRING, LONG], 1),
        *((level, INT, [], None) for level in LEVELS),
    ],
)
def test_a_level_chooses_versions_and_directions(
    level: str, new: ParsedSchema, earlier: list[ParsedSchema], index: int | None
) -> None:
    conflict = find_conflict(level, new, earlier)
    assert (None if conflict is None else conflict[0]) == index
    assert bool(check_level(level, new, earlier)) == (index is not None)


def test_messages_of_a_level_say_which_schema_is_new() -> None:
    [backward] = check_level("BACKWARD", INT, [LONG])
    [forward] = check_level("FORWARD", LONG, [INT])
    assert "of the new schema cannot read that of the old schema" in backward
    assert "of the old schema cannot read that of the new schema" in forward


def test_schemas_of_different_types_are_incompatible() -> None:
    assert incompatibilities(parse("JSON", "{}"), INT) == [
        "Incompatible because of different schema type"
    ]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("AVRO", '["int", "string"]'),
        ("JSON", '{"$ref": "#/definitions/a", "definitions": {"a": {"type": "string"}}}'),
        ("PROTOBUF", 'syntax = "proto3"; message M { int32 a = 1; }'),
    ],
)
def test_a_schema_is_the_same_in_another_process(kind: str, text: str) -> None:
    schema = parse(kind, text, is_new=False)
    copied = pickle.loads(pickle.dumps(schema))
    assert (copied.canonical, copied.is_new) == (schema.canonical, False)
    assert incompatibilities(copied, schema) == []


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(InvalidSchemaError, match="'THRIFT' is unknown: use one of"):
        parse("THRIFT", "{}")


@pytest.mark.parametrize("kind", SCHEMA_TYPES)
def test_a_long_text_is_refused(kind: str) -> None:
    with pytest.raises(InvalidSchemaError, match="the limit is"):
        parse(kind, " " * (TEXT_MAX + 1))


@pytest.mark.parametrize(
    "text", ['"\\ud800"', '{"type":"record","name":"R","fields":[],"\\udfff":1}']
)
def test_half_of_a_surrogate_pair_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        parse("AVRO", text)
    with pytest.raises(InvalidSchemaError):
        parse("JSON", '{"title": "\\ud800"}')


def test_messages_have_a_limited_length() -> None:
    name = "a" * 100_000
    with pytest.raises(InvalidSchemaError) as refused:
        parse("AVRO", f'"{name}"')
    assert len(str(refused.value)) <= 1000
    old, new = (
        parse("AVRO", f'{{"type":"record","name":"R","fields":[{fields}]}}')
        for fields in ("", f'{{"name":"{name}","type":"int"}}')
    )
    [found] = incompatibilities(new, old)
    assert len(found) <= 1000


def reference(name: str, *inner: ResolvedReference) -> ResolvedReference:
    text = f'{{"type":"record","name":"{name}","fields":[]}}'
    return ResolvedReference(Reference(name, name, 1), text, inner)


def test_normalized_schemas_have_each_reference_once_in_order() -> None:
    a, b = reference("A"), reference("B")
    schema = parse("AVRO", '["A","B"]', [b, a, b])
    assert schema.normalized().references == (a, b)
    assert schema.references == (b, a, b)


def test_references_that_share_others_are_read_once() -> None:
    shared = reference("R0")
    for index in range(1, 100):
        shared = reference(f"R{index}", shared, shared)
    assert parse("AVRO", '"R0"', [shared]).canonical == '"R0"'


def test_many_references_are_refused() -> None:
    many = [reference(f"R{index}") for index in range(REFERENCES_MAX + 1)]
    with pytest.raises(InvalidSchemaError, match="too many references"):
        parse("AVRO", '"R0"', many)
