"""Texts of an Avro schema: the canonical one, and the schema that `normalize=true` makes.

The canonical text is the one of Java's `Schema.toString()`: all that the schema says, without
white space, in Java's order of attributes, and each named type defined where it is used first.
Confluent's normalization sorts what has no order (aliases, properties, the keys of defaults), and
omits empty documentation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from barnabas.registry.schemas.avro_model import NAMED, NO_DEFAULT, AvroField, AvroType
from barnabas.registry.schemas.json_text import check_depth, dump, java_double

if TYPE_CHECKING:
    from collections.abc import Iterable

# The base types of logical types that Java knows; it ignores a logical type of another base type.
_LOGICAL_BASES = {
    "decimal": ("bytes", "fixed"),
    "big-decimal": ("bytes",),
    "uuid": ("string", "fixed"),
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
    "duration": ("fixed",),
}


def canonical_text(root: AvroType, defined: Iterable[str] = ()) -> str:
    """Return the canonical text.

    Args:
        root: The schema.
        defined: Names of types that are not defined again.

    Raises:
        InvalidSchemaError: The types are nested too deep.
    """
    value = _Builder(set(defined)).value(root, "")
    # It may be deeper than the given text, which may use a type before it defines it.
    check_depth(value)
    return dump(value, number=java_double)


def normalized_text(root: AvroType, defined: Iterable[str] = ()) -> str:
    """Return the text of the normalized schema, in its canonical form."""
    return canonical_text(_Normalizer().type(root), defined)


class _Builder:
    """Makes the JSON value of a schema.

    Args:
        known: Full names of the types that are defined already.
    """

    def __init__(self, known: set[str]) -> None:
        self._known = known

    def value(self, type_: AvroType, namespace: str) -> Any:
        """Return a type within a namespace."""
        if type_.kind == "union":
            return [self.value(each, namespace) for each in type_.inner]
        if type_.kind in NAMED:
            return self._named(type_, namespace)
        made: dict[str, Any] = {"type": type_.kind}
        if type_.kind in ("array", "map"):
            key = "items" if type_.kind == "array" else "values"
            made[key] = self.value(type_.inner[0], namespace)
        elif not type_.props:
            return type_.kind
        return made | type_.props

    def _named(self, type_: AvroType, namespace: str) -> Any:
        if type_.name in self._known:
            return _short(type_.name, namespace)
        self._known.add(type_.name)
        made: dict[str, Any] = {"type": type_.kind, "name": type_.name.rpartition(".")[2]}
        if type_.namespace != namespace:
            made["namespace"] = type_.namespace
        if type_.doc is not None:
            made["doc"] = type_.doc
        if type_.kind == "enum":
            made["symbols"] = type_.symbols
            if type_.enum_default is not None:
                made["default"] = type_.enum_default
        elif type_.kind == "fixed":
            made["size"] = type_.size
        else:
            made["fields"] = [self._field(each, type_.namespace) for each in type_.fields]
        made |= type_.props
        if type_.aliases:
            made["aliases"] = [_short(each, type_.namespace) for each in type_.aliases]
        return made

    def _field(self, field: AvroField, namespace: str) -> dict[str, Any]:
        made: dict[str, Any] = {"name": field.name, "type": self.value(field.type, namespace)}
        if field.doc is not None:
            made["doc"] = field.doc
        if field.default is not NO_DEFAULT:
            made["default"] = field.default
        if field.order != "ascending":
            made["order"] = field.order
        if field.aliases:
            made["aliases"] = field.aliases
        return made | field.props


class _Normalizer:
    """Makes the normalized copy of a schema; each type once, as types may contain themselves."""

    def __init__(self) -> None:
        self._made: dict[int, AvroType] = {}

    def type(self, type_: AvroType) -> AvroType:
        """Return the copy of a type."""
        known = self._made.get(id(type_))
        if known is not None:
            return known
        made = replace(
            type_,
            doc=type_.doc or None,
            aliases=sorted(type_.aliases),
            props=_sorted_props(type_),
            fields=[],
        )
        self._made[id(type_)] = made
        made.fields = [self._field(each) for each in type_.fields]
        made.inner = [self.type(each) for each in type_.inner]
        return made

    def _field(self, field: AvroField) -> AvroField:
        default = field.default
        if default is not NO_DEFAULT:
            default = _normalized_default(field.type, default)
        return replace(
            field,
            type=self.type(field.type),
            default=default,
            aliases=sorted(field.aliases),
            props=dict(sorted(_sorted_keys(field.props).items())),
        )


def _short(name: str, namespace: str) -> str:
    """Return a name as it is written within a namespace."""
    inner_namespace, _, short = name.rpartition(".")
    return short if inner_namespace == namespace else name


def _sorted_props(type_: AvroType) -> dict[str, Any]:
    """Return the properties: those of the logical type, then the others by name."""
    props: dict[str, Any] = {}
    logical = type_.props.get("logicalType")
    if isinstance(logical, str) and type_.kind in _LOGICAL_BASES.get(logical, ()):
        for key in (
            ("logicalType", "precision", "scale") if logical == "decimal" else ("logicalType",)
        ):
            if key in type_.props:
                props[key] = type_.props[key]
    return props | dict(sorted(_sorted_keys(type_.props).items()))


def _sorted_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted_keys(each) for key, each in sorted(value.items())}
    if isinstance(value, list):
        return [_sorted_keys(each) for each in value]
    return value


def _normalized_default(type_: AvroType, value: Any) -> Any:
    """Return a default as Java writes it again: an integer of a float or double as 1.0."""
    kind = type_.inner[0].kind if type_.kind == "union" and type_.inner else type_.kind
    if kind in ("float", "double") and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return _sorted_keys(value)
