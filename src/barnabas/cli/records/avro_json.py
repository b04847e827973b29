"""JSON values as the values that Avro's logical types and bytes need.

`barnabas consume` prints times as ISO text, decimals and UUIDs as text, and bytes as base64. This
is the way back. A union may also be written in Avro's own JSON form: {"string": "JFK"}.
"""

from __future__ import annotations

import base64
import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from barnabas.serializers.avro.schema import node_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.serializers.avro.schema import AvroNode, AvroSchema


_LOGICAL: dict[str, Callable[[str], Any]] = {
    "timestamp-millis": dt.datetime.fromisoformat,
    "timestamp-micros": dt.datetime.fromisoformat,
    "local-timestamp-millis": dt.datetime.fromisoformat,
    "local-timestamp-micros": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "time-millis": dt.time.fromisoformat,
    "time-micros": dt.time.fromisoformat,
    "decimal": Decimal,
    "uuid": UUID,
}
_NUMBERS = (int, float)
_FITTING: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int, dt.date, dt.time),
    "long": (int, dt.datetime, dt.time),
    "float": _NUMBERS,
    "double": _NUMBERS,
    "string": (str, UUID),
    "bytes": (bytes, Decimal),
    "fixed": (bytes, Decimal, UUID),
    "enum": (str,),
    "record": (dict,),
    "error": (dict,),
    "map": (dict,),
    "array": (list,),
}


def avro_value(value: Any, schema: AvroSchema) -> Any:
    """Return a JSON value in the form that the schema needs.

    What does not fit stays as it is: the serializer's error then names the field.
    """
    return _Conversion(schema).convert(value, schema.root)


class _Conversion:
    """The conversion of values of one schema."""

    def __init__(self, schema: AvroSchema) -> None:
        self._names = schema.names

    def convert(self, value: Any, node: AvroNode) -> Any:
        """Return the value of a part of the schema."""
        kind, definition = node_type(node, self._names)
        if isinstance(definition, list):
            return self._convert_union(value, definition)
        if isinstance(value, str):
            return _from_text(value, kind, definition)
        if not isinstance(definition, dict):
            return value
        if kind in ("record", "error") and isinstance(value, dict):
            types = {field["name"]: field["type"] for field in definition["fields"]}
            return {
                name: self.convert(part, types[name]) if name in types else part
                for name, part in value.items()
            }
        if kind == "array" and isinstance(value, list):
            return [self.convert(part, definition["items"]) for part in value]
        if kind == "map" and isinstance(value, dict):
            return {name: self.convert(part, definition["values"]) for name, part in value.items()}
        return value

    def _convert_union(self, value: Any, branches: list[Any]) -> Any:
        """Return the value of the first branch that fits."""
        if isinstance(value, dict) and len(value) == 1:
            [(name, inner)] = value.items()
            for branch in branches:
                if name in self._branch_names(branch):
                    return self.convert(inner, branch)
        for branch in branches:
            kind = node_type(branch, self._names)[0]
            made = self.convert(value, branch)
            if isinstance(made, _FITTING[kind]) and isinstance(made, bool) == (kind == "boolean"):
                return made
        return value

    def _branch_names(self, branch: AvroNode) -> set[str]:
        kind, definition = node_type(branch, self._names)
        if isinstance(definition, dict) and "name" in definition:
            return {definition["name"], definition["name"].rpartition(".")[2]}
        return {kind}


def _from_text(value: str, kind: str, definition: AvroNode) -> Any:
    logical = definition.get("logicalType") if isinstance(definition, dict) else None
    parse = _LOGICAL.get(str(logical))
    if parse is None and kind in ("bytes", "fixed"):
        parse = base64.b64decode
    if parse is None:
        return value
    try:
        return parse(value)
    except (ValueError, ArithmeticError):
        return value
