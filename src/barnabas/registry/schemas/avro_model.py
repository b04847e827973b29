"""Types of an Avro schema, read from JSON by the rules of Java's parser.

Confluent's registry reads Avro with Java's `Schema.Parser` (1.12): a name may be used before it is
defined, unknown attributes are kept, wrong logical types are ignored, and the defaults of new
schemas are checked.
Source: the Avro specification 1.12, sections "Schema Declaration" and "Names".
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.registry.schemas.json_text import dump
from barnabas.registry.schemas.limits import Budget, Steps, run
from barnabas.registry.schemas.model import InvalidSchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMED = ("record", "error", "enum", "fixed")
# Attributes that are not kept as properties of a type.
_RESERVED = frozenset(
    ("doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases")
)
_FIELD_RESERVED = frozenset(("default", "doc", "name", "order", "type", "aliases"))
_ORDERS = ("ascending", "descending", "ignore")
_INT_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1
# Numbers that JSON does not have, as Java writes them; and a decimal of Java.
_NOT_FINITE = ("NaN", "Infinity")
_DECIMAL = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
# The default of a field without one; None is a default.
NO_DEFAULT = object()


@dataclass(eq=False, slots=True)
class AvroType:
    """A type. Types are compared by identity.

    Attributes:
        kind: A primitive type, or record, error, enum, fixed, array, map, union.
        name: The full name of a named type.
        inner: The types of an array's items, a map's values, a union's branches.
        is_complete: Whether all fields of a record have been read.
    """

    kind: str
    name: str = ""
    doc: str | None = None
    # Full names, in the given order.
    aliases: list[str] = field(default_factory=list)
    props: dict[str, Any] = field(default_factory=dict)
    fields: list[AvroField] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    enum_default: str | None = None
    size: int = 0
    inner: list[AvroType] = field(default_factory=list)
    is_complete: bool = True

    @property
    def namespace(self) -> str:
        """The namespace of a named type."""
        return self.name.rpartition(".")[0]

    @property
    def label(self) -> str:
        """The name that distinguishes the type from the other branches of a union."""
        return self.name or self.kind


@dataclass(eq=False, slots=True)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    doc: str | None = None
    default: Any = NO_DEFAULT
    order: str = "ascending"
    aliases: list[str] = field(default_factory=list)
    props: dict[str, Any] = field(default_factory=dict)


class AvroParser:
    """Reads schemas whose names are known to those that follow.

    Args:
        checks_defaults: Whether the default of a field must fit its type.

    Attributes:
        names: The named types by their full names.
    """

    def __init__(self, checks_defaults: bool) -> None:
        self._checks_defaults = checks_defaults
        self.names: dict[str, AvroType] = {}
        # What this schema has: names in it may be used before they are defined.
        self._lists: list[list[AvroType]] = []
        self._fields: list[AvroField] = []
        self._unions: list[AvroType] = []

    def parse(self, value: Any) -> AvroType:
        """Return the type of a JSON value.

        Raises:
            InvalidSchemaError: It is invalid.
        """
        roots = self._list([value], "")
        for types in self._lists:
            types[:] = map(self._resolved, types)
        for each in self._fields:
            each.type = self._resolved(each.type)
        for union in self._unions:
            _check_union(union)
        if self._checks_defaults:
            budget = Budget()
            for each in self._fields:
                _check_default(each, budget)
        self._lists, self._fields, self._unions = [], [], []
        return roots[0]

    def _resolved(self, type_: AvroType) -> AvroType:
        if type_.kind != "unresolved":
            return type_
        known = self.names.get(type_.name)
        if known is None:
            raise InvalidSchemaError(f"the type {type_.name} is not defined")
        return known

    def _list(self, values: Iterable[Any], namespace: str) -> list[AvroType]:
        types = [self._type(each, namespace) for each in values]
        self._lists.append(types)
        return types

    def _type(self, value: Any, namespace: str) -> AvroType:
        if isinstance(value, str):
            return self._named(value, namespace)
        if isinstance(value, list):
            union = AvroType("union", inner=self._list(value, namespace))
            self._unions.append(union)
            return union
        if not isinstance(value, dict):
            raise InvalidSchemaError(f"{_shown(value)} is not an Avro type")
        kind = value.get("type")
        if not isinstance(kind, str):
            raise InvalidSchemaError(f"an Avro type has no name of a type: {_shown(value)}")
        if kind in NAMED:
            made = self._definition(kind, value, namespace)
        elif kind in PRIMITIVES:
            made = AvroType(kind)
        elif kind in ("array", "map"):
            made = self._collection(kind, value, namespace)
        else:
            return self._named(kind, namespace)
        reserved = _RESERVED | {"default"} if kind == "enum" else _RESERVED
        made.props = {key: each for key, each in value.items() if key not in reserved}
        return made

    def _named(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        full = _full_name(name, namespace)
        known = self.names.get(full) or self.names.get(name)
        return known or AvroType("unresolved", full)

    def _collection(self, kind: str, value: dict[str, Any], namespace: str) -> AvroType:
        key = "items" if kind == "array" else "values"
        if key not in value:
            raise InvalidSchemaError(f"a type {kind} has no {key}: {_shown(value)}")
        return AvroType(kind, inner=self._list([value[key]], namespace))

    def _definition(self, kind: str, value: dict[str, Any], namespace: str) -> AvroType:
        given = _text(value, "namespace")
        made = AvroType(kind, _defined_name(value, namespace if given is None else given))
        made.doc = _text(value, "doc")
        made.aliases = [
            _checked_name(_full_name(each, made.namespace)) for each in _aliases(value, made.name)
        ]
        if kind == "enum":
            _read_enum(made, value)
        elif kind == "fixed":
            made.size = _size(value, made.name)
        else:
            made.is_complete = False
        made = self._define(made)
        if not made.is_complete:
            self._read_fields(made, value)
            made.is_complete = True
        return made

    def _define(self, made: AvroType) -> AvroType:
        if made.name in PRIMITIVES:
            raise InvalidSchemaError(f"a type must not have the name {made.name} of a primitive")
        known = self.names.setdefault(made.name, made)
        if known is not made and _outline(known) != _outline(made):
            raise InvalidSchemaError(f"the type {made.name} is defined twice")
        return made

    def _read_fields(self, record: AvroType, value: dict[str, Any]) -> None:
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchemaError(f"the record {record.name} has no fields")
        seen: set[str] = set()
        for each in fields:
            if not isinstance(each, dict):
                raise InvalidSchemaError(f"a field of {record.name} is no object: {_shown(each)}")
            made = self._field(each, record)
            if made.name in seen:
                raise InvalidSchemaError(f"the record {record.name} has two fields {made.name}")
            seen.add(made.name)
            record.fields.append(made)
            self._fields.append(made)

    def _field(self, value: dict[str, Any], record: AvroType) -> AvroField:
        name = _text(value, "name")
        if name is None:
            raise InvalidSchemaError(f"a field of {record.name} has no name")
        if not _is_name(name):
            raise InvalidSchemaError(f"{name!r} is not the name of a field ({record.name})")
        if value.get("type") is None:
            raise InvalidSchemaError(f"the field {name} of {record.name} has no type")
        made = AvroField(name, self._type(value["type"], record.namespace), _text(value, "doc"))
        made.default = value.get("default", NO_DEFAULT)
        if made.type.kind in ("float", "double") and isinstance(made.default, str):
            made.default = _number(made.default)
        if "order" in value:
            made.order = (_text(value, "order") or "").lower()
            if made.order not in _ORDERS:
                shown = _shown(value["order"])
                raise InvalidSchemaError(f"the field {name} of {record.name} has the order {shown}")
        made.aliases = _aliases(value, f"{record.name}.{name}")
        made.props = {key: each for key, each in value.items() if key not in _FIELD_RESERVED}
        return made


def _shown(value: Any) -> str:
    return dump(value)[:200]


def _text(value: dict[str, Any], key: str) -> str | None:
    found = value.get(key)
    return found if isinstance(found, str) else None


def _number(text: str) -> float | str:
    """Return a number that a default has as a text, as Java does; NaN and infinity as texts."""
    word = text.strip().removeprefix("+")
    if word.removeprefix("-") in _NOT_FINITE:
        return word
    value = float(word) if _DECIMAL.fullmatch(word) else None
    if value is None:
        return text
    return value if math.isfinite(value) else f"{'-' * (value < 0)}Infinity"


def _is_name(name: str) -> bool:
    return bool(name) and (name[0].isalpha() or name[0] == "_") and name.replace("_", "a").isalnum()


def _full_name(name: str, namespace: str) -> str:
    if "." in name:
        # ".Name" is a name without a namespace.
        return name.lstrip(".") if name.rpartition(".")[0] == "" else name
    return f"{namespace}.{name}" if namespace else name


def _defined_name(value: dict[str, Any], namespace: str) -> str:
    name = _text(value, "name")
    if name is None:
        raise InvalidSchemaError(f"a type has no name: {_shown(value)}")
    return _checked_name(_full_name(name, namespace))


def _checked_name(full: str) -> str:
    if not all(map(_is_name, full.split("."))):
        raise InvalidSchemaError(f"{full!r} is not the name of a type")
    return full


def _aliases(value: dict[str, Any], name: str) -> list[str]:
    aliases = value.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(each, str) for each in aliases):
        raise InvalidSchemaError(f"the aliases of {name} are not a list of names")
    return list(dict.fromkeys(aliases))


def _read_enum(made: AvroType, value: dict[str, Any]) -> None:
    symbols = value.get("symbols")
    if not isinstance(symbols, list):
        raise InvalidSchemaError(f"the enum {made.name} has no symbols")
    for each in symbols:
        if not isinstance(each, str) or not _is_name(each):
            raise InvalidSchemaError(f"{_shown(each)} is not a symbol of an enum ({made.name})")
    if len(set(symbols)) < len(symbols):
        raise InvalidSchemaError(f"the enum {made.name} has a symbol twice")
    made.symbols = symbols
    made.enum_default = _text(value, "default")
    if made.enum_default is not None and made.enum_default not in symbols:
        raise InvalidSchemaError(
            f"the default {made.enum_default!r} of the enum {made.name} is not one of its symbols"
        )


def _size(value: dict[str, Any], name: str) -> int:
    size = value.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _INT_MAX:
        raise InvalidSchemaError(f"the type {name} has no valid size: {_shown(size)}")
    return size


def _outline(type_: AvroType) -> tuple[Any, ...]:
    """Return what two definitions of one name must share; a record is never defined twice."""
    if type_.kind in ("record", "error"):
        return (id(type_),)
    return (type_.kind, type_.symbols, type_.size)


def _check_union(union: AvroType) -> None:
    seen: set[str] = set()
    for each in union.inner:
        if each.kind == "union":
            raise InvalidSchemaError("a union must not have a union as a branch")
        if each.label in seen:
            raise InvalidSchemaError(f"a union has the type {each.label} twice")
        seen.add(each.label)


def _check_default(checked: AvroField, budget: Budget) -> None:
    if checked.default is NO_DEFAULT:
        return
    if not run(_fits(checked.type, checked.default, budget)):
        raise InvalidSchemaError(
            f"the default {_shown(checked.default)} of the field {checked.name} does not fit its "
            f"type {checked.type.label}"
        )


def _fits(type_: AvroType, value: Any, budget: Budget) -> Steps[bool]:
    """Return whether a JSON value can be a default of a type."""
    budget.spend()
    match type_.kind:
        case "union":
            for each in type_.inner:
                if (yield _fits(each, value, budget)):
                    return True
            return False
        case "array":
            values = value if isinstance(value, list) else None
        case "map":
            values = list(value.values()) if isinstance(value, dict) else None
        case "record" | "error":
            fits: bool = yield _record_fits(type_, value, budget)
            return fits
        case kind:
            return _primitive_fits(kind, value)
    for each in values or ():
        if not (yield _fits(type_.inner[0], each, budget)):
            return False
    return values is not None


def _record_fits(type_: AvroType, value: Any, budget: Budget) -> Steps[bool]:
    if not isinstance(value, dict):
        return False
    for each in type_.fields:
        given = value.get(each.name, each.default)
        if given is NO_DEFAULT or not (yield _fits(each.type, given, budget)):
            return False
    return True


def _primitive_fits(kind: str, value: Any) -> bool:
    if isinstance(value, bool) or kind == "boolean":
        return isinstance(value, bool) and kind == "boolean"
    match kind:
        case "null":
            return value is None
        case "int":
            return isinstance(value, int) and -_INT_MAX - 1 <= value <= _INT_MAX
        case "long":
            return isinstance(value, int) and -_LONG_MAX - 1 <= value <= _LONG_MAX
        case "float" | "double":
            if isinstance(value, str):
                return value.lstrip("-") in _NOT_FINITE
            return isinstance(value, int | float) and math.isfinite(value)
    return isinstance(value, str)
