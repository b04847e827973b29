"""Which field of a value does not fit an Avro schema; `fastavro` names only the innermost name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastavro.validation import validate

from barnabas.serializers.avro.resolution import Mismatch
from barnabas.serializers.avro.schema import node_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.serializers.avro.schema import AvroNode, AvroSchema

__all__ = ["find_unfit"]

_SHOWN_CHARACTERS = 80
_ERRORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
# Types of values that may have fields or items of their own.
_NESTED = {"record": dict, "error": dict, "map": dict, "array": list}


def find_unfit(value: Any, schema: AvroSchema) -> Mismatch | None:
    """Return the first part of a value that does not fit; None if none is found."""
    try:
        return _find(value, schema.root, "", schema.names)
    except _ERRORS:
        return None


def _find(value: Any, node: AvroNode, path: str, names: Mapping[str, AvroNode]) -> Mismatch | None:
    kind, definition = node_type(node, names)
    if isinstance(definition, list):
        return _find_in_union(value, definition, path, names)
    if kind not in _NESTED or not isinstance(definition, dict):
        fits = validate(value, definition, raise_errors=False)
        return None if fits else _mismatch(value, [_name(definition)], path)
    if not isinstance(value, _NESTED[kind]):
        return _mismatch(value, [_name(definition)], path)
    if kind == "array":
        parts = [(f"{path}[{n}]", part, definition["items"]) for n, part in enumerate(value)]
    elif kind == "map":
        parts = [(f"{path}{{{n}}}", part, definition["values"]) for n, part in value.items()]
    else:
        fields = {field["name"]: field for field in definition["fields"]}
        below = f"{path}." if path else ""
        for name, field in fields.items():
            if name not in value and "default" not in field:
                return Mismatch(f"{below}{name}", "it is missing, and has no default")
        for name in value:
            if name not in fields:
                return Mismatch(f"{below}{name}", "the schema has no such field")
        parts = [(f"{below}{n}", part, fields[n]["type"]) for n, part in value.items()]
    found = (_find(part, inner, place, names) for place, part, inner in parts)
    return next((each for each in found if each is not None), None)


def _find_in_union(
    value: Any, branches: list[Any], path: str, names: Mapping[str, AvroNode]
) -> Mismatch | None:
    found = [_find(value, branch, path, names) for branch in branches]
    if None in found:
        return None
    # A branch that fits but for a part of it says more than the list of branches.
    inner = [each for each in found if each is not None and each.field != path]
    if inner:
        return inner[0]
    return _mismatch(value, [_name(node_type(each, names)[1]) for each in branches], path)


def _mismatch(value: Any, wanted: list[str], path: str) -> Mismatch:
    return Mismatch(path, f"{repr(value)[:_SHOWN_CHARACTERS]} is not {' or '.join(wanted)}")


def _name(definition: AvroNode) -> str:
    if isinstance(definition, dict):
        return str(definition.get("name") or definition.get("logicalType") or definition["type"])
    return str(definition)
