"""Avro records as Arrow arrays: `avro_to_arrow`, and the Arrow type of an Avro schema.

Values are decoded by `fastavro` and become a column at once. All records are converted to one
schema, since a column has one type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import pyarrow as pa

from barnabas.serializers.avro import AvroDeserializer, parse_registered
from barnabas.serializers.avro_schema import MARKS, AvroSchema, node_type
from barnabas.serializers.decoded_column import ColumnDecoder, decoded_array
from barnabas.serializers.errors import SchemaError
from barnabas.serializers.schema import schema_id_of, schema_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.serializers.avro_schema import AvroNode
    from barnabas.serializers.registry import SchemaRegistry


# Deeper types are of recursive schemas, which have no Arrow type.
_DEPTH_MAX = 50
# A named type that is used again makes columns again, so that a small schema could make 2^50.
_COLUMNS_MAX = 10_000
_DECIMAL_DIGITS_MAX = 76
_DECIMAL128_DIGITS_MAX = 38
_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time64("us"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("string", "uuid"): pa.string(),
}
# Unions of two types that one type can hold, as in Spark's `from_avro`.
_WIDER = {
    frozenset((pa.int32(), pa.int64())): pa.int64(),
    frozenset((pa.float32(), pa.float64())): pa.float64(),
}


def avro_to_arrow(
    registry: SchemaRegistry,
    values: Iterable[bytes | None],
    reader_schema: str | dict[str, Any] | None = None,
) -> pa.Array:
    """Return Avro records as an array; a struct array for records with fields.

    `pa.RecordBatch.from_struct_array` makes a record batch of a struct array.

    Args:
        registry: The registry with the schemas of the records.
        values: The bytes of records with the wire format; None for null.
        reader_schema: The schema to which all records are converted. None: the schema of the first
            record.

    Raises:
        SchemaError: A record cannot be decoded, or the schema has no Arrow type.
        RegistryError: The registry was not reached, or refused a request.
    """
    given = list(values)
    if reader_schema is None:
        first = next((value for value in given if value is not None), None)
        if first is None:
            return pa.nulls(len(given))
        schema = parse_registered(registry, registry.schema(schema_id_of(first)))
    else:
        schema = AvroSchema(schema_text(reader_schema))
    return decoded_array(AvroColumn(registry, schema), given)


def arrow_type(schema: AvroSchema) -> pa.DataType:
    """Return the Arrow type of a schema.

    Times have microseconds. A union with null is a nullable type.

    Raises:
        SchemaError: The schema is recursive, has a union of several types or too many columns.
    """
    if _columns(schema.root, schema.names, {}) > _COLUMNS_MAX:
        raise SchemaError(
            f"the Avro schema makes more than {_COLUMNS_MAX} columns; give a reader's schema with "
            f"fewer fields"
        )
    return _type(schema.root, "", schema.names, 0)


class AvroColumn(ColumnDecoder):
    """Converts the Avro records of one column.

    Args:
        registry: The registry with the schemas of the records.
        schema: The schema to which all records are converted.
        target: The type of the arrays; None for `arrow_type(schema)`.
    """

    def __init__(
        self, registry: SchemaRegistry, schema: AvroSchema, target: pa.DataType | None = None
    ) -> None:
        self.type = arrow_type(schema) if target is None else target
        self._decode = AvroDeserializer(registry, plain_text(schema))
        self._convert = _converter(schema.root, schema.names)

    def decode(self, data: bytes) -> Any:
        """Return the value of a record.

        Raises:
            SchemaError: The record cannot be decoded.
            RegistryError: The registry was not reached, or refused a request.
        """
        value = self._decode(data)
        return value if value is None or self._convert is None else self._convert(value)


def _columns(node: AvroNode, names: Mapping[str, AvroNode], known: dict[str, int]) -> int:
    """Return the number of columns within a type; `known` has those of the records so far."""
    kind, definition = node_type(node, names)
    if isinstance(definition, list):
        return sum(_columns(each, names, known) for each in definition)
    if not isinstance(definition, dict):
        return 1
    match kind:
        case "record" | "error":
            name = definition["name"]
            if name not in known:
                # A record within itself is refused for its depth.
                known[name] = 0
                fields = definition["fields"]
                known[name] = 1 + sum(_columns(each["type"], names, known) for each in fields)
            return known[name]
        case "array":
            return 1 + _columns(definition["items"], names, known)
        case "map":
            return 1 + _columns(definition["values"], names, known)
    return 1


def _type(node: AvroNode, path: str, names: Mapping[str, AvroNode], depth: int) -> pa.DataType:
    if depth > _DEPTH_MAX:
        raise SchemaError("the Avro schema is recursive, so that it has no Arrow type")
    kind, definition = node_type(node, names)
    if isinstance(definition, list):
        return _union_type(definition, path, names, depth)
    if not isinstance(definition, dict):
        return _PRIMITIVES[kind]
    match kind:
        case "record" | "error":
            below = f"{path}." if path else ""
            return pa.struct(
                [
                    (each["name"], _type(each["type"], below + each["name"], names, depth + 1))
                    for each in definition["fields"]
                ]
            )
        case "array":
            return pa.list_(_type(definition["items"], f"{path}[]", names, depth + 1))
        case "map":
            return pa.map_(
                pa.string(), _type(definition["values"], f"{path}{{}}", names, depth + 1)
            )
    if definition.get("logicalType") == "decimal":
        return _decimal_type(definition, path)
    if kind == "fixed":
        return pa.binary(definition["size"])
    return _LOGICAL.get((kind, str(definition.get("logicalType"))), _PRIMITIVES[kind])


def _union_type(
    branches: list[Any], path: str, names: Mapping[str, AvroNode], depth: int
) -> pa.DataType:
    found = {
        _type(each, path, names, depth + 1)
        for each in branches
        if node_type(each, names)[0] != "null"
    }
    if len(found) == 1:
        return found.pop()
    if not found:
        return pa.null()
    wider = _WIDER.get(frozenset(found))
    if wider is None:
        kinds = " and ".join(node_type(each, names)[0] for each in branches)
        raise SchemaError(
            f"field {path}: a union of {kinds} has no Arrow type; give a reader's schema without it"
        )
    return wider


def _decimal_type(definition: dict[str, Any], path: str) -> pa.DataType:
    digits, scale = definition.get("precision"), definition.get("scale", 0)
    if not isinstance(digits, int) or not 1 <= digits <= _DECIMAL_DIGITS_MAX:
        raise SchemaError(f"field {path}: a decimal of {digits} digits has no Arrow type")
    make = pa.decimal128 if digits <= _DECIMAL128_DIGITS_MAX else pa.decimal256
    return make(digits, scale)


def _converter(node: AvroNode, names: Mapping[str, AvroNode]) -> Callable[[Any], Any] | None:
    """Return a function that makes decoded values fit Arrow; None if they do already."""
    kind, definition = node_type(node, names)
    if isinstance(definition, list):
        converters = [_converter(each, names) for each in definition]
        # Arrow types have one branch besides null, or numbers only.
        return next((each for each in converters if each is not None), None)
    if not isinstance(definition, dict):
        return None
    if kind in ("record", "error"):
        parts = {each["name"]: _converter(each["type"], names) for each in definition["fields"]}
        needed = [(name, convert) for name, convert in parts.items() if convert is not None]
        return _record_converter(needed) if needed else None
    if kind == "array":
        item = _converter(definition["items"], names)
        return None if item is None else lambda value: [_applied(item, each) for each in value]
    if kind == "map":
        inner = _converter(definition["values"], names)
        if inner is None:
            return lambda value: list(value.items())
        return lambda value: [(name, _applied(inner, each)) for name, each in value.items()]
    if definition.get("logicalType") == "uuid":
        return lambda value: str(value) if isinstance(value, UUID) else value
    return None


def _record_converter(parts: list[tuple[str, Callable[[Any], Any]]]) -> Callable[[Any], Any]:
    def convert(value: dict[str, Any]) -> dict[str, Any]:
        for name, each in parts:
            value[name] = _applied(each, value[name])
        return value

    return convert


def _applied(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)


def plain_text(schema: AvroSchema) -> str:
    """Return the JSON text of a schema without the marks of `fastavro`."""
    return msgspec.json.encode(_plain(schema.root)).decode()


def _plain(node: Any) -> Any:
    if isinstance(node, list):
        return [_plain(each) for each in node]
    if isinstance(node, dict):
        return {key: _plain(value) for key, value in node.items() if key not in MARKS}
    return node
