"""Avro schemas: what is valid, the canonical and the normalized text, compatibility."""

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


def avro(value: Any, *references: ResolvedReference) -> ParsedSchema:
    return parse("AVRO", value if isinstance(value, str) else json.dumps(value), references)


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def referred(name: str, value: Any, *inner: ResolvedReference) -> ResolvedReference:
    return ResolvedReference(Reference(name, f"{name}-subject", 1), json.dumps(value), inner)


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def fixed(size: Any, name: str = "F") -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


def kinds(reader: Any, writer: Any) -> list[str]:
    found = incompatibilities(avro(json.dumps(reader)), avro(json.dumps(writer)))
    return [each.split("'")[1] for each in found]


CANONICAL = [
    ('"string"', '"string"'),
    ('{"type": "int"}', '"int"'),
    ('{"type": "int", "logicalType": "date", "doc": "x"}', '{"type":"int","logicalType":"date"}'),
    ('["null", {"type": "long"}]', '["null","long"]'),
    (
        ('{"fields": [], "namespace": "a.b", "x": 1, "doc": "d", "name": "R", "type": "record", '
        '"aliases": ["S", "c.T"]}'),
        ('{"type":"record","name":"R","namespace":"a.b","doc":"d","fields":[],"x":1,'
        '"aliases":["S","c.T"]}'),
    ),
    ('{"type":"record","name":"a.b.R","fields":[]}',
     '{"type":"record","name":"R","namespace":"a.b","fields":[]}'),
    (
        ('{"type":"record","name":"R","fields":[{"aliases":["g"],"order":"ignore","default":1e10,'
        '"doc":"d","type":"double","name":"f","p":[1.50]}]}'),
        ('{"type":"record","name":"R","fields":[{"name":"f","type":"double","doc":"d",'
        '"default":1.0E10,"order":"ignore","aliases":["g"],"p":[1.5]}]}'),
    ),
    (
        '{"type":"record","name":"n.R","fields":[{"name":"f","type":["null","n.R"]}]}',
        '{"type":"record","name":"R","namespace":"n","fields":[{"name":"f","type":["null","R"]}]}',
    ),
    (
        '{"type":"enum","name":"E","default":"A","symbols":["A"],"doc":"é"}',
        '{"type":"enum","name":"E","doc":"é","symbols":["A"],"default":"A"}',
    ),
    (
        '{"name":"F","type":"fixed","size":4,"logicalType":"decimal","precision":3}',
        '{"type":"fixed","name":"F","size":4,"logicalType":"decimal","precision":3}',
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CANONICAL)
def test_the_canonical_text_has_the_order_of_java(text: str, expected: str) -> None:
    schema = avro(text)
    assert schema.canonical == expected
    assert avro(expected).canonical == expected


def test_a_type_is_defined_where_it_is_used_first() -> None:
    text = '[{"type":"record","name":"A","fields":[{"name":"b","type":"B"}]},"B"]'
    definition = '{"type":"record","name":"B","fields":[]}'
    schema = avro(text.replace('"B"]', definition + "]"))
    assert schema.canonical == text.replace('"type":"B"', f'"type":{definition}')


def test_normalized_schemas_have_sorted_parts_and_no_empty_doc() -> None:
    schema = avro(
        record(
            field("f", "float", default=1, z=1, b={"y": 1, "x": 2}),
            field("d", {"type": "bytes", "scale": 2, "precision": 9, "logicalType": "decimal"}),
            doc="",
            aliases=["Z", "A"],
            q=1,
            c=2,
        )
    )
    assert schema.normalized().canonical == (
        '{"type":"record","name":"R","fields":[{"name":"f","type":"float","default":1.0,'
        '"b":{"x":2,"y":1},"z":1},{"name":"d","type":{"type":"bytes","logicalType":"decimal",'
        '"precision":9,"scale":2}}],"c":2,"q":1,"aliases":["A","Z"]}'
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("string", "not JSON"),
        ("", "not JSON"),
        ("{}", "no name of a type"),
        ("5", "not an Avro type"),
        ('"Unknown"', "the type Unknown is not defined"),
        ({"type": {"type": "int"}}, "no name of a type"),
        (record(name="a-b"), "'a-b' is not the name of a type"),
        (record(name="1a"), "is not the name"),
        ({"type": "record", "name": "int", "fields": []}, "of a primitive"),
        ({"type": "record", "name": "R"}, "has no fields"),
        (record(field("a", "int"), field("a", "int")), "two fields a"),
        (record({"name": "a"}), "has no type"),
        (record({"type": "int"}), "has no name"),
        (record(field("a b", "int")), "not the name of a field"),
        (record(field("a", "int", order="up")), 'has the order "up"'),
        (record(field("a", "int", order=None)), "has the order null"),
        (record(field("a", "int", aliases="b")), "aliases"),
        (record(field("a", record(name="R"))), "defined twice"),
        (enum("A", "A"), "a symbol twice"),
        (enum("a b"), "not a symbol"),
        (enum("A", default="B"), "not one of its symbols"),
        ({"type": "enum", "name": "E"}, "no symbols"),
        (fixed(-1), "no valid size"),
        (fixed(1.5), "no valid size"),
        ({"type": "array"}, "has no items"),
        ({"type": "map"}, "has no values"),
        (["int", "int"], "the type int twice"),
        (["int", ["null"]], "a union as a branch"),
        (record(field("a", "string"), field("b", "int", default="x")), "does not fit its type int"),
        (record(field("a", "double", default="x")), "does not fit its type double"),
        (record(field("a", "int", default=1 << 31)), "does not fit"),
        (record(field("a", "int", default=True)), "does not fit"),
        (record(field("a", ["null", "int"], default="x")), "does not fit"),
        (record(field("a", record(field("x", "int"), name="S"), default={})), "does not fit"),
    ],
)
def test_a_wrong_schema_is_refused_with_the_reason(text: Any, message: str) -> None:
    with pytest.raises(InvalidSchemaError, match=message):
        avro(text)


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        ("1.5", "1.5"),
        (" +20000000", "2.0E7"),
        ("-1e-5", "-1.0E-5"),
        ("NaN", '"NaN"'),
        ("-1e999", '"-Infinity"'),
        (0.001, "0.001"),
        (1, "1"),
    ],
)
def test_texts_of_numbers_are_defaults_of_doubles(default: Any, expected: str) -> None:
    schema = avro(record(field("a", "double", default=default)))
    assert f'"default":{expected}}}' in schema.canonical
    assert avro(schema.canonical).canonical == schema.canonical


@pytest.mark.parametrize(
    "valid",
    [
        # The default of a union may be of any branch; Java allows it since 1.9.
        record(field("a", ["null", "int"], default=1)),
        record(field("a", "double", default=1)),
        record(field("a", record(field("x", "int", default=1), name="S"), default={})),
        record(field("a", {"type": "array", "items": "int"}, default=[1])),
        record(field("a", {"type": "map", "values": "long"}, default={"k": 1})),
        record(field("a", enum("A"), default="A")),
        # Java ignores logical types that it does not know, or of a wrong base type.
        record(field("a", {"type": "int", "logicalType": "decimal"})),
        [],
        record(field("a", fixed(4)), field("b", fixed(4))),
        {"type": "error", "name": "E", "fields": []},
    ],
)
def test_what_java_accepts_is_accepted(valid: Any) -> None:
    assert avro(valid).canonical


def test_the_defaults_of_stored_schemas_are_not_checked() -> None:
    text = json.dumps(record(field("a", "int", default="x")))
    assert parse("AVRO", text, is_new=False).canonical


def test_names_of_references_are_known_and_not_defined_again() -> None:
    inner = referred("a.Inner", record(name="Inner", namespace="a"))
    outer = referred("a.Outer", record(field("i", "Inner"), name="Outer", namespace="a"), inner)
    schema = avro(record(field("o", "a.Outer"), field("i", "a.Inner")), outer)
    assert '{"name":"o","type":"a.Outer"}' in schema.canonical
    assert '"name":"Outer"' in schema.formatted("resolved")
    assert schema.formatted("resolved").count('"name":"Inner"') == 1
    assert schema.normalized().canonical == schema.canonical


COMPATIBLE = [
    ("long", "int"),
    ("double", "long"),
    ("bytes", "string"),
    ("string", "bytes"),
    (["null", "int"], "int"),
    ("int", ["int"]),
    (["int", "string"], ["string", "int"]),
    (record(field("a", "int")), record(field("a", "int"), field("b", "int"))),
    (record(field("a", "int", default=1)), record()),
    (record(field("b", "int", aliases=["a"])), record(field("a", "int"))),
    (record(name="S", aliases=["R"]), record()),
    # Namespaces do not matter.
    (record(name="x.R"), record(name="y.R")),
    (enum("A", "B"), enum("A")),
    (enum("A", default="A"), enum("A", "Z")),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
    ({"type": "map", "values": "double"}, {"type": "map", "values": "float"}),
    (record(field("r", ["null", "R"], default=None)), record(field("r", ["null", "R"]))),
    # Logical types do not matter.
    ({"type": "long", "logicalType": "timestamp-millis"}, "long"),
]
INCOMPATIBLE = [
    ("int", "long", ["TYPE_MISMATCH"]),
    ("int", "string", ["TYPE_MISMATCH"]),
    ("int", ["null", "int"], ["TYPE_MISMATCH"]),
    (["null", "int"], "string", ["MISSING_UNION_BRANCH"]),
    (["null"], ["null", "int", "string"], ["MISSING_UNION_BRANCH"] * 2),
    (record(field("a", "int")), record(), ["READER_FIELD_MISSING_DEFAULT_VALUE"]),
    (record(name="S"), record(), ["NAME_MISMATCH"]),
    (enum("A"), enum("A", "B"), ["MISSING_ENUM_SYMBOLS"]),
    (fixed(4), fixed(5), ["FIXED_SIZE_MISMATCH"]),
    (fixed(4, "G"), fixed(5, "F"), ["NAME_MISMATCH", "FIXED_SIZE_MISMATCH"]),
    ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, ["TYPE_MISMATCH"]),
    (
        record(field("a", "int"), field("b", "int")),
        record(field("a", "string")),
        ["TYPE_MISMATCH", "READER_FIELD_MISSING_DEFAULT_VALUE"],
    ),
]


@pytest.mark.parametrize(("reader", "writer"), COMPATIBLE)
def test_a_reader_reads_what_was_written(reader: Any, writer: Any) -> None:
    assert kinds(reader, writer) == []


@pytest.mark.parametrize(("reader", "writer", "expected"), INCOMPATIBLE)
def test_a_reader_that_cannot_read_is_named_with_the_rule(
    reader: Any, writer: Any, expected: list[str]
) -> None:
    assert kinds(reader, writer) == expected


def test_the_message_has_the_path_and_the_details() -> None:
    reader, writer = (
        record(field("x", "int"), field("a", enum("A"))),
        record(field("x", "int"), field("a", enum("A", "B"))),
    )
    [found] = incompatibilities(avro(reader), avro(writer))
    assert "'/fields/1/type/symbols'" in found
    assert found.endswith("additionalInfo:'[B]'}")


def test_a_field_that_stands_for_two_fields_is_refused() -> None:
    reader = record(field("a", "int", aliases=["b"]))
    writer = record(field("a", "int"), field("b", "int"))
    with pytest.raises(InvalidSchemaError, match="stands for several fields"):
        kinds(reader, writer)
