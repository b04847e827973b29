"""Avro: round trips, hostile schemas and data, errors that name the field."""

from __future__ import annotations

import contextlib
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st

from barnabas.serializers import (
    AvroDeserializer,
    AvroSerializer,
    SchemaError,
    SchemaMismatchError,
    SchemaRegistry,
    WireFormatError,
)
from barnabas.serializers.avro import find_mismatch
from barnabas.serializers.avro_schema import AvroSchema
from barnabas.serializers.schema import encode_header
from unit.serializers.avro_bytes import blocks, encode_long
from unit.serializers.registry_server import RegistryServer

PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=20),
}


TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "left", "type": ["null", "Tree"]}, {"name": "n", "type": "int"}],
}


@st.composite
def schemas_and_values(draw: st.DrawFn, depth: int = 2, name: str = "R") -> tuple[Any, Any]:
    """A schema and a value that fits it."""
    kinds = [*PRIMITIVES, *(("array", "map", "record") if depth else ())]
    kind = draw(st.sampled_from(kinds))
    if kind in PRIMITIVES:
        return kind, draw(PRIMITIVES[kind])
    inner, value = draw(schemas_and_values(depth - 1, f"{name}x"))
    if kind == "array":
        # One value several times: items of another schema would not fit.
        return {"type": "array", "items": inner}, [value] * draw(st.integers(0, 3))
    if kind == "map":
        return {"type": "map", "values": inner}, {"a": value} if draw(st.booleans()) else {}
    other, second = draw(schemas_and_values(depth - 1, f"{name}y"))
    fields = [{"name": "f", "type": inner}, {"name": "g", "type": other}]
    return {"type": "record", "name": name, "fields": fields}, {"f": value, "g": second}


@given(schemas_and_values())
def test_values_of_any_schema_come_back(
    registry: SchemaRegistry, given_pair: tuple[Any, Any]
) -> None:
    schema, value = given_pair
    topic = json.dumps(schema)
    data = AvroSerializer(registry, schema).serialize(topic, value)
    assert AvroDeserializer(registry)(data) == value


def test_null_is_a_tombstone_and_asks_nothing(server: RegistryServer) -> None:
    registry = SchemaRegistry(server.url)
    before = len(server.requests)
    assert AvroSerializer(registry, TREE).serialize("t", None) is None
    assert AvroDeserializer(registry)(None) is None
    assert len(server.requests) == before


@given(data=st.binary(max_size=40))
def test_any_bytes_are_a_value_or_an_error(
    server: RegistryServer, registry: SchemaRegistry, data: bytes
) -> None:
    fields = [
        {"name": "t", "type": TREE},
        {"name": "l", "type": {"type": "array", "items": "null"}},
    ]
    schema = {"type": "record", "name": "All", "fields": fields}
    header = encode_header(server.add(json.dumps(schema)))
    with contextlib.suppress(WireFormatError):
        AvroDeserializer(registry)(header + data)


def test_deeply_nested_data_is_refused_before_it_is_decoded(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    header = encode_header(server.add(json.dumps(TREE)))
    with pytest.raises(WireFormatError, match="nested over 100 levels"):
        AvroDeserializer(registry)(header + b"\x02" * 1_000_000)


def test_a_list_of_countless_nulls_is_refused(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    header = encode_header(server.add('{"type": "array", "items": "null"}'))
    with pytest.raises(WireFormatError, match=r"more than 1000\d\d values, the limit"):
        AvroDeserializer(registry)(header + b"\x80\x80\x80\x80\x80\x80\x80\x01\x00")


EMPTY: Any = {"type": "record", "name": "E", "fields": []}
NULLS: Any = {"type": "array", "items": "null"}
NOTHING: Any = {
    "type": "record",
    "name": "N",
    "fields": [{"name": "a", "type": EMPTY}, {"name": "b", "type": "null"}],
}
MANY: Any = {
    "type": "record",
    "name": "M",
    "fields": [{"name": f"f{number}", "type": "null"} for number in range(900)],
}
COUNT = 90_000


@pytest.mark.parametrize("times", [1, 2], ids=["few", "too many"])
@pytest.mark.parametrize(
    ("schema", "make"),
    [
        (NULLS, blocks),
        (NULLS, lambda n: blocks(n, is_sized=True)),
        (NULLS, lambda n: blocks(n, 1000, is_sized=True)),
        ({"type": "array", "items": EMPTY}, blocks),
        ({"type": "array", "items": NOTHING}, lambda n: blocks(n // 3)),
        ({"type": "array", "items": {"type": "array", "items": EMPTY}},
         lambda n: blocks(10, item=blocks(n // 10))),
        ({"type": "map", "values": NULLS}, lambda n: blocks(10, item=b"\2k" + blocks(n // 10))),
        ({"type": "map", "values": MANY}, lambda n: blocks(n // 902, item=b"\2k")),
        ({"type": "array", "items": ["string", MANY]}, lambda n: blocks(n // 901, item=b"\2")),
        ({"type": "array", "items": {"type": "record", "name": "Q", "fields": [
            {"name": "e", "type": {"type": "enum", "name": "L", "symbols": ["a"]}},
            {"name": "m", "type": MANY}]}},
         lambda n: blocks(n // 903, item=b"\0")),
    ],
    ids=["nulls", "sized nulls", "blocks", "empty records", "records of nothing", "nested arrays",
         "map of arrays", "map of records", "union", "enum and nulls"],
)  # fmt: skip
def test_a_record_makes_few_values_beside_those_that_its_bytes_allow(
    server: RegistryServer, registry: SchemaRegistry, schema: Any, make: Any, times: int
) -> None:
    data = encode_header(server.add(json.dumps(schema))) + make(times * COUNT)
    read = AvroDeserializer(registry)
    if times == 1:
        assert read(data)
    else:
        with pytest.raises(WireFormatError, match=r"makes more than 10\d{4} values, the limit for"):
            read(data)


@pytest.mark.parametrize("schema", [
    {"type": "array", "items": "int"},
    {"type": "array", "items": {"type": "enum", "name": "L", "symbols": ["a"]}},
    {"type": "map", "values": ["null", "boolean"]},
    {"type": "array", "items": ["null", {"type": "record", "name": "R", "fields": [
        {"name": f"f{number}", "type": ["null", "string"]} for number in range(30)]}]},
])  # fmt: skip
def test_values_that_have_bytes_are_not_counted_before_they_are_decoded(schema: Any) -> None:
    assert not AvroSchema(json.dumps(schema)).needs_skim


def test_a_record_of_many_records_that_may_be_null_is_a_schema() -> None:
    fields = [
        {"name": f"r{outer}", "type": ["null", {"type": "record", "name": f"R{outer}", "fields": [
            {"name": f"f{inner}", "type": "string"} for inner in range(30)]}]}
        for outer in range(300)
    ]  # fmt: skip
    assert AvroSchema(json.dumps({"type": "record", "name": "Wide", "fields": fields})).names


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ({"type": "array", "items": "int"}, encode_long(1 << 60) + b"\0"),
        ({"type": "map", "values": "int"}, encode_long(1 << 60) + b"\0"),
        ({"type": "array", "items": "int"}, encode_long(-(1 << 60)) + b"\2" + b"\0"),
        ("string", encode_long(1 << 60) + b"x"),
        ("bytes", encode_long(1 << 62) + b"x"),
        ("bytes", encode_long(-5) + b"x"),
        ({"type": "fixed", "name": "F", "size": 1 << 40}, b"x"),
        ({"type": "array", "items": {"type": "record", "name": "R", "fields": []}},
         encode_long(1 << 60) + b"\0"),
    ],
    ids=["array", "map", "block", "string", "bytes", "negative", "fixed", "empty records"],
)  # fmt: skip
def test_bytes_that_claim_a_huge_size_are_refused(
    server: RegistryServer, registry: SchemaRegistry, schema: Any, data: bytes
) -> None:
    header = encode_header(server.add(json.dumps(schema)))
    with pytest.raises(WireFormatError):
        AvroDeserializer(registry)(header + data)


DECIMAL = {"logicalType": "decimal", "precision": 30, "scale": 2}


@pytest.mark.parametrize(
    ("schema", "size"),
    [
        ({"type": "bytes", **DECIMAL}, b"\x80\x89\x7a"),
        (["null", {"type": "bytes", **DECIMAL}], b"\2\x80\x89\x7a"),
        ({"type": "fixed", "name": "D", "size": 1_000_000, **DECIMAL}, b""),
    ],
    ids=["bytes", "union", "fixed"],
)
def test_a_decimal_of_a_megabyte_is_refused(
    server: RegistryServer, registry: SchemaRegistry, schema: Any, size: bytes
) -> None:
    header = encode_header(server.add(json.dumps(schema)))
    with pytest.raises(WireFormatError, match="a decimal of 1000000 bytes"):
        AvroDeserializer(registry)(header + size + b"\x7f" * 1_000_000)


def test_a_large_record_with_a_usual_decimal_is_read(registry: SchemaRegistry) -> None:
    fields = [
        {"name": "fare", "type": {"type": "bytes", **DECIMAL}},
        {"name": "text", "type": "string"},
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    value = {"fare": Decimal("120.50"), "text": "x" * 10_000}
    data = AvroSerializer(registry, schema).serialize("t", value)
    assert AvroDeserializer(registry)(data) == value


def bomb(size: int) -> str:
    """Records of which each has the next one twice: 2^size values without a byte."""
    schema: Any = "null"
    for number in range(size):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{number - 1}"}]
        schema = {
            "type": "record",
            "name": f"R{number}",
            "fields": fields if number else fields[:1],
        }
    return json.dumps(schema)


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "recor',
        '{"type": "record", "fields": []}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Missing"}]}',
        '{"type": "array", "items": ' * 300 + '"int"' + "}" * 300,
        "[" * 100_000,
        bomb(40),
        '{"type": "string", "__fastavro_parsed": true}',
        '{"type": "enum", "name": "E", "symbols": 3}',
        "7",
        json.dumps([{"type": "fixed", "name": f"F{n}", "size": 1} for n in range(501)]),
    ],
    ids=["cut", "nameless", "name", "deep", "deeper", "bomb", "mark", "enum", "number", "union"],
)
def test_a_wrong_or_hostile_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        AvroSchema(text)


def test_bytes_after_the_value_are_refused(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    header = encode_header(server.add('"int"'))
    assert AvroDeserializer(registry)(header + b"\x02") == 1
    with pytest.raises(WireFormatError, match="remain after the value"):
        AvroDeserializer(registry)(header + b"\x02\x00")


def test_a_schema_of_another_type_is_refused(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    header = encode_header(server.add("{}", "JSON"))
    with pytest.raises(SchemaError, match="of type JSON, not AVRO"):
        AvroDeserializer(registry)(header + b"{}")


@pytest.mark.parametrize(
    ("value", "field", "message"),
    [
        ({"left": None, "n": "x"}, "n", "'x' is not int"),
        ({"left": {"left": None, "n": 2**31}, "n": 1}, "left.n", "2147483648 is not int"),
        ({"left": None}, "n", "field n: it is missing, and has no default"),
        ({"left": None, "n": 1, "extra": 2}, "extra", "the schema has no such field"),
        ([], "", "is not Tree"),
    ],
)
def test_a_value_that_does_not_fit_names_the_field(
    registry: SchemaRegistry, value: Any, field: str, message: str
) -> None:
    with pytest.raises(SchemaMismatchError, match=message) as raised:
        AvroSerializer(registry, TREE).serialize("tree", value)
    assert raised.value.field == field


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields)}


@pytest.mark.parametrize(
    ("writer", "reader", "field"),
    [
        ("int", "long", None),
        ("long", "int", ""),
        ("string", "bytes", None),
        (["null", "int"], "int", None),
        ("int", ["null", "string"], ""),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "string"}, "[]"),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "boolean"}, "{}"),
        (TREE, TREE, None),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            "",
        ),
        (record(), record({"name": "a", "type": "int"}), "a"),
        (record(), record({"name": "a", "type": "int", "default": 0}), None),
        (
            record({"name": "b", "type": "int"}),
            record({"name": "a", "aliases": ["b"], "type": "long"}),
            None,
        ),
        (
            record({"name": "a", "type": ["null", {**record(), "name": "In"}]}),
            record(
                {
                    "name": "a",
                    "type": ["null", {**record({"name": "z", "type": "int"}), "name": "In"}],
                }
            ),
            "a.z",
        ),
    ],
)
def test_the_field_that_does_not_resolve_is_found(
    writer: Any, reader: Any, field: str | None
) -> None:
    found = find_mismatch(
        AvroSchema(json.dumps(writer)), AvroSchema(json.dumps(reader)), strict=field == "a.z"
    )
    assert (None if found is None else found.field) == field


def test_unions_that_need_countless_comparisons_are_refused() -> None:
    def unions(name: str) -> AvroSchema:
        inner = [{"type": "fixed", "name": f"{name}{n}", "size": 1} for n in range(400)]
        first = {"name": "a", "type": inner}
        more = [{"name": f"f{n}", "type": [each["name"] for each in inner]} for n in range(9)]
        return AvroSchema(json.dumps(record(first, *more)))

    with pytest.raises(SchemaError, match="more than 1000000 comparisons"):
        find_mismatch(unions("F"), unions("F"))


def test_large_enums_are_compared() -> None:
    def enum(count: int) -> AvroSchema:
        symbols = [f"s{number}" for number in range(count)]
        return AvroSchema(json.dumps({"type": "enum", "name": "E", "symbols": symbols}))

    assert find_mismatch(enum(40_000), enum(40_000), strict=True) is None
    found = find_mismatch(enum(40_000), enum(39_999), strict=True)
    assert found is not None
    assert "s39999" in found.reason
